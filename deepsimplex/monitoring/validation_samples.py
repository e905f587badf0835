"""Validation samples of a board: a random subset, the same in every epoch."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import check_finite_dataset
from deepsimplex._utils.validation import check_array, check_labels, unmasked


@dataclass(frozen=True, eq=False)
class ValidationSamples:
    """Samples and their labels.

    Attributes
    ----------
    x : ndarray, data frame, or structure of ndarray
        N samples.
    y : ndarray, shape [N]
        Class numbers or other labels.
    rows : ndarray, shape [N], int64
        Their positions among all samples that were given, in rising order.
    given : int
        Number of samples that were given.
    """

    x: Any
    y: NDArray[Any]
    rows: NDArray[np.int64]
    given: int


def draw_samples(data: Any, samples: int | None, seed: int, name: str = "validation_data") -> ValidationSamples:
    """Draw ``samples`` at random, or take all if there are no more or ``samples`` is None.

    Parameters
    ----------
    data : (x, y) of arrays, or tf.data.Dataset of batches (x, y)
        A data set is read once, and no more of it is held in memory than is drawn.
    samples : int or None
    seed : int
        The same rows are drawn from arrays and from a data set of the same samples in the same order.
    name : str
        Name of ``data`` in errors.

    Raises
    ------
    TypeError, ValueError
        If ``data`` is neither, or holds no samples, NaN or infinity, or soft labels.

    Examples
    --------
    >>> drawn = draw_samples((np.arange(10.0), np.arange(10)), samples=3, seed=0)
    >>> drawn.rows, drawn.y, drawn.given
    (array([1, 2, 3]), array([1, 2, 3]), 10)
    """
    rng = np.random.default_rng(seed)
    kept: tuple[Any, ...] = ()  # x, labels and positions of the samples with the smallest random keys
    keys, given = np.empty(0), 0
    for x, y in _batches(data, name):
        keys = np.concatenate([keys, rng.random(len(y))])
        batch = (x, y, np.arange(given, given + len(y)))
        given += len(y)
        kept = keras.tree.map_structure(lambda *parts: np.concatenate(parts), kept, batch) if kept else batch
        if samples is not None and len(keys) > samples:
            chosen = np.sort(np.argpartition(keys, samples - 1)[:samples])
            keys, kept = keys[chosen], rows_of(kept, chosen)
    if not given:
        raise ValueError(f"{name} must hold at least one sample; found none")
    x, y, rows = kept
    return ValidationSamples(x, y, rows, given)


def rows_of(x: Any, chosen: Any) -> Any:
    """Return some rows, a slice or an array of positions, of an array or of each array of a structure."""
    return keras.tree.map_structure(lambda leaf: leaf.iloc[chosen] if hasattr(leaf, "iloc") else leaf[chosen], x)


def _batches(data: Any, name: str) -> Any:
    """Yield batches (x, y) of arrays, checked."""
    wanted = f"{name} must be a pair (x, y) of arrays, or a batched tf.data.Dataset of such pairs"
    stream = isinstance(data, tf.data.Dataset)
    pair = data.element_spec if stream else data
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        length = f" of length {len(pair)}" if isinstance(pair, tuple | list) else ""
        raise TypeError(f"{wanted}; found {f'one of {pair}' if stream else type(pair).__name__}{length}")
    if stream:
        check_finite_dataset(data, name)
    for x, y in data.as_numpy_iterator() if stream else [data]:
        yield _checked(x, y, name)


def _checked(x: Any, y: Any, name: str) -> tuple[Any, NDArray[Any]]:
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
