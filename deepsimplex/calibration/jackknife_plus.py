"""Prediction sets from left-out training samples (jackknife+), which need no samples that are held out."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import tf
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_labels_and_probabilities
from deepsimplex.calibration.conformal_sets import ConformalSets

# Training samples at most that are left out: the more, the longer predictions take.
MOST_LEFT_OUT = 500


@registered
class JackknifePlusSets(ConformalSets):
    """Sets of classes by comparing every class with training samples that were left out, in predictions without them.

    ``conformalize(left_out=True)`` of a classifier in closed form fits them. Coverage is usually the one asked for.

    Parameters
    ----------
    coverage, method, by_class, penalty, free_classes, seed, allow_empty
        As for ``ConformalSets``. The most probable class of a sample is that of the mean over the left-out samples.

    Attributes
    ----------
    scores_ : ndarray, shape [m]
        Of the true classes of the left-out samples, each by the classifier without it.
    labels_ : ndarray of int, shape [m]
        Their classes.
    influence_ : ndarray, shape [M, m]
        Kernel values [M] of a sample times influence are its leverages on the left-out samples.
    residuals_ : ndarray, shape [m, L]
        A sample's latent mean without left-out sample i is its mean minus leverage i times residual i.

    Notes
    -----
    Barber, Candès, Ramdas, Tibshirani: *Predictive Inference with the Jackknife+*, 2021, Theorem 1, for scores of
    classes as in Romano, Sesia, Candès: *Classification with Valid and Adaptive Coverage*, 2020. A class is in the set
    unless its score by the classifier without sample i exceeds the score of sample i for ceil((m + 1) coverage) of the
    m left-out samples or more. The true class of a new sample is in it with a probability of at least
    1 - 2 (1 - ``coverage``), for any data that are exchangeable: 0.8 for 0.9. Usually it is ``coverage``, unless the
    classifier depends much on single samples. The proof takes as given what is not fitted anew without a sample:
    kernel, noise, inducing rows, readout and calibration.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = ds.SimplexGaussianProcess().fit(X[::2], y[::2])
    >>> sets = classifier.conformalize(X[::2], y[::2], coverage=0.9, left_out=True).predict_set(X[1::2])
    >>> bool(ds.evaluation.coverage(y[1::2], sets) > 0.85)
    True
    """

    fitted_attributes = ("scores_", "labels_", "influence_", "residuals_")
    scores_: NDArray[np.float64]
    labels_: NDArray[np.int64]
    influence_: NDArray[np.float64]
    residuals_: NDArray[np.float64]

    def without(self, influence: NDArray[np.float64], residuals: NDArray[np.float64]) -> Self:
        """Set the arrays by which the classifier predicts without each left-out sample."""
        self.influence_, self.residuals_ = influence, residuals
        return self

    def fit(
        self, p: ArrayLike, y: ArrayLike, *, classes: Sequence[Any] | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to class probabilities [m, n] of left-out training samples and their labels [m]."""
        if groups is not None:
            raise ValueError("groups must not be given with left_out=True")
        labels, probabilities = check_labels_and_probabilities(y, p, classes)
        scores = self._scores(probabilities.astype(np.float64))
        self.scores_, self.labels_ = scores[np.arange(len(labels)), labels], labels
        for name, rows in self._categories(probabilities.shape[1]).items():
            self._threshold(self.scores_[rows], name)  # raises for too few
        return self

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor; what is fitted is in ``state``."""
        return {name: value for name, value in super().get_config().items() if name not in self.fitted_attributes}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the fitted attributes, if the sets are fitted."""
        return {name: getattr(self, name) for name in self.fitted_attributes} if self.is_fitted else {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what ``state`` returned."""
        for name in state:
            setattr(self, name, np.asarray(state[name]))

    def _categories(self, n: int) -> dict[str, NDArray[np.bool_]]:
        if self.by_class:
            return {f" of class {k}": self.labels_ == k for k in range(n)}
        return {"": np.ones(len(self.labels_), bool)}

    def predict(self, p: Any, groups: ArrayLike | None = None) -> Any:
        """Return the sets, bool [N, n], of class probabilities [N, m, n], a tensor, without each left-out sample."""
        n, m = p.shape[-1], len(self.scores_)
        p = tf.cast(p, precise_dtype())
        scores = tf.reshape(self._scores(tf.reshape(p, (-1, n))), (-1, m, n))
        slack = 4.0 * float(np.finfo(np.float32).eps)
        exceeded = tf.cast(scores > tf.constant(self.scores_[:, np.newaxis] + slack, p.dtype), p.dtype)
        columns = []
        for rows in self._categories(n).values():
            count = tf.tensordot(exceeded, tf.constant(rows.astype(float), p.dtype), [[1], [0]])
            columns.append(count < self.coverage * (rows.sum() + 1) - 1e-9)
        sets = tf.stack([columns[k][:, k] for k in range(n)], axis=1) if self.by_class else columns[0]
        return self._filled(sets, tf.reduce_mean(p, axis=1))
