"""Features of samples drawn in one pass over them: where inducing points and prototypes start."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# Rows among which points are chosen and the typical distance is taken: more change neither by much.
ROWS = 2000
BATCH_SIZE = 256

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


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
        samples = np.asarray(samples)
        batches = _batches(samples, rng.permutation(len(samples))[:rows])
    with as_in_training(backbone) as features:
        return _reservoir(((features(batch), _no_classes(batch)) for batch in batches), rows, rng)[0]


def labelled_feature_rows(
    samples: Any,
    labels: Any,
    backbone: Callable[..., Any] | None,
    rows: int,
    rng: np.random.Generator,
    as_labels: Callable[[Any], NDArray[np.int64]],
) -> Rows:
    """Features of samples drawn at random without replacement, at most ``rows`` of every class, and their labels.

    Parameters
    ----------
    samples : array or tf.data.Dataset
        Samples [N, ...], or a data set of batches (samples, labels), with or without weights. It is read once.
    labels : array, shape [N], or None
        None for a data set.
    backbone : keras.Model, keras.layers.Layer or None
        From samples to features [N, d]; None where samples are features.
    rows : int
        Of every class.
    rng : numpy.random.Generator
    as_labels : callable
        Makes numbers of classes [N] of labels, or says what is wrong with them.

    Returns
    -------
    features : ndarray, shape [at most n rows, d]
    labels : ndarray, shape the same rows

    Raises
    ------
    ValueError
        For labels beside a data set, a data set or samples without them, and another number of them than samples.

    Examples
    --------
    >>> X, y = labelled_feature_rows(np.eye(5), np.arange(5) % 2, None, 2, np.random.default_rng(0), np.asarray)
    >>> X.shape, sorted(y.tolist())
    ((4, 5), [0, 0, 1, 1])
    """
    if isinstance(samples, tf.data.Dataset):
        if labels is not None:
            raise ValueError("labels must be None beside a data set, whose batches hold them")
        batches: Iterable[Any] = _labelled(samples)
    else:
        samples = np.asarray(samples)
        if labels is None or len(labels) != len(samples):
            raise ValueError(
                f"labels must name the class of each of the {len(samples)} samples; found "
                f"{None if labels is None else len(labels)}"
            )
        numbers = as_labels(labels)
        # Those that are not drawn need not go through the backbone.
        chosen = rng.permutation(_smallest(rng.random(len(numbers)), numbers, rows))
        batches = zip(_batches(samples, chosen), _batches(numbers, chosen), strict=True)
    with as_in_training(backbone) as features:
        return _reservoir(((features(x), as_labels(y)) for x, y in batches), rows, rng)


def features_of(batch: Any, backbone: Callable[..., Any] | None, training: bool = False) -> NDArray[np.float64]:
    """Features [N, d] of a batch of samples, float64.

    Parameters
    ----------
    batch : array, shape [N, ...]
    backbone : keras.Model, keras.layers.Layer or None
    training : bool
        Whether the backbone is called as in training. Default False.

    Examples
    --------
    >>> features_of(np.ones((2, 3), "float32"), None).dtype
    dtype('float64')
    """
    features = batch if backbone is None else backbone(batch, training=training)
    features = np.asarray(keras.ops.convert_to_numpy(features), dtype=np.float64)
    if features.ndim != 2:
        raise ValueError(
            f"samples must give features of shape [N, d]; found {features.shape}. Pass the backbone that the layer "
            "follows: initialise_from(..., backbone=backbone)"
        )
    return features


@contextmanager
def as_in_training(backbone: Callable[..., Any] | None) -> Iterator[Callable[[Any], NDArray[np.float64]]]:
    """What a backbone makes of batches in training; its statistics and seeds are put back at the end.

    The averages that batch normalisation uses for inference mean nothing yet in a backbone that is new: points among
    features that they gave would be far from all that training sees.

    Examples
    --------
    >>> norm = keras.layers.BatchNormalization()
    >>> with as_in_training(norm) as features:
    ...     features(np.array([[1.0], [3.0]], "float32")).round(2).tolist()
    [[-1.0], [1.0]]
    >>> float(norm.moving_mean[0])
    0.0
    """
    state: list[tuple[keras.Variable, Any]] | None = None

    def features(batch: Any) -> NDArray[np.float64]:
        nonlocal state
        if state is None:
            if not getattr(backbone, "built", True):
                _build(backbone, batch)
            state = [(variable, variable.numpy()) for variable in getattr(backbone, "non_trainable_variables", ())]
        return features_of(batch, backbone, training=True)

    try:
        yield features
    finally:
        for variable, value in state or ():
            variable.assign(value)


def _build(backbone: Any, batch: Any) -> None:
    """Make the backbone's variables, for batches of any number of samples."""

    def of_any_number(leaf: Any) -> keras.KerasTensor:
        return keras.KerasTensor((None, *leaf.shape[1:]), dtype=keras.backend.standardize_dtype(leaf.dtype))

    backbone(keras.tree.map_structure(of_any_number, batch))


def _labelled(samples: tf.data.Dataset) -> Iterator[tuple[Any, Any]]:
    for batch in samples:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        if y is None:
            raise ValueError("samples must be a data set of batches (samples, labels); found batches without labels")
        yield x, keras.ops.convert_to_numpy(y)


def _batches(samples: NDArray[Any], chosen: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    # Of equal size: statistics of a last batch of few would be none.
    for part in np.array_split(chosen, max(1, -(-len(chosen) // BATCH_SIZE))):
        yield samples[part]


def _no_classes(batch: Any) -> NDArray[np.int64]:
    return np.zeros(len(keras.tree.flatten(batch)[0]), dtype=np.int64)


def _reservoir(batches: Iterable[Rows], rows: int, rng: np.random.Generator) -> Rows:
    """Every row gets a random key as it goes by; those of the smallest keys of every class stay."""
    kept, labels, keys = np.empty((0, 0)), np.empty(0, dtype=np.int64), np.empty(0)
    for features, of_features in batches:
        kept = features if not len(kept) else np.concatenate([kept, features])
        labels = np.concatenate([labels, of_features])
        keys = np.concatenate([keys, rng.random(len(features))])
        smallest = np.sort(_smallest(keys, labels, rows))
        kept, labels, keys = kept[smallest], labels[smallest], keys[smallest]
    return kept, labels


def _smallest(keys: NDArray[np.float64], labels: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Where the smallest keys of every class are, ``number`` of each at most."""
    order = np.argsort(keys)
    return np.concatenate([order[labels[order] == label][:number] for label in np.unique(labels)] or [order])
