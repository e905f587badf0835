"""Reliability: how often samples predicted with some confidence are right."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.bins import bin_index, check_bins, equal_mass_edges, equal_width_edges
from deepsimplex.evaluation.inputs import check_labels_and_probabilities

Binning = Literal["width", "mass"]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """The numbers behind a reliability diagram.

    Attributes
    ----------
    edges : ndarray, shape [bins + 1]
        Bin b holds confidences in (edges[b], edges[b + 1]]; the first one holds 0 as well.
    counts : ndarray, shape [bins], int64
        Samples in each bin.
    confidence : ndarray, shape [bins]
        Mean confidence in each bin; NaN in an empty one.
    frequency : ndarray, shape [bins]
        Share of samples in each bin where the event happened that the confidence is about; NaN in an empty one.
    event : "top label" or "class k"
        That event: the most probable class is the true one, or the true class is k.

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
        """Mean over samples of their bin's |confidence - frequency|; empty bins weigh nothing."""
        filled = self.counts > 0
        gaps = np.abs(self.confidence[filled] - self.frequency[filled])
        return float(np.average(gaps, weights=self.counts[filled]))

    @property
    def maximum_calibration_error(self) -> float:
        """Largest |confidence - frequency| of a bin that holds samples."""
        return float(np.nanmax(np.abs(self.confidence - self.frequency)))

    @property
    def area_deviation(self) -> float:
        """Area between the piecewise linear curve from (0, 0) to (1, 1) and the diagonal, as ``area_deviation``."""
        filled = self.counts > 0
        x = np.concatenate([[0.0], np.minimum(self.confidence[filled], 1), [1.0]])
        above = np.concatenate([[0.0], self.frequency[filled], [1.0]]) - x
        left, right = np.abs(above[:-1]), np.abs(above[1:])
        # A piece that crosses the diagonal leaves two triangles, split where it crosses; any other, a trapezium.
        crosses = above[:-1] * above[1:] < 0
        both = left + right
        triangles = np.divide(left**2 + right**2, both, out=np.zeros_like(both), where=both > 0)
        return float(np.sum(np.diff(x) * np.where(crosses, triangles, both)) / 2)


def events_of(
    y: ArrayLike, p: ArrayLike, top_label: bool, of_class: int | None = None
) -> tuple[str, NDArray[Any], NDArray[np.bool_]]:
    """What the confidences are about, they themselves [N], and whether it happened [N]."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    if of_class is not None:
        if top_label:
            raise ValueError("top_label and of_class exclude each other; found both")
        whole = isinstance(of_class, int | np.integer) and not isinstance(of_class, bool)
        if not whole or not 0 <= of_class < n:
            raise ValueError(f"of_class must be one of the classes 0..{n - 1}; found {of_class!r}")
    elif n == 2 and not top_label:
        of_class = 1
    if of_class is None:
        return "top label", probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    return f"class {int(of_class)}", probabilities[:, of_class], labels == of_class


def curve_of_events(
    confidences: NDArray[Any], happened: NDArray[np.bool_], bins: int, binning: Binning, event: str
) -> ReliabilityCurve:
    """The curve of what ``events_of`` found; arguments already checked."""
    edges = equal_width_edges(bins) if binning == "width" else equal_mass_edges(confidences, bins)
    index = bin_index(confidences, edges)
    counts = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(index, weights=confidences, minlength=bins) / counts
        frequency = np.bincount(index, weights=happened, minlength=bins) / counts
    return ReliabilityCurve(edges, counts, confidence, frequency, event)


def reliability_curve(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    *,
    top_label: bool = False,
    of_class: int | None = None,
    binning: Binning = "width",
) -> ReliabilityCurve:
    """Confidence against observed frequency in right-closed bins (math: ECE conventions of [GPD] Eq. 1).

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities. With more than two classes the confidence is the largest of them and the event is that
        its class is the true one; with two classes the confidence is the probability of class 1 and the event is
        that the true class is 1, as in [ILR-GP] and [GPD].
    bins : int
        Number of bins of [0, 1], 15 by default. Their edges are rounded to the precision of ``p``, so that a float32
        probability of 0.2 lies on the edge 0.2 and belongs to the bin below.
    top_label : bool
        True takes the most probable class for two classes too. Default False.
    of_class : int, optional
        Takes the probability of this class, of any number of classes, and the event that it is the true one.
    binning : {"width", "mass"}
        Bins equally wide (default), or with equally many samples, give or take one; of those each inner edge is a
        confidence, and equal confidences are never parted.

    Returns
    -------
    ReliabilityCurve

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=2)
    >>> curve.counts, curve.confidence.round(2), curve.frequency
    (array([1, 2]), array([0.1, 0.7]), array([0., 1.]))
    """
    event, confidences, happened = events_of(y, p, top_label, of_class)
    if binning not in ("width", "mass"):
        raise ValueError(f"binning must be 'width' or 'mass'; found {binning!r}")
    return curve_of_events(confidences, happened, check_bins(bins), binning, event)
