"""Draw features of random samples in one pass, for initial inducing points and prototypes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import check_finite_dataset, num_rows, smallest_keys
from deepsimplex._utils.validation import check_array, unmasked

# Number of rows for initial points and the median distance: more rows change both little.
ROWS = 2000
BATCH_SIZE = 256

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def feature_rows(
    samples: Any, backbone: Callable[..., Any] | None, rows: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], int]:
    """Features of samples drawn at random without replacement, at most ``rows`` of them.

    Parameters
    ----------
    samples : array, tf.data.Dataset or iterator
        Samples, or batches of them, with or without labels, which are read once.
    backbone : keras.Model, keras.layers.Layer or None
        From samples to features [N, d]; None where samples are features.
    rows : int
    rng : numpy.random.Generator

    Returns
    -------
    features : ndarray, shape [at most rows, d]
    count : int
        Number of all samples.

    Examples
    --------
    >>> features, count = feature_rows(np.eye(5), None, 3, np.random.default_rng(0))
    >>> features.shape, count
    ((3, 5), 5)
    """
    count = 0

    def counted() -> Iterator[Any]:
        nonlocal count
        for x, _ in _of_dataset(samples):
            count += num_rows(x)
            yield x

    if is_batches(samples):
        batches: Iterable[Any] = counted()
    else:
        samples = _as_arrays(samples)
        count = num_rows(samples)
        batches = _batches(samples, rng.permutation(count)[:rows])
    with as_in_training(backbone) as features:
        kept, _ = _reservoir(((features(batch), np.zeros(num_rows(batch), np.int64)) for batch in batches), rows, rng)
    return kept, count


def labeled_feature_rows(
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
    samples : array, tf.data.Dataset or iterator
        Samples [N, ...], or batches (samples, labels), with or without weights, which are read once.
    labels : array, shape [N], or None
        None for a data set.
    backbone : keras.Model, keras.layers.Layer or None
        From samples to features [N, d]; None where samples are features.
    rows : int
        Of every class.
    rng : numpy.random.Generator
    as_labels : callable
        Converts labels to class numbers [N]; raises an error for invalid ones.

    Returns
    -------
    features : ndarray, shape [at most n rows, d]
    labels : ndarray, shape the same rows

    Raises
    ------
    ValueError
        If labels are given beside a data set, are missing, or are not as many as the samples.

    Examples
    --------
    >>> X, y = labeled_feature_rows(np.eye(5), np.arange(5) % 2, None, 2, np.random.default_rng(0), np.asarray)
    >>> X.shape, sorted(y.tolist())
    ((4, 5), [0, 0, 1, 1])
    """
    if is_batches(samples):
        if labels is not None:
            raise ValueError("labels must be None beside a data set, whose batches hold them")
        batches: Iterable[Any] = _labeled(samples)
    else:
        samples = _as_arrays(samples)
        if callable(labels):
            raise TypeError(f"labels must name the classes of the samples; found {type(labels).__name__}")
        labels = None if labels is None else unmasked(labels, "labels")
        if labels is None or labels.shape[:1] != (num_rows(samples),):
            raise ValueError(
                f"labels must name the class of each of the {num_rows(samples)} samples; found "
                f"{None if labels is None else len(np.atleast_1d(labels))}"
            )
        numbers = as_labels(labels)
        # Only the drawn samples go through the backbone.
        chosen = rng.permutation(smallest_keys(rng.random(len(numbers)), numbers, rows))
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
    features = check_array(keras.ops.convert_to_numpy(features), "samples", finite=False)
    if features.ndim != 2:
        raise ValueError(
            f"samples must give features of shape [N, d]; found {features.shape}. Pass the backbone that the layer "
            "follows: adapt(..., backbone=backbone); a data set must be of batches: samples.batch(256)"
        )
    return features


@contextmanager
def as_in_training(backbone: Callable[..., Any] | None) -> Iterator[Callable[[Any], NDArray[np.float64]]]:
    """Yield the backbone in training mode, as a function of arrays; its state is restored at the end.

    In a new backbone the moving averages of batch normalization have not converged: points chosen among features in
    inference mode would lie far from the features in training.

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
            state = [(variable, variable.numpy()) for variable in getattr(backbone, "variables", ())]
        return features_of(batch, backbone, training=True)

    try:
        yield features
    finally:
        for variable, value in state or ():
            variable.assign(value)


def _build(backbone: Any, batch: Any) -> None:
    """Create the backbone's variables, for batches of any size."""

    def of_any_number(leaf: Any) -> keras.KerasTensor:
        return keras.KerasTensor((None, *leaf.shape[1:]), dtype=keras.backend.standardize_dtype(leaf.dtype))

    backbone(keras.tree.map_structure(of_any_number, batch))


def is_batches(samples: Any) -> bool:
    """Return whether ``samples`` yields batches: a tf.data.Dataset or an iterator.

    Examples
    --------
    >>> is_batches(np.zeros((3, 2))), is_batches(iter([(np.zeros((3, 2)), np.zeros(3))]))
    (False, True)
    """
    return isinstance(samples, tf.data.Dataset | Iterator)


def _of_dataset(samples: Any) -> Iterator[tuple[Any, Any]]:
    """Yield batches (x, y); a batch below half the largest size is joined to the one before, for its statistics."""
    if isinstance(samples, tf.data.Dataset):
        check_finite_dataset(samples, "samples")
    before: tuple[Any, Any] | None = None
    largest = 0
    for batch in samples:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        largest = max(largest, num_rows(x))
        if before is not None and 2 * num_rows(x) < largest:
            x, y = keras.tree.map_structure(_joined, before, (x, y))
            before = None
        if before is not None:
            yield before
        before = x, y
    if before is not None:
        yield before


def _joined(first: Any, second: Any) -> Any:
    return None if first is None else np.concatenate([np.asarray(first), np.asarray(second)])


def _labeled(samples: tf.data.Dataset) -> Iterator[tuple[Any, Any]]:
    for x, y in _of_dataset(samples):
        if y is None:
            raise ValueError("samples must be a data set of batches (samples, labels); found batches without labels")
        yield x, keras.ops.convert_to_numpy(y)


def _as_arrays(samples: Any) -> Any:
    """Convert samples to an array, or to a structure of arrays for several inputs."""
    return keras.tree.map_structure(np.asarray, samples) if isinstance(samples, dict | tuple) else np.asarray(samples)


def _batches(samples: Any, chosen: NDArray[np.int64]) -> Iterator[Any]:
    # Of equal size: batch statistics of a small last batch would be noisy.
    for part in np.array_split(chosen, max(1, -(-len(chosen) // BATCH_SIZE))):
        yield keras.tree.map_structure(lambda leaf, rows=part: leaf[rows], samples)


def batches_of(samples: Any) -> Iterator[Any]:
    """Yield samples [N, ...] in order, in batches of at most 256.

    Examples
    --------
    >>> [len(batch) for batch in batches_of(np.zeros((300, 2)))]
    [150, 150]
    """
    samples = _as_arrays(samples)
    return _batches(samples, np.arange(num_rows(samples)))


def _reservoir(batches: Iterable[Rows], rows: int, rng: np.random.Generator) -> Rows:
    """Draw rows of every class at random from batches of an unknown number, by reservoir sampling."""
    kept, labels, keys = np.empty((0, 0)), np.empty(0, dtype=np.int64), np.empty(0)
    for features, of_features in batches:
        kept = features if not len(kept) else np.concatenate([kept, features])
        labels = np.concatenate([labels, of_features])
        keys = np.concatenate([keys, rng.random(len(features))])
        smallest = np.sort(smallest_keys(keys, labels, rows))
        kept, labels, keys = kept[smallest], labels[smallest], keys[smallest]
    if not len(kept):
        raise ValueError("samples must hold at least one sample; found none")
    return kept, labels
