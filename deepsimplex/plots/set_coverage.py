"""Figure of the sizes and the coverage of prediction sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex import evaluation
from deepsimplex._utils.validation import check_number
from deepsimplex.evaluation import coverage_by_class, coverage_by_size
from deepsimplex.plots.style import BLUE, GRAY, VERMILLION, literal, names_of_columns


def prediction_sets(
    y: ArrayLike,
    sets: ArrayLike,
    coverage: float | None = None,
    class_names: Sequence[str] | None = None,
    *,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw the sizes of sets of classes, with the coverage at every size, and the coverage of every class.

    Parameters
    ----------
    y : array_like, shape [N]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    sets : array_like of bool, shape [N, n]
        As ``predict_set`` returns them.
    coverage : float, optional
        Guaranteed coverage, that of ``conformalize``, drawn as a line.
    class_names : sequence of str, length n, optional
        Names of the classes in the figure; by default ``classes``, or their numbers.
    classes : sequence of length n, optional
        The name of each column of ``sets``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure
        Left: bars of the share of sets of every size, and dots of their coverage. Right: the coverage of every class.

    Examples
    --------
    >>> sets = [[True, False, False], [True, True, False], [False, True, True]]
    >>> figure = prediction_sets([0, 2, 2], sets, coverage=0.9)
    >>> figure.axes[0].get_title()
    'coverage 0.667, mean size 1.67'
    """
    by_size, by_class = (score(y, sets, classes=classes) for score in (coverage_by_size, coverage_by_class))
    wanted = None if coverage is None else check_number(coverage, "coverage", above=0, below=1)
    n = len(by_class)
    names = names_of_columns(class_names, classes, n, "columns of sets")
    sizes = np.flatnonzero(np.isfinite(by_size))
    shares = np.bincount(np.asarray(sets).sum(axis=1), minlength=n + 1) / len(np.asarray(sets))
    figure = Figure(figsize=(8.4, 3.6), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.bar(sizes, shares[sizes], color=GRAY, label="share of the sets")
    left.set(
        xlabel="classes in the set",
        xticks=sizes,
        title=f"coverage {evaluation.coverage(y, sets, classes=classes):.3f}, mean size {sizes @ shares[sizes]:.2f}",
    )
    _draw_coverage(left, sizes, by_size[sizes], wanted)
    left.legend(fontsize=8)
    known = np.flatnonzero(np.isfinite(by_class))
    _draw_coverage(right, known, by_class[known], wanted)
    right.set(xlabel="true class", xticks=known, ylabel="coverage")
    right.set_xticklabels([literal(names[k]) for k in known], rotation=45 if n > 5 else 0, fontsize=8)
    return figure


def _draw_coverage(ax: Axes, places: NDArray[np.integer], values: NDArray[np.floating], wanted: float | None) -> None:
    ax.plot(places, values, "o", color=BLUE, label="coverage")
    if wanted is not None:
        ax.axhline(wanted, color=VERMILLION, linewidth=1.0, linestyle="--", label="promised")
    ax.set_ylim(0, 1.05)
