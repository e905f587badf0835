"""Images beside bars of their class probabilities; the most uncertain ones of a set."""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import (
    check_array,
    check_labels_beside,
    check_probabilities,
    check_whole,
    unmasked,
)
from deepsimplex.evaluation import uncertainty
from deepsimplex.evaluation.uncertainty import Measure
from deepsimplex.latent import LatentGaussian
from deepsimplex.plots.probability_intervals import probability_intervals
from deepsimplex.plots.style import BLACK, BLUE, GRAY, VERMILLION, names_of_columns, shortened

LONGEST_TITLE, LONGEST_LABEL = 22, 14  # characters of a name above an image, and beside a bar


def check_images(images: ArrayLike, samples: int) -> NDArray:
    """Return ``images`` as [N, H, W] or [N, H, W, 3] in [0, 1], or raise ValueError."""
    pixels = check_array(images, "images", finite=False, dtype="any")
    if pixels.ndim == 4 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    shaped = pixels.size and (pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[-1] == 3))
    if not shaped or len(pixels) != samples:
        raise ValueError(f"images must have shape [{samples}, H, W] or with 1 or 3 channels; found {pixels.shape}")
    if pixels.dtype == np.uint8:
        return pixels / np.float32(255)
    if not (np.all(np.isfinite(pixels)) and pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError(
            f"images must be uint8 or lie in [0, 1]; found {pixels.dtype}, {pixels.min()} to {pixels.max()}"
        )
    return pixels


def predictions(
    images: ArrayLike,
    p: ArrayLike,
    y: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    columns: int = 4,
    top: int = 3,
    *,
    intervals: tuple[ArrayLike, ArrayLike] | None = None,
    familiarity: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw a grid of images, each with bars of its most probable classes.

    Parameters
    ----------
    images : array_like, shape [N, H, W], [N, H, W, 1] or [N, H, W, 3]
        Gray or color images, uint8 or in [0, 1]. All are drawn.
    p : array_like, shape [N, n]
        Class probabilities.
    y : array_like, shape [N] or [N, 1], optional
        True classes: numbers 0..n-1, or names that ``classes`` holds. The true class is written above each image, its
        bar is blue, and the bar of a wrong assignment is vermillion. Default None: all bars are gray.
    class_names : sequence of str, length n, optional
        Names of the classes in the figure; by default ``classes``, or their numbers.
    columns : int
        Images per row of the grid, 4 by default.
    top : int
        Number of bars, 3 by default, n at most.
    intervals : (lower, upper), each of shape [N, n], optional
        Ends of an interval of each class probability, such as ``readout.class_intervals`` computes: drawn as whiskers.
    familiarity : array_like, shape [N], optional
        As ``model.familiarity`` returns it: written above the images.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = predictions(np.zeros((2, 8, 8)), [[0.9, 0.1], [0.3, 0.7]], y=[0, 0], class_names=["cat", "dog"])
    >>> [ax.get_title() for ax in figure.axes if ax.get_title()]
    ['✓ cat', '✗ cat']
    """
    probabilities = check_probabilities(p)
    samples, n = probabilities.shape
    labels = None if y is None else check_labels_beside(y, "p", probabilities.shape, classes)
    pixels = check_images(images, samples)
    names = names_of_columns(class_names, classes, n)
    columns, shown = min(check_whole(columns, "columns", 1), samples), min(check_whole(top, "top", 1), n)
    ends = None if intervals is None else _check_intervals(intervals, probabilities.shape)
    known = None if familiarity is None else _check_familiarity(familiarity, samples)

    rows = -(-samples // columns)
    figure = Figure(figsize=(2.2 * columns, rows * (2.0 + 0.22 * shown)), dpi=120, layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[1.5, 0.22 * shown] * rows)
    for i in range(samples):
        row, column = divmod(i, columns)
        picture = figure.add_subplot(grid[2 * row, column])
        picture.imshow(pixels[i], cmap="gray", vmin=0, vmax=1)
        picture.set_axis_off()
        title = [] if known is None else [f"familiarity {known[i]:.2f}"]
        if labels is not None:
            sign = "✓" if probabilities[i].argmax() == labels[i] else "✗"
            title.insert(0, f"{sign} {shortened(names[labels[i]], LONGEST_TITLE)}")
        picture.set_title("\n".join(title), fontsize=9)
        bars = figure.add_subplot(grid[2 * row + 1, column])
        label, interval = None if labels is None else int(labels[i]), None if ends is None else ends[:, i]
        _draw_bars(bars, probabilities[i], shown, names, label, interval)
    return figure


def _check_familiarity(familiarity: ArrayLike, samples: int) -> NDArray[np.floating]:
    """Return the familiarity of the samples [N], or raise ValueError."""
    known = check_array(familiarity, "familiarity", finite=False)
    if known.shape != (samples,) or not np.all((known >= 0) & (known <= 1)):
        raise ValueError(f"familiarity must hold {samples} numbers in [0, 1]; found shape {known.shape}")
    return known


def _check_intervals(intervals: tuple[ArrayLike, ArrayLike], shape: tuple[int, ...]) -> NDArray[np.floating]:
    """Return both ends as one array [2, N, n], or raise ValueError."""
    ends = np.asarray(intervals, dtype=np.float64)
    if ends.shape != (2, *shape):
        raise ValueError(f"intervals must be a pair of arrays of the shape of p, {shape}; found {ends.shape}")
    if not np.all((ends[0] <= ends[1]) & (ends[0] >= 0) & (ends[1] <= 1)):
        raise ValueError("intervals must hold 0 <= lower <= upper <= 1; found an end that is outside, NaN or crossed")
    return ends


def _draw_bars(
    ax: Axes, row: NDArray, shown: int, names: Sequence[str], label: int | None, interval: NDArray | None
) -> None:
    """Draw bars of the ``shown`` most probable classes, with whiskers for an interval [2, n]."""
    order = np.argsort(-row, kind="stable")[:shown]
    colors = [BLUE if k == label else GRAY for k in order]
    if label is not None and order[0] != label:
        colors[0] = VERMILLION
    position = np.arange(len(order))
    ax.barh(position, row[order], color=colors)
    ax.set(xlim=(0, 1), xticks=(), ylim=(len(order) - 0.5, -0.5))
    ax.set_yticks(position, [shortened(names[k], LONGEST_LABEL) for k in order], fontsize=8)
    ax.tick_params(axis="y", length=0)
    if interval is not None:
        ends = interval[:, order]
        ax.hlines(position, *ends, color=BLACK, linewidth=1.0, label="interval")
        ax.plot(ends, np.stack([position, position]), "|", color=BLACK, markersize=5)
    for k, value in zip(position, row[order], strict=True):
        # The number is right of the whiskers, else inside a long bar or beside a short one.
        inside = interval is None and value > 0.6
        x = 1.03 if interval is not None else min(value, 0.98) if inside else value + 0.03
        color, side = ("white", "right") if inside else ("black", "left")
        ax.text(x, float(k), f"{value:.2f}", va="center", ha=side, color=color, fontsize=7)
    ax.spines[["top", "right", "bottom"]].set_visible(False)


def uncertain_images(
    images: ArrayLike,
    p: ArrayLike,
    y: ArrayLike | None = None,
    *,
    latent: LatentGaussian | dict[str, Any] | None = None,
    scores: ArrayLike | None = None,
    readout: str | dict[str, Any] | keras.layers.Layer | None = None,
    level: float = 0.95,
    familiarity: ArrayLike | None = None,
    k: int = 8,
    by: Measure | Literal["familiarity"] = "entropy",
    class_names: Sequence[str] | None = None,
    columns: int = 4,
    top: int = 3,
    classes: Sequence[Any] | None = None,
) -> Figure:
    """Draw the ``k`` most uncertain images, the most uncertain first, with bars of their most probable classes.

    Parameters
    ----------
    images : array_like, shape [N, H, W], [N, H, W, 1] or [N, H, W, 3]
        Gray or color images, uint8 or in [0, 1].
    p : array_like, shape [N, n]
        Class probabilities.
    y : array_like, shape [N] or [N, 1], optional
        True classes, as in ``predictions``, written above the images, and for ``by="likelihood"``.
    latent : LatentGaussian or dict, optional
        Latent Gaussian that p was read out of: intervals of the probabilities are drawn as whiskers.
    scores : array_like, shape [n, L], optional
        Scores of the classes for the intervals. Default: the vertices, n = L + 1.
    readout : {"softmax", "argmax"}, dict or Readout, optional
        Readout by which p was computed from ``latent``. Default "softmax", whose probabilities vary with the latent.
        Those of "argmax" do not, and no whiskers are drawn.
    level : float
        Level of the intervals, 0.95 by default.
    familiarity : array_like, shape [N], optional
        As ``model.familiarity`` returns it: written above the images.
    k : int
        Number of images, 8 by default; all if there are fewer.
    by : {"entropy", "confidence", "margin", "likelihood", "familiarity"}
        Measure of uncertainty, as in ``evaluation.uncertainty``. Default "entropy"; with "likelihood" the samples whose
        true class has the least probability come first, with "familiarity" the least familiar ones.
    class_names, columns, top
        As in ``predictions``.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        For another ``by``, ``by="likelihood"`` without ``y``, latents that p was not read out of by the softmax
        readout, and arguments that ``predictions`` rejects.

    Examples
    --------
    >>> images, p = np.zeros((3, 8, 8)), [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]]
    >>> figure = uncertain_images(images, p, y=[0, 0, 0], k=2, class_names=["cat", "dog"])
    >>> [ax.get_title() for ax in figure.axes if ax.get_title()]
    ['✗ cat', '✓ cat']
    """
    probabilities = check_probabilities(p)
    known = None if familiarity is None else _check_familiarity(familiarity, len(probabilities))
    if by != "familiarity":
        ranked = uncertainty(probabilities, by, y, classes=classes)
    elif known is not None:
        ranked = -known.astype(float)
    else:
        raise ValueError("familiarity must be given for by='familiarity': model.familiarity(images)")
    pixels = unmasked(images, "images")
    if pixels.shape[:1] != (len(probabilities),):
        raise ValueError(f"images must be as many as the {len(probabilities)} rows of p; found shape {pixels.shape}")
    # A stable sort: the first of the set comes first among equals.
    order = np.argsort(-ranked, kind="stable")[: check_whole(k, "k", 1)]
    return predictions(
        pixels[order],
        probabilities[order],
        None if y is None else check_labels_beside(y, "p", probabilities.shape, classes)[order],
        names_of_columns(class_names, classes, probabilities.shape[1]),
        columns=columns,
        top=top,
        intervals=probability_intervals(probabilities, latent, scores, readout, level, order),
        familiarity=None if known is None else known[order],
    )
