"""Classifiers that give the class of the nearest prototype: probabilities, and what explains them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from deepsimplex._utils.validation import check_whole
from deepsimplex.estimators.prototypes import PrototypeClassifier
from deepsimplex.prototypes import (
    Explanation,
    Learned,
    fitted_temperature,
    nearest_of_classes,
    relative_scores,
    squared_distances,
)


class NearestPrototypeClassifier(PrototypeClassifier):
    """A classifier by prototypes that gives the class of the nearest.

    Attributes
    ----------
    wins_ : ndarray, shape [P]
        Training samples that each prototype is the nearest of.
    temperature_ : float
        Of the probabilities.
    """

    def _keep_decision(
        self, learned: Learned, labels: NDArray[np.int64], X: NDArray[np.float64], y: NDArray[np.int64]
    ) -> None:
        self.prototype_labels_ = self.classes_[labels]
        self._keep_metric(learned)
        distances = squared_distances(X, learned.prototypes, learned.omega)
        self.wins_ = np.bincount(np.argmin(distances, axis=1), minlength=len(labels))
        nearest, _ = nearest_of_classes(distances, labels, len(self.classes_))
        self.temperature_ = fitted_temperature(relative_scores(nearest), y)

    def _keep_metric(self, learned: Learned) -> None:
        """What was learned beside the prototypes."""

    @property
    def _omega(self) -> NDArray[np.float64] | None:
        return None

    def _distances(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared distances [N, P] of scaled features."""
        return squared_distances(X, self._scaling(self.prototypes_), self._omega)

    def _nearest(self, distances: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        return nearest_of_classes(distances, self._labels, len(self.classes_))

    def _scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        nearest, _ = self._nearest(self._distances(X))
        return relative_scores(nearest) / self.temperature_

    def explain(self, X: ArrayLike, k: int = 3) -> Explanation:
        """The k nearest prototypes of every row, and their weight in the decision.

        Parameters
        ----------
        X : array_like, shape [N, d]
        k : int
            Default 3; all prototypes where there are no more.

        Returns
        -------
        Explanation
        """
        check_whole(k, "k", 1)
        features = self._scaled(X)
        distances = self._distances(features)
        _, which = self._nearest(distances)
        p = softmax(self._calibrated_scores(features), axis=1)
        weights = np.zeros_like(distances)
        for label in np.unique(self._labels):
            weights[np.arange(len(weights)), which[:, label]] = p[:, label]
        return Explanation.of(distances, weights, self.prototype_labels_, k)
