"""Validation samples of a board: a random subset, the same in every epoch."""

from functools import partial
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_array, check_labels, unmasked
from deepsimplex.samples import ArraySamples, Samples, is_stream
from deepsimplex.samples.reservoir import Draw


def draw_samples(data: Any, samples: int | None, seed: int, name: str = "validation_data") -> Draw:
    """Draw ``samples`` at random, or take all if there are no more or ``samples`` is None.

    Parameters
    ----------
    data : (x, y) of arrays, or tf.data.Dataset, keras.utils.PyDataset or generator of batches (x, y)
        Batches are read once, and no more of them is held in memory than is drawn.
    samples : int or None
    seed : int
        The same rows are drawn from arrays and from batches of the same samples in the same order.
    name : str
        Name of ``data`` in errors.

    Returns
    -------
    Draw
        ``columns`` are x, as arrays, data frame or structure of arrays, and y: class numbers or other labels.

    Raises
    ------
    TypeError, ValueError
        If ``data`` is neither, or holds no samples, NaN or infinity, or soft labels.

    Examples
    --------
    >>> drawn = draw_samples((np.arange(10.0), np.arange(10)), samples=3, seed=0)
    >>> drawn.rows, drawn.columns[1], drawn.given
    (array([1, 2, 3]), array([1, 2, 3]), 10)
    """
    stream = Samples.of(data, name=name) if is_stream(data) else None
    columns = data if stream is None else stream.spec
    if not isinstance(columns, tuple | list) or len(columns) != 2:
        value = type(data).__name__ if stream is None else columns
        length = f" of length {len(columns)}" if isinstance(columns, tuple | list) else ""
        raise TypeError(f"{name} must be a pair (x, y) of arrays, or batches of such pairs; found {value}{length}")
    given = stream.map(partial(_checked, name)) if stream else ArraySamples(*_checked(name, *columns))
    draw = given.draw(samples, seed)
    if not draw.given:
        raise ValueError(f"{name} must hold at least one sample; found none")
    return draw


def _checked(name: str, x: Any, y: Any) -> tuple[Any, NDArray[Any]]:
    x = keras.tree.lists_to_tuples(x)
    leaves = keras.tree.flatten(x)
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in leaves):
        raise TypeError(f"{name} must hold an array x, or a structure of arrays; found {type(x).__name__}")
    x = keras.tree.map_structure(lambda leaf: leaf if hasattr(leaf, "iloc") else unmasked(leaf, f"x of {name}"), x)
    labels = unmasked(y, f"the labels of {name}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    elif labels.ndim == 2 and len(labels):
        labels, _ = check_labels(labels)  # one-hot, for categorical_crossentropy
    if labels.ndim != 1 or any(np.ndim(leaf) == 0 or len(leaf) != len(labels) for leaf in leaves):
        shapes = ", ".join(str(leaf.shape) for leaf in leaves)
        raise ValueError(
            f"{name} must hold one label for each sample of x; found x of shape {shapes} and y of shape {labels.shape}"
        )
    for leaf in leaves:
        if np.asarray(leaf).dtype.kind == "f":
            check_array(leaf, f"x of {name}", dtype="floating")
    return x, labels


def as_images(x: Any) -> NDArray[Any] | None:
    """Return samples as images in [0, 1], [N, H, W] or [N, H, W, 3], or None.

    Arrays [N, H, W], [N, H, W, 1] and [N, H, W, 3] are images if H and W are at least 4. Pixels that are neither uint8
    nor within [0, 1] are scaled by the smallest and the largest of all.
    """
    if not isinstance(x, np.ndarray) or x.ndim not in (3, 4) or min(x.shape[1:3]) < 4:
        return None
    if x.ndim == 4 and x.shape[3] not in (1, 3):
        return None
    pixels = x[..., 0] if x.ndim == 4 and x.shape[3] == 1 else x
    if pixels.dtype == np.uint8:
        return pixels / np.float32(255)
    pixels = pixels.astype(np.float32)
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        pixels = np.clip((pixels - low) / max(high - low, float(np.finfo(np.float32).tiny)), 0, 1)
    return pixels
