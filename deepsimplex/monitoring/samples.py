"""The validation samples of a board: not too many, drawn at random, the same ones in every epoch."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ValidationSamples:
    """Samples and their labels.

    Attributes
    ----------
    x : ndarray or structure of ndarray
        Of N samples.
    y : ndarray, shape [N], int64
    rows : ndarray, shape [N], int64
        Their places among all that were given, rising.
    given : int
        How many were given.
    """

    x: Any
    y: NDArray[np.int64]
    rows: NDArray[np.int64]
    given: int


def draw_samples(data: Any, samples: int | None, seed: int, name: str = "validation_data") -> ValidationSamples:
    """Draw ``samples`` of what is given, or take all of them if there are no more or ``samples`` is None.

    Parameters
    ----------
    data : (x, y) of arrays, or tf.data.Dataset of batches (x, y)
        A data set is read once, and no more of it is held than is drawn.
    samples : int or None
    seed : int
        The same rows are drawn of arrays and of a data set that yields them in order.
    name : str
        What to call ``data`` in errors.

    Raises
    ------
    TypeError, ValueError
        When ``data`` is neither, holds no samples, NaN or infinity, or labels that are no class numbers.

    Examples
    --------
    >>> drawn = draw_samples((np.arange(10.0), np.arange(10)), samples=3, seed=0)
    >>> drawn.rows, drawn.y, drawn.given
    (array([1, 2, 3]), array([1, 2, 3]), 10)
    """
    rng = np.random.default_rng(seed)
    kept: list[Any] = []  # parts of x, labels, places and the random keys, of which the smallest stay
    keys, given = np.empty(0), 0
    for x, y in _parts(data, name):
        count = len(y)
        keys = np.concatenate([keys, rng.random(count)])
        part = (x, y, np.arange(given, given + count))
        given += count
        kept = list(part) if not kept else [_joined(old, new) for old, new in zip(kept, part, strict=True)]
        if samples is not None and len(keys) > samples:
            chosen = np.sort(np.argpartition(keys, samples - 1)[:samples])
            keys, kept = keys[chosen], [rows_of(part, chosen) for part in kept]
    if not given:
        raise ValueError(f"{name} must hold at least one sample; found none")
    x, y, rows = kept
    _check_finite(x, name)
    return ValidationSamples(x, y, rows, given)


def rows_of(x: Any, chosen: Any) -> Any:
    """Some rows, a slice or an array of places, of an array or of each of a structure of arrays."""
    return keras.tree.map_structure(lambda leaf: leaf[chosen], x)


def _joined(old: Any, new: Any) -> Any:
    return keras.tree.map_structure(lambda *leaves: np.concatenate(leaves), old, new)


def _parts(data: Any, name: str) -> Any:
    """Batches (x, y) of arrays, checked."""
    wanted = f"{name} must be a pair (x, y) of arrays, or a batched tf.data.Dataset of such pairs"
    if not isinstance(data, tf.data.Dataset):
        if not isinstance(data, tuple | list) or len(data) != 2:
            length = f" of length {len(data)}" if isinstance(data, tuple | list) else ""
            raise TypeError(f"{wanted}; found {type(data).__name__}{length}")
        x, y = data
        yield _checked(x, y, name)
        return
    if not isinstance(data.element_spec, tuple) or len(data.element_spec) != 2:
        raise TypeError(f"{wanted}; found one of {data.element_spec}")
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(f"{name} must end; found a data set that repeats for ever. dataset.take(k) ends it")
    for x, y in data.as_numpy_iterator():
        yield _checked(x, y, name)


def _checked(x: Any, y: Any, name: str) -> tuple[Any, NDArray[np.int64]]:
    x = keras.tree.lists_to_tuples(x)
    leaves = keras.tree.flatten(x)
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in leaves):
        raise TypeError(f"{name} must hold an array x, or a structure of arrays; found {type(x).__name__}")
    x = keras.tree.map_structure(np.asarray, x)
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    elif labels.ndim == 2 and np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1):
        labels = labels.argmax(axis=1)  # one-hot, as categorical_crossentropy takes them
    if labels.ndim != 1 or any(np.ndim(leaf) == 0 or len(leaf) != len(labels) for leaf in keras.tree.flatten(x)):
        shapes = [leaf.shape for leaf in keras.tree.flatten(x)]
        raise ValueError(
            f"{name} must hold one class number for each sample of x; found x of shape "
            f"{', '.join(map(str, shapes))} and y of shape {labels.shape}. Soft labels become y.argmax(axis=1)"
        )
    if labels.dtype.kind not in "biuf" or np.any((labels < 0) | (labels != np.floor(labels))):
        raise ValueError(f"{name} must hold class numbers 0..n-1 in y; found {labels.dtype} like {labels[0]!r}")
    return x, labels.astype(np.int64)


def _check_finite(x: Any, name: str) -> None:
    for leaf in keras.tree.flatten(x):
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            raise ValueError(f"{name} must hold finite numbers in x; found NaN or infinity")


def as_images(x: Any) -> NDArray[Any] | None:
    """Samples as images in [0, 1], [N, H, W] or [N, H, W, 3]; None where they are no images.

    Arrays [N, H, W], [N, H, W, 1] and [N, H, W, 3] are images, where H and W are at least 4. Pixels that are neither
    uint8 nor within [0, 1] are shown from the smallest of all to the largest.
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
        pixels = (pixels - low) / max(high - low, float(np.finfo(np.float32).tiny))
        pixels = np.clip(pixels, 0, 1)  # rounding
    return pixels
