"""Prototypes drawn as images."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_names, check_whole, unmasked
from deepsimplex.plots.style import VERMILLION


def check_shape(shape: Sequence[int] | None, features: int) -> tuple[int, ...]:
    """Return the shape of images of so many features, a square if ``shape`` is None, or raise ValueError.

    Examples
    --------
    >>> check_shape(None, 64)
    (8, 8)
    >>> check_shape((8, 8), 65)
    Traceback (most recent call last):
    ValueError: shape must hold the 65 features, as [H, W] or [H, W, C] with 1 or 3 channels; found (8, 8)
    """
    if shape is None:
        side = math.isqrt(features)
        if side**2 != features:
            raise ValueError(f"shape must be given: {features} features are no square. For color: shape=(H, W, 3)")
        return side, side
    found = tuple(shape) if np.iterable(shape) else ()
    whole = all(isinstance(side, int | np.integer) and side > 0 for side in found)
    channels = len(found) == 2 or (len(found) == 3 and found[2] in (1, 3))
    if not whole or not channels or math.prod(found) != features:
        raise ValueError(
            f"shape must hold the {features} features, as [H, W] or [H, W, C] with 1 or 3 channels; found {shape!r}"
        )
    return found


def _as_images(prototypes: ArrayLike, shape: Sequence[int] | None) -> NDArray[np.floating]:
    """Return prototypes as [P, H, W] or [P, H, W, 3] in [0, 1], on one scale, robust to outlying pixels."""
    values = check_array(prototypes, "prototypes", dtype="floating")
    if values.ndim not in (2, 3, 4) or not values.size:
        raise ValueError(
            f"prototypes must have shape [P, d], [P, H, W] or [P, H, W, C] with at least one; found {values.shape}"
        )
    found = check_shape(values.shape[1:] if shape is None and values.ndim > 2 else shape, math.prod(values.shape[1:]))
    low, high = np.percentile(values, [0.5, 99.5])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    scaled = np.clip((values - low) / (high - low), 0, 1) if high > low else np.full_like(values, 0.5)
    images = scaled.reshape(len(values), *found)
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
        found = unmasked(labels, "labels")
        if found.dtype.kind == "O" and not all(isinstance(label, str) for label in found.flat):
            raise TypeError(f"labels must all be numbers or all be names; found {labels!r}")
        if found.shape != (count,):
            raise ValueError(f"labels must hold one class for each of {count} prototypes; found shape {found.shape}")
        if found.dtype.kind == "f" and np.isnan(found).any():
            raise ValueError(f"labels must be classes; found nan for prototype {int(np.argmax(np.isnan(found)))}")
        classes, numbers = np.unique(found, return_inverse=True)
        names = check_names(
            classes.tolist() if class_names is None else class_names, len(classes), "class_names", "classes in labels"
        )
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
