"""The small types that metrics, engines and callers share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Distances of the queries at a slice of rows to the samples at a slice of columns: float64 [rows, columns].
BlockFunction = Callable[[slice, slice], NDArray[np.float64]]


class Neighbours(NamedTuple):
    """The nearest samples of every class: what ``class_neighbours`` returns.

    Attributes
    ----------
    distances : ndarray, shape [N, n, k], float64
        Ascending in the last axis; inf where a class has fewer than k samples to offer.
    indices : ndarray, shape [N, n, k], int64
        Rows of the samples searched; -1 where there is none.

    Examples
    --------
    >>> from deepsimplex.distances import class_neighbours
    >>> found = class_neighbours(np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 1]))
    >>> found.distances[..., 0].tolist(), found.indices[..., 0].tolist()
    ([[1.0, 3.0], [1.0, 2.0], [2.0, inf]], [[1, 2], [0, 2], [1, -1]])
    """

    distances: NDArray[np.float64]
    indices: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Search:
    """A checked request for neighbours.

    Attributes
    ----------
    x : ndarray, shape [N, ...]
        The samples searched.
    y : ndarray, shape [N], int64
        Their classes.
    queries : ndarray, shape [M, ...], or None
        None: the samples themselves, each of them left out of its own neighbourhood.
    query_labels : ndarray, shape [M], int64, or None
        Classes in which a query's neighbours must lie at a positive distance; None: zero distances count everywhere.
    num_classes, k : int
        n and k.
    block_bytes : int
        About how much memory one block of distances may take.
    show_progress : bool or None
        As ``deepsimplex.progress`` takes it.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    queries: NDArray[Any] | None
    query_labels: NDArray[np.int64] | None
    num_classes: int
    k: int
    block_bytes: int
    show_progress: bool | None

    @property
    def num_queries(self) -> int:
        """Number of queries M."""
        return len(self.x if self.queries is None else self.queries)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Samples sorted by class and, within a class, by index: class c lies at ``columns(c)`` of it."""
        return np.argsort(self.y, kind="stable")

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        return np.searchsorted(self.y[self.order], np.arange(self.num_classes + 1))

    def columns(self, label: int) -> slice:
        """Where the samples of a class lie in ``order``."""
        return slice(int(self._bounds[label]), int(self._bounds[label + 1]))

    @cached_property
    def own_columns(self) -> NDArray[np.int64]:
        """Where in ``order`` each query itself lies, shape [M]; -1 for queries that are not among the samples."""
        own = np.full(self.num_queries, -1, dtype=np.int64)
        if self.queries is None:
            own[self.order] = np.arange(len(self.order))
        return own

    def positive(self, label: int) -> NDArray[np.bool_]:
        """Whether each query wants only positive distances in this class, shape [M]."""
        if self.query_labels is None:
            return np.zeros(self.num_queries, dtype=bool)
        return self.query_labels == label

    def empty(self) -> Neighbours:
        """An answer without neighbours, to be filled: distances inf, indices -1."""
        shape = (self.num_queries, self.num_classes, self.k)
        return Neighbours(np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64))
