"""How far a distribution of classifiers lets the reliability curve vary: the gray area of [GPD] Fig. 6."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.bins import check_bins
from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.reliability import Binning, ReliabilityCurve, check_binning, curve_of_events, event_columns


@dataclass(frozen=True, eq=False)
class ReliabilityBand:
    """Two reliability curves; the band is the area between them.

    Attributes
    ----------
    lower : ReliabilityCurve
        Of the classifier that predicts the lower end of every sample's interval. Its confidences are smaller, so that
        its curve lies to the left, above that of ``upper``.
    upper : ReliabilityCurve
        Of the one that predicts the upper end.

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
        """The least and the largest confidence of a bin of either curve, between which the band lies."""
        found = np.concatenate([self.lower.confidence, self.upper.confidence])
        return float(np.nanmin(found)), float(np.nanmax(found))

    def frequencies(self, confidence: ArrayLike) -> NDArray[np.float64]:
        """Frequencies [2, ...] between which the band lies at confidences [...], the smaller first.

        The curves are taken as straight pieces from (0, 0) to (1, 1), as ``area_deviation`` does. Each end holds
        whichever curve is there: in bins of few samples they may cross.
        """
        at = np.asarray(confidence, dtype=np.float64)
        return np.sort([_along(curve, at) for curve in (self.lower, self.upper)], axis=0)


def _along(curve: ReliabilityCurve, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frequencies along a curve that is closed at (0, 0) and (1, 1) where no bin lies there."""
    filled = curve.counts > 0
    x, y = np.minimum(curve.confidence[filled], 1.0), curve.frequency[filled]
    ends = [0.0][: int(x[0] > 0)], [1.0][: int(x[-1] < 1)]
    return np.interp(confidence, np.concatenate([ends[0], x, ends[1]]), np.concatenate([ends[0], y, ends[1]]))


def _check_ends(
    lower: ArrayLike, upper: ArrayLike, shape: tuple[int, ...]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Both ends [N, n] as arrays, float32 where they were, or what is wrong with them."""
    ends = [np.asarray(end) for end in (lower, upper)]
    ends = [end if end.dtype == np.float32 else end.astype(np.float64) for end in ends]
    for name, end in zip(("lower", "upper"), ends, strict=True):
        if end.shape != shape:
            raise ValueError(f"{name} must have the shape of p, {shape}; found {end.shape}")
        wrong = ~((end >= 0) & (end <= 1))
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            raise ValueError(f"{name} must hold probabilities, 0 to 1; found {end[wrong][0]:.6g} in row {row}")
    crossed = (ends[0] > ends[1]).any(axis=1)
    if crossed.any():
        raise ValueError(f"lower must not exceed upper; it does in {crossed.sum()} rows, first {np.argmax(crossed)}")
    return ends[0], ends[1]


def reliability_band(
    y: ArrayLike,
    p: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    bins: int = 15,
    *,
    top_label: bool = False,
    of_class: int | None = None,
    binning: Binning = "width",
) -> ReliabilityBand:
    """Reliability curves of the classifiers that predict the ends of every class probability's interval ([GPD] Fig. 6).

    A latent Gaussian read out by softmax is a distribution of classifiers, of which p is the mean. This is what the
    curve of p becomes for the classifiers at two of its quantiles: how far the model leaves its own calibration open.
    It is no confidence interval of the frequencies, which few samples make uncertain however narrow the band is; all
    samples move to their ends at once, so that it is wider than the curves of most classifiers drawn from the Gaussian.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities, which choose the top label.
    lower, upper : array_like, shape [N, n]
        Ends of the intervals of the probabilities, 0 <= lower <= upper <= 1, as ``readout.class_intervals`` gives them
        for the readout "softmax". p itself may lie outside, as a mean may.
    bins, top_label, of_class, binning
        As in ``reliability_curve``. Each curve has its own confidences in the bins, so that the same sample may be in
        different ones. With the top label all three are about the class that p is largest for.

    Returns
    -------
    ReliabilityBand
        With lower = upper = p both curves are that of p.

    Raises
    ------
    TypeError, ValueError
        For labels and probabilities that ``reliability_curve`` refuses, ends of another shape, NaN, ends that are no
        probabilities or are crossed.

    Examples
    --------
    >>> from deepsimplex import readout
    >>> latent = {"loc": np.array([[-1.0], [2.0]]), "scale": np.full((2, 1), 0.5)}
    >>> lower, upper = readout.class_intervals(latent, 0.95)
    >>> band = reliability_band([0, 1], readout.softmax(latent), lower, upper, bins=1)
    >>> band.lower.confidence.round(2), band.upper.confidence.round(2), band.upper.frequency
    (array([0.26]), array([0.55]), array([0.5]))
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    ends = _check_ends(lower, upper, probabilities.shape)
    event, columns = event_columns(probabilities, top_label, of_class)
    bins, binning = check_bins(bins), check_binning(binning)
    rows, happened = np.arange(len(labels)), columns == labels
    below, above = (curve_of_events(end[rows, columns], happened, bins, binning, event) for end in ends)
    return ReliabilityBand(below, above)
