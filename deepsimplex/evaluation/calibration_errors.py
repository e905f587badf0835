"""Calibration errors: expected, adaptive, maximum and class-wise errors, and the area deviation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_labels_and_probabilities
from deepsimplex.evaluation.bootstrap import PreparedScore, score, weighted_rows
from deepsimplex.evaluation.reliability_curve import (
    Binning,
    ReliabilityCurve,
    binned_curve,
    check_bins,
    class_cells,
    predicted_event,
)


def _prepare(
    error: Callable[[ReliabilityCurve], float],
    y: NDArray[np.int64],
    p: NDArray[np.floating],
    bins: int,
    top_label: bool,
    binning: Binning = "width",
    largest: float = 1.0,
) -> PreparedScore:
    """Prepare an error of the reliability curve."""
    event, columns = predicted_event(p, top_label)
    bins = check_bins(bins)

    def finish(confidences: NDArray[Any], happened: NDArray[np.bool_], weights: NDArray[np.float64]) -> float:
        return error(binned_curve(confidences, happened, weights, bins, binning, event))

    # A gap has no sign: the noise of the frequencies in bins of few samples widens it on average.
    return PreparedScore(finish, (p[np.arange(len(y)), columns], columns == y), limits=((0.0, largest),))


@score
def expected_calibration_error(y: Any, p: Any, bins: int = 15, *, top_label: bool = False) -> PreparedScore:
    """Expected calibration error (ECE): mean gap between confidence and frequency in bins of confidence ([GPD] Eq. 1).

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    bins, top_label
        As in ``reliability_curve``: 15 right-closed bins of equal width, the first including 0; the top label for
        more than two classes and the probability of class 1 for two. Libraries differ in these conventions.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect.

    Examples
    --------
    >>> round(expected_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=2), 4)
    0.2333
    """
    return _prepare(lambda curve: curve.expected_calibration_error, y, p, bins, top_label)


@score
def adaptive_calibration_error(y: Any, p: Any, bins: int = 15, *, top_label: bool = False) -> PreparedScore:
    """Expected calibration error with bins of equally many samples (Nguyen and O'Connor, 2015).

    If most confidences are near 1, bins of equal width would put most samples into one bin.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    bins, top_label
        As in ``reliability_curve`` with ``binning="mass"``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]]
    >>> round(adaptive_calibration_error([0, 1, 0, 1], p, bins=2), 4)
    0.2375
    """
    return _prepare(lambda curve: curve.expected_calibration_error, y, p, bins, top_label, "mass")


@score
def maximum_calibration_error(y: Any, p: Any, bins: int = 15, *, top_label: bool = False) -> PreparedScore:
    """Maximum calibration error (MCE): largest gap between confidence and frequency of a bin that holds samples.

    It may be determined by a bin of few samples: see ``reliability_curve(...).counts``.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    bins, top_label
        As in ``reliability_curve``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], at least ``expected_calibration_error``.

    Examples
    --------
    >>> round(maximum_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=2), 4)
    0.3
    """
    return _prepare(lambda curve: curve.maximum_calibration_error, y, p, bins, top_label)


@score
def area_deviation(y: Any, p: Any, bins: int = 10, *, top_label: bool = False) -> PreparedScore:
    """Area between the calibration curve and the diagonal ([CASIMAC] Table 4).

    The curve is piecewise linear through the points (mean confidence, frequency) of the bins that hold samples, from
    (0, 0) to (1, 1). Unlike the calibration errors it does not depend on the number of samples in a bin.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities. The paper has two classes; for more, the top label is used, as in the other errors.
    bins : int
        Number of bins of equal width, 10 by default as in the paper.
    top_label : bool
        Use the most probable class for two classes too. The default is False.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 3/4]; 0 is perfect. The largest is that of events that always happen where they are unlikely and never
        where they are likely.

    Examples
    --------
    >>> round(area_deviation([1, 0], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.0
    >>> round(area_deviation([1, 1], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.25
    """
    return _prepare(lambda curve: curve.area_deviation, y, p, bins, top_label, largest=0.75)


def _classwise_terms(
    y: NDArray[np.int64], p: NDArray[np.floating], bins: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The bin of every probability [N, n], numbered over all classes, and probability minus event [N, n]."""
    return class_cells(p, bins), p.astype(np.float64) - np.eye(p.shape[1])[y]


def _error_by_class(
    cells: NDArray[np.intp], residuals: NDArray[np.float64], weights: NDArray[np.float64], bins: int
) -> NDArray[np.float64]:
    n = residuals.shape[1]
    sums = np.bincount(cells.ravel(), (weights[:, None] * residuals).ravel(), n * bins)
    return np.abs(sums).reshape(n, bins).sum(axis=1) / weights.sum()


@score
def classwise_calibration_error(y: Any, p: Any, bins: int = 15) -> PreparedScore:
    """Mean over classes of the expected calibration error of each class against the rest (Kull et al., 2019).

    Unlike the error of the top label it depends on the smaller probabilities too; every class has the same weight.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds. The error of a class without samples is its mean
        probability.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int
        Number of right-closed bins of equal width, 15 by default.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect. The errors of the classes are ``calibration_error_by_class(y, p)``.

    Examples
    --------
    >>> round(classwise_calibration_error([0, 2], [[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]], bins=5), 4)
    0.2
    """

    def finish(cells: NDArray[np.intp], residuals: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
        return float(_error_by_class(cells, residuals, weights, bins).mean())

    return PreparedScore(finish, _classwise_terms(y, p, bins), limits=((0.0, 1.0),))


def calibration_error_by_class(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> NDArray[np.float64]:
    """Expected calibration error of each class against the rest; their mean is ``classwise_calibration_error``.

    Parameters
    ----------
    y, p, bins, sample_weight, classes
        As in ``classwise_calibration_error``.

    Returns
    -------
    ndarray, shape [n]
        In [0, 1]; entry k is ``reliability_curve(y, p, bins, class_index=k).expected_calibration_error``.

    Examples
    --------
    >>> calibration_error_by_class([0, 2], [[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]], bins=5).round(4)
    array([0.2 , 0.15, 0.25])
    """
    weights, labels, probabilities = weighted_rows(sample_weight, *check_labels_and_probabilities(y, p, classes))
    return _error_by_class(*_classwise_terms(labels, probabilities, bins), weights, bins)
