"""Reliability curves: frequency against confidence in bins, and their band for a distribution of classifiers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_choice, check_labels_and_probabilities, check_whole
from deepsimplex.evaluation.bootstrap import weighted_rows

Binning = Literal["width", "mass"]


def check_bins(bins: int) -> int:
    """Return a number of bins, at least one and at most a million."""
    return check_whole(bins, "bins", 1, 1_000_000)


def equal_width_edges(bins: int) -> NDArray[np.float64]:
    """Edges [bins + 1] of bins of [0, 1] of equal width."""
    return np.arange(bins + 1) / bins


def equal_mass_edges(
    confidences: NDArray[Any], bins: int, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Edges [bins + 1], from 0 to 1, of bins that hold equally many, or as much weight, of the confidences [N].

    Each inner edge is a confidence and closes its bin. Equal confidences are never separated, so that ties, and fewer
    samples than bins, leave some bins fuller and others empty.
    """
    order = np.argsort(confidences)
    below = np.cumsum(np.ones(len(order)) if weights is None else weights[order])
    wanted = below[-1] * np.arange(1, bins) / bins
    last = np.searchsorted(below, wanted * (1 - 1e-12))  # position of the last sample of each bin, sorted
    return np.concatenate([[0.0], confidences[order][last], [1.0]])


def bin_index(confidences: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.intp]:
    """The right-closed bin of each confidence, any shape; edges are rounded to the precision of the confidences."""
    # The number of inner edges strictly below a confidence: a confidence on an edge belongs to the bin that it closes.
    return np.searchsorted(edges[1:-1].astype(confidences.dtype), confidences, side="left")


def class_cells(probabilities: NDArray[Any], bins: int) -> NDArray[np.intp]:
    """The bin of equal width of every probability [N, n], numbered over all classes."""
    return bin_index(probabilities, equal_width_edges(check_bins(bins))) + bins * np.arange(probabilities.shape[1])


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Confidence and frequency of every bin of a reliability diagram.

    Attributes
    ----------
    edges : ndarray, shape [bins + 1]
        Bin b holds confidences in (edges[b], edges[b + 1]]; the first bin includes 0.
    counts : ndarray, shape [bins], int64
        Number of samples in each bin; with ``sample_weight`` the sum of their weights, float64.
    confidence : ndarray, shape [bins]
        Mean confidence in each bin; NaN in an empty one.
    frequency : ndarray, shape [bins]
        Fraction of samples in each bin for which the event happened; NaN in an empty one.
    event : "top label" or "class k"
        The event that the confidence predicts: the most probable class is the true one, or the true class is k, by its
        name if ``classes`` are given.

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]], bins=2)
    >>> curve.counts.tolist(), curve.frequency.tolist(), curve.event
    ([1, 2], [0.0, 0.5], 'class 1')
    >>> round(curve.expected_calibration_error, 4), round(curve.maximum_calibration_error, 4)
    (0.2333, 0.3)
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    frequency: NDArray[np.float64]
    event: str

    @property
    def expected_calibration_error(self) -> float:
        """Mean of |confidence - frequency| over bins, weighted by their number of samples."""
        filled = self.counts > 0
        gaps = np.abs(self.confidence[filled] - self.frequency[filled])
        return float(np.average(gaps, weights=self.counts[filled]))

    @property
    def maximum_calibration_error(self) -> float:
        """Largest |confidence - frequency| of a bin that holds samples."""
        return float(np.nanmax(np.abs(self.confidence - self.frequency)))

    @property
    def area_deviation(self) -> float:
        """Area between the piecewise linear curve from (0, 0) to (1, 1) and the diagonal."""
        filled = self.counts > 0
        x = np.concatenate([[0.0], np.minimum(self.confidence[filled], 1), [1.0]])
        above = np.concatenate([[0.0], self.frequency[filled], [1.0]]) - x
        left, right = np.abs(above[:-1]), np.abs(above[1:])
        # A piece that crosses the diagonal leaves two triangles, any other a trapezoid.
        crosses = above[:-1] * above[1:] < 0
        both = left + right
        triangles = np.divide(left**2 + right**2, both, out=np.zeros_like(both), where=both > 0)
        return float(np.sum(np.diff(x) * np.where(crosses, triangles, both)) / 2)


def predicted_event(
    probabilities: NDArray[Any],
    top_label: bool,
    class_index: int | None = None,
    classes: Sequence[Any] | None = None,
) -> tuple[str, NDArray[np.int64]]:
    """Return the name of the predicted event, and the column [N] of each sample's confidence."""
    samples, n = probabilities.shape
    if class_index is not None:
        if top_label:
            raise ValueError("top_label and class_index exclude each other; found both")
        class_index = check_whole(class_index, "class_index", 0, n - 1)
    elif n == 2 and not top_label:
        class_index = 1
    if class_index is None:
        return "top label", probabilities.argmax(axis=1)
    return f"class {class_index if classes is None else classes[class_index]}", np.full(samples, class_index)


def binned_curve(
    confidences: NDArray[Any],
    happened: NDArray[np.bool_],
    weights: NDArray[np.float64] | None,
    bins: int,
    binning: Binning,
    event: str,
) -> ReliabilityCurve:
    """Compute the curve of confidences [N] with weights [N] above 0, or all 1."""
    check_choice(binning, "binning", ("width", "mass"))
    edges = equal_width_edges(bins) if binning == "width" else equal_mass_edges(confidences, bins, weights)
    index = bin_index(confidences, edges)
    counts, factors = np.bincount(index, weights, bins), 1.0 if weights is None else weights
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(index, factors * confidences, bins) / counts
        frequency = np.bincount(index, factors * happened, bins) / counts
    return ReliabilityCurve(edges, counts, confidence, frequency, event)


def reliability_curve(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    *,
    top_label: bool = False,
    class_index: int | None = None,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> ReliabilityCurve:
    """Confidence against observed frequency in right-closed bins ([GPD] Eq. 1).

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities. For more than two classes the confidence is the largest of them and the event is that its
        class is the true one; for two classes the confidence is the probability of class 1 and the event is that the
        true class is 1, as in [ILR-GP] and [GPD].
    bins : int
        Number of bins of [0, 1], 15 by default. Their edges are rounded to the precision of ``p``, so that a float32
        probability of 0.2 lies on the edge 0.2 and belongs to the bin below.
    top_label : bool
        Use the most probable class for two classes too. The default is False.
    class_index : int, optional
        Use the probability of this class, for any number of classes, and the event that it is the true one.
    binning : {"width", "mass"}
        Bins of equal width (default), or of equally many samples, give or take one; each inner edge is then a
        confidence, and equal confidences are never separated.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    ReliabilityCurve

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=2)
    >>> curve.counts, curve.confidence.round(2), curve.frequency
    (array([1, 2]), array([0.1, 0.7]), array([0., 1.]))
    """
    weights, labels, probabilities = weighted_rows(sample_weight, *check_labels_and_probabilities(y, p, classes))
    event, columns = predicted_event(probabilities, top_label, class_index, classes)
    confidences = probabilities[np.arange(len(labels)), columns]
    return binned_curve(
        confidences, columns == labels, None if sample_weight is None else weights, check_bins(bins), binning, event
    )


@dataclass(frozen=True, eq=False)
class ReliabilityBand:
    """Two reliability curves, which enclose the band.

    Attributes
    ----------
    lower : ReliabilityCurve
        Of the classifier that predicts the lower end of every sample's interval. Its confidences are smaller, so that
        its curve lies above that of ``upper``.
    upper : ReliabilityCurve
        Of the classifier that predicts the upper end.

    Examples
    --------
    >>> y, p = [0, 1], np.array([[0.7, 0.3], [0.3, 0.7]])
    >>> band = reliability_band(y, p, p - 0.1, p + 0.1, bins=2)
    >>> band.lower.confidence.round(2), band.upper.confidence.round(2)
    (array([0.2, 0.6]), array([0.4, 0.8]))
    >>> band.frequencies([0.3, 0.5]).round(2)
    array([[0.  , 0.25],
           [0.25, 0.75]])
    """

    lower: ReliabilityCurve
    upper: ReliabilityCurve

    @property
    def reach(self) -> tuple[float, float]:
        """Smallest and largest mean confidence of a bin of either curve."""
        confidences = np.concatenate([self.lower.confidence, self.upper.confidence])
        return float(np.nanmin(confidences)), float(np.nanmax(confidences))

    def frequencies(self, confidence: ArrayLike) -> NDArray[np.float64]:
        """Lower and upper end [2, ...] of the band at confidences [...].

        The curves are piecewise linear from (0, 0) to (1, 1), as in ``area_deviation``. They may cross in bins of few
        samples; the smaller value is always the first.
        """
        at = np.asarray(confidence, dtype=np.float64)
        return np.sort([_interpolate(curve, at) for curve in (self.lower, self.upper)], axis=0)


def _interpolate(curve: ReliabilityCurve, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frequencies along a curve that is closed at (0, 0) and (1, 1) unless a bin lies there."""
    filled = curve.counts > 0
    x, y = np.minimum(curve.confidence[filled], 1.0), curve.frequency[filled]
    first, last = [0.0][: int(x[0] > 0)], [1.0][: int(x[-1] < 1)]
    return np.interp(confidence, np.concatenate([first, x, last]), np.concatenate([first, y, last]))


def reliability_band(
    y: ArrayLike,
    p: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    bins: int = 15,
    *,
    top_label: bool = False,
    class_index: int | None = None,
    binning: Binning = "width",
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> ReliabilityBand:
    """Reliability curves of the ends of every class probability's interval: the gray area of [GPD] Fig. 6.

    A latent Gaussian with the softmax readout is a distribution of classifiers with mean p. The band lies between the
    curves of the classifiers at two of its quantiles. It is not a confidence interval of the frequencies, which are
    uncertain for few samples however narrow the band is; and since all samples move to their ends at once, it is wider
    than the curves of most classifiers drawn from the Gaussian.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities, which determine the top label.
    lower, upper : array_like, shape [N, n]
        Ends of the intervals of the probabilities, 0 <= lower <= upper <= 1, such as ``readout.class_intervals`` of
        the softmax readout. p itself may lie outside, as a mean may.
    bins, top_label, class_index, binning, sample_weight
        As in ``reliability_curve``. The same sample may lie in different bins of the two curves.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    ReliabilityBand
        With lower = upper = p both curves are that of p.

    Raises
    ------
    TypeError, ValueError
        As ``reliability_curve``, and if the ends have another shape than p, are not probabilities or are crossed.

    Examples
    --------
    >>> y, p = [0, 1], np.array([[0.7, 0.3], [0.3, 0.7]])
    >>> band = reliability_band(y, p, p - 0.1, p + 0.1, bins=1)
    >>> band.lower.confidence, band.upper.confidence.round(2), band.upper.frequency
    (array([0.4]), array([0.6]), array([0.5]))
    """
    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    event, columns = predicted_event(probabilities, top_label, class_index, classes)
    ends = [_check_end(end, name, probabilities.shape) for name, end in (("lower", lower), ("upper", upper))]
    crossed = (ends[0] > ends[1]).any(axis=1)
    if crossed.any():
        raise ValueError(f"lower must not exceed upper; it does in {crossed.sum()} rows, first {np.argmax(crossed)}")
    rows = np.arange(len(labels))
    weights, happened, *ends = weighted_rows(sample_weight, columns == labels, *(end[rows, columns] for end in ends))
    given = None if sample_weight is None else weights
    curves = (binned_curve(end, happened, given, check_bins(bins), binning, event) for end in ends)
    return ReliabilityBand(*curves)


def _check_end(end: ArrayLike, name: str, shape: tuple[int, ...]) -> NDArray[np.floating]:
    """Return an end [N, n] of the intervals, float32 (where it was) or float64."""
    values = check_array(end, name, finite=False, dtype="floating")
    if values.shape != shape:
        raise ValueError(f"{name} must have the shape of p, {shape}; found {values.shape}")
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        raise ValueError(f"{name} must hold probabilities, 0 to 1; found {values[wrong][0]:.6g} in row {row}")
    return values
