"""Risk-coverage, decision and learning curves of several classifiers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from deepsimplex._utils.validation import check_array, check_whole
from deepsimplex.evaluation import DecisionCurve, RiskCoverageCurve
from deepsimplex.plots.style import CLASS_COLORS, CLASS_MARKERS, GRAY, check_axes, figure_of, literal, new_axes

NOT_DRAWN = ("epoch", "learning_rate")


def _styles(count: int) -> list[tuple[str, str]]:
    """Return the color and marker of each line: both change from one to the next, for gray prints."""
    return [(CLASS_COLORS[k % len(CLASS_COLORS)], CLASS_MARKERS[k % len(CLASS_MARKERS)]) for k in range(count)]


def risk_coverage(curves: Mapping[str, RiskCoverageCurve], ax: Axes | None = None) -> Figure:
    """Draw risk-coverage curves: the error among the samples of which each classifier is most certain.

    Parameters
    ----------
    curves : mapping of str to RiskCoverageCurve
        Results of ``evaluation.risk_coverage_curve``, by the classifier's name.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default None: those of a new figure.

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
    known = isinstance(curves, Mapping) and all(isinstance(curve, RiskCoverageCurve) for curve in curves.values())
    if not known or not curves:
        raise ValueError(f"curves must hold at least one RiskCoverageCurve by its classifier's name; found {curves!r}")
    ax = new_axes(5.6, 4.0) if ax is None else check_axes(ax)
    lines = {}
    for (name, curve), (color, marker) in zip(curves.items(), _styles(len(curves)), strict=True):
        (line,) = ax.plot(
            curve.coverage, curve.risk, color=color, marker=marker, markersize=4, markevery=0.1, linewidth=1.5
        )
        lines[literal(f"{name}: {curve.area:.4f}")] = line
    highest = max(float(np.max(curve.risk)) for curve in curves.values())
    ax.set(xlim=(0, 1), ylim=(0, 1.05 * highest or 1), xlabel="coverage", ylabel="error among the samples kept")
    ax.legend(list(lines.values()), list(lines), title="area under the curve", fontsize=8, title_fontsize=8)
    return figure_of(ax)


def decision_curve(curves: Mapping[str, DecisionCurve], ax: Axes | None = None) -> Figure:
    """Draw decision curves: the net benefit of each classifier over the thresholds that somebody may decide by.

    Parameters
    ----------
    curves : mapping of str to DecisionCurve
        Results of ``evaluation.decision_curve`` for the same samples, by the classifier's name.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default None: those of a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one, with lines for treating all and none. At each threshold the highest line is
        the best way to decide.

    Examples
    --------
    >>> from deepsimplex import evaluation
    >>> curve = evaluation.decision_curve([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    >>> figure = decision_curve({"network": curve})
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['network', 'treat all', 'treat none']
    """
    known = isinstance(curves, Mapping) and all(isinstance(curve, DecisionCurve) for curve in curves.values())
    if not known or not curves:
        raise ValueError(f"curves must hold at least one DecisionCurve by its classifier's name; found {curves!r}")
    ax = new_axes(5.6, 4.0) if ax is None else check_axes(ax)
    lines = {}
    for (name, curve), (color, marker) in zip(curves.items(), _styles(len(curves)), strict=True):
        style: Any = {"color": color, "marker": marker, "markersize": 4, "markevery": 0.1, "linewidth": 1.5}
        (lines[literal(name)],) = ax.plot(curve.thresholds, curve.net_benefit, **style)
    all_curve = next(iter(curves.values()))
    (lines["treat all"],) = ax.plot(all_curve.thresholds, all_curve.treat_all, color=GRAY, linewidth=1.0)
    lines["treat none"] = ax.axhline(0.0, color=GRAY, linewidth=1.0, linestyle="--")
    highest = max(float(np.max([curve.net_benefit.max(), curve.treat_all.max()])) for curve in curves.values())
    highest = highest if highest > 0 else 1.0
    ax.set(xlabel="threshold of probability", ylabel="net benefit", ylim=(-0.3 * highest, 1.05 * highest))
    ax.legend(list(lines.values()), list(lines), fontsize=8)
    return figure_of(ax)


def learning_curves(histories: Mapping[str, Mapping[str, Sequence[float]]], columns: int = 3) -> Figure:
    """Draw losses and metrics over the epochs: a panel for each, with a line for each run.

    Parameters
    ----------
    histories : mapping of str to mapping of str to sequence of float
        The ``history`` of each run, as Keras' ``fit`` returns it: one number per epoch. Names that begin with ``val_``
        are drawn dashed in the panel of the rest of the name. The learning rate is left out.
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
    if not isinstance(histories, Mapping) or not all(isinstance(one, Mapping) for one in histories.values()):
        raise TypeError(f"histories must map names of runs to their histories; found {histories!r}")
    keys = [key for history in histories.values() for key in history if key not in NOT_DRAWN]
    panels = list(dict.fromkeys(key.removeprefix("val_") for key in keys))
    if not panels:
        raise ValueError("histories must hold a loss or a metric of at least one run; found none")
    columns = min(check_whole(columns, "columns", 1), len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.7 * rows + 0.5), dpi=120, layout="constrained")
    handles: dict[str, Line2D] = {}
    for place, panel in enumerate(panels):
        ax = figure.add_subplot(rows, columns, place + 1)
        ax.set_title(panel.replace("_", " "), fontsize=10)
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        for (name, history), (color, marker) in zip(histories.items(), _styles(len(histories)), strict=True):
            for key, dashes, label in ((panel, "-", name), (f"val_{panel}", "--", f"{name}, validation")):
                if key not in history:
                    continue
                values = check_array(history[key], "histories", finite=False).reshape(-1)
                (handles[literal(label)],) = ax.plot(
                    np.arange(1, len(values) + 1),
                    values,
                    dashes,
                    color=color,
                    marker=marker,
                    markersize=4,
                    markevery=max(1, len(values) // 10),
                    markerfacecolor=color if dashes == "-" else "white",
                    linewidth=1.5,
                )
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, fontsize=8)
    return figure
