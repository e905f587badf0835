"""Scores of class probabilities: likelihood, Brier score and its decomposition, proba-loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_labels_and_probabilities
from deepsimplex.evaluation.bootstrap import PreparedScore, mean_score, score, weighted_rows
from deepsimplex.evaluation.reliability_curve import class_cells


def _true_class_probabilities(y: NDArray[np.int64], p: NDArray[np.floating]) -> NDArray[np.float64]:
    return p[np.arange(len(y)), y].astype(np.float64)


@score
def negative_log_likelihood(y: Any, p: Any) -> PreparedScore:
    """Mean negative logarithm of the true class's probability, in nats.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities, not clipped. Those that this package reads out of latents are at least the smallest normal
        number, so that a sample counts at most 708.4 (87.3 in float32), as by ``predict_log_proba``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        At least 0 up to the rounding of ``p``; inf if a true class has probability exactly 0, as after isotonic
        calibration, or of a class without training samples.

    Examples
    --------
    >>> round(negative_log_likelihood([0, 1], [[0.5, 0.5], [0.75, 0.25]]), 4)
    1.0397
    """
    with np.errstate(divide="ignore"):
        return mean_score(-np.log(_true_class_probabilities(y, p)))


@score
def proba_loss(y: Any, p: Any) -> PreparedScore:
    """Mean predicted probability error: one minus the mean probability of the true class ([CASIMAC] Eq. 21).

    It is not a proper score: if labels are random, probabilities of 0 and 1 score better than the true ones. The paper
    uses it where a known rule determines every label.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], up to the tolerance of 1e-3 within which rows sum to 1; 0 is perfect.

    Examples
    --------
    >>> proba_loss([0, 1], [[0.5, 0.5], [0.75, 0.25]])
    0.625
    """
    return mean_score(1 - _true_class_probabilities(y, p))


@score
def brier_score(y: Any, p: Any) -> PreparedScore:
    """Mean squared distance between the probabilities and the one-hot label, halved for two classes.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 2], or in [0, 1] for two classes, where it is the mean squared error of the probability of class 1, as
        scikit-learn's ``brier_score_loss``.

    Examples
    --------
    >>> brier_score([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.125
    """
    n = p.shape[1]
    squares = np.sum(np.square(p.astype(np.float64) - np.eye(n)[y]), axis=1)
    return mean_score(squares / 2 if n == 2 else squares)


@dataclass(frozen=True)
class BrierDecomposition:
    """The Brier score as reliability - resolution + uncertainty + remainder.

    Attributes
    ----------
    reliability : float
        Mean squared gap between mean probability and frequency of a bin; 0 is calibrated.
    resolution : float
        Mean squared distance between the frequencies of the bins and those of all samples; larger is better.
    uncertainty : float
        Variance of the labels, independent of the classifier; 0 if all samples are of one class.
    remainder : float
        Variance of the probabilities within bins, less twice their covariance with the labels.

    Examples
    --------
    >>> parts = BrierDecomposition(reliability=0.01, resolution=0.2, uncertainty=0.25, remainder=0.0)
    >>> round(parts.brier_score, 4)
    0.06
    """

    reliability: float
    resolution: float
    uncertainty: float
    remainder: float

    @property
    def brier_score(self) -> float:
        """The sum of the parts, equal to ``brier_score(y, p)`` up to rounding."""
        return self.reliability - self.resolution + self.uncertainty + self.remainder


def _cells(probabilities: NDArray[Any], bins: int | None) -> NDArray[np.intp]:
    """The bin of every probability [N, n], numbered over all classes; None gives every value its bin."""
    if bins is not None:
        return class_cells(probabilities, bins)
    columns = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in probabilities.T]
    starts = np.cumsum([0] + [column.max() + 1 for column in columns[:-1]])
    return np.stack(columns, axis=1) + starts


def prepare_brier_decomposition(y: NDArray[np.int64], p: NDArray[np.floating], bins: int | None = 15) -> PreparedScore:
    """Prepare the four parts [4] of ``brier_decomposition``, in its order."""
    n = p.shape[1]
    cells = _cells(p, bins)
    size = int(cells.max()) + 1

    def finish(
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        cells: NDArray[np.intp],
        weights: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        rows, column, samples = np.arange(len(labels)), weights[:, None], weights.sum()
        counts = np.bincount(cells.ravel(), np.repeat(weights, n), size)
        filled = np.where(counts > 0, counts, 1)  # the sums of an empty bin are 0
        means = np.bincount(cells.ravel(), (column * probabilities).ravel(), size) / filled
        frequencies = np.bincount(cells[rows, labels], weights, size) / filled
        class_share = np.bincount(labels, weights, n) / samples
        # Every bin belongs to one class; an empty bin has weight 0.
        bin_share = np.zeros(size)
        bin_share[cells.ravel()] = np.tile(class_share, len(labels))
        reliability = np.sum(counts * np.square(means - frequencies))
        resolution = np.sum(counts * np.square(frequencies - bin_share))
        within = probabilities - means[cells]
        # Differences within a bin sum to zero, so that only the labels that occurred contribute to the covariance.
        remainder = np.sum(column * np.square(within)) - 2 * np.sum(weights * within[rows, labels])
        uncertainty = samples * np.sum(class_share * (1 - class_share))
        parts = np.array([reliability, resolution, uncertainty, remainder]) / samples
        return parts / 2 if n == 2 else parts

    # Few samples in a bin increase reliability and resolution and decrease uncertainty, on average.
    halves = 2 if n == 2 else 1
    limits = ((0, 2 / halves), (0, 2 / halves), (0, (1 - 1 / n) / halves), None)
    return PreparedScore(finish, (y, p.astype(np.float64), cells), limits=limits)


def brier_decomposition(
    y: ArrayLike,
    p: ArrayLike,
    bins: int | None = 15,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> BrierDecomposition:
    """Decompose the Brier score of each class against the rest, summed (Murphy, 1973; Stephenson et al., 2008).

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int or None
        Number of right-closed bins of equal width for the probabilities of every class, 15 by default. None puts only
        equal probabilities together: the remainder is then 0 and Murphy's three terms are exact, but they are
        meaningful only if probabilities repeat, as those of a tree do.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    BrierDecomposition
        Halved for two classes, as ``brier_score`` is.

    Examples
    --------
    >>> p = [[0.8, 0.2], [0.8, 0.2], [0.4, 0.6], [0.4, 0.6]]
    >>> parts = brier_decomposition([0, 1, 1, 1], p, bins=None)
    >>> round(parts.reliability, 4), round(parts.resolution, 4), round(parts.uncertainty, 4), round(parts.remainder, 4)
    (0.125, 0.0625, 0.1875, 0.0)
    """
    weights, labels, probabilities = weighted_rows(sample_weight, *check_labels_and_probabilities(y, p, classes))
    return BrierDecomposition(*map(float, prepare_brier_decomposition(labels, probabilities, bins).value(weights)))
