"""Reliability of every class, one against the rest, in small multiples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_labels_and_probabilities
from deepsimplex.evaluation import ReliabilityCurve, reliability_curve
from deepsimplex.plots.arguments import check_names
from deepsimplex.plots.style import BLACK, BLUE, GREY, ORANGE, literal

MOST_COLUMNS, MOST_PANELS = 5, 50
SIDE, ACROSS, DOWN = 1.4, 0.16, 0.5
"""Of a panel, and between columns and rows of panels, in inches."""
LEFT, RIGHT, TOP, BOTTOM = 0.5, 0.12, 0.4, 0.46
"""Margins of the figure, in inches."""
TICKS = (0.0, 0.5, 1.0), ("0", "0.5", "1")
LARGEST, THICKEST = 40.0, 3.0
"""Area of the point, in square points, and width of the gap, in points, of a bin that holds all samples."""
LABEL: dict[str, Any] = {"fontsize": 9, "ha": "center", "va": "bottom"}
TURNED: dict[str, Any] = {"ha": "left", "va": "center"}


def classwise_reliability(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    *,
    class_names: Sequence[str] | None = None,
    classes: Sequence[int] | None = None,
) -> Figure:
    """Reliability of each class against the rest: a small panel per class, with its calibration error.

    What the top label hides: a class whose smaller probabilities are wrong, or that others are taken for. The mean of
    the errors over all classes is ``evaluation.classwise_calibration_error``.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int
        Number of bins of equal width, 15 by default.
    class_names : sequence of str, length n, optional
        Names of the classes; their numbers by default.
    classes : sequence of int, optional
        Which to draw, in this order, 50 at most. Default all.

    Returns
    -------
    matplotlib.figure.Figure
        Five panels in a row. A point is a bin, at its mean probability and frequency, with its gap to the diagonal, and
        larger the more samples it holds: its area grows with the logarithm of their number. A class without samples is
        drawn too, at frequency 0.

    Raises
    ------
    TypeError, ValueError
        For arguments that break the above.

    Examples
    --------
    >>> figure = classwise_reliability([0, 2], [[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]], bins=5, class_names=[*"abc"])
    >>> [ax.get_title() for ax in figure.axes]
    ['a\\nECE 0.200, 1 sample', 'b\\nECE 0.150, 0 samples', 'c\\nECE 0.250, 1 sample']
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    names = check_names(class_names, n, "class_names", "columns of p") or [f"class {k}" for k in range(n)]
    chosen = _check_classes(classes, n)
    columns = min(len(chosen), MOST_COLUMNS)
    rows = -(-len(chosen) // columns)
    figure, axes = _panels(rows, columns, len(chosen))
    for ax, k in zip(axes, chosen, strict=True):
        curve = reliability_curve(labels, probabilities, bins, of_class=k)
        _draw(ax, curve)
        members = np.sum(labels == k)
        text = f"ECE {curve.expected_calibration_error:.3f}, {members} sample{'' if members == 1 else 's'}"
        ax.set_title(f"{literal(names[k])}\n{text}", fontsize=7.5, pad=3, linespacing=1.15)
    return figure


def _check_classes(classes: Sequence[int] | None, n: int) -> list[int]:
    """The classes to draw, or what is wrong with them."""
    chosen = list(range(n)) if classes is None else list(classes)
    if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(n)):
        raise ValueError(f"classes must be different ones of 0..{n - 1}, at least one; found {classes!r}")
    if len(chosen) > MOST_PANELS:
        raise ValueError(
            f"classes must choose at most {MOST_PANELS}, for panels that can be read; found {len(chosen)}. The worst "
            "ones are those of the largest evaluation.calibration_error_by_class(y, p)"
        )
    return [int(k) for k in chosen]


def _panels(rows: int, columns: int, count: int) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` square panels, placed by hand: a layout engine would measure every text twice."""
    width = LEFT + columns * SIDE + (columns - 1) * ACROSS + RIGHT
    height = TOP + rows * SIDE + (rows - 1) * DOWN + BOTTOM
    figure = Figure(figsize=(width, height), dpi=120)
    axes = []
    for i in range(count):
        row, column = divmod(i, columns)
        x, y = LEFT + column * (SIDE + ACROSS), height - TOP - SIDE - row * (SIDE + DOWN)
        ax = figure.add_axes((x / width, y / height, SIDE / width, SIDE / height), xlim=(0, 1), ylim=(0, 1))
        ax.spines[:].set_color(GREY)
        ax.set_xticks(*TICKS)
        ax.set_yticks(*TICKS)
        # Numbers stand where no panel follows: on the left, and below.
        ax.tick_params(length=2, pad=2, labelsize=7, labelleft=column == 0, labelbottom=i + columns >= count)
        axes.append(ax)
    middle = (BOTTOM + (height - TOP)) / 2
    figure.text(0.5 + (LEFT - RIGHT) / 2 / width, 0.08 / height, "predicted probability", **LABEL)
    figure.text(0.08 / width, middle / height, "frequency", rotation=90, **(LABEL | TURNED))
    return figure, axes


def _draw(ax: Axes, curve: ReliabilityCurve) -> None:
    """A point for each bin that holds samples, and its gap to the diagonal; a line would tie the many to the few."""
    filled = curve.counts > 0
    confidence, frequency = curve.confidence[filled], curve.frequency[filled]
    share = np.log1p(curve.counts[filled]) / np.log1p(curve.counts.sum())
    ax.plot([0, 1], [0, 1], "--", color=BLACK, linewidth=0.8)
    ax.vlines(confidence, confidence, frequency, color=ORANGE, linewidths=THICKEST * share, label="gap")
    ax.scatter(
        confidence, frequency, s=LARGEST * share, color=BLUE, clip_on=False, linewidths=0, zorder=3, label="bins"
    )
