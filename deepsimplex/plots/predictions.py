"""Images beside the probabilities of their classes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_labels_and_probabilities, check_probabilities
from deepsimplex.plots.style import BLACK, BLUE, GREY, VERMILLION, literal


def check_images(images: ArrayLike, samples: int) -> NDArray:
    """Return ``images`` as [N, H, W] or [N, H, W, 3] in [0, 1], or say why they cannot be drawn."""
    pixels = np.asarray(images)
    if pixels.ndim == 4 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if len(pixels) != samples or not (pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[-1] == 3)):
        raise ValueError(
            f"images must have shape [N, H, W], [N, H, W, 1] or [N, H, W, 3] with the {samples} samples of p; "
            f"found shape {pixels.shape}"
        )
    if pixels.dtype == np.uint8:
        return pixels / np.float32(255)
    if not (np.all(np.isfinite(pixels)) and pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError(
            f"images must be uint8 or lie in [0, 1]; found {pixels.dtype} from {pixels.min()} to {pixels.max()}"
        )
    return pixels


def _draw_bars(
    ax: Axes, row: NDArray, shown: int, names: Sequence[str], label: int | None, interval: NDArray | None
) -> None:
    """Bars of the ``shown`` most probable classes; blue marks the true one, vermillion a wrong assignment.

    An interval [2, n] becomes whiskers, and the number then stands at the right end of all, clear of them.
    """
    order = np.argsort(-row, kind="stable")[:shown]
    colors = [BLUE if k == label else GREY for k in order]
    if label is not None and order[0] != label:
        colors[0] = VERMILLION
    position = np.arange(len(order))
    ax.barh(position, row[order], color=colors)
    ax.set(xlim=(0, 1), xticks=(), ylim=(len(order) - 0.5, -0.5))
    ax.set_yticks(position, [literal(names[k]) for k in order], fontsize=8)
    ax.tick_params(axis="y", length=0)
    if interval is not None:
        ends = interval[:, order]
        ax.hlines(position, *ends, color=BLACK, linewidth=1.0, label="interval")
        ax.plot(ends, np.stack([position, position]), "|", color=BLACK, markersize=5)
    for k, value in zip(position, row[order], strict=True):
        if interval is not None:
            ax.text(1.03, k, f"{value:.2f}", va="center", ha="left", fontsize=7)
            continue
        # The number stands inside a long bar and beside a short one.
        ax.text(
            min(value, 0.98) if value > 0.6 else value + 0.03,
            k,
            f"{value:.2f}",
            va="center",
            ha="right" if value > 0.6 else "left",
            color="white" if value > 0.6 else "black",
            fontsize=7,
        )
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)


def _check_intervals(intervals: tuple[ArrayLike, ArrayLike], shape: tuple[int, ...]) -> NDArray[np.floating]:
    """Both ends as one array [2, N, n], or what is wrong with them."""
    ends = np.asarray(intervals, dtype=np.float64)
    if ends.shape != (2, *shape):
        raise ValueError(f"intervals must be a pair of arrays of the shape of p, {shape}; found {ends.shape}")
    if not np.all((ends[0] <= ends[1]) & (ends[0] >= 0) & (ends[1] <= 1)):
        raise ValueError("intervals must hold 0 <= lower <= upper <= 1; found an end that is outside, NaN or crossed")
    return ends


def predictions(
    images: ArrayLike,
    p: ArrayLike,
    y: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    columns: int = 4,
    top: int = 3,
    *,
    intervals: tuple[ArrayLike, ArrayLike] | None = None,
) -> Figure:
    """Grid of images, each with bars of its most probable classes.

    Parameters
    ----------
    images : array_like, shape [N, H, W], [N, H, W, 1] or [N, H, W, 3]
        Gray or color images, uint8 or in [0, 1]. All are drawn, so give the few that matter.
    p : array_like, shape [N, n]
        Class probabilities.
    y : array_like, shape [N] or [N, 1], optional
        Class numbers 0..n-1. The true class then stands above each image, its bar is blue, and the bar of a wrong
        assignment is vermillion. None (default) leaves all bars gray.
    class_names : sequence of str, length n, optional
        Names of the classes; their numbers by default.
    columns : int
        Images per row of the grid, 4 by default.
    top : int
        Number of bars, 3 by default; all n classes where n is smaller.
    intervals : (lower, upper), each of shape [N, n], optional
        Ends of an interval for every class probability, as ``readout.class_intervals`` gives them: whiskers.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = predictions(np.zeros((2, 8, 8)), [[0.9, 0.1], [0.3, 0.7]], y=[0, 0], class_names=["cat", "dog"])
    >>> [ax.get_title() for ax in figure.axes if ax.get_title()]
    ['✓ cat', '✗ cat']
    """
    if y is None:
        labels, probabilities = None, check_probabilities(p)
    else:
        labels, probabilities = check_labels_and_probabilities(y, p)
    samples, n = probabilities.shape
    pixels = check_images(images, samples)
    names = [str(k) for k in range(n)] if class_names is None else [str(name) for name in class_names]
    if len(names) != n:
        raise ValueError(f"class_names must hold one name for each of the {n} columns of p; found {len(names)}")
    for argument, value in (("columns", columns), ("top", top)):
        if value != int(value) or value < 1:
            raise ValueError(f"{argument} must be a whole number, at least 1; found {value!r}")

    ends = None if intervals is None else _check_intervals(intervals, probabilities.shape)

    columns, shown = min(columns, samples), min(top, n)
    rows = -(-samples // columns)
    figure = Figure(figsize=(2.2 * columns, rows * (2.0 + 0.22 * shown)), dpi=120, layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[1.5, 0.22 * shown] * rows)
    for i in range(samples):
        row, column = divmod(i, columns)
        picture = figure.add_subplot(grid[2 * row, column])
        picture.imshow(pixels[i], cmap="gray", vmin=0, vmax=1)
        picture.set_axis_off()
        if labels is not None:
            mark = "✓" if probabilities[i].argmax() == labels[i] else "✗"
            picture.set_title(f"{mark} {literal(names[labels[i]])}", fontsize=9)
        bars = figure.add_subplot(grid[2 * row + 1, column])
        label, interval = None if labels is None else int(labels[i]), None if ends is None else ends[:, i]
        _draw_bars(bars, probabilities[i], shown, names, label, interval)
    return figure
