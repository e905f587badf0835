"""What the scikit-learn classifiers share: labels become latents, a regressor learns them, a readout reads them out."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from deepsimplex.estimators.labels import Labels
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import ClassIntervals, argmax, class_intervals, decision_function, softmax
from deepsimplex.readout.registry import named_readout
from deepsimplex.targets import get_target

_READ = {"argmax": argmax, "softmax": softmax}


class LatentClassifier(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier made of a target, a regressor and a readout.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        In the order of the columns of probabilities.
    target_ : Target
        As fitted.
    n_features_in_ : int
    """

    target: Any
    readout: str | None
    classes: ArrayLike | None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels, for targets made from labels alone: rows that sum to one.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that ``classes`` does not name, a single class, and what the target refuses.
        """
        X = np.asarray(validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2), dtype=np.float64)
        labels = Labels.of(y, self.classes)
        if len(labels.memberships) != len(X):
            raise ValueError(f"X and y must have as many rows; found {len(X)} and {len(labels.memberships)}")
        if self.readout is not None:
            named_readout(self.readout)
        self.classes_ = labels.classes
        self._fit(X, labels)
        return self

    @abstractmethod
    def _fit(self, X: NDArray[np.float64], labels: Labels) -> None:
        """Set ``target_`` and whatever ``_latents`` needs."""

    @abstractmethod
    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Latents of checked features."""

    def _observations(self, target: Any, X: NDArray[np.float64], labels: Labels) -> LatentGaussian:
        """Latents of the training samples by a copy of the target, which becomes ``target_``."""
        self.target_ = get_target(get_target(target).get_config())
        return self.target_.fit_transform(X, labels.memberships, num_classes=len(labels.classes))

    @property
    def _reading(self) -> str:
        return self.readout or self.target_.default_readout

    def predict_latent(self, X: ArrayLike) -> LatentGaussian:
        """The latent Gaussians of features X [N, d], without observation noise."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._latents(np.asarray(X, dtype=np.float64))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities [N, n], columns as ``classes_``."""
        latent = self.predict_latent(X)
        return _READ[self._reading](latent, self.target_.scores_)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Their logarithms, computed in log space: they do not underflow."""
        latent = self.predict_latent(X)
        return _READ[self._reading](latent, self.target_.scores_, log=True)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every row, shape [N]."""
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def decision_function(self, X: ArrayLike, pair: tuple[Any, Any] | None = None) -> NDArray[np.float64]:
        """How far every row is from the decision between classes.

        Parameters
        ----------
        X : array_like, shape [N, d]
        pair : (class, class), optional
            Two of ``classes_``: the signed distance of the latent mean from the boundary between them, positive on the
            side of the first [CASIMAC Eq. 40].

        Returns
        -------
        ndarray, shape [N] or [N, n]
            Without a pair, log-odds: of the second class for two, else of every class against their geometric mean.
            The largest is the class that ``predict`` gives.
        """
        if pair is not None:
            first, second = (self._number(label) for label in pair)
            return np.asarray(decision_function(self.predict_latent(X), first, second, self.target_.scores_))
        logarithms = self.predict_log_proba(X)
        if len(self.classes_) == 2:
            return logarithms[:, 1] - logarithms[:, 0]
        return logarithms - logarithms.mean(axis=1, keepdims=True)

    def class_intervals(self, X: ArrayLike, level: float = 0.95) -> ClassIntervals:
        """Lower and upper ends [N, n] of class probabilities: see ``deepsimplex.readout.class_intervals``."""
        latent = self.predict_latent(X)
        return class_intervals(latent, level, self.target_.scores_, self._reading)

    def _number(self, label: Any) -> int:
        found = np.flatnonzero(self.classes_ == label)
        if not len(found):
            raise ValueError(f"pair must hold two of classes_, {self.classes_.tolist()}; found {label!r}")
        return int(found[0])
