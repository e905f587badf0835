"""What the classifiers by prototypes share: the fit, and what its answers are made of."""

import copy
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, softmax
from sklearn.utils.validation import check_is_fitted, validate_data

from deepsimplex._utils.scaling import Scaling
from deepsimplex._utils.stacklevel import callers_stacklevel
from deepsimplex._utils.validation import check_whole
from deepsimplex.estimators.learning import LearningClassifier
from deepsimplex.estimators.saving import save_classifier
from deepsimplex.estimators.seeds import RandomState, seed_of
from deepsimplex.estimators.step import Callback, ClassifierStep
from deepsimplex.prototypes import Explanation, Learned, initial_prototypes

Report = Callable[[Learned], None]


class PrototypeClassifier(LearningClassifier):
    """A scikit-learn classifier by prototypes of the classes.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        In the order of the columns of probabilities.
    prototypes_ : ndarray, shape [P, d]
        In the units of the features.
    prototype_labels_ : ndarray, shape [P]
        Their classes, as named in ``classes_``.
    wins_ : ndarray, shape [P]
        Training samples that each prototype is the nearest of.
    center_, width_ : ndarray, shape [d]
        Features are compared as (x - center_) / width_.
    n_iter_ : int
        Iterations, or epochs.
    n_features_in_ : int
    """

    prototypes_per_class: int
    initialization: str
    scale_features: bool
    random_state: RandomState
    _learned_as: ClassVar[str] = "prototypes_"

    @abstractmethod
    def _check_settings(self, num_features: int) -> None:
        """Raise ValueError for settings that are none."""

    @abstractmethod
    def _learn(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        W: NDArray[np.float64],
        labels: NDArray[np.int64],
        rng: np.random.Generator,
        report: Report | None,
    ) -> Learned:
        """Move prototypes W [P, d] of scaled features, of at least two classes."""

    @abstractmethod
    def _keep_decision(
        self, learned: Learned, labels: NDArray[np.int64], X: NDArray[np.float64], y: NDArray[np.int64]
    ) -> None:
        """Keep what is decided by, and ``prototype_labels_`` and ``wins_``, of scaled features X and classes y."""

    @abstractmethod
    def _scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithms of the class probabilities [N, n] of scaled features [N, d], but for a sum that is one."""

    def _look_at(self, X: NDArray[np.float64]) -> None:
        """Take from scaled features [N, d] what prototypes are moved by, where that is anything."""

    def fit(self, X: ArrayLike, y: ArrayLike, callback: Callback | None = None) -> Self:
        """Learn from features X [N, d] and labels y [N].

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N]
            Labels of any kind. Soft labels are refused: a prototype has one class.
        callback : callable, optional
            Called with a ``deepsimplex.estimators.ClassifierStep`` after every iteration, or epoch. If it has a method
            ``fit_ended``, that is called with the fitted classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that ``classes`` does not name, a single class, soft labels, and settings that are none.

        Warns
        -----
        UserWarning
            When prototypes are the nearest of no training sample.
        """
        with self._fitting():
            features, labels = self._checked(X, y)
            if labels.memberships.ndim == 2:
                raise ValueError(
                    "y must hold one label for every row: prototypes have one class each; found soft labels of shape "
                    f"{labels.memberships.shape}. np.argmax(y, axis=1) takes the likeliest"
                )
            check_whole(self.prototypes_per_class, "prototypes_per_class", 1)
            self._check_settings(features.shape[1])
            rng = np.random.default_rng(seed_of(self.random_state))
            scaling = Scaling.of_features(features)
            if not self.scale_features:
                scaling = Scaling(scaling.center, np.ones_like(scaling.width))
            self._learn_scaled(scaling, features, labels.memberships, rng, callback)
        self._tell_end(callback)
        self._report_idle()
        return self

    def _report_idle(self) -> None:
        """Warn of prototypes that are the nearest of no training sample, and of classes that have no other."""
        idle = self.wins_ == 0
        if not idle.any():
            return
        busy = self.prototype_labels_[~idle]
        given_up = [label for label in np.unique(self.prototype_labels_).tolist() if label not in busy]
        reason = (
            f"prototypes_per_class={self.prototypes_per_class} may be more than the classes need; wins_ counts"
            if not given_up
            else f"classes {given_up} are hardly ever predicted. They may be few beside the others, for which GMLVQ, "
            "LVQ1 or more prototypes may do better"
        )
        warnings.warn(
            f"prototypes {np.flatnonzero(idle).tolist()} are the nearest of no training sample: {reason}",
            UserWarning,
            stacklevel=callers_stacklevel(),
        )

    def _learn_scaled(
        self,
        scaling: Scaling,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        rng: np.random.Generator,
        callback: Callback | None,
    ) -> None:
        scaled = scaling(X)
        self._look_at(scaled)
        W, labels = initial_prototypes(scaled, y, self.prototypes_per_class, self.initialization, rng)

        def report(learned: Learned) -> None:
            assert callback is not None
            callback(
                ClassifierStep(
                    learned.iterations,
                    learned.objective,
                    {} if learned.omega is None else {"relevance": np.sum(np.square(learned.omega), axis=0)},
                    len(X),
                    lambda: copy.copy(self)._keep(learned, labels, scaling, scaled, y),
                )
            )

        if labels[0] == labels[-1]:  # of one class alone there is nothing to tell
            learned = self._unmoved(W)
        else:
            learned = self._learn(scaled, y, W, labels, rng, None if callback is None else report)
        self._keep(learned, labels, scaling, scaled, y)

    def _unmoved(self, W: NDArray[np.float64]) -> Learned:
        return Learned(W, None, 0.0, 0)

    def _keep(
        self,
        learned: Learned,
        labels: NDArray[np.int64],
        scaling: Scaling,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
    ) -> Self:
        """Predict by what was learned from scaled features X and the numbers y of their classes."""
        self.center_, self.width_ = scaling.center, scaling.width
        self.n_iter_ = learned.iterations
        self._keep_decision(learned, labels, X, y)
        self.prototypes_ = scaling.undo(learned.prototypes)
        return self

    def _scaled(self, X: ArrayLike) -> NDArray[np.float64]:
        """Features [N, d] as prototypes are compared with them."""
        check_is_fitted(self)
        return self._scaling(validate_data(self, X, dtype=np.float64, reset=False))

    @property
    def _scaling(self) -> Scaling:
        return Scaling(self.center_, self.width_)

    @property
    def _labels(self) -> NDArray[np.int64]:
        """Numbers of the prototypes' classes."""
        return np.argmax(self.prototype_labels_[:, None] == self.classes_, axis=1)

    def _calibrated_scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """What ``_scores`` gives, or logarithms of calibrated probabilities where there is a calibration."""
        scores = self._scores(X)
        return self._calibrated_logarithms(softmax(scores, axis=1)) if self._maps_probabilities else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every row, shape [N]."""
        scores = self._calibrated_scores(self._scaled(X))
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities [N, n], columns as ``classes_``; zero for a class that had no samples."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Their logarithms [N, n]."""
        return log_softmax(self._calibrated_scores(self._scaled(X)), axis=1)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-odds: of the second class for two, shape [N], else of every class against the mean, [N, n].

        The largest is the class that ``predict`` gives. A class that had no samples has minus infinity, and no share
        in the mean.
        """
        scores = self._calibrated_scores(self._scaled(X))
        if len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores - scores[:, np.unique(self._labels)].mean(axis=1, keepdims=True)

    @abstractmethod
    def explain(self, X: ArrayLike, k: int = 3) -> Explanation:
        """The k nearest prototypes of every row, and their weight in the decision."""

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Write the classifier to one ``.npz`` file, without a pickle; ``load_classifier`` brings it back.

        Parameters
        ----------
        filepath : path-like
            Ends in .npz and may begin with ``~``; replaced whole or not at all.

        Raises
        ------
        ValueError
            Before anything is written: for another ending, and for what no file holds, as a random generator.
        OSError
            When the file cannot be written; an earlier one survives.
        """
        check_is_fitted(self)
        save_classifier(self, filepath)
