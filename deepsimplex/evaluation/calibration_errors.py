"""Calibration errors: one number of a reliability curve, or of one curve for every class."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.bins import bin_index, check_bins, equal_width_edges
from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.prepared import Prepared
from deepsimplex.evaluation.reliability import Binning, curve_of_events, events_of


def _prepare(
    attribute: str, y: ArrayLike, p: ArrayLike, bins: int, top_label: bool, binning: Binning, most: float = 1.0
) -> Prepared:
    event, *rows = events_of(y, p, top_label)
    bins = check_bins(bins)

    def finish(confidences: NDArray[Any], happened: NDArray[np.bool_]) -> float:
        return float(getattr(curve_of_events(confidences, happened, bins, binning, event), attribute))

    # A gap has no sign: what chance adds to the frequencies of a bin of few samples makes it wider on average.
    return Prepared(finish, tuple(rows), limits=((0.0, most),))


def prepare_expected(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> Prepared:
    """See ``expected_calibration_error``."""
    return _prepare("expected_calibration_error", y, p, bins, top_label, "width")


def prepare_adaptive(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> Prepared:
    """See ``adaptive_calibration_error``."""
    return _prepare("expected_calibration_error", y, p, bins, top_label, "mass")


def prepare_maximum(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> Prepared:
    """See ``maximum_calibration_error``."""
    return _prepare("maximum_calibration_error", y, p, bins, top_label, "width")


def prepare_area_deviation(y: ArrayLike, p: ArrayLike, bins: int = 10, *, top_label: bool = False) -> Prepared:
    """See ``area_deviation``."""
    return _prepare("area_deviation", y, p, bins, top_label, "width", 0.5)


def prepare_classwise(y: ArrayLike, p: ArrayLike, bins: int = 15) -> Prepared:
    """See ``classwise_calibration_error``."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    n, bins = probabilities.shape[1], check_bins(bins)
    cells = bin_index(probabilities, equal_width_edges(bins)) + bins * np.arange(n)
    residuals = probabilities.astype(np.float64) - np.eye(n)[labels]

    def finish(cells: NDArray[np.intp], residuals: NDArray[np.float64]) -> float:
        return float(_by_class(cells, residuals, bins).mean())

    return Prepared(finish, (cells, residuals), limits=((0.0, 1.0),))


def _by_class(cells: NDArray[np.intp], residuals: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """The calibration error [n] of each class, of what ``prepare_classwise`` finds of each sample."""
    samples, n = residuals.shape
    sums = np.bincount(cells.ravel(), weights=residuals.ravel(), minlength=n * bins)
    return np.abs(sums).reshape(n, bins).sum(axis=1) / samples


def expected_calibration_error(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> float:
    """Expected calibration error: the mean gap between confidence and frequency in bins of confidence ([GPD] Eq. 1).

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    bins, top_label
        As in ``reliability_curve``: 15 right-closed bins of equal width, the first closed at 0 too; the top label
        for more than two classes and the probability of class 1 for two. Libraries differ here, so compare numbers
        only under the same conventions.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect.

    Examples
    --------
    >>> round(expected_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=2), 4)
    0.2333
    """
    return float(prepare_expected(y, p, bins, top_label=top_label).value())


def adaptive_calibration_error(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> float:
    """Expected calibration error over bins that hold equally many samples (Nguyen and O'Connor, 2015).

    Where most confidences are near 1, bins of equal width leave most samples in one of them; these do not.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    bins, top_label
        As in ``reliability_curve`` with ``binning="mass"``.

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
    return float(prepare_adaptive(y, p, bins, top_label=top_label).value())


def maximum_calibration_error(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> float:
    """Maximum calibration error: the largest gap between confidence and frequency of a bin that holds samples.

    A bin of a few samples can decide it; look at ``reliability_curve(...).counts`` before making much of it.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    bins, top_label
        As in ``reliability_curve``.

    Returns
    -------
    float
        In [0, 1], and never below ``expected_calibration_error``.

    Examples
    --------
    >>> round(maximum_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=2), 4)
    0.3
    """
    return float(prepare_maximum(y, p, bins, top_label=top_label).value())


def classwise_calibration_error(y: ArrayLike, p: ArrayLike, bins: int = 15) -> float:
    """Mean over classes of each class's own expected calibration error, one against the rest (Kull et al., 2019).

    The top label says nothing of the smaller probabilities; this weighs every class alike.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1. A class without samples counts too: its error is its mean probability.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int
        Right-closed bins of equal width, 15 by default.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect. The errors of the classes are ``calibration_error_by_class(y, p)``.

    Examples
    --------
    >>> round(classwise_calibration_error([0, 2], [[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]], bins=5), 4)
    0.2
    """
    return float(prepare_classwise(y, p, bins).value())


def calibration_error_by_class(y: ArrayLike, p: ArrayLike, bins: int = 15) -> NDArray[np.float64]:
    """Expected calibration error of each class against the rest, whose mean is ``classwise_calibration_error``.

    Parameters
    ----------
    y, p, bins
        As in ``classwise_calibration_error``.

    Returns
    -------
    ndarray, shape [n]
        In [0, 1]; entry k is ``reliability_curve(y, p, bins, of_class=k).expected_calibration_error``.

    Examples
    --------
    >>> calibration_error_by_class([0, 2], [[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]], bins=5).round(4)
    array([0.2 , 0.15, 0.25])
    """
    cells, residuals = prepare_classwise(y, p, bins).rows
    return _by_class(cells, residuals, bins)


def area_deviation(y: ArrayLike, p: ArrayLike, bins: int = 10, *, top_label: bool = False) -> float:
    """Area between the calibration curve and the diagonal ([CASIMAC] Table 4), exact for its straight pieces.

    The curve joins the points (mean confidence, frequency) of the bins that hold samples, from (0, 0) to (1, 1); a
    piece that crosses the diagonal counts on both sides. Unlike the calibration errors it is blind to how many samples
    a bin holds.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities. The paper has two classes; of more, this takes the top label as the other errors do.
    bins : int
        Bins of equal width, 10 by default as in the paper.
    top_label : bool
        True takes the most probable class for two classes too. Default False.

    Returns
    -------
    float
        In [0, 1/2]; 0 is perfect.

    Examples
    --------
    >>> round(area_deviation([1, 0], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.0
    >>> round(area_deviation([1, 1], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.25
    """
    return float(prepare_area_deviation(y, p, bins, top_label=top_label).value())
