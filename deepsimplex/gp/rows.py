"""Training samples that are read in blocks of rows and in minibatches: arrays, memory maps, tf.data data sets."""

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import is_sliced_by_rows, not_finite, parts, row_slices, rows_at_once, smallest_keys
from deepsimplex._utils.validation import check_array, check_labels, check_sample_weight
from deepsimplex.gp.scaling import Moments
from deepsimplex.latent import LatentGaussian

Arrays = tuple[NDArray[Any], ...]
# Number of rows for initial hyperparameters and inducing points: more rows change both little.
SAMPLE = 20_000


def _unchanged(*read: NDArray[Any]) -> Arrays:
    return read


class Rows(ABC):
    """Training samples that are read block by block, so that no array of all of them is needed.

    Every read gives a tuple of arrays with equal numbers of rows: features first, then observations, weights and such.

    Attributes
    ----------
    num_rows : int
    num_features : int
        Columns d of the features.
    """

    num_rows: int
    num_features: int
    _convert: Callable[..., Arrays]

    def map(self, function: Callable[..., Arrays]) -> Self:
        """Return these rows with a function applied to the arrays of every read."""
        mapped, before = copy.copy(self), self._convert
        mapped._convert = lambda *read: function(*before(*read))
        return mapped

    @abstractmethod
    def blocks(self, most: int) -> Iterator[Arrays]:
        """Read all rows once, at most ``most`` at a time."""

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Arrays]:
        """Read the minibatches of an epoch."""

    @abstractmethod
    def num_batches(self, size: int) -> int:
        """Return the number of minibatches of an epoch."""

    def whole(self) -> Arrays:
        """Read all rows into arrays."""
        return _joined(self.blocks(self.num_rows))


class ArrayRows(Rows):
    """Rows of arrays, memory maps and other objects that can be sliced by rows.

    Rows are shuffled in every epoch. Those left over after the last whole minibatch are skipped, different ones in
    every epoch.

    Parameters
    ----------
    *arrays : array_like, shape [N, ...]
    used : ndarray of bool, shape [N], optional
        Rows that are used. Default None: all.

    Examples
    --------
    >>> rows = ArrayRows(np.eye(3), np.arange(3), used=np.array([True, False, True]))
    >>> [y.tolist() for _, y in rows.map(lambda x, y: (x, 10 * y)).blocks(1)]
    [[0], [20]]
    """

    def __init__(self, *arrays: Any, used: NDArray[np.bool_] | None = None) -> None:
        self._arrays = arrays
        self._used = None if used is None or used.all() else np.flatnonzero(used)
        self.num_rows = len(arrays[0] if self._used is None else self._used)
        self.num_features = arrays[0].shape[1]
        self._convert = _unchanged

    def part(self, rows: NDArray[np.int64]) -> Self:
        """Return some of the rows, by their positions among those used, in order."""
        some = copy.copy(self)
        some._used, some.num_rows = rows if self._used is None else self._used[rows], len(rows)
        return some

    def blocks(self, most: int) -> Iterator[Arrays]:
        for rows in row_slices(self.num_rows, most):
            yield self._read(rows)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Arrays]:
        order = rng.permutation(self.num_rows)
        for rows in parts(slice(0, size * self.num_batches(size)), size):
            yield self._read(order[rows])

    def num_batches(self, size: int) -> int:
        return self.num_rows // size

    def _read(self, rows: Any) -> Arrays:
        rows = rows if self._used is None else self._used[rows]
        return self._convert(*(_take(array, rows) for array in self._arrays))


def _take(array: Any, rows: Any) -> NDArray[Any]:
    if isinstance(array, np.ndarray) or isinstance(rows, slice):
        return np.asarray(array[rows])
    order = np.argsort(rows)  # h5py requires increasing row numbers
    return np.asarray(array[rows[order]])[np.argsort(order)]


class DatasetRows(Rows):
    """Rows of a ``tf.data.Dataset`` of batches, which is read anew in every pass.

    Minibatches are the data set's own, in its own order; ``size`` and ``rng`` are ignored.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Finite, of tuples of tensors.
    prepare : callable
        Converts the arrays of a batch; may drop rows. Its errors are raised with the number of the batch.
    num_features : int
    num_rows, num_batches : int
        Number of rows that ``prepare`` keeps, and of batches with at least one of them.

    Examples
    --------
    >>> dataset = tf.data.Dataset.from_tensor_slices((np.eye(3), np.arange(3))).batch(2)
    >>> rows = DatasetRows(dataset, lambda x, y: (x, y), num_features=3, num_rows=3, num_batches=2)
    >>> [y.tolist() for _, y in rows.blocks(2)]
    [[0, 1], [2]]
    """

    def __init__(
        self, dataset: Any, prepare: Callable[..., Arrays], *, num_features: int, num_rows: int, num_batches: int
    ) -> None:
        self._dataset, self._prepare, self._convert = dataset, prepare, _unchanged
        self.num_features, self.num_rows, self._num_batches = num_features, num_rows, num_batches

    def blocks(self, most: int) -> Iterator[Arrays]:
        held: list[Arrays] = []
        for batch in self._read():
            for rows in row_slices(len(batch[0]), most):
                part = tuple(array[rows] for array in batch)
                if held and sum(len(one[0]) for one in held) + len(part[0]) > most:
                    yield _joined(held)
                    held = []
                held.append(part)
        if held:
            yield _joined(held)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Arrays]:
        return self._read()

    def num_batches(self, size: int) -> int:
        return self._num_batches

    def _read(self) -> Iterator[Arrays]:
        found = 0
        for batch in read_batches(self._dataset, self._prepare, self._convert):
            found += len(batch[0])
            yield batch
        if found != self.num_rows:
            raise ValueError(
                "X must yield the same rows whenever it is read, as a tf.data.Dataset of arrays or files does; found "
                f"{self.num_rows} rows at first and then {found}. from_generator needs a function that begins anew"
            )


def _joined(blocks: Iterable[Arrays]) -> Arrays:
    return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))


def read_batches(dataset: Any, prepare: Callable[..., Arrays], convert: Callable[..., Any]) -> Iterator[Any]:
    """Prepare and convert the batches of a ``tf.data.Dataset``; skip those of which ``prepare`` keeps no row.

    Raises
    ------
    TypeError, ValueError
        If the data set or a function raises; the message has the number of the batch, from 0.
    """
    batches = dataset.as_numpy_iterator()
    for number in itertools.count():
        try:
            prepared = prepare(*next(batches))
            converted = convert(*prepared) if len(prepared[0]) else None
        except StopIteration:
            return
        except (TypeError, ValueError, tf.errors.OpError) as error:
            line = str(error.message if isinstance(error, tf.errors.OpError) else error).strip().splitlines()[0]
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{line} (in batch {number} of the tf.data.Dataset X)") from error
        if converted is not None:
            yield converted


def survey(rows: Rows, seed: int) -> tuple[list[Moments], Arrays]:
    """Read rows once to compute their moments and to draw a random sample, from which a fit is initialized.

    Parameters
    ----------
    rows : Rows
        Features and what was observed of them, weights [N] and classes [N].
    seed : int

    Returns
    -------
    moments : list of Moments
        Of the features and of what was observed, over all rows.
    sample : tuple of ndarray
        All arrays of at most ``SAMPLE`` rows and one of every class, in order: a random sample without
        replacement, which does not depend on how the rows are divided into blocks.
    """
    rng, keys = np.random.default_rng(seed), np.empty(0)
    moments: list[Moments] = []
    sample: Arrays = ()
    for block in rows.blocks(rows_at_once(rows.num_features)):
        *values, weights, _ = block
        found = [Moments.of(value, weights) for value in values]
        moments = [before + new for before, new in zip(moments, found, strict=True)] if moments else found
        sample = _joined([sample, block]) if sample else block
        keys = np.concatenate([keys, rng.random(len(weights))])
        if len(keys) > SAMPLE:
            of_classes = smallest_keys(keys, sample[-1], 1)
            kept = np.union1d(smallest_keys(keys, np.zeros(len(keys)), SAMPLE), of_classes)
            keys, sample = keys[kept], tuple(part[kept] for part in sample)
    return moments, sample


def observed_rows(
    X: ArrayLike, observation: LatentGaussian, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> ArrayRows:
    """Check the arrays of ``GaussianProcess.fit``, and return the rows that ``fit_rows`` takes."""
    features = _check_features(X)
    if not isinstance(observation, LatentGaussian):
        raise TypeError(f"observation must be a LatentGaussian; found {type(observation).__name__}")
    classes = np.zeros(len(features), np.int64) if y is None else np.asarray(y)
    for name, count in {"observation": len(observation), "y": len(classes)}.items():
        if count != len(features):
            raise ValueError(f"{name} must have as many rows as X, {len(features)}; found {count}")
    weights, observed = check_sample_weight(sample_weight, len(features)), observation.numpy()

    def in_double_precision(*parts: NDArray[Any]) -> Arrays:
        *numbers, classes = parts
        return *(np.asarray(part, dtype=np.float64) for part in numbers), classes

    rows = ArrayRows(features, observed.loc, observed.scale, weights, classes, used=weights > 0)
    return rows.map(in_double_precision)


def labeled_rows(X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ArrayRows:
    """Check the arrays of ``CategoricalProcess.fit``, and return the rows that ``fit_rows`` takes."""
    features = _check_features(X)
    labels, n = check_labels(y, soft=True, rows=len(features), of="X")
    weights = check_sample_weight(sample_weight, len(features))

    def weighted(X: Any, y: Any, weights: Any) -> Arrays:
        memberships = np.eye(n)[y] if y.ndim == 1 else y
        return np.asarray(X, dtype=np.float64), weights[:, np.newaxis] * memberships

    return ArrayRows(features, labels, weights, used=weights > 0).map(weighted)


def _check_features(X: ArrayLike) -> Any:
    """Return features [N, d] of at least two rows: as they are if they can be read in blocks, else in an array."""
    if not is_sliced_by_rows(X):
        return check_array(X, "X", "[N, d]", least=2)
    features: Any = X
    check_array(features[:2], "X", least=2, finite=False)
    if where := not_finite(features):
        raise ValueError(f"X must be finite; found {features[where[0]][where[1]]} at {list(where)}")
    return features
