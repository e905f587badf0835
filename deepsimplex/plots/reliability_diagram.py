"""Reliability diagrams of the top label or one class, and of every class in small panels."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_class_names, check_labels_and_probabilities
from deepsimplex.evaluation import ReliabilityBand, ReliabilityCurve, reliability_band, reliability_curve
from deepsimplex.latent import LatentGaussian
from deepsimplex.plots.probability_intervals import probability_intervals
from deepsimplex.plots.style import (
    BLACK,
    BLUE,
    GRAY,
    ORANGE,
    check_axes,
    check_only,
    figure_of,
    names_of_columns,
    new_axes,
    shortened,
)

GRID = 201  # confidences at which the band is drawn, besides those of its bins

# Panels: most in a row and in all; their side, the gaps between columns and rows, and the margins, in inches.
MOST_COLUMNS, MOST_PANELS = 5, 50
SIDE, ACROSS, DOWN = 1.4, 0.16, 0.5
LEFT, RIGHT, TOP, BOTTOM = 0.5, 0.12, 0.4, 0.46
LONGEST = 22  # characters of a name above a panel
LARGEST, THICKEST = 40.0, 3.0  # area and line width, in points, of a bin that holds all samples


def reliability(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    ax: Axes | None = None,
    *,
    class_index: int | None = None,
    latent: LatentGaussian | dict[str, Any] | None = None,
    scores: ArrayLike | None = None,
    readout: str | dict[str, Any] | keras.layers.Layer | None = None,
    level: float = 0.95,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw a reliability diagram over a histogram of the confidences, with the calibration error in the legend.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities. The conventions are those of ``evaluation.reliability_curve``: the top label for more than
        two classes, class 1 for two.
    bins : int
        Number of bins, 15 by default.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; the histogram is placed below. Default None: those of a new figure.
    class_index : int, optional
        Draw the probability of this class against the rest instead.
    latent : LatentGaussian or dict, optional
        Latent Gaussian that p was read out of. The curve becomes a line with points, and a gray area lies between the
        curves of the classifiers that predict the lower and the upper quantile of each sample's probability ([GPD] Fig.
        6, ``evaluation.reliability_band``). Default None: bars, no band.
    scores : array_like, shape [n, L], optional
        Scores of the classes for the quantiles, such as ``target.scores(n)``. Default: the vertices, n = L + 1.
    readout : {"softmax", "argmax"}, dict or Readout, optional
        Readout by which p was computed from ``latent``. Default "softmax", whose probabilities vary with the latent.
        Those of "argmax" do not: each is the share of the Gaussian in which the class wins, and no band is drawn. A
        readout of your own has a band if it defines ``class_probabilities``.
    level : float
        Level of the band, 0.95 by default.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. ``figure.savefig("reliability.png")`` writes it.

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit the above, latents that are not as many as the samples or have other classes, and
        probabilities that differ from the softmax readout of the latents.

    Notes
    -----
    The band shows the model's own uncertainty about its probabilities, sample by sample. It is no confidence interval
    of the frequencies: those of bins with few samples vary beyond it.

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
    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    curve = reliability_curve(y, p, bins, class_index=class_index, classes=classes)
    ends = probability_intervals(probabilities, latent, scores, readout, level)
    band = None if ends is None else reliability_band(labels, probabilities, *ends, bins, class_index=class_index)
    top_label = curve.event == "top label"
    frequency = "accuracy" if top_label else f"frequency of {curve.event}"
    ax, is_new = (new_axes(4.5, 5.4), True) if ax is None else (check_axes(ax), False)
    if band is None:
        _draw_bars(ax, curve, frequency)
    else:
        _draw_band(ax, curve, band, level)
    ax.plot([0, 1], [0, 1], "--", color=BLACK, linewidth=1, label="perfectly calibrated", zorder=2.5)
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel=frequency)
    ax.tick_params(labelbottom=False)
    title = f"ECE = {curve.expected_calibration_error:.4f}"
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderaxespad": 0, "columnspacing": 1.2}
    ax.legend(title=title, frameon=False, ncols=3, fontsize=8, title_fontsize=9, alignment="left", **place)
    if is_new:  # room for the histogram, which the layout moves once more
        figure_of(ax).set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)

    width, samples = curve.edges[1] - curve.edges[0], curve.counts.sum()
    histogram = ax.inset_axes((0.0, -0.28, 1.0, 0.24), sharex=ax)
    histogram.bar(curve.edges[:-1], curve.counts / samples, width, align="edge", color=GRAY, edgecolor="white")
    histogram.tick_params(labelbottom=True)
    confidence = "confidence (largest probability)" if top_label else f"predicted probability of {curve.event}"
    histogram.set(xlabel=confidence, ylabel=f"share\n(N = {samples})")
    return figure_of(ax)


def _draw_bars(ax: Axes, curve: ReliabilityCurve, label: str) -> None:
    """Draw the frequency in each bin as a bar, and its gap to the mean confidence."""
    filled = curve.counts > 0
    width, left = curve.edges[1] - curve.edges[0], curve.edges[:-1][filled]
    confidence, frequency = curve.confidence[filled], curve.frequency[filled]
    ax.bar(left, frequency, width, align="edge", color=BLUE, edgecolor="white", label=label)
    ax.vlines(confidence, confidence, frequency, color=ORANGE, linewidth=3, label="gap")
    ax.plot(confidence, frequency, "o", color=BLACK, markersize=4, zorder=3)


def _draw_band(ax: Axes, curve: ReliabilityCurve, band: ReliabilityBand, level: float) -> None:
    """Draw the mean classifier's curve as a line with points, before the band."""
    filled = curve.counts > 0
    style: dict[str, Any] = {"color": BLUE, "linewidth": 1.6, "markersize": 5, "clip_on": False, "zorder": 3}
    ax.plot(curve.confidence[filled], curve.frequency[filled], "o-", label="mean classifier", **style)
    knots = np.concatenate([band.lower.confidence, band.upper.confidence])
    at = np.unique(np.concatenate([np.linspace(*band.reach, GRID), knots[~np.isnan(knots)]]))
    low, high = band.frequencies(at)
    ax.fill_between(at, low, high, color=GRAY, alpha=0.45, linewidth=0.8, label=f"{100 * level:g}% band")


def classwise_reliability(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    *,
    class_names: Sequence[str] | None = None,
    only: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw the reliability of each class against the rest: a small panel per class, with its calibration error.

    These show what the top label hides: a class whose smaller probabilities are wrong, or one to which samples of
    others are assigned. The mean of the errors over all classes is ``evaluation.classwise_calibration_error``.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int
        Number of bins of equal width, 15 by default.
    class_names : sequence of str, length n, optional
        Names of the classes in the figure; by default ``classes``, or their numbers.
    only : sequence, optional
        Classes to draw, named as in ``y``, in this order, 50 at most. Default: all.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure
        Five panels in a row. A point is a bin, at its mean probability and frequency, with its gap to the diagonal; its
        area grows with the logarithm of the number of samples in it. A class without samples is drawn too, at
        frequency 0.

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit the above.

    Examples
    --------
    >>> figure = classwise_reliability([0, 2], [[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]], bins=5, class_names=[*"abc"])
    >>> [ax.get_title() for ax in figure.axes]
    ['a\\nECE 0.200, 1 sample', 'b\\nECE 0.150, 0 samples', 'c\\nECE 0.250, 1 sample']
    """
    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    known = check_class_names(classes, probabilities.shape[1])
    default = [f"class {k}" for k in known] if classes is None else classes
    names = names_of_columns(class_names, default, len(known))
    chosen = check_only(known if only is None else only, known, "different classes of y, at least one")
    if len(chosen) > MOST_PANELS:
        raise ValueError(
            f"only must choose at most {MOST_PANELS}, for panels that can be read; found {len(chosen)}. The worst "
            "ones are those of the largest evaluation.calibration_error_by_class(y, p)"
        )
    figure = _panels(len(chosen))
    for ax, k in zip(figure.axes, chosen, strict=True):
        curve = reliability_curve(labels, probabilities, bins, class_index=k)
        filled = curve.counts > 0
        confidence, frequency = curve.confidence[filled], curve.frequency[filled]
        share = np.log1p(curve.counts[filled]) / np.log1p(len(labels))
        ax.plot([0, 1], [0, 1], "--", color=BLACK, linewidth=0.8)
        ax.vlines(confidence, confidence, frequency, color=ORANGE, linewidths=THICKEST * share, label="gap")
        points: dict[str, Any] = {"color": BLUE, "clip_on": False, "linewidths": 0, "zorder": 3, "label": "bins"}
        ax.scatter(confidence, frequency, s=LARGEST * share, **points)
        members = np.sum(labels == k)
        text = f"ECE {curve.expected_calibration_error:.3f}, {members} sample{'' if members == 1 else 's'}"
        ax.set_title(f"{shortened(names[k], LONGEST)}\n{text}", fontsize=7.5, pad=3, linespacing=1.15)
    return figure


def _panels(count: int) -> Figure:
    """Make a figure with ``count`` square panels; placed by hand, which is much faster than a layout engine."""
    columns = min(count, MOST_COLUMNS)
    rows = -(-count // columns)
    width = LEFT + columns * SIDE + (columns - 1) * ACROSS + RIGHT
    height = TOP + rows * SIDE + (rows - 1) * DOWN + BOTTOM
    figure = Figure(figsize=(width, height), dpi=120)
    edges = {"left": LEFT / width, "right": 1 - RIGHT / width, "bottom": BOTTOM / height, "top": 1 - TOP / height}
    figure.subplots_adjust(**edges, wspace=ACROSS / SIDE, hspace=DOWN / SIDE)
    for i in range(count):
        ax = figure.add_subplot(rows, columns, i + 1, xlim=(0, 1), ylim=(0, 1))
        ax.spines[:].set_color(GRAY)
        ax.set_xticks((0.0, 0.5, 1.0), ("0", "0.5", "1"))
        ax.set_yticks((0.0, 0.5, 1.0), ("0", "0.5", "1"))
        # Numbers only on the left, and below the last panel of each column.
        ax.tick_params(length=2, pad=2, labelsize=7, labelleft=i % columns == 0, labelbottom=i + columns >= count)
    figure.supxlabel("predicted probability", x=0.5 + (LEFT - RIGHT) / 2 / width, y=0.08 / height, fontsize=9)
    figure.supylabel("frequency", x=0.08 / width, y=(BOTTOM + height - TOP) / 2 / height, fontsize=9)
    return figure
