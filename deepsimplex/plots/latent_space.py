"""Latents of any number of classes in a plane: principal components, or the plane of three chosen classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from deepsimplex._utils.validation import check_labels
from deepsimplex.geometry import vertices
from deepsimplex.latent import LatentGaussian
from deepsimplex.plots.arguments import check_names, real_array
from deepsimplex.plots.marks import KEY, draw_marks
from deepsimplex.plots.style import BLACK, class_style, literal

Array = NDArray[np.floating]


def _basis(loc: Array, scores: Array, classes: Sequence[int] | None) -> tuple[Array, Array, list[str]]:
    """An orthonormal basis [2, L] of the plane, the point [L] that is its origin, and names of the axes."""
    if classes is not None:
        a, b, c = scores[list(classes)]
        # Within it every difference of the three scores varies; across it none does.
        basis = np.linalg.qr(np.stack([b - a, c - (a + b) / 2], axis=1))[0].T
        basis *= np.sign([basis[0] @ (b - a), basis[1] @ (c - a)])[:, None]
        return basis, np.zeros(loc.shape[1]), ["", ""]
    from sklearn.decomposition import PCA

    # A direction that all scores share, as there is with as many dimensions as classes, tells no class from another.
    apart = scores - scores.mean(axis=0)
    loc = loc @ np.linalg.pinv(apart) @ apart
    if np.ptp(loc, axis=0).max() <= 1e-9 * np.abs(loc).max():  # no direction in which the samples differ
        return np.eye(2, loc.shape[1]), np.zeros(loc.shape[1]), ["latent 0", "latent 1"]
    fitted = PCA(n_components=2).fit(loc)
    shares = fitted.explained_variance_ratio_
    return fitted.components_, fitted.mean_, [f"component {i + 1} ({shares[i]:.0%} of variance)" for i in range(2)]


def _check_scores(scores: ArrayLike | None, dimensions: int) -> Array:
    if scores is None:
        return vertices(dimensions + 1)
    found = real_array(scores, "scores")
    if found.ndim != 2 or found.shape[1] != dimensions or len(found) < 2:
        raise ValueError(
            f"scores must have shape [n, L] with the L = {dimensions} dimensions of the latents; found {found.shape}"
        )
    return found.astype(np.float64)


def _check_classes(classes: Sequence[int] | None, n: int) -> Sequence[int] | None:
    if classes is None:
        return None
    if n < 3 or len(classes) != 3 or len(set(classes)) != 3 or not set(classes) <= set(range(n)):
        raise ValueError(f"classes must be three different ones of 0..{n - 1}; found {classes!r}")
    return [int(k) for k in classes]


def latent_space(
    latent: LatentGaussian | ArrayLike,
    y: ArrayLike | None = None,
    *,
    classes: Sequence[int] | None = None,
    scores: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    level: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Scatter of latents with the directions of the classes: what lies near what, and on which side of a border.

    Parameters
    ----------
    latent : LatentGaussian or array_like, shape [N, L]
        Latents of samples, as ``predict_latent`` gives them or a target makes them.
    y : array_like, shape [N] or [N, 1], optional
        True classes 0..n-1: the inner color of a mark, whose ring is the assigned class. None (default) colors by
        the assigned class alone.
    classes : three of 0..n-1, optional
        Draw the plane in which these three compete, with the borders between them, and only the samples of these
        classes: by ``y``, or assigned. Default None: the plane of the first two principal components of all samples,
        where borders between classes have no one place.
    scores : array_like, shape [n, L], optional
        Scores of the classes, such as ``target.scores(n)``. Default: the vertices of the simplex, n = L + 1. A sample
        is assigned to the largest score of its mean.
    class_names : sequence of str, length n, optional
        Names of the classes; their numbers by default.
    level : float, optional
        Draw for every sample the ellipse that holds this share of its Gaussian within the plane; for a few samples.
        Default None: means alone.
    ax : matplotlib.axes.Axes, optional
        Where to draw. None (default) makes a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of ``ax``, or a new one. Two classes have one latent dimension: the samples of each are a row.

    Raises
    ------
    TypeError, ValueError
        For arguments that break the above, a ``level`` without a Gaussian, and three ``classes`` without samples.

    Examples
    --------
    >>> from deepsimplex.targets import Vertices
    >>> latents = Vertices().fit_transform(np.zeros((4, 2)), [0, 1, 2, 2])
    >>> figure = latent_space(latents, [0, 1, 2, 1], classes=(0, 1, 2), class_names=["cat", "dog", "fox"])
    >>> [len(drawn.get_offsets()) for drawn in figure.axes[0].collections if drawn.get_label() == "wrong"]
    [1]
    """
    gaussian, means = (latent, np.asarray(latent.loc)) if isinstance(latent, LatentGaussian) else (None, latent)
    loc = real_array(means, "latent").astype(np.float64)
    if loc.ndim != 2 or not loc.size:
        raise ValueError(f"latent must have shape [N, L] with N >= 1 samples; found shape {loc.shape}")
    table = _check_scores(scores, loc.shape[1])
    n = len(table)
    true = None if y is None else check_labels(y, n, rows=len(loc), of="latent")[0]
    names = check_names(class_names, n, "class_names", "classes") or [str(k) for k in range(n)]
    classes = _check_classes(classes, n)
    if level is not None and (gaussian is None or not 0 < level < 1):
        raise ValueError(
            f"level must lie between 0 and 1 and needs a LatentGaussian; found {level!r} with {type(latent).__name__}"
        )
    chosen = (loc @ table.T).argmax(axis=1)
    shown = np.arange(len(loc))
    if classes is not None:
        shown = np.flatnonzero(np.isin(chosen if true is None else true, classes))
        if not len(shown):
            raise ValueError(f"classes {tuple(classes)} have no samples: nothing would be drawn")
    if ax is None:
        ax = Figure(figsize=(5.4, 4.4), dpi=120, layout="constrained").add_subplot()
    inner = chosen if true is None else true
    if loc.shape[1] == 1:
        _draw_line(ax, loc[:, 0], inner, chosen, names, table)
    else:
        basis, origin, axis_names = _basis(loc, table, classes)
        places = (loc - origin) @ basis.T
        reach = float(np.quantile(np.linalg.norm(places[shown], axis=1), 0.98)) or 1.0
        if level is not None:
            assert gaussian is not None
            edges = [class_style(n)[k][0] for k in inner[shown]]
            _draw_ellipses(ax, places[shown], _covariances(gaussian, basis)[shown], level, edges)
        draw_marks(ax, places[shown], inner[shown], chosen[shown], n)
        directions = [k for k in range(n) if classes is None or k in classes]
        if classes is not None:
            _draw_borders(ax, table[list(classes)] @ basis.T, 3 * reach)
        ends = _draw_directions(ax, table @ basis.T, -origin @ basis.T, directions, reach)
        inside = np.concatenate([places[shown], ends])
        room = 0.06 * np.ptp(inside, axis=0).max()
        ax.set(xlabel=axis_names[0], ylabel=axis_names[1], aspect="equal")
        ax.set(xlim=(inside[:, 0].min() - room, inside[:, 0].max() + room))
        ax.set(ylim=(inside[:, 1].min() - room, inside[:, 1].max() + room))
        if classes is not None:
            ax.set(xticks=(), yticks=())
    _legend(ax, names, range(n) if classes is None else classes, None if true is None else KEY)
    figure = ax.get_figure(root=True)
    assert figure is not None  # an axes that is drawn on has one
    return figure


def _draw_line(
    ax: Axes, values: Array, inner: NDArray[Any], ring: NDArray[Any], names: Sequence[str], scores: Array
) -> None:
    """Latents of two classes: a row for each class, a sample's height within it by its place in the set."""
    spread = (np.arange(len(values)) * 0.6180339887498949) % 1 - 0.5  # the golden ratio fills a row evenly
    draw_marks(ax, np.column_stack([values, inner + 0.7 * spread]), inner, ring, 2)
    ax.axvline(0.0, color=BLACK, linewidth=1.0, linestyle="dashed")
    ax.set_yticks([0, 1], [literal(name) for name in names])
    ax.set(xlabel=f"latent (class {literal(names[int(scores[:, 0].argmax())])} to the right)", ylim=(-0.6, 1.75))


def _covariances(gaussian: LatentGaussian, basis: Array) -> Array:
    """Covariances [N, 2, 2] of the Gaussians within the plane."""
    scale = np.asarray(gaussian.scale, dtype=np.float64)
    if scale.ndim == 3:
        factor = basis @ scale
        return factor @ np.swapaxes(factor, -1, -2)
    variance = np.broadcast_to(np.square(scale), (len(scale), basis.shape[1]))
    return np.einsum("il,nl,jl->nij", basis, variance, basis)


def _draw_ellipses(ax: Axes, places: Array, covariances: Array, level: float, edges: Sequence[str]) -> None:
    variances, axes = np.linalg.eigh(covariances)
    # Within r standard deviations of two dimensions lies the share 1 - exp(-r^2 / 2).
    radius = np.sqrt(2 * gammaincinv(1.0, level))
    sides = 2 * radius * np.sqrt(np.maximum(variances, 0))
    angles = np.rad2deg(np.arctan2(axes[:, 1, 1], axes[:, 0, 1]))
    ellipses = EllipseCollection(
        sides[:, 1],
        sides[:, 0],
        angles,
        units="xy",
        offsets=places,
        offset_transform=ax.transData,
        facecolors="none",
        edgecolors=[*edges],
        linewidths=0.8,
        alpha=0.7,
        zorder=2,
    )
    ax.add_collection(ellipses)


def _draw_borders(ax: Axes, at: Array, reach: float) -> None:
    """The three rays on which two of three classes tie for the largest score."""
    rays = []
    for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        difference = at[a] - at[b]
        along = np.array([-difference[1], difference[0]]) / np.linalg.norm(difference)
        rays.append(np.stack([np.zeros(2), reach * along * np.sign(along @ (at[a] - at[c]))]))
    ax.add_collection(LineCollection(rays, colors=BLACK, linewidths=1.0, linestyles="dashed", zorder=1))


def _draw_directions(ax: Axes, at: Array, origin: Array, classes: Sequence[int], reach: float) -> Array:
    """Where each class's score grows: a line from the latent origin, as long as the samples reach; its ends [k, 2]."""
    longest = max(float(np.linalg.norm(at[k])) for k in classes) or 1.0
    style = class_style(len(at))
    ends = {k: origin + at[k] / longest * reach for k in classes}
    lines = [np.stack([origin, end]) for end in ends.values()]
    colors: list[Any] = [style[k][0] for k in ends]
    ax.add_collection(LineCollection(lines, colors=colors, linewidths=1.6, zorder=2))
    points = np.array(list(ends.values()))
    ax.scatter(
        points[:, 0],
        points[:, 1],
        s=44,
        c=colors,
        marker="D",
        edgecolors=BLACK,
        linewidths=0.7,
        zorder=6,
        label="class",
    )
    return points


def _legend(ax: Axes, names: Sequence[str], classes: Sequence[int], title: str | None) -> None:
    style = class_style(len(names))
    handles = [
        Line2D([], [], linestyle="none", marker=style[k][1], color=style[k][0], label=literal(names[k]))
        for k in classes
    ]
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0.0,
        frameon=False,
        fontsize=8,
        title=title,
        title_fontsize=7.5,
        alignment="left",
        ncols=-(-len(handles) // 18),
    )
