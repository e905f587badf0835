"""ROC and precision-recall curves of classes; risk-coverage, decision and learning curves of several classifiers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import (
    check_array,
    check_class_names,
    check_labels_and_probabilities,
    check_whole,
)
from deepsimplex.evaluation import (
    ClassScores,
    DecisionCurve,
    RiskCoverageCurve,
    class_scores,
    precision_recall_curve,
    roc_curve,
)
from deepsimplex.plots.style import (
    BLACK,
    CLASS_COLORS,
    CLASS_MARKERS,
    GRAY,
    check_axes,
    check_only,
    figure_of,
    literal,
    names_of_columns,
    new_axes,
    shortened,
)

NOT_DRAWN = ("epoch", "learning_rate")
MOST_CURVES = 10  # of classes in one figure, unless they are chosen
LONGEST = 24  # characters of a name in a legend


def _styles(count: int) -> list[tuple[str, str]]:
    """Return the color and marker of each line: both change from one to the next, for gray prints."""
    return [(CLASS_COLORS[k % len(CLASS_COLORS)], CLASS_MARKERS[k % len(CLASS_MARKERS)]) for k in range(count)]


def roc(
    y: ArrayLike,
    p: ArrayLike,
    ax: Axes | None = None,
    *,
    only: Sequence[Any] | None = None,
    scores: ClassScores | None = None,
    class_names: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw the ROC curve of each class against the rest, with the area under it in the legend.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default None: those of a new figure.
    only : sequence, optional
        Classes to draw, named as in ``y``. Default None: of two classes the second; of more those of the smallest
        areas, ten at most, and the mean over all.
    scores : ClassScores, optional
        ``evaluation.class_scores(y, p, intervals=0.95)``, whose intervals of the areas stand in the legend. Default
        None: no intervals.
    class_names : sequence of str, length n, optional
        Names of the classes in the figure; by default ``classes``, or their numbers.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. A class without samples has no curve, and the legend says so.

    Examples
    --------
    >>> figure = roc(["sick", "well"], [[0.9, 0.1], [0.3, 0.7]], classes=["sick", "well"])
    >>> figure.axes[0].get_legend().get_texts()[0].get_text()
    'well: 1.000'
    """
    ax, is_new = (new_axes(4.8, 4.2), True) if ax is None else (check_axes(ax), False)
    lines = _curves_of_classes("roc_auc", ax, y, p, only, scores, class_names, classes)
    lines += ax.plot([0, 1], [0, 1], "--", color=BLACK, linewidth=1, label="chance: 0.500")
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel="false positive rate", ylabel="true positive rate")
    return _with_legend_below(ax, lines, "area under the curve", is_new)


def precision_recall(
    y: ArrayLike,
    p: ArrayLike,
    ax: Axes | None = None,
    *,
    only: Sequence[Any] | None = None,
    scores: ClassScores | None = None,
    class_names: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw the precision-recall curve of each class against the rest, with its average precision in the legend.

    Parameters
    ----------
    y, p, ax, only, scores, class_names, classes
        As in ``roc``; without ``only``, the ten classes of the smallest average precision at most.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one.

    Examples
    --------
    >>> figure = precision_recall(["sick", "well"], [[0.9, 0.1], [0.3, 0.7]], classes=["sick", "well"])
    >>> figure.axes[0].get_legend().get_texts()[0].get_text()
    'well: 1.000'
    """
    ax, is_new = (new_axes(4.8, 4.2), True) if ax is None else (check_axes(ax), False)
    lines = _curves_of_classes("average_precision", ax, y, p, only, scores, class_names, classes)
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel="recall (sensitivity)", ylabel="precision")
    return _with_legend_below(ax, lines, "average precision", is_new)


def _with_legend_below(ax: Axes, lines: Sequence[Line2D], title: str, is_new: bool) -> Figure:
    """Draw the legend where it hides no curve, and make a new figure higher by it."""
    figure = figure_of(ax)
    if is_new:
        figure.set_figheight(figure.get_figheight() + 0.3 + 0.165 * len(lines))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.6 / 3.7), "borderaxespad": 0.0}
    ax.legend(handles=lines, title=title, fontsize=8, title_fontsize=8, frameon=False, alignment="left", **place)
    return figure


def _curves_of_classes(
    area: str,
    ax: Axes,
    y: ArrayLike,
    p: ArrayLike,
    only: Sequence[Any] | None,
    scores: ClassScores | None,
    class_names: Sequence[str] | None,
    classes: Sequence[Any] | None,
) -> list[Line2D]:
    """Draw a curve for each class; return the lines, with labels, for a legend."""
    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    n = probabilities.shape[1]
    known = check_class_names(classes, n)
    names = names_of_columns(class_names, known, n)
    scores = class_scores(labels, probabilities) if scores is None else scores
    if not isinstance(scores, ClassScores) or len(scores.classes) != n:
        raise ValueError(f"scores must be evaluation.class_scores of these {n} classes; found {type(scores).__name__}")
    areas = getattr(scores, area)
    if only is None:
        worst = np.argsort(np.where(np.isnan(areas), np.inf, areas), kind="stable")[:MOST_CURVES]
        chosen = [1] if n == 2 else sorted(worst.tolist())
    else:
        chosen = check_only(only, known, "different classes of y, at least one")

    def draw(k: int | None, name: str, **style: Any) -> Line2D:
        if area == "roc_auc":
            roc = roc_curve(labels, probabilities, k)
            x, height, value = roc.false_positive_rate, roc.true_positive_rate, roc.area
        else:
            recall = precision_recall_curve(labels, probabilities, k)
            x, height, value = recall.recall, recall.precision, recall.average_precision
            style["drawstyle"] = "steps-post"
        between = (
            "" if k is None or scores.intervals is None else " ({:.3f} to {:.3f})".format(*scores.intervals[area][k])
        )
        text = f"{name}: not defined" if np.isnan(value) else f"{name}: {value:.3f}{between}"
        style["markevery"] = None if np.isnan(value) else 0.1
        (line,) = ax.plot(x, height, clip_on=False, label=text, **style)
        return line

    marks: dict[str, Any] = {"markersize": 4, "linewidth": 1.5}
    lines = [
        draw(k, shortened(names[k], LONGEST), color=color, marker=marker, **marks)
        for k, (color, marker) in zip(chosen, _styles(len(chosen)), strict=True)
    ]
    if only is None and n > 2:
        lines.append(draw(None, f"mean of {n} classes", color=GRAY, linewidth=3, alpha=0.6, zorder=1.5))
    return lines


def _check_curves(curves: Any, kind: type) -> None:
    known = isinstance(curves, Mapping) and all(isinstance(curve, kind) for curve in curves.values())
    if not known or not curves:
        raise ValueError(f"curves must hold at least one {kind.__name__} by its name; found {_kinds(curves)}")


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
    _check_curves(curves, RiskCoverageCurve)
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
    _check_curves(curves, DecisionCurve)
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


def _kinds(value: Any) -> str:
    """Return the type of a value, and of a mapping those of its values by their names."""
    if not isinstance(value, Mapping):
        return type(value).__name__
    return "{" + ", ".join(f"{name!r}: {type(one).__name__}" for name, one in value.items()) + "}"


def learning_curves(histories: Mapping[str, Mapping[str, Sequence[float]]], columns: int = 3) -> Figure:
    """Draw losses and metrics over the epochs: a panel for each, with a line for each run.

    Parameters
    ----------
    histories : mapping of str to mapping of str to sequence of float
        By the name of each run what Keras' ``fit`` returns, or its ``history``: one number per epoch. Names that begin
        with ``val_`` are drawn dashed in the panel of the rest of the name. The learning rate is left out.
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
    if isinstance(histories, Mapping):
        histories = {name: getattr(one, "history", one) for name, one in histories.items()}
    if not isinstance(histories, Mapping) or not all(isinstance(one, Mapping) for one in histories.values()):
        raise TypeError(
            f"histories must map names of runs to their histories, as {{'network': history}}; found {_kinds(histories)}"
        )
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
