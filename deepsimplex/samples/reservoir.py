"""Random samples without replacement of rows that are read in blocks, by reservoir sampling."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import num_rows
from deepsimplex._utils.messages import guided


class Draw(NamedTuple):
    """Rows drawn at random, in their order among all rows.

    Attributes
    ----------
    columns : tuple
        Samples, and labels and weights if given: arrays or structures of arrays.
    rows : ndarray of int64
        Positions among all rows.
    given : int
        Number of all rows.
    """

    columns: tuple[Any, ...]
    rows: NDArray[np.int64]
    given: int


class Reservoir:
    """Draw rows of blocks at random without replacement; the draw does not depend on how rows are divided into blocks.

    Every row gets a uniform random key; the rows with the smallest keys are kept.

    Parameters
    ----------
    k : int or None
        Number of rows; all rows if there are no more, or for None.
    seed : int or numpy.random.Generator
    per_class : int
        Rows of every class that are drawn, too. Default 0.

    Examples
    --------
    >>> reservoir = Reservoir(3, seed=0)
    >>> for rows in np.split(np.arange(10.0), 5):
    ...     reservoir.add((rows,))
    >>> reservoir.drawn()
    Draw(columns=(array([1., 2., 3.]),), rows=array([1, 2, 3]), given=10)
    """

    def __init__(self, k: int | None, seed: int | np.random.Generator, per_class: int = 0) -> None:
        self._k, self._per_class, self._rng = k, per_class, np.random.default_rng(seed)
        self._columns: tuple[Any, ...] = ()
        self._keys, self._labels = np.empty(0), np.empty(0, np.int64)
        self._rows, self._given = np.empty(0, np.int64), 0

    def add(self, columns: tuple[Any, ...], labels: NDArray[Any] | None = None) -> None:
        """Add a block of rows, and their classes [N] if ``per_class`` rows of every class are kept."""
        count = num_rows(columns)
        keys = np.concatenate([self._keys, self._rng.random(count)])
        labels = np.concatenate([self._labels, np.zeros(count, np.int64) if labels is None else labels])
        rows = np.concatenate([self._rows, np.arange(self._given, self._given + count)])
        kept = smallest_keys(keys, self._k, labels, self._per_class)
        before = len(self._keys)
        old, new = kept[kept < before], kept[kept >= before] - before
        if not self._columns:
            self._columns = take(columns, new)
        elif len(new):
            self._columns = joined([take(self._columns, old), take(columns, new)])
        self._keys, self._labels, self._rows = keys[kept], labels[kept], rows[kept]
        self._given += count

    def drawn(self) -> Draw:
        """Return the rows drawn of all blocks so far."""
        return Draw(self._columns, self._rows, self._given)


def smallest_keys(
    keys: NDArray[np.float64], k: int | None, labels: NDArray[Any] | None = None, per_class: int = 0
) -> NDArray[np.int64]:
    """Return the positions, ascending, of the k smallest keys (None: of all) and the smallest of every class.

    Examples
    --------
    >>> smallest_keys(np.array([0.3, 0.1, 0.2]), 2)
    array([1, 2])
    """
    if k is None or len(keys) <= k:
        return np.arange(len(keys))
    order = np.argsort(keys)
    kept = [order[:k]]
    if labels is not None and per_class:
        kept += [order[labels[order] == label][:per_class] for label in np.unique(labels)]
    return np.unique(np.concatenate(kept))


def take(arrays: Any, rows: Any) -> Any:
    """Return some rows, a slice or positions, of every array, frame or h5py data set of a structure.

    Examples
    --------
    >>> take({"a": np.arange(4), "b": np.eye(4)}, np.array([2, 0]))["a"]
    array([2, 0])
    """

    def rows_of(array: Any) -> Any:
        if hasattr(array, "iloc"):
            return array.iloc[rows]
        if isinstance(array, tf.RaggedTensor) and not isinstance(rows, slice):
            return tf.gather(array, rows)
        if isinstance(array, np.ndarray) or isinstance(rows, slice):
            return array[rows]  # a slice of a memory map stays one
        order = np.argsort(rows)  # h5py requires increasing row numbers
        return np.asarray(array[rows[order]])[np.argsort(order)]

    return keras.tree.map_structure(rows_of, arrays)


def joined(blocks: list[Any]) -> Any:
    """Concatenate the arrays of blocks of the same structure.

    Examples
    --------
    >>> joined([(np.zeros(1), np.ones(1)), (np.zeros(1), np.ones(1))])
    (array([0., 0.]), array([1., 1.]))
    """
    for leaves in zip(*map(keras.tree.flatten, blocks), strict=True):
        if len(shapes := {tuple(leaf.shape[1:]): None for leaf in leaves}) > 1:
            one, other, *_ = shapes
            raise guided(
                "data.md#what-fit-takes",
                "samples must have one shape where they are held in memory together; found batches of shapes "
                f"{list(one)} and {list(other)}. Resize or pad them",
            )

    def join(*arrays: Any) -> Any:
        return tf.concat(arrays, 0) if isinstance(arrays[0], tf.RaggedTensor) else np.concatenate(arrays)

    return keras.tree.map_structure(join, *blocks) if len(blocks) > 1 else blocks[0]


def can_join(one: Any, other: Any) -> bool:
    """Return whether the samples of two blocks of the same structure have the same shapes.

    Examples
    --------
    >>> can_join(np.zeros((2, 3)), np.zeros((5, 3))), can_join(np.zeros((2, 3)), np.zeros((2, 4)))
    (True, False)
    """
    shapes = ([leaf.shape[1:] for leaf in keras.tree.flatten(block)] for block in (one, other))
    return next(shapes) == next(shapes)
