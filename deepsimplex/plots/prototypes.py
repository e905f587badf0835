"""Figures of prototypes, as images, and of the relevance matrix of a learned metric."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_names, check_whole, unmasked
from deepsimplex.plots.style import BLUE, VERMILLION, figure_of


def _check_shape(shape: Sequence[int] | None, features: int) -> tuple[int, ...]:
    """Return the shape of images of so many features, a square if ``shape`` is None, or raise ValueError.

    Examples
    --------
    >>> _check_shape(None, 64)
    (8, 8)
    >>> _check_shape((8, 8), 65)
    Traceback (most recent call last):
    ValueError: shape must hold 65 features, [H, W], [H, W, 1] or [H, W, 3]; found (8, 8)
    """
    if shape is None:
        side = math.isqrt(features)
        if side**2 != features:
            raise ValueError(f"shape must be given: {features} features are no square. For color: shape=(H, W, 3)")
        return side, side
    sides = tuple(shape) if np.iterable(shape) else ()
    whole = all(isinstance(side, int | np.integer) and side > 0 for side in sides)
    channels = len(sides) == 2 or (len(sides) == 3 and sides[2] in (1, 3))
    if not whole or not channels or math.prod(sides) != features:
        raise ValueError(f"shape must hold {features} features, [H, W], [H, W, 1] or [H, W, 3]; found {shape!r}")
    return sides


def _as_images(prototypes: ArrayLike, shape: Sequence[int] | None) -> NDArray[np.floating]:
    """Return prototypes as [P, H, W] or [P, H, W, 3] in [0, 1], on one scale, robust to outlying pixels."""
    values = check_array(prototypes, "prototypes", dtype="floating")
    if values.ndim not in (2, 3, 4) or not values.size:
        raise ValueError(f"prototypes must have shape [P, d], [P, H, W] or [P, H, W, C], P >= 1; found {values.shape}")
    sides = _check_shape(values.shape[1:] if shape is None and values.ndim > 2 else shape, math.prod(values.shape[1:]))
    low, high = np.percentile(values, [0.5, 99.5])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    scaled = np.clip((values - low) / (high - low), 0, 1) if high > low else np.full_like(values, 0.5)
    images = scaled.reshape(len(values), *sides)
    return images[..., 0] if images.ndim == 4 and images.shape[-1] == 1 else images


def _rows(numbers: NDArray[np.int64] | None, count: int, columns: int) -> list[list[int]]:
    """Return the prototypes of each row: of one class, or of several classes with one prototype each."""
    if numbers is None or len(np.unique(numbers)) == count:
        blocks = [list(range(count)) if numbers is None else np.argsort(numbers).tolist()]
    else:
        blocks = [np.flatnonzero(numbers == k).tolist() for k in np.unique(numbers)]
    return [block[start : start + columns] for block in blocks for start in range(0, len(block), columns)]


def prototype_images(
    prototypes: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    shape: Sequence[int] | None = None,
    wins: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    columns: int = 10,
) -> Figure:
    """Draw prototypes as a grid of small images, a row per class.

    Parameters
    ----------
    prototypes : array_like, shape [P, d], [P, H, W] or [P, H, W, C]
        Such as ``classifier.prototypes_``; one channel or three.
    labels : array_like, shape [P], optional
        Classes, such as ``classifier.prototype_labels_``; drawn in sorted order. Default None: one grid.
    shape : sequence of int, optional
        [H, W] or [H, W, C] of one prototype. Default: the shape of ``prototypes``, or a square.
    wins : array_like, shape [P], optional
        Numbers of training samples that each prototype is nearest to, such as ``classifier.wins_``; those of prototypes
        without any are in vermillion.
    class_names : sequence of str, optional
        A name for each class of ``labels``, in sorted order.
    columns : int
        Images per row at most, 10 by default. A class with more prototypes has several rows; classes of one prototype
        each share rows.

    Returns
    -------
    matplotlib.figure.Figure
        All images have one scale: black is the 0.5th percentile of all pixels and white the 99.5th, over all channels.

    Examples
    --------
    >>> figure = prototype_images([[0, 1, 2, 3], [3, 2, 1, 0]], ["cat", "dog"], wins=[5, 0])
    >>> [(ax.get_title(loc="left"), ax.get_xlabel()) for ax in figure.axes]
    [('cat', '5 wins'), ('dog', '0 wins')]
    """
    pixels = _as_images(prototypes, shape)
    count = len(pixels)
    columns = check_whole(columns, "columns", 1)
    numbers, names = None, None
    if labels is not None:
        given = unmasked(labels, "labels")
        if given.dtype.kind == "O" and not all(isinstance(label, str) for label in given.flat):
            raise TypeError(f"labels must all be numbers or all be names; found {labels!r}")
        if given.shape != (count,):
            raise ValueError(f"labels must hold one class for each of {count} prototypes; found shape {given.shape}")
        if given.dtype.kind == "f" and np.isnan(given).any():
            raise ValueError(f"labels must be classes; found nan for prototype {int(np.argmax(np.isnan(given)))}")
        classes, numbers = np.unique(given, return_inverse=True)
        class_names = classes.tolist() if class_names is None else class_names
        names = check_names(class_names, len(classes), "class_names", "classes in labels")
    elif class_names is not None:
        raise ValueError("class_names were given without labels")
    if wins is not None:
        counts = check_array(wins, "wins", dtype="floating")
        if counts.shape != (count,) or counts.min() < 0 or np.any(counts != np.floor(counts)):
            raise ValueError(f"wins must hold a count for each of {count} prototypes; found {wins!r}")

    rows = _rows(numbers, count, columns)
    across = max(len(row) for row in rows)
    height = 0.85 * min(max(pixels.shape[1] / pixels.shape[2], 0.4), 2.5)
    above, below = 0.25 * (labels is not None), 0.22 * (wins is not None)
    figure = Figure(figsize=(0.95 * across + 0.1, len(rows) * (height + above + below)), dpi=120)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03, wspace=0.0, hspace=0.0)
    grid = figure.add_gridspec(len(rows), across)
    last = None
    for r, row in enumerate(rows):
        for c, i in enumerate(row):
            ax = figure.add_subplot(grid[r, c])
            ax.imshow(pixels[i], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set(xticks=(), yticks=())
            if numbers is not None and names is not None and numbers[i] != last:
                last = numbers[i]
                ax.set_title(names[last], fontsize=9, loc="left", pad=3)
            if wins is not None:
                won = int(counts[i])
                text = f"{won} win{'' if won == 1 else 's'}"
                ax.set_xlabel(text, fontsize=8, labelpad=2, color="black" if won else VERMILLION)
    return figure


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
        The matrix, or a fitted classifier with ``omega_``, such as ``GMLVQ`` (of scaled features); of ``LGMLVQ`` the
        matrix of one prototype, ``omega_[p]``.
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
        raise TypeError(f"omega must be a matrix [m, d] or a classifier with omega_; found {type(omega).__name__}")
    matrix = check_array(given, "omega")
    if matrix.ndim != 2 or not matrix.size:
        hint = ": of local metrics give one, omega_[p]" if matrix.ndim == 3 else ""
        raise ValueError(f"omega must have shape [m, d]; found shape {matrix.shape}{hint}")
    d = matrix.shape[1]
    if feature_names is None:
        feature_names = getattr(omega, "feature_names_in_", None)
    names = check_names(feature_names, d, "feature_names", "features") or [str(j) for j in range(d)]
    picture = None if shape is None else _check_shape(shape, d)
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
