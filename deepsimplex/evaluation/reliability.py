"""Reliability: how often samples predicted with some confidence are right."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.inputs import check_labels_and_probabilities


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
    event : {"top label", "class 1"}
        That event: the most probable class is the true one, or the true class is 1.

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]], bins=2)
    >>> curve.counts.tolist(), curve.frequency.tolist(), curve.event
    ([1, 2], [0.0, 0.5], 'class 1')
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


def check_bins(bins: int) -> int:
    """Return ``bins`` as an int, or say why it cannot be a number of bins."""
    if isinstance(bins, bool) or bins != int(bins) or bins < 1:
        raise ValueError(f"bins must be a whole number, at least 1; found {bins!r}")
    return int(bins)


def reliability_curve(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> ReliabilityCurve:
    """Confidence against observed frequency in right-closed bins of equal width (math: ECE conventions of [GPD]).

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

    Returns
    -------
    ReliabilityCurve

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=2)
    >>> curve.counts, curve.confidence.round(2), curve.frequency
    (array([1, 2]), array([0.1, 0.7]), array([0., 1.]))
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    bins = check_bins(bins)
    if probabilities.shape[1] == 2 and not top_label:
        event, confidences, happened = "class 1", probabilities[:, 1], labels == 1
    else:
        event, confidences, happened = "top label", probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    edges = np.arange(bins + 1) / bins
    # The number of inner edges strictly below a confidence: a confidence on an edge stays in the bin it closes.
    index = np.searchsorted(edges[1:-1].astype(confidences.dtype), confidences, side="left")
    counts = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(index, weights=confidences, minlength=bins) / counts
        frequency = np.bincount(index, weights=happened, minlength=bins) / counts
    return ReliabilityCurve(edges, counts, confidence, frequency, event)


def expected_calibration_error(y: ArrayLike, p: ArrayLike, bins: int = 15, *, top_label: bool = False) -> float:
    """Expected calibration error: the mean gap between confidence and frequency in bins of confidence.

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
    return reliability_curve(y, p, bins, top_label=top_label).expected_calibration_error
