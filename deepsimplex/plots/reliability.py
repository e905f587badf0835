"""The reliability diagram."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex.evaluation import reliability_curve
from deepsimplex.plots.style import BLACK, BLUE, GREY, ORANGE

AXIS_LABELS = {
    "top label": ("confidence (largest probability)", "accuracy"),
    "class 1": ("predicted probability of class 1", "frequency of class 1"),
}


def reliability(y: ArrayLike, p: ArrayLike, bins: int = 15, ax: Axes | None = None) -> Figure:
    """Reliability diagram with a histogram of the confidences under it and the calibration error in the legend.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities. The conventions are those of ``evaluation.reliability_curve``.
    bins : int
        Number of bins, 15 by default.
    ax : matplotlib.axes.Axes, optional
        Where to draw; the histogram hangs below it. None (default) makes a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. ``figure.savefig("reliability.png")`` writes it.

    Examples
    --------
    >>> figure = reliability([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], bins=5)
    >>> figure.axes[0].get_ylabel()
    'frequency of class 1'
    """
    curve = reliability_curve(y, p, bins)
    if ax is None:
        ax = Figure(figsize=(4.5, 5.4), dpi=120, layout="constrained").add_subplot()
    filled = curve.counts > 0
    width, left = curve.edges[1] - curve.edges[0], curve.edges[:-1]
    confidence, frequency = curve.confidence[filled], curve.frequency[filled]
    x_label, y_label = AXIS_LABELS[curve.event]

    ax.bar(left[filled], frequency, width, align="edge", color=BLUE, edgecolor="white", label=y_label)
    ax.vlines(confidence, confidence, frequency, color=ORANGE, linewidth=3, label="gap")
    ax.plot(confidence, frequency, "o", color=BLACK, markersize=4)
    ax.plot([0, 1], [0, 1], "--", color=BLACK, linewidth=1, label="perfectly calibrated")
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel=y_label)
    ax.tick_params(labelbottom=False)
    ax.legend(title=f"ECE = {curve.expected_calibration_error:.4f}", loc="upper left")

    histogram = ax.inset_axes((0.0, -0.28, 1.0, 0.24), sharex=ax)
    histogram.bar(left, curve.counts / curve.counts.sum(), width, align="edge", color=GREY, edgecolor="white")
    histogram.tick_params(labelbottom=True)
    histogram.set(xlabel=x_label, ylabel="share")
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    return figure
