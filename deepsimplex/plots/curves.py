"""Curves of several classifiers in one figure: risk against coverage, and learning."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from deepsimplex.evaluation import RiskCoverageCurve
from deepsimplex.plots.style import CLASS_COLORS, CLASS_MARKERS, literal

VALIDATION = "val_"
"""How Keras begins the names of what was measured on validation samples."""
NO_CURVES = ("epoch", "learning_rate")


def _styles(count: int) -> list[tuple[str, str]]:
    """Color and marker of each line: both change from one to the next, so that gray prints tell them apart too."""
    return [(CLASS_COLORS[k % len(CLASS_COLORS)], CLASS_MARKERS[k % len(CLASS_MARKERS)]) for k in range(count)]


def risk_coverage(curves: Mapping[str, RiskCoverageCurve], ax: Axes | None = None) -> Figure:
    """Risk-coverage curves: the error among the samples that each classifier is surest of.

    Parameters
    ----------
    curves : mapping of str to RiskCoverageCurve
        Of ``evaluation.risk_coverage_curve``, by the classifier's name.
    ax : matplotlib.axes.Axes, optional
        Where to draw. None (default) makes a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one; the legend gives the area under each curve.

    Examples
    --------
    >>> from deepsimplex import evaluation
    >>> curve = evaluation.risk_coverage_curve([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]])
    >>> figure = risk_coverage({"network": curve})
    >>> figure.axes[0].get_legend().get_texts()[0].get_text()
    'network: 0.1111'
    """
    if not curves:
        raise ValueError("curves must hold at least one classifier's curve; found none")
    if ax is None:
        ax = Figure(figsize=(5.6, 4.0), dpi=120, layout="constrained").add_subplot()
    lines = {}
    for (name, curve), (color, marker) in zip(curves.items(), _styles(len(curves)), strict=True):
        (line,) = ax.plot(
            curve.coverage, curve.risk, color=color, marker=marker, markersize=4, markevery=0.1, linewidth=1.5
        )
        lines[literal(f"{name}: {curve.area:.4f}")] = line
    highest = max(float(np.max(curve.risk)) for curve in curves.values())
    ax.set(xlim=(0, 1), ylim=(0, 1.05 * highest or 1), xlabel="coverage", ylabel="error among the samples kept")
    ax.legend(list(lines.values()), list(lines), title="area under the curve", fontsize=8, title_fontsize=8)
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    return figure


def learning_curves(histories: Mapping[str, Mapping[str, Sequence[float]]], columns: int = 3) -> Figure:
    """Losses and metrics over the epochs, a panel for each, with a line for each run.

    Parameters
    ----------
    histories : mapping of str to mapping of str to sequence of float
        For each run what ``fit`` returns as ``.history``: one number per epoch. Names that begin with ``val_`` are
        drawn dashed in the panel of the name after it. The learning rate is left out.
    columns : int
        Panels per row at most, 3 by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = learning_curves({"digits": {"loss": [2.0, 1.0], "val_loss": [2.2, 1.4], "accuracy": [0.5, 0.8]}})
    >>> [ax.get_title() for ax in figure.axes]
    ['loss', 'accuracy']
    """
    panels = list(
        dict.fromkeys(
            name.removeprefix(VALIDATION) for history in histories.values() for name in history if name not in NO_CURVES
        )
    )
    if not panels:
        raise ValueError("histories must hold a loss or a metric of at least one run; found none")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.7 * rows + 0.5), dpi=120, layout="constrained")
    styles = dict(zip(histories, _styles(len(histories)), strict=True))
    handles: dict[str, Line2D] = {}
    for place, panel in enumerate(panels):
        ax = figure.add_subplot(rows, columns, place + 1)
        ax.set_title(panel.replace("_", " "), fontsize=10)
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        for name, history in histories.items():
            for key, kind in ((panel, ""), (VALIDATION + panel, "validation")):
                if key in history:
                    label = literal(f"{name}, {kind}" if kind else name)
                    handles[label] = _line(ax, history[key], styles[name], "--" if kind else "-")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, fontsize=8)
    return figure


def _line(ax: Axes, values: ArrayLike, style: tuple[str, str], dashes: str) -> Line2D:
    """One run's numbers, at epochs 1, 2, ..., with few marks however many there are."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    color, marker = style
    (line,) = ax.plot(
        np.arange(1, len(numbers) + 1),
        numbers,
        dashes,
        color=color,
        marker=marker,
        markersize=4,
        markevery=max(1, len(numbers) // 10),
        markerfacecolor=color if dashes == "-" else "white",
        linewidth=1.5,
    )
    return line
