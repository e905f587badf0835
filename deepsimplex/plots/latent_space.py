"""Latents of any number of classes in a plane: principal components, or the plane of three chosen classes."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_class_names, check_labels_beside
from deepsimplex.geometry import vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.plots.simplex import KEY, draw_samples
from deepsimplex.plots.style import (
    BLACK,
    check_axes,
    check_only,
    class_style,
    figure_of,
    literal,
    mark,
    names_of_columns,
    new_axes,
    side_legend,
)

Array = NDArray[np.floating]


def latent_space(
    latent: LatentGaussian | ArrayLike,
    y: ArrayLike | None = None,
    *,
    only: Sequence[Any] | None = None,
    scores: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    level: float | None = None,
    ax: Axes | None = None,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Scatter latents in a plane, with the direction in which the score of each class grows.

    Parameters
    ----------
    latent : LatentGaussian or array_like, shape [N, L]
        Latents of samples, as ``predict_latent`` or a target returns them.
    y : array_like, shape [N] or [N, 1], optional
        True classes, numbers 0..n-1 or names that ``classes`` holds: the inner color of a marker, whose ring is the
        assigned class. Default None: colors are those of the assigned classes.
    only : sequence of three classes, optional
        Draw the plane spanned by the scores of these three classes, with the borders between them, and only their
        samples: those labeled so by ``y``, or assigned to them. Default None: the plane of the first two principal
        components of all samples, without borders, which are no lines there.
    scores : array_like, shape [n, L], optional
        Scores of the classes, such as ``target.scores(n)``. Default: the vertices of the simplex, n = L + 1. A sample
        is assigned to the class of the largest score at its mean.
    class_names : sequence of str, length n, optional
        Names of the classes in the figure; by default ``classes``, or their numbers.
    level : float, optional
        For every sample draw the ellipse that holds this share of its Gaussian in the plane; for few samples. Default
        None: means only.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default None: those of a new figure.
    classes : sequence of length n, optional
        The name of each class: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. With two classes, which have one latent dimension, the samples of each
        class are a row.

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit the above, a ``level`` without a Gaussian, and three classes ``only`` without
        samples.

    Examples
    --------
    >>> from deepsimplex.targets import Vertices
    >>> latents = Vertices().fit_transform(np.zeros((4, 2)), [0, 1, 2, 2])
    >>> figure = latent_space(latents, [0, 1, 2, 1], only=(0, 1, 2), class_names=["cat", "dog", "fox"])
    >>> [len(drawn.get_offsets()) for drawn in figure.axes[0].collections if drawn.get_label() == "wrong"]
    [1]
    """
    gaussian, means = (latent, np.asarray(latent.loc)) if isinstance(latent, LatentGaussian) else (None, latent)
    loc = check_array(means, "latent")
    if loc.ndim != 2 or not loc.size:
        raise ValueError(f"latent must have shape [N, L] with N >= 1 samples; found shape {loc.shape}")
    dims = loc.shape[1]
    table = vertices(dims + 1) if scores is None else check_array(scores, "scores")
    if table.ndim != 2 or table.shape[1] != dims or len(table) < 2:
        raise ValueError(f"scores must have shape [n, {dims}], as the latents; found {table.shape}")
    n = len(table)
    true = None if y is None else check_labels_beside(y, "latent", (len(loc), n), classes)
    names = names_of_columns(class_names, classes, n, "classes")
    plane = (
        None
        if only is None
        else check_only(only, check_class_names(classes, n), "three different classes of y", three=True)
    )
    if level is not None and (gaussian is None or not isinstance(level, Real) or not 0 < level < 1):
        raise ValueError(f"level must lie in (0, 1) with a LatentGaussian; found {level!r}, {type(latent).__name__}")
    chosen = (loc @ table.T).argmax(axis=1)
    inner = chosen if true is None else true
    shown = np.arange(len(loc)) if plane is None else np.flatnonzero(np.isin(inner, plane))
    if not len(shown):
        raise ValueError(f"only: the classes {only} have no samples: nothing would be drawn")
    ax = new_axes(5.4, 4.4) if ax is None else check_axes(ax)
    if dims == 1:
        _draw_line(ax, loc[:, 0], inner, chosen, names, table)
    else:
        basis, origin, axis_names = _basis(loc, table, plane)
        places = (loc[shown] - origin) @ basis.T
        reach = float(np.quantile(np.linalg.norm(places, axis=1), 0.98)) or 1.0
        if level is not None and gaussian is not None:
            edges = [class_style(n)[k][0] for k in inner[shown]]
            _draw_ellipses(ax, places, _covariances(gaussian, basis)[shown], level, edges)
        draw_samples(ax, places, inner[shown], chosen[shown], n)
        if plane is not None:
            _draw_borders(ax, table[plane] @ basis.T, 3 * reach)
        ends = _draw_directions(ax, table @ basis.T, -origin @ basis.T, plane or range(n), reach)
        inside = np.concatenate([places, ends])
        room = 0.06 * np.ptp(inside, axis=0).max()
        (left, bottom), (right, top) = inside.min(axis=0) - room, inside.max(axis=0) + room
        ax.set(xlabel=axis_names[0], ylabel=axis_names[1], aspect="equal", xlim=(left, right), ylim=(bottom, top))
        if plane is not None:
            ax.set(xticks=(), yticks=())
    style = class_style(n)
    handles = [mark(style[k][1], style[k][0], literal(names[k])) for k in plane or range(n)]
    side_legend(ax, handles, title=None if true is None else KEY, title_fontsize=7.5, alignment="left")
    return figure_of(ax)


def _basis(loc: Array, scores: Array, classes: Sequence[int] | None) -> tuple[Array, Array, list[str]]:
    """Return an orthonormal basis [2, L] of the plane, the point [L] that is its origin, and labels of the axes."""
    if classes is not None:
        a, b, c = scores[list(classes)]
        # All differences of the three scores vary within this plane only.
        basis = np.linalg.qr(np.stack([b - a, c - (a + b) / 2], axis=1))[0].T
        basis *= np.sign([basis[0] @ (b - a), basis[1] @ (c - a)])[:, None]
        return basis, np.zeros(loc.shape[1]), ["", ""]
    from sklearn.decomposition import PCA

    # Remove the direction in which all scores are equal: with as many dimensions as classes there is one.
    apart = scores - scores.mean(axis=0)
    loc = loc @ np.linalg.pinv(apart) @ apart
    if np.ptp(loc, axis=0).max() <= 1e-9 * np.abs(loc).max():  # all samples are equal
        return np.eye(2, loc.shape[1]), np.zeros(loc.shape[1]), ["latent 0", "latent 1"]
    fitted = PCA(n_components=2).fit(loc)
    shares = fitted.explained_variance_ratio_
    return fitted.components_, fitted.mean_, [f"component {i + 1} ({shares[i]:.0%} of variance)" for i in range(2)]


def _draw_line(
    ax: Axes, values: Array, inner: NDArray[Any], ring: NDArray[Any], names: Sequence[str], scores: Array
) -> None:
    """Draw latents of two classes as a row for each class, spread in height by the golden ratio."""
    spread = (np.arange(len(values)) * 0.6180339887498949) % 1 - 0.5
    draw_samples(ax, np.column_stack([values, inner + 0.7 * spread]), inner, ring, 2)
    ax.axvline(0.0, color=BLACK, linewidth=1.0, linestyle="dashed")
    ax.set_yticks([0, 1], [literal(name) for name in names])
    ax.set(xlabel=f"latent (class {literal(names[int(scores[:, 0].argmax())])} to the right)", ylim=(-0.6, 1.75))


def _covariances(gaussian: LatentGaussian, basis: Array) -> Array:
    """Return covariances [N, 2, 2] of the Gaussians within the plane."""
    scale = np.asarray(gaussian.scale, dtype=np.float64)
    if scale.ndim == 3:
        factor = basis @ scale
        return factor @ np.swapaxes(factor, -1, -2)
    variance = np.broadcast_to(np.square(scale), (len(scale), basis.shape[1]))
    return np.einsum("il,nl,jl->nij", basis, variance, basis)


def _draw_ellipses(ax: Axes, places: Array, covariances: Array, level: float, edges: Sequence[str]) -> None:
    variances, axes = np.linalg.eigh(covariances)
    # r standard deviations of two dimensions hold the share 1 - exp(-r^2 / 2).
    radius = np.sqrt(-2 * np.log1p(-level))
    sides = 2 * radius * np.sqrt(np.maximum(variances, 0))
    angles = np.rad2deg(np.arctan2(axes[:, 1, 1], axes[:, 0, 1]))
    position: dict[str, Any] = {"units": "xy", "offsets": places, "offset_transform": ax.transData}
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": [*edges], "linewidths": 0.8, "alpha": 0.7, "zorder": 2}
    ax.add_collection(EllipseCollection(sides[:, 1], sides[:, 0], angles, **position, **style))


def _draw_borders(ax: Axes, at: Array, reach: float) -> None:
    """Draw the three rays on which two of three classes have the same, largest score."""
    rays = []
    for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        difference = at[a] - at[b]
        along = np.array([-difference[1], difference[0]]) / np.linalg.norm(difference)
        rays.append(np.stack([np.zeros(2), reach * along * np.sign(along @ (at[a] - at[c]))]))
    ax.add_collection(LineCollection(rays, colors=BLACK, linewidths=1.0, linestyles="dashed", zorder=1))


def _draw_directions(ax: Any, at: Array, origin: Array, classes: Sequence[int], reach: float) -> Array:
    """Draw a line along each class's score, from the latent origin as far as the samples reach; return the ends."""
    toward = at[list(classes)]
    ends = origin + toward / (float(np.linalg.norm(toward, axis=1).max()) or 1.0) * reach
    style = class_style(len(at))
    colors: list[Any] = [style[k][0] for k in classes]
    ax.add_collection(
        LineCollection([np.stack([origin, end]) for end in ends], colors=colors, linewidths=1.6, zorder=2)
    )
    ax.scatter(*ends.T, s=44, c=colors, marker="D", edgecolors=BLACK, linewidths=0.7, zorder=6, label="class")
    return ends
