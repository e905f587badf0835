"""Confusion matrix."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_choice, check_class_names, check_labels_and_probabilities
from deepsimplex.plots.style import check_axes, check_only, figure_of, literal, names_of_columns, new_axes

NORMALIZE = {None: "samples", "true": "share of the true class", "pred": "share of the assigned class", "all": "share"}


def confusion_matrix(
    y: ArrayLike,
    p: ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    normalize: Literal["true", "pred", "all"] | None = None,
    ax: Axes | None = None,
    only: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw a confusion matrix: true classes down, assigned ones across ([CASIMAC] Table 5).

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned, the lowest among equals.
    class_names : sequence of str, length n, optional
        Names of the classes in the figure; by default ``classes``, or their numbers.
    normalize : {"true", "pred", "all"}, optional
        Divide by the samples of the true class (rows), of the assigned class (columns) or by all samples, as in
        ``sklearn.metrics.confusion_matrix``; a class without samples has shares of 0. Default None: counts.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default None: those of a new figure, larger for more classes.
    only : sequence, optional
        Classes to draw, named as in ``y``, in this order: low before medium before high. Samples of, or assigned to,
        others are left out. Default: all, in the order of the columns.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. Cells of 0 stay empty. Shading grows with the square root, so that a few
        confused samples are seen beside many correct ones.

    Examples
    --------
    >>> figure = confusion_matrix([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], class_names=["cat", "dog"])
    >>> figure.axes[0].images[0].get_array().tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    from sklearn import metrics

    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    assigned, known = probabilities.argmax(axis=1), check_class_names(classes, probabilities.shape[1])
    chosen = check_only(known if only is None else only, known, "different classes of y, at least one")
    names, n = np.array(names_of_columns(class_names, classes, len(known)), object)[chosen], len(chosen)
    if normalize is not None:
        check_choice(normalize, "normalize", [key for key in NORMALIZE if key], "None or one of")
    matrix = metrics.confusion_matrix(labels, assigned, labels=chosen, normalize=normalize).astype(np.float64)
    if ax is None:
        side = float(np.clip(1.4 + 0.42 * n, 3.2, 12.0))
        ax = new_axes(side + 0.5, side)
    check_axes(ax)
    ax.imshow(matrix, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=matrix.max()))
    size = float(np.clip(10 - 0.22 * n, 4.5, 9))
    for i, j in np.argwhere(matrix > 0):
        value = matrix[i, j]
        text = f"{value:.0f}" if normalize is None else f"{value:.2f}".removeprefix("0")
        color = "white" if value > 0.3 * matrix.max() else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=size, color=color)
    ticks = [literal(name) for name in names]
    slanted: dict[str, Any] = (
        {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 3 else {}
    )
    ax.set_xticks(range(n), ticks, **slanted)
    ax.set_yticks(range(n), ticks)
    ax.tick_params(length=0, labelsize=size)
    ax.set(xlabel="assigned class", ylabel="true class")
    ax.set_title(f"{NORMALIZE[normalize]}; accuracy {np.mean(assigned == labels):.3f}", fontsize=9)
    return figure_of(ax)
