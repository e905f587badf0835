"""Features of random samples: for initial inducing points and prototypes, the error of neighbors, and their moments."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import num_rows
from deepsimplex._utils.validation import check_array, unmasked
from deepsimplex.kernels import squared_distances
from deepsimplex.samples import Draw, Reservoir, Samples, is_stream
from deepsimplex.samples.columns import has_ragged, row_keys
from deepsimplex.samples.reservoir import can_join, joined, take

# Number of rows for initial points, the median distance and the error: more rows change them little.
ROWS = 2000
BATCH_SIZE = 256
# Numbers of a batch of samples beyond which it has fewer rows: a convolution's features of 256 photographs take as much
# memory as their training.
_BATCH_NUMBERS, _FEWEST = 2**20, 32
# Samples for the moments of features; of a stream as many as have these bytes, but not fewer than the least number.
_MOMENT_ROWS, _MOMENT_BYTES, _FEWEST_MOMENT_ROWS = 512, 2**25, 64


def draw_features(
    x: Any,
    y: Any,
    backbone: Callable[..., Any] | None,
    rows: int,
    rng: np.random.Generator,
    class_numbers: Callable[[Any], NDArray[np.int64]] | None = None,
) -> Draw:
    """Draw samples at random without replacement and compute their features, in one pass.

    Parameters
    ----------
    x : array, structure of arrays, tf.data.Dataset, keras.utils.PyDataset or iterator
        Samples [N, ...], or batches of them with or without labels. Of arrays only the drawn samples go through the
        backbone, of streams all.
    y : array, shape [N], optional
        Labels, unless x holds them.
    backbone : keras.Model, keras.layers.Layer or None
        From samples to features [N, d], called in training mode; None if samples are features.
    rows : int
        Number of samples that are drawn at most, of every class if ``class_numbers`` is given.
    rng : numpy.random.Generator
    class_numbers : callable, optional
        Converts labels to class numbers [N]. Default None: labels are not used.

    Returns
    -------
    Draw
        Its columns are features [at most rows, d] and, with ``class_numbers``, class numbers.

    Raises
    ------
    TypeError, ValueError
        For no samples, missing labels, or labels beside a stream.

    Examples
    --------
    >>> (features,), rows, count = draw_features(np.eye(5), None, None, 3, np.random.default_rng(0))
    >>> features.shape, rows.shape, count
    ((3, 5), (3,), 5)
    >>> draw = draw_features(np.eye(5), np.arange(5) % 2, None, 2, np.random.default_rng(0), np.asarray)
    >>> sorted(draw.columns[1].tolist())
    [0, 0, 1, 1]
    """
    reservoir = Reservoir(rows, rng) if class_numbers is None else Reservoir(0, rng, per_class=rows)
    order = None
    if is_stream(x):
        blocks = _without_small_blocks(
            Samples.of(x, y, labeled=class_numbers is not None, name="samples").blocks(BATCH_SIZE)
        )
    else:
        if class_numbers is not None:
            if y is None or callable(y):  # such as a backbone in its place
                raise TypeError(f"y must hold the labels of the samples; found {type(y).__name__}")
            y = class_numbers(y)
        samples = Samples.of(as_arrays(x), y, name="samples")
        order = _random_order(samples.num_rows, None if class_numbers is None else y, rows, rng)
        # Batches of equal size, for the batch statistics.
        parts = np.array_split(order, -(-len(order) // _batch_size(samples.columns[0])))
        blocks = (take(samples.columns, part) for part in parts)
    for block, *labels in blocks:
        numbers = [] if class_numbers is None else [class_numbers(labels[0])]
        reservoir.add((training_features(block, backbone), *numbers), *numbers)
    draw = reservoir.drawn()
    if not draw.given:
        raise ValueError("samples must hold at least one sample; found none")
    return draw if order is None else Draw(draw.columns, order[draw.rows], samples.num_rows)


def _batch_size(x: Any) -> int:
    """Rows of a batch whose features are computed at once: the fewer the larger a sample of these arrays is."""
    numbers = sum(int(np.prod([size or 1 for size in part.shape[1:]])) for part in keras.tree.flatten(x))
    return max(_FEWEST, min(BATCH_SIZE, _BATCH_NUMBERS // max(numbers, 1)))


def _random_order(num_rows: int, labels: Any, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the positions of ``rows`` rows, of every class if labels are given, in random order."""
    if labels is None:
        return rng.permutation(num_rows)[:rows]
    order = np.argsort(rng.random(num_rows))
    return rng.permutation(np.concatenate([order[labels[order] == label][:rows] for label in np.unique(labels)]))


def feature_neighbor_error(
    samples: Samples,
    backbone: Callable[..., Any] | None,
    class_numbers: Callable[[Any], NDArray[np.int64]],
    *,
    steps: int | None = None,
    seed: int = 0,
) -> float:
    """Leave-one-out error of the nearest neighbor among the features of 2000 samples at most, in inference mode.

    Even the features of an untrained backbone tell how hard the classes are to separate.

    Parameters
    ----------
    samples : Samples
        Samples and labels. Of arrays random rows are taken; of streams the first ones, which are read ahead.
    backbone : keras.Model, keras.layers.Layer or None
        From samples to features [N, d]; None if samples are features.
    class_numbers : callable
        Converts labels to class numbers [N].
    steps : int, optional
        Number of batches of an epoch of a stream.
    seed : int
        Seed of the draw. Default 0.

    Returns
    -------
    float
        In [0, 1]; 0 for a single sample, and for a stream whose samples do not come again in its next epoch. Of
        neighbors at equal distances each counts for its share.

    Raises
    ------
    ValueError
        For no samples, and features that are not finite.

    Examples
    --------
    >>> samples = Samples.of(np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 0]))
    >>> feature_neighbor_error(samples, None, np.asarray)
    0.5
    """
    if samples.is_stream:
        blocks = samples.read_ahead(steps, "steps_per_epoch")
    else:
        drawn = np.random.default_rng(seed).permutation(samples.num_rows)[:ROWS]
        rows = np.split(drawn, range(size := _batch_size(samples.columns[0]), len(drawn), size))
        blocks = ((as_arrays(x), y) for x, y, *_ in (take(samples.columns, some) for some in rows))
    parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
    keys: set[bytes] = set()
    for x, y, *_ in blocks:
        parts.append((compute_features(x, backbone), class_numbers(y)))
        if samples.is_stream and not has_ragged(x):
            keys.update(row_keys(x))
        if sum(len(numbers) for _, numbers in parts) >= ROWS:
            break
    if not parts:
        raise ValueError("samples must hold at least one sample; found none")
    features, numbers = joined(parts)
    if not np.isfinite(features).all():
        raise ValueError("samples must give finite features; found NaN or infinity")
    if keys and not samples.recur(keys, steps):
        return 0.0
    squared = squared_distances(features, features)
    np.fill_diagonal(squared, np.inf)
    nearest = squared == squared.min(axis=1, keepdims=True)
    differ = numbers[:, np.newaxis] != numbers
    return float(np.mean(np.sum(nearest & differ, axis=1) / np.sum(nearest, axis=1)))


class FeatureMoments(keras.callbacks.Callback):
    """Give the head features of training samples, by whose moments it normalizes, as every epoch ends.

    Validation and other callbacks, such as those that save, follow.

    Moving averages lag behind features that a step moves by much of their deviation: with a constant learning rate and
    few steps in an epoch, class probabilities would be those of a network of some steps ago.

    Parameters
    ----------
    x : array, structure of arrays or None
        Training samples; at most 512 of them are drawn, the same ones for every epoch. None for a stream of which no
        rows are kept: the moving averages stay.
    backbone : keras.layers.Layer or None
        From samples to features [N, d]; None if samples are features.
    seed : int
    """

    def __init__(self, x: Any, backbone: keras.layers.Layer | None, seed: int) -> None:
        super().__init__()
        self.x, self.backbone = x, backbone
        order = np.random.default_rng(seed).permutation(0 if x is None else num_rows(x))[:_MOMENT_ROWS]
        self._parts = np.array_split(np.sort(order), -(-len(order) // _batch_size(x))) if len(order) else []
        self._step: int | None = None  # of the optimizer, whose moments are set

    def on_epoch_end(self, epoch: int | None = None, logs: Any = None) -> None:
        """Set the moments of the head, unless validation has since the last step."""
        step = int(self.model.optimizer.iterations.numpy())
        if step != self._step:
            for features in self.model._workers.from_chief(self._features).values():
                self.model.head.set_feature_moments(features)
        self._step = step

    on_test_begin: Any = on_epoch_end

    def on_train_end(self, logs: Any = None) -> None:
        """Set the moments again if the optimizer has put averaged weights in place of the latest."""
        if getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer).use_ema:
            self._step = None
            self.on_epoch_end()

    def _features(self) -> dict[str, NDArray[np.float64]]:
        rows = (as_arrays(take((self.x,), part)[0]) for part in self._parts)
        features = [compute_features(x, self.backbone) for x in rows]
        return {"features": np.concatenate(features)} if features else {}


class KeptRows:
    """Rows of a stream that are kept as it is read: those that fit into 32 MB, 64 to 512; none of several shapes.

    Parameters
    ----------
    seed : int

    Examples
    --------
    >>> kept = KeptRows(seed=0)
    >>> [len(x) for x, y in kept.keep([(np.ones((3, 2)), [0, 1, 1]), (np.ones((2, 2)), [0, 1])])]
    [3, 2]
    >>> kept.drawn().shape
    (5, 2)
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._reservoir: Reservoir | None = None
        self._shapes: list[Any] = []

    def keep(self, batches: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield batches (x, ...) and keep rows of x."""
        for batch in batches:
            leaves = keras.tree.flatten(x := as_arrays(batch[0]))
            if shapes := [leaf.shape[1:] for leaf in leaves if isinstance(leaf, np.ndarray)]:
                if not self._shapes:
                    size = max(sum(leaf.nbytes for leaf in leaves) / max(num_rows(x), 1), 1)
                    rows = int(np.clip(_MOMENT_BYTES / size, _FEWEST_MOMENT_ROWS, _MOMENT_ROWS))
                    self._shapes, self._reservoir = shapes, Reservoir(rows, self.seed)
                if shapes != self._shapes:
                    self._reservoir = None
                if self._reservoir is not None:
                    self._reservoir.add((x,))
            yield batch

    def drawn(self) -> Any:
        """Return the kept rows; None if there are none."""
        return None if self._reservoir is None else self._reservoir.drawn().columns[0]


def compute_features(batch: Any, backbone: Callable[..., Any] | None, training: bool = False) -> NDArray[np.float64]:
    """Compute features [N, d] of a batch of samples [N, ...], float64; without a backbone samples are features.

    Examples
    --------
    >>> compute_features(np.ones((2, 3), "float32"), None).dtype
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


def training_features(batch: Any, backbone: Callable[..., Any] | None) -> NDArray[np.float64]:
    """Compute features [N, d] of a batch in training mode; the state of the backbone stays as it is.

    In a new backbone the moving averages of batch normalization have not converged: points chosen among features in
    inference mode would lie far from the features in training.

    Examples
    --------
    >>> norm = keras.layers.BatchNormalization()
    >>> training_features(np.array([[1.0], [3.0]], "float32"), norm).round(2).tolist()
    [[-1.0], [1.0]]
    >>> float(norm.moving_mean[0])
    0.0
    """
    if not getattr(backbone, "built", True):
        _build(backbone, batch)
    with keras.StatelessScope():  # drops the updates of variables
        return compute_features(batch, backbone, training=True)


def _build(backbone: Any, batch: Any) -> None:
    """Create the backbone's variables, for batches of any size."""

    def open_batch(leaf: Any) -> keras.KerasTensor:
        return keras.KerasTensor((None, *leaf.shape[1:]), dtype=keras.backend.standardize_dtype(leaf.dtype))

    backbone(keras.tree.map_structure(open_batch, batch))


def as_arrays(samples: Any) -> Any:
    """Convert samples to an array, or to a structure of arrays for several inputs; ragged tensors stay as they are."""
    if isinstance(samples, tf.RaggedTensor):
        return samples
    if isinstance(samples, dict | tuple):
        return keras.tree.map_structure(np.asarray, samples)
    return unmasked(samples, "samples")


def _without_small_blocks(blocks: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Join a block below half the largest size to the one before, for its batch statistics."""
    before: tuple[Any, ...] | None = None
    largest = 0
    for block in blocks:
        largest = max(largest, num_rows(block))
        if before is not None and 2 * num_rows(block) < largest and can_join(before[0], block[0]):
            block, before = joined([before, block]), None
        if before is not None:
            yield before
        before = block
    if before is not None:
        yield before
