"""Base class of the scikit-learn classifiers with prototypes: LVQ and GPLVQ."""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, softmax
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from deepsimplex import kernels
from deepsimplex._utils.messages import listed, warn_caller
from deepsimplex._utils.validation import check_flag, check_number, check_whole
from deepsimplex.calibration.unknown_score import are_unknown, known_quantiles, share_more_known
from deepsimplex.estimators.calibrated_classifier import (
    CalibratedClassifier,
    Callback,
    ClassifierStep,
    RandomState,
    floored,
    seed_of,
)
from deepsimplex.estimators.checked_data import checked_rows
from deepsimplex.estimators.saving import Saved
from deepsimplex.heads.prototype_initialization import Initialization
from deepsimplex.heads.prototype_layer import Explanation
from deepsimplex.heads.prototype_scores import floored_relative_scores
from deepsimplex.prototypes import PrototypeFit, initial_prototypes
from deepsimplex.prototypes.class_scores import (
    FARTHEST,
    finite_squared_distances,
    fitted_temperature,
    members,
    nearest_of_classes,
    relative_scores,
)


@dataclass(eq=False, repr=False)
class PrototypeClassifier(Saved, CalibratedClassifier):
    """A scikit-learn classifier that predicts the class of the nearest prototype, unless a subclass overrides this.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        In the order of the columns of probabilities.
    prototypes_ : ndarray, shape [P, d]
        In the units of the features.
    prototype_labels_ : ndarray, shape [P]
        Their classes, as named in ``classes_``.
    wins_ : ndarray, shape [P]
        Number of training samples to which each prototype is the nearest.
    center_, width_ : ndarray, shape [d]
        Features are compared as (x - center_) / width_.
    objective_ : float
        Final cost, a sum over the training samples.
    n_iter_ : int
        Iterations, or epochs.
    n_features_in_ : int
    known_quantiles_ : ndarray, shape [1000]
        Only after ``fit_unknown``.
    """

    # Arguments of all constructors; subclasses add others.
    prototypes_per_class: int | Mapping[Any, int] | Sequence[int] = 1
    _: KW_ONLY
    initialization: Initialization = "means"
    scale_features: bool = True
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    classes: ArrayLike | None = None
    random_state: RandomState = 0
    _fitted_attribute: ClassVar[str] = "prototypes_"

    @abstractmethod
    def _fit_prototypes(self, X: Any, y: Any, W: Any, labels: Any, rng: Any, **options: Any) -> PrototypeFit:
        """Fit to scaled features and class numbers, from initial prototypes and their class numbers.

        The options are ``weights`` and ``report`` of ``deepsimplex.prototypes.fit_lvq``.
        """

    def _parameters(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, callback: Callback | None = None
    ) -> Self:
        """Fit to features X [N, d] and labels y [N].

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N]
            Labels of any type; not soft ones, since a prototype has one class.
        sample_weight : array_like, shape [N], optional
            Weights of the samples in the cost, or of the steps that online algorithms take, times those of their
            classes. Samples of weight 0 are left out.
        callback : callable, optional
            Called with a ``deepsimplex.estimators.ClassifierStep`` after every iteration, or epoch. If it has a method
            ``fit_ended``, that is called with the fitted classifier.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that ``classes`` does not name, a single class, soft labels and invalid parameters.

        Warns
        -----
        UserWarning
            If a prototype is the nearest to no training sample.
        """
        with self._fitting():
            self.fit_unknown(None)
            features, y_checked, weights = self._checked(X, y, sample_weight, self.class_weight)
            numbers = y_checked.values
            if numbers.ndim == 2:
                raise ValueError(f"y must hold one label for every row; found soft labels of shape {numbers.shape}")
            counts = self._prototype_counts()
            rng = np.random.default_rng(seed_of(self.random_state))
            scaler = StandardScaler().fit(features, sample_weight=weights)
            self.center_, self.width_ = scaler.mean_, scaler.scale_
            if not check_flag(self.scale_features, "scale_features"):
                self.width_ = np.ones_like(scaler.mean_)
            scaled = self._scale(features)
            W, labels = initial_prototypes(scaled, numbers, counts, self.initialization, rng, weights)

            def report(state: PrototypeFit) -> None:
                assert callback is not None
                relevance = {} if state.omega is None else {"relevance": _relevance(state.omega)}
                make = partial(copy.copy(self)._keep, state, labels, scaled, numbers, weights)
                callback(ClassifierStep(state.n_iter, state.objective, relevance, len(scaled), make))

            watch = None if callback is None else report
            end = self._fit_prototypes(scaled, numbers, W, labels, rng, weights=weights, report=watch)
            self._keep(end, labels, scaled, numbers, weights)
        self._report_end(callback)
        self._warn_of_idle_prototypes()
        return self

    def _prototype_counts(self) -> list[int]:
        """Return the number of prototypes of every class, [n], in the order of ``classes_``."""
        given, classes = self.prototypes_per_class, self.classes_.tolist()
        if isinstance(given, Mapping):
            if unknown := [name for name in given if name not in classes]:
                raise ValueError(f"prototypes_per_class must name classes, {listed(classes)}; found {unknown[0]!r}")
            given = [given.get(name, 1) for name in classes]
        elif not np.iterable(given) or isinstance(given, str):
            given = [given] * len(classes)
        if len(given) != len(classes):
            raise ValueError(
                f"prototypes_per_class must be a number or {len(classes)}, one for each of classes_; found {len(given)}"
            )
        return [check_whole(number, "prototypes_per_class", 1) for number in given]

    def _warn_of_idle_prototypes(self) -> None:
        idle = self.wins_ == 0
        if not idle.any():
            return
        lost = np.setdiff1d(self.prototype_labels_, self.prototype_labels_[~idle]).tolist()
        reason = f"prototypes_per_class={self.prototypes_per_class} may be more than the classes need; wins_ counts"
        if lost:
            hint = "class_weight='balanced', GMLVQ, LVQ1 or more prototypes may do better"
            reason = f"classes {lost} are hardly ever predicted: {hint}"
        warn_caller(f"prototypes {np.flatnonzero(idle).tolist()} are the nearest of no training sample: {reason}")

    def _keep(self, state: PrototypeFit, labels: NDArray[np.int64], *samples: Any) -> Self:
        """Set the fitted attributes from a state of the fit; samples are scaled features, class numbers and weights."""
        self.n_iter_, self.objective_ = state.n_iter, state.objective
        if state.omega is not None:
            self.omega_, self.relevance_ = state.omega, _relevance(state.omega)
        self._keep_decision(state, labels, *samples)
        self.prototypes_ = state.prototypes * self.width_ + self.center_
        return self

    def _keep_decision(self, state: PrototypeFit, labels: Any, X: Any, y: Any, weights: Any) -> None:
        """Set ``prototype_labels_``, ``wins_`` and other attributes of the decision."""
        self.prototype_labels_ = self.classes_[labels]
        distances = finite_squared_distances(X, state.prototypes, state.omega)
        self.wins_ = np.bincount(np.argmin(distances, axis=1), minlength=len(labels))
        nearest, _ = nearest_of_classes(distances, labels, len(self.classes_))
        self.temperature_ = fitted_temperature(relative_scores(nearest), y, weights)

    def _scale(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return (X - self.center_) / self.width_

    def _scaled(self, X: ArrayLike) -> NDArray[np.float64]:
        """Check features [N, d] and scale them as the prototypes are."""
        check_is_fitted(self)
        return self._scale(checked_rows(self, X, reset=False))

    @property
    def _labels(self) -> NDArray[np.int64]:
        """Class numbers of the prototypes."""
        return self._numbers(self.prototype_labels_)

    def _numbers(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the class numbers of the prototypes; raise ValueError for invalid labels, as of a modified file."""
        matches = labels[:, None] == self.classes_
        if len(matches) != len(self.prototypes_) or not matches.any(axis=1).all():
            raise ValueError(f"one of classes_ {self.classes_} must be known for each of prototypes_; found {labels}")
        return np.argmax(matches, axis=1)

    @property
    def _present(self) -> NDArray[np.bool_]:
        """Whether a class has prototypes [n]."""
        return np.isin(np.arange(len(self.classes_)), self._labels)

    def _distances(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared distances [N, P] of scaled features."""
        return finite_squared_distances(X, self._scale(self.prototypes_), getattr(self, "omega_", None))

    def _scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithms of the class probabilities [N, n] of scaled features, up to a constant of the row."""
        nearest, _ = nearest_of_classes(self._distances(X), self._labels, len(self.classes_))
        return relative_scores(nearest) / self.temperature_

    def _served(self) -> tuple[Any, Any, Any]:
        return tf.Module(), None, lambda X: self._probabilities(self._served_scores(self._served_features(X)))

    def _served_features(self, X: Any) -> Any:
        return self._scale(tf.cast(X, tf.float64))

    def _probabilities(self, scores: Any) -> Any:
        """Compute calibrated class probabilities of a tensor of scores [N, n], zero for classes without prototypes."""
        return self._calibrated(tf.nn.softmax(tf.where(self._present, scores, -np.inf), axis=1))

    def _served_scores(self, X: Any) -> Any:
        """Compute ``_scores`` in TensorFlow; those of classes without prototypes have no meaning."""
        omega: NDArray[Any] = getattr(self, "omega_", np.eye(self.n_features_in_))
        W = self._scale(self.prototypes_)
        if omega.ndim == 3:
            Z = tf.reshape(tf.matmul(X, omega.reshape(-1, omega.shape[2]).T), (-1, *omega.shape[:2]))
            distances = tf.reduce_sum(tf.square(Z - np.einsum("pmd,pd->pm", omega, W)), axis=2)
        else:
            distances = kernels.squared_distances(tf.matmul(X, omega.T), W @ omega.T)
        table = members(self._labels, len(self.classes_))
        nearest = tf.reduce_min(tf.gather(distances, table, axis=1), axis=2)
        return (
            floored_relative_scores(tf.where(self._present, nearest, FARTHEST), np.finfo(np.float64).tiny)
            / self.temperature_
        )

    def _uncalibrated(self, X: ArrayLike) -> NDArray[np.float64]:
        return self._scores(self._scaled(X))

    def _calibrated_scores(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._calibrated_logarithms(softmax(scores, axis=1)) if self._after_training.probability_maps else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of every row, shape [N]."""
        scores = self._calibrated_scores(self._uncalibrated(X))
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict class probabilities [N, n], columns as ``classes_``; zero for a class without training samples."""
        return softmax(self._calibrated_scores(self._uncalibrated(X)), axis=1)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict logarithms of class probabilities, [N, n].

        They are at least -708.4: probabilities below the smallest normal number, 2.2e-308, count as that.
        """
        return floored(log_softmax(self._calibrated_scores(self._uncalibrated(X)), axis=1))

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute log-odds: [N] of the second class if there are two, else [N, n] of every class against the mean.

        The largest is that of the class that ``predict`` returns. A class without training samples has -infinity and is
        left out of the mean.
        """
        scores = self._calibrated_scores(self._uncalibrated(X))
        if len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores - scores[:, np.unique(self._labels)].mean(axis=1, keepdims=True)

    def relative_similarity(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute (d_K - d_J) / (d_K + d_J), [N], of the nearest prototype J and the nearest of another class K.

        It is 0 on the border between classes and far from all prototypes, and 1 at a prototype; d are squared
        distances.
        """
        nearest, _ = nearest_of_classes(self._distances(self._scaled(X)), self._labels, len(self.classes_))
        return relative_scores(nearest).max(axis=1)

    def fit_unknown(self, X: ArrayLike | None) -> Self:
        """Fit the score of unknown rows to known rows that were held out of ``fit``, for ``predict_or_unknown``.

        Parameters
        ----------
        X : array_like, shape [N, d], or None
            Known rows; labels are not used. Training rows are nearer to the prototypes: of new rows up to twice as many
            would be rejected. None removes the score.

        Returns
        -------
        self
            With ``unknown_score`` and ``predict_or_unknown``. ``save`` keeps what is fitted, and exports have an output
            "unknown". Another fit removes it; calibrations do not change it.
        """
        if X is None:
            self.__dict__.pop("known_quantiles_", None)
        else:
            self.known_quantiles_ = known_quantiles(-_lead(tf.constant(self._uncalibrated(X))).numpy())
        return self

    def unknown_score(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return how unlike the known rows each row is, [N], from 0 to 1.

        It is the share of the rows of ``fit_unknown`` with a larger ``relative_similarity``: 1 between classes, and far
        from all prototypes. Of ``GPLVQ``, whose classes are not those of the nearest prototypes, it is the share with a
        larger difference between the two largest log-odds.

        Raises
        ------
        ValueError
            Before ``fit_unknown``.
        """
        return self._unknown(self._uncalibrated(X)).numpy()

    def predict_or_unknown(self, X: ArrayLike, rejected: float = 0.05, abstention: Any = None) -> NDArray[Any]:
        """Predict the class of every row, and what stands for none where it looks unknown.

        Parameters
        ----------
        X : array_like, shape [N, d]
        rejected : float
            Share of known rows that may be called unknown, at least 0 and below 1. Default 0.05.
        abstention : optional
            What stands for unknown among ``classes_``. Default None: -1 beside numbers, "unknown" beside text.

        Returns
        -------
        ndarray, shape [N]
            Classes, as named in ``classes_``, and abstentions.

        Raises
        ------
        ValueError
            As ``unknown_score``, and for a share out of range.

        Notes
        -----
        Fischer, Hammer, Wersing: *Efficient Rejection Strategies for Prototype-Based Classification*, 2015.

        Examples
        --------
        >>> from deepsimplex import GLVQ
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> classifier = GLVQ().fit(X[::3], y[::3]).fit_unknown(X[1::3])
        >>> bool(np.mean(classifier.predict_or_unknown(X[2::3]) == -1) < 0.2)
        True
        >>> classifier.predict_or_unknown(100 * X[:2]).tolist()
        [-1, -1]
        """
        check_number(rejected, "rejected", least=0, below=1)
        scores = self._uncalibrated(X)
        numbers = np.argmax(self._calibrated_scores(scores), axis=1)
        return self._with_abstentions(np.where(are_unknown(self._unknown(scores), rejected), -1, numbers), abstention)

    def _unknown(self, scores: Any) -> Any:
        """Return ``unknown_score`` of uncalibrated scores [N, n], an array or a tensor."""
        if not hasattr(self, "known_quantiles_"):
            raise ValueError("unknown_score needs known rows that were held out of fit: call fit_unknown(X_held) first")
        return share_more_known(-_lead(tf.convert_to_tensor(scores)), self.known_quantiles_)

    def _further_outputs(self, p: Any, X: Any) -> dict[str, Any]:
        outputs = super()._further_outputs(p, X)
        if not hasattr(self, "known_quantiles_"):
            return outputs
        scores = tf.where(self._present, self._served_scores(self._served_features(X)), -np.inf)
        return {**outputs, "unknown": self._unknown(scores)}

    def explain(self, X: ArrayLike, k: int = 3) -> Explanation:
        """Find the k nearest prototypes of every row, and their weight in the decision.

        Parameters
        ----------
        X : array_like, shape [N, d]
        k : int
            Default 3; all prototypes if there are fewer.

        Returns
        -------
        Explanation
            The weight of the nearest prototype of a class is the probability of that class, of others zero.
        """
        check_whole(k, "k", 1)
        features = self._scaled(X)
        distances = self._distances(features)
        _, which = nearest_of_classes(distances, self._labels, len(self.classes_))
        p = softmax(self._calibrated_scores(self._scores(features)), axis=1)
        weights = np.zeros_like(distances)
        for label in np.unique(self._labels):
            weights[np.arange(len(weights)), which[:, label]] = p[:, label]
        return Explanation.of(distances, weights, self.prototype_labels_, k)


def _lead(scores: Any) -> Any:
    """Return the difference between the two largest scores, [N], finite, of a tensor [N, n]."""
    dtype = scores.dtype
    first = tf.argmax(scores, axis=1)[:, tf.newaxis] == np.arange(scores.shape[1])
    # Not top_k, which ONNX has for float32 only.
    second = tf.reduce_max(tf.where(first, tf.constant(-np.inf, dtype), scores), axis=1)
    return tf.minimum(tf.reduce_max(scores, axis=1) - second, dtype.max)


def _relevance(omega: NDArray[np.float64]) -> NDArray[np.float64]:
    """Diagonal of Omega^T Omega, [d], or of every prototype's, [P, d]."""
    return np.sum(np.square(omega), axis=-2)
