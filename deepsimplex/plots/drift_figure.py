"""Figure of a stream of predictions that is watched for drift."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from deepsimplex.evaluation import DriftMonitor
from deepsimplex.evaluation.drift_monitor import share_interval
from deepsimplex.plots.style import BLUE, GRAY, GREEN, ORANGE, SKY, VERMILLION, literal

_POINTS = 400
_COLORS = {"confidence": BLUE, "familiarity": GREEN, "true class": ORANGE}


def drift(monitor: DriftMonitor) -> Figure:
    """Draw the evidence of drift, and what has changed.

    Parameters
    ----------
    monitor : DriftMonitor
        After at least one ``update``.

    Returns
    -------
    matplotlib.figure.Figure
        The evidence of each statistic over the samples of the stream, which raises the alarm at the dashed line; moving
        means of confidence and familiarity, with those of the reference; class frequencies; and, if samples are
        labeled, the coverage of the sets with an interval that holds at all times together.

    Raises
    ------
    ValueError
        For a monitor without samples.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]] * 50)
    >>> monitor = DriftMonitor(p)
    >>> monitor.update(p).alarm
    >>> drift(monitor).axes[0].get_title()
    'no drift in 100 samples'
    """
    report = monitor.report()
    if not report.samples:
        raise ValueError("monitor must have watched samples; found none. Call update first")
    figure = Figure(figsize=(8.8, 6.4), dpi=120, layout="constrained")
    (evidence, means), (frequencies, coverage) = figure.subplots(2, 2)
    _draw_evidence(evidence, monitor)
    evidence.set_title(
        f"no drift in {report.samples} samples"
        if report.alarm is None
        else f"drift after {report.alarm} samples: {literal(report.cause)}"
    )
    _draw_means(means, monitor)
    names = list(report.class_frequencies)
    before, now = np.array([report.class_frequencies[name] for name in names], float).T
    place = np.arange(len(names))
    frequencies.bar(place - 0.2, before, 0.4, color=GRAY, label="reference")
    frequencies.bar(place + 0.2, now, 0.4, color=BLUE, label=f"last {min(monitor.recent, report.samples)} samples")
    frequencies.set(ylabel="mean probability", title="class frequencies")
    if len(names) <= 20:
        frequencies.set_xticks(place, map(literal, names), rotation=45 if max(map(len, names)) > 2 else 0, fontsize=8)
    frequencies.legend(fontsize=8)
    if report.labels:
        _draw_coverage(coverage, monitor)
    else:
        coverage.set_axis_off()
    return figure


def _draw_evidence(ax: Axes, monitor: DriftMonitor) -> None:
    chosen = _some(len(monitor.log_evidence))
    paths = monitor.log_evidence[chosen] / math.log(10)
    classes = [j for j, name in enumerate(monitor.tests) if name not in _COLORS]
    for j, name in enumerate(monitor.tests):
        if name in _COLORS:
            ax.plot(chosen, paths[:, j], color=_COLORS[name], label=name, linewidth=1.4)
        else:
            label = "classes" if j == classes[0] else None
            ax.plot(chosen, paths[:, j], color=SKY, label=label, linewidth=0.8)
    ax.axhline(-math.log10(monitor.level), color=VERMILLION, linestyle="--", linewidth=1.0, label="alarm")
    ax.set(xlabel="samples", ylabel="evidence, log10")
    ax.legend(fontsize=8)


def _draw_means(ax: Axes, monitor: DriftMonitor) -> None:
    values = {"confidence": [columns["p"].max(axis=1) for columns in (monitor.reference, monitor.stream)]}
    if "familiarity" in monitor.tests:
        values["familiarity"] = [columns["familiarity"] for columns in (monitor.reference, monitor.stream)]
    width = min(100, -(-len(monitor.stream["y"]) // 2))  # of few samples a curve, too
    for name, (reference, stream) in values.items():
        total = np.concatenate([[0.0], np.cumsum(stream, dtype=np.float64)])
        moving = (total[width:] - total[:-width]) / width
        chosen = _some(len(moving))
        ax.plot(chosen + width, moving[chosen], color=_COLORS[name], label=name, linewidth=1.4)
        ax.axhline(reference.mean(), color=_COLORS[name], linestyle=":", linewidth=1.0, label=f"{name}, reference")
    ax.set(xlabel="samples", ylim=(0, 1.02), title=f"means of {width} samples")
    ax.legend(fontsize=8)


def _draw_coverage(ax: Axes, monitor: DriftMonitor) -> None:
    given = np.flatnonzero(monitor.stream["y"] >= 0)
    hits = np.cumsum(monitor.stream["covered"][given])
    chosen = _some(len(given), 100)
    lower, upper = np.array([share_interval(int(hits[k]), int(k) + 1, monitor.level) for k in chosen]).T
    ax.plot(given[chosen] + 1, hits[chosen] / (chosen + 1), color=BLUE, label="coverage of the sets")
    ax.fill_between(given[chosen] + 1, lower, upper, color=BLUE, alpha=0.2, linewidth=0)
    ax.axhline(monitor.coverage, color=VERMILLION, linestyle="--", linewidth=1.0, label="promised")
    ax.set(xlabel="samples", ylim=(0, 1.05), title=f"coverage of {len(given)} labeled samples")
    ax.legend(fontsize=8, loc="lower right")


def _some(count: int, most: int = _POINTS) -> NDArray[np.int64]:
    """Return at most ``most`` numbers below ``count``, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
