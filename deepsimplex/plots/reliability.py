"""The reliability diagram."""

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_labels_and_probabilities
from deepsimplex.evaluation import (
    ReliabilityBand,
    ReliabilityCurve,
    reliability_band,
    reliability_curve,
)
from deepsimplex.latent import LatentGaussian
from deepsimplex.plots.latents import intervals_behind
from deepsimplex.plots.style import BLACK, BLUE, GREY, ORANGE

LEGEND_SIZE = (0.5, 0.26)
"""Width and height of the legend, about, as shares of the axes."""

GRID = 201
"""Confidences at which the band is drawn, besides those of its bins."""


def axis_labels(event: str) -> tuple[str, str]:
    """What stands along the axes of a curve of this event.

    Examples
    --------
    >>> axis_labels("class 3")
    ('predicted probability of class 3', 'frequency of class 3')
    """
    if event == "top label":
        return "confidence (largest probability)", "accuracy"
    return f"predicted probability of {event}", f"frequency of {event}"


def reliability(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    ax: Axes | None = None,
    *,
    of_class: int | None = None,
    latent: LatentGaussian | dict[str, Any] | None = None,
    scores: ArrayLike | None = None,
    readout: str | None = None,
    level: float = 0.95,
) -> Figure:
    """Reliability diagram with a histogram of the confidences under it and the calibration error in the legend.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities. The conventions are those of ``evaluation.reliability_curve``: the top label for more than
        two classes, class 1 for two.
    bins : int
        Number of bins, 15 by default.
    ax : matplotlib.axes.Axes, optional
        Where to draw; the histogram hangs below it. None (default) makes a figure of its own.
    of_class : int, optional
        Draw the probability of this class against the rest instead.
    latent : LatentGaussian or dict, optional
        The Gaussian that p was read from. The curve becomes a line with points, and a gray area lies between the curves
        of the classifiers that predict the lower and the upper quantile of each sample's probability ([GPD] Fig. 6,
        ``evaluation.reliability_band``). Default None: bars, no band.
    scores : array_like, shape [n, L], optional
        Scores of the classes, such as ``target.scores_``, for the quantiles. Default: the vertices, n = L + 1.
    readout : {"softmax", "argmax"}, optional
        What p was read from ``latent`` by. Default "softmax", whose probabilities vary with the latent. Those of
        "argmax" do not: each is one number, the share of the Gaussian in which the class wins. There is no
        distribution of classifiers then and no band is drawn.
    level : float
        Of the band, 0.95 by default.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. ``figure.savefig("reliability.png")`` writes it.

    Raises
    ------
    TypeError, ValueError
        For arguments that break the above, latents that are not as many as the samples or have other classes, and
        probabilities that differ from the softmax readout of the latents.

    Notes
    -----
    The band is where the model believes its own curve to be, sample by sample, and no confidence interval of the
    frequencies: those of bins with few samples, which the histogram shows, vary beyond it.

    Examples
    --------
    >>> figure = reliability([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=5)
    >>> figure.axes[0].get_ylabel()
    'frequency of class 1'
    >>> from deepsimplex.readout import softmax
    >>> latent = {"loc": np.array([[-1.0], [2.0], [0.5]]), "scale": np.full((3, 1), 0.5)}
    >>> figure = reliability([0, 1, 1], softmax(latent), bins=5, latent=latent)
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['mean classifier', '95% band', 'perfectly calibrated']
    """
    curve = reliability_curve(y, p, bins, of_class=of_class)
    band = _band(y, p, bins, of_class, latent, scores, readout, level)
    if ax is None:
        ax = Figure(figsize=(4.5, 5.4), dpi=120, layout="constrained").add_subplot()
    if band is None:
        _draw_bars(ax, curve)
    else:
        _draw_band(ax, curve, band, level)
    ax.plot([0, 1], [0, 1], "--", color=BLACK, linewidth=1, label="perfectly calibrated", zorder=2.5)
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel=axis_labels(curve.event)[1])
    ax.tick_params(labelbottom=False)
    title = f"ECE = {curve.expected_calibration_error:.4f}"
    ax.legend(title=title, loc=_free_corner(curve, band), framealpha=0.9)
    _draw_histogram(ax, curve)
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    return figure


def _band(
    y: ArrayLike,
    p: ArrayLike,
    bins: int,
    of_class: int | None,
    latent: LatentGaussian | dict[str, Any] | None,
    scores: ArrayLike | None,
    readout: str | None,
    level: float,
) -> ReliabilityBand | None:
    """The band of a softmax readout; None without latents, or for a readout without a distribution of classifiers."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    ends = intervals_behind(probabilities, latent, scores, readout, level)
    return None if ends is None else reliability_band(labels, probabilities, *ends, bins, of_class=of_class)


def _free_corner(curve: ReliabilityCurve, band: ReliabilityBand | None) -> Literal["upper left", "lower right"]:
    """The corner off the diagonal where the legend hides fewer points; bars fill the lower one."""
    curves = [curve] if band is None else [curve, band.lower, band.upper]
    x = np.concatenate([each.confidence for each in curves])
    y = np.concatenate([each.frequency for each in curves])
    width, height = LEGEND_SIZE
    above, below = np.sum((x < width) & (y > 1 - height)), np.sum((x > 1 - width) & (y < height))
    return "lower right" if above > below else "upper left"


def _draw_bars(ax: Axes, curve: ReliabilityCurve) -> None:
    """A bar for the frequency in each bin, and how far its end is from the mean confidence."""
    filled = curve.counts > 0
    width, left = curve.edges[1] - curve.edges[0], curve.edges[:-1][filled]
    confidence, frequency = curve.confidence[filled], curve.frequency[filled]
    label = axis_labels(curve.event)[1]
    ax.bar(left, frequency, width, align="edge", color=BLUE, edgecolor="white", label=label)
    ax.vlines(confidence, confidence, frequency, color=ORANGE, linewidth=3, label="gap")
    ax.plot(confidence, frequency, "o", color=BLACK, markersize=4, zorder=3)


def _draw_band(ax: Axes, curve: ReliabilityCurve, band: ReliabilityBand, level: float) -> None:
    """The mean classifier's curve as a line with points before the band."""
    filled = curve.counts > 0
    style: dict[str, Any] = {"color": BLUE, "linewidth": 1.6, "markersize": 5, "clip_on": False, "zorder": 3}
    ax.plot(curve.confidence[filled], curve.frequency[filled], "o-", label="mean classifier", **style)
    knots = np.concatenate([band.lower.confidence, band.upper.confidence])
    at = np.unique(np.concatenate([np.linspace(*band.reach, GRID), knots[~np.isnan(knots)]]))
    low, high = band.frequencies(at)
    ax.fill_between(at, low, high, color=GREY, alpha=0.45, linewidth=0.8, label=f"{100 * level:g}% band")


def _draw_histogram(ax: Axes, curve: ReliabilityCurve) -> None:
    """Below the diagram: the share of samples in each bin, and how many there are."""
    width, samples = curve.edges[1] - curve.edges[0], curve.counts.sum()
    histogram = ax.inset_axes((0.0, -0.28, 1.0, 0.24), sharex=ax)
    histogram.bar(curve.edges[:-1], curve.counts / samples, width, align="edge", color=GREY, edgecolor="white")
    histogram.tick_params(labelbottom=True)
    histogram.set(xlabel=axis_labels(curve.event)[0], ylabel=f"share\n(N = {samples})")
