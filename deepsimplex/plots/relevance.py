"""What a learned metric makes of features: the relevance matrix."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_whole
from deepsimplex.plots.arguments import check_names, real_array
from deepsimplex.plots.prototype_images import check_shape
from deepsimplex.plots.style import BLUE

MOST_NAMES = 40
"""Names that stand below one another and can be read; of more features every second is named, or third, ..."""


def _omega_of(given: Any) -> NDArray[np.floating]:
    """Omega [m, d] of a matrix or of a classifier that has one."""
    if hasattr(given, "omega_"):
        given = given.omega_
    elif hasattr(given, "predict"):
        raise TypeError(
            f"omega must be a matrix [m, d] or a fitted classifier with omega_, as GMLVQ; found {type(given).__name__} "
            "without one"
        )
    omega = real_array(given, "omega")
    if omega.ndim != 2 or not omega.size:
        raise ValueError(f"omega must have shape [m, d]; found shape {omega.shape}")
    return omega


def _color_bar(ax: Axes, image: AxesImage) -> None:
    """Below an axes and no part of its layout, so that rows of the heat map and bars stay in line."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    figure.colorbar(image, cax=ax.inset_axes((0.1, -0.1, 0.8, 0.04)), orientation="horizontal")


def _heat_map(ax: Axes, Lambda: NDArray[np.floating]) -> None:
    """Off-diagonal elements, on a scale that zero is the middle of; the diagonal stays empty."""
    apart = Lambda.astype(np.float64, copy=True)
    np.fill_diagonal(apart, 0.0)
    most = float(np.abs(apart).max()) or 1.0
    apart[np.diag_indices(len(apart))] = np.nan
    ax.set_facecolor("#cccccc")
    image = ax.imshow(apart, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    ax.set(xticks=())
    ax.set_title("Λ between features", fontsize=10)
    _color_bar(ax, image)


def relevance(
    omega: Any,
    feature_names: Sequence[str] | None = None,
    *,
    shape: Sequence[int] | None = None,
    sort: bool = False,
    top: int | None = None,
) -> Figure:
    """Relevance matrix Λ = Omega^T Omega of a learned metric: a heat map beside the bars of its diagonal.

    Distances are (x - w)^T Λ (x - w). A diagonal element is what a feature contributes by itself, ``relevance_``;
    off the diagonal, red marks two features whose like deviations add to the distance and blue those that cancel out.
    The diagonal, which outweighs the rest, is left out of the heat map.

    Parameters
    ----------
    omega : array_like, shape [m, d], or classifier
        A fitted classifier gives its ``omega_``, as ``GMLVQ``, of scaled features.
    feature_names : sequence of str, length d, optional
        Default: the classifier's ``feature_names_in_`` where it has them, else numbers.
    shape : sequence of int, optional
        [H, W] or [H, W, C] of image data: the diagonal is then an image, summed over channels, instead of bars.
    sort : bool
        Whether features stand in falling order of relevance. Default False: in their own.
    top : int, optional
        Draw so many features only, the most relevant. Default all.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    [GPLVQ sec. 3.1.3]. Relevances of features that say the same may be large and cancel out: then the heat map is blue
    between them. Columns of the heat map stand in the order of its rows.

    Examples
    --------
    >>> figure = relevance([[0.8, -0.6], [0.0, 0.5]], ["length", "width"])
    >>> figure.axes[0].images[0].get_array().round(2).tolist()
    [[None, -0.48], [-0.48, None]]
    >>> [round(float(bar.get_width()), 2) for bar in figure.axes[1].patches]
    [0.64, 0.61]
    """
    matrix = _omega_of(omega)
    d = matrix.shape[1]
    if feature_names is None:
        feature_names = getattr(omega, "feature_names_in_", None)
    names = check_names(feature_names, d, "feature_names", "features") or [str(j) for j in range(d)]
    picture = None if shape is None else check_shape(shape, d)
    Lambda = matrix.T @ matrix
    diagonal = np.diag(Lambda)
    order = np.arange(d)
    if sort or top is not None:
        ranked = np.argsort(-diagonal, kind="stable")
        chosen = ranked if top is None else ranked[: check_whole(top, "top", 1)]
        order = chosen if sort else np.sort(chosen)

    shown = len(order)
    side = float(np.clip(0.24 * shown, 2.2, 4.2))
    figure = Figure(figsize=(side + 3.9, side + 0.8), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[side, 2.4 if picture is None else side])
    _heat_map(left, Lambda[np.ix_(order, order)])
    step = -(-shown // MOST_NAMES)
    places = np.arange(0, shown, step)
    left.set_yticks(places, [names[order[j]] for j in places], fontsize=8 if shown <= 20 else 6)
    if picture is None:
        right.barh(np.arange(shown), diagonal[order], color=BLUE)
        right.set(ylim=(shown - 0.5, -0.5), yticks=())
        right.set_title("relevance (diagonal of Λ)", fontsize=10)
        for spine in ("top", "right"):
            right.spines[spine].set_visible(False)
    else:
        seen = diagonal.reshape(picture)
        seen = seen.sum(axis=2) if seen.ndim == 3 else seen
        image = right.imshow(seen, cmap="cividis", vmin=0, vmax=float(seen.max()) or 1.0, interpolation="nearest")
        right.set(xticks=(), yticks=())
        right.set_title("relevance (diagonal of Λ)", fontsize=10)
        _color_bar(right, image)
    return figure
