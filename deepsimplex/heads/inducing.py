"""Features of samples drawn in one pass over them, among which inducing points start."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex.pieces import parts

# Rows among which inducing points are chosen and the typical distance is taken: more change neither by much.
ROWS = 2000
BATCH_SIZE = 256


def feature_rows(
    samples: Any, backbone: Callable[..., Any] | None, rows: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Features of samples drawn at random without replacement, at most ``rows`` of them.

    Parameters
    ----------
    samples : array or tf.data.Dataset
        Samples, or a data set of batches of them, with or without labels beside them. It is read once.
    backbone : keras.Model, keras.layers.Layer or None
        From samples to features [N, d]; None where samples are features.
    rows : int
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape [at most rows, d]

    Examples
    --------
    >>> feature_rows(np.eye(5), None, 3, np.random.default_rng(0)).shape
    (3, 5)
    """
    if isinstance(samples, tf.data.Dataset):
        batches: Iterable[Any] = (keras.utils.unpack_x_y_sample_weight(batch)[0] for batch in samples)
    else:
        batches = _batches(np.asarray(samples), rows, rng)  # others need not go through the backbone
    return _reservoir((_features(batch, backbone) for batch in batches), rows, rng)


def _batches(samples: NDArray[Any], rows: int, rng: np.random.Generator) -> Iterator[NDArray[Any]]:
    chosen = np.sort(rng.permutation(len(samples))[:rows])
    for part in parts(slice(0, len(chosen)), BATCH_SIZE):
        yield samples[chosen[part]]


def _features(batch: Any, backbone: Callable[..., Any] | None) -> NDArray[np.float64]:
    features = batch if backbone is None else backbone(batch, training=False)
    features = np.asarray(keras.ops.convert_to_numpy(features), dtype=np.float64)
    if features.ndim != 2:
        raise ValueError(
            f"samples must give features of shape [N, d]; found {features.shape}. Pass the backbone that the layer "
            "follows: initialise_from(samples, backbone)"
        )
    return features


def _reservoir(batches: Iterable[NDArray[np.float64]], rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Every row gets a random key as it goes by; those of the smallest keys stay."""
    kept: NDArray[np.float64] | None = None
    keys = np.empty(0)
    for batch in batches:
        kept = batch if kept is None else np.concatenate([kept, batch])
        keys = np.concatenate([keys, rng.random(len(batch))])
        smallest = np.sort(np.argsort(keys)[:rows])
        kept, keys = kept[smallest], keys[smallest]
    return np.empty((0, 0)) if kept is None else kept
