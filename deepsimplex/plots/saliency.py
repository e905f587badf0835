"""Images beside maps of the pixels that an answer depends on."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_array, check_whole
from deepsimplex.plots.image_predictions import check_images
from deepsimplex.plots.style import shortened

LONGEST_LINE = 40  # characters above a pair of images


def saliency(images: ArrayLike, maps: ArrayLike, titles: Sequence[str] | None = None, columns: int = 4) -> Figure:
    """Draw images, each beside its saliency map: red pixels raise the explained value, blue ones lower it.

    Parameters
    ----------
    images : array_like, shape [N, H, W], [N, H, W, 1] or [N, H, W, 3]
        Gray or color images, uint8 or in [0, 1]. All are drawn.
    maps : array_like, shape [N, H, W]
        As ``model.saliency`` returns them. Colors are relative to the largest absolute value of each map.
    titles : sequence of str, length N, optional
        Written above the pairs. Default None.
    columns : int
        Pairs in a row, 4 by default.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        For images and maps that do not belong together.

    Examples
    --------
    >>> figure = saliency(np.zeros((3, 8, 8)), np.random.default_rng(0).normal(size=(3, 8, 8)), ["a", "b", "c"])
    >>> len(figure.axes)
    6
    """
    values = check_array(maps, "maps", "[N, H, W]", least=1)
    pixels = check_images(images, len(values))
    if pixels.shape[1:3] != values.shape[1:]:
        raise ValueError(f"maps must have the size of images, {pixels.shape[1:3]}; found {values.shape[1:]}")
    if titles is not None and len(titles) != len(values):
        raise ValueError(f"titles must be {len(values)}, one for each image; found {len(titles)}")
    pairs = min(check_whole(columns, "columns", 1), len(values))
    rows = -(-len(values) // pairs)
    figure = Figure(figsize=(3.2 * pairs, 1.9 * rows), layout="constrained")
    grid = figure.subplots(rows, 2 * pairs, squeeze=False).reshape(-1, 2)
    for axes in grid.ravel():
        axes.set_axis_off()
    for i, (left, right) in enumerate(grid[: len(values)]):
        left.imshow(pixels[i], cmap="gray", vmin=0, vmax=1)
        largest = float(np.abs(values[i]).max()) or 1.0
        right.imshow(values[i], cmap="RdBu_r", vmin=-largest, vmax=largest)
        if titles is not None:
            lines = (shortened(line, LONGEST_LINE) for line in titles[i].split("\n"))
            left.set_title("\n".join(lines), fontsize=9, loc="left")
    for axes in grid[len(values) :].ravel():
        axes.remove()
    return figure
