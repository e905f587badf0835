"""Which classes are taken for which."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.validation import check_labels_and_probabilities
from deepsimplex.plots.arguments import check_names
from deepsimplex.plots.style import literal

NORMALIZE = {None: "samples", "true": "share of the true class", "pred": "share of the assigned class", "all": "share"}


def confusion_matrix(
    y: ArrayLike,
    p: ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    normalize: Literal["true", "pred", "all"] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Confusion matrix: true classes down, assigned ones across ([CASIMAC] Table 5).

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned, the lowest among equals.
    class_names : sequence of str, length n, optional
        Names of the classes; their numbers by default.
    normalize : {"true", "pred", "all"}, optional
        Shares of the true classes (rows), of the assigned ones (columns) or of all samples, as scikit-learn has it; a
        class without samples has shares of 0. Default None: numbers of samples.
    ax : matplotlib.axes.Axes, optional
        Where to draw. None (default) makes a figure of its own, larger for more classes.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. Cells of 0 stay empty, so that what is confused stands out; shading grows
        with the square root, so that a few confused samples are seen beside many right ones.

    Examples
    --------
    >>> figure = confusion_matrix([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], class_names=["cat", "dog"])
    >>> figure.axes[0].images[0].get_array().tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    from sklearn import metrics

    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    names = check_names(class_names, n, "class_names", "columns of p") or [str(k) for k in range(n)]
    if normalize not in NORMALIZE:
        known = [key for key in NORMALIZE if key]
        raise ValueError(
            f"normalize must be None or one of {', '.join(known)}; found {normalize!r}{did_you_mean(normalize, known)}"
        )
    matrix = metrics.confusion_matrix(labels, probabilities.argmax(axis=1), labels=range(n), normalize=normalize)
    matrix = matrix.astype(np.float64)
    if ax is None:
        side = float(np.clip(1.4 + 0.42 * n, 3.2, 12.0))
        ax = Figure(figsize=(side + 0.5, side), dpi=120, layout="constrained").add_subplot()
    ax.imshow(matrix, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=matrix.max()))
    size = float(np.clip(10 - 0.22 * n, 4.5, 9))
    for i, j in np.argwhere(matrix > 0):
        value = matrix[i, j]
        text = f"{value:.0f}" if normalize is None else f"{value:.2f}".removeprefix("0")
        color = "white" if value > 0.3 * matrix.max() else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=size, color=color)
    slanted = max(map(len, names)) > 3
    ax.set_xticks(range(n), [literal(name) for name in names], rotation=45 if slanted else 0)
    for label in ax.get_xticklabels() if slanted else []:
        label.set(ha="right", rotation_mode="anchor")
    ax.set_yticks(range(n), [literal(name) for name in names])
    ax.tick_params(length=0, labelsize=size)
    ax.set(xlabel="assigned class", ylabel="true class")
    ax.set_title(f"{NORMALIZE[normalize]}; accuracy {np.mean(probabilities.argmax(axis=1) == labels):.3f}", fontsize=9)
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    return figure
