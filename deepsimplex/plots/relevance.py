"""Relevance matrix of a learned metric."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_array, check_names, check_whole
from deepsimplex.plots.prototype_images import check_shape
from deepsimplex.plots.style import BLUE, figure_of

MOST_NAMES = 40  # readable below one another; of more features every second is named, or third, ...


def relevance(
    omega: Any,
    feature_names: Sequence[str] | None = None,
    *,
    shape: Sequence[int] | None = None,
    sort: bool = False,
    top: int | None = None,
) -> Figure:
    """Draw the relevance matrix Λ = Omega^T Omega of a learned metric: a heat map, and bars of its diagonal.

    Distances are (x - w)^T Λ (x - w). A diagonal element is the contribution of a feature by itself, ``relevance_``.
    Off the diagonal, red marks two features whose differences of equal sign add to the distance, blue those that cancel
    out. The diagonal, which is larger than the rest, is left out of the heat map.

    Parameters
    ----------
    omega : array_like, shape [m, d], or classifier
        The matrix, or a fitted classifier with ``omega_``, such as ``GMLVQ`` (of scaled features).
    feature_names : sequence of str, length d, optional
        Default: the classifier's ``feature_names_in_`` if it has them, else numbers.
    shape : sequence of int, optional
        [H, W] or [H, W, C] of image data: the diagonal is drawn as an image, summed over channels, instead of bars.
    sort : bool
        Draw features in falling order of relevance. Default False: in their own order.
    top : int, optional
        Draw only so many features, the most relevant ones. Default: all.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    [GPLVQ sec. 3.1.3]. Relevances of redundant features may be large and cancel out: then the heat map is blue between
    them. Columns of the heat map are in the order of its rows.

    Examples
    --------
    >>> figure = relevance([[0.8, -0.6], [0.0, 0.5]], ["length", "width"])
    >>> figure.axes[0].images[0].get_array().round(2).tolist()
    [[None, -0.48], [-0.48, None]]
    >>> [round(float(bar.get_width()), 2) for bar in figure.axes[1].patches]
    [0.64, 0.61]
    """
    given = getattr(omega, "omega_", omega)
    if given is omega and hasattr(omega, "predict"):
        raise TypeError(
            f"omega must be a matrix [m, d] or a fitted classifier with omega_, as GMLVQ; found {type(omega).__name__} "
            "without one"
        )
    matrix = check_array(given, "omega")
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"omega must have shape [m, d]; found shape {matrix.shape}")
    d = matrix.shape[1]
    if feature_names is None:
        feature_names = getattr(omega, "feature_names_in_", None)
    names = check_names(feature_names, d, "feature_names", "features") or [str(j) for j in range(d)]
    picture = None if shape is None else check_shape(shape, d)
    Lambda = matrix.T @ matrix
    diagonal = np.diag(Lambda)
    ranked = np.argsort(-diagonal, kind="stable")[: None if top is None else check_whole(top, "top", 1)]
    order = ranked if sort else np.sort(ranked)

    shown = len(order)
    side = float(np.clip(0.24 * shown, 2.2, 4.2))
    figure = Figure(figsize=(side + 3.9, side + 0.8), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[side, 2.4 if picture is None else side])
    _heat_map(left, Lambda[np.ix_(order, order)])
    places = np.arange(0, shown, -(-shown // MOST_NAMES))
    left.set_yticks(places, [names[order[j]] for j in places], fontsize=8 if shown <= 20 else 6)
    if picture is None:
        right.barh(np.arange(shown), diagonal[order], color=BLUE)
        right.set(ylim=(shown - 0.5, -0.5), yticks=())
        right.spines[["top", "right"]].set_visible(False)
    else:
        image = diagonal.reshape(picture)
        image = image.sum(axis=2) if image.ndim == 3 else image
        _image(right, image, cmap="cividis", vmin=0, vmax=float(image.max()) or 1.0)
        right.set(xticks=(), yticks=())
    right.set_title("relevance (diagonal of Λ)", fontsize=10)
    return figure


def _heat_map(ax: Axes, Lambda: NDArray[np.float64]) -> None:
    """Draw the elements off the diagonal on a scale whose middle is zero."""
    elements = Lambda.copy()
    np.fill_diagonal(elements, 0.0)
    most = float(np.abs(elements).max()) or 1.0
    np.fill_diagonal(elements, np.nan)
    ax.set_facecolor("#cccccc")
    _image(ax, elements, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    ax.set(xticks=())
    ax.set_title("Λ between features", fontsize=10)


def _image(ax: Axes, values: NDArray[np.float64], **options: Any) -> None:
    """Draw an image, and its color bar below, outside of the layout, so that rows and bars stay in line."""
    image = ax.imshow(values, interpolation="nearest", **options)
    figure_of(ax).colorbar(image, cax=ax.inset_axes((0.1, -0.1, 0.8, 0.04)), orientation="horizontal")
