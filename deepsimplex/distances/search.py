"""The small types that metrics, engines and callers share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

# Distances of the queries at a slice of rows to the samples at a slice of columns: float64 [rows, columns].
BlockFunction = Callable[[slice, slice], NDArray[np.float64]]
# Distances of the queries at some rows to the samples at as many others: float64 [S].
PairFunction = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
Classes = Literal["all", "own", "other"]
CLASSES = get_args(Classes)


class Neighbors(NamedTuple):
    """The nearest samples of every class: what ``class_neighbors`` returns.

    Attributes
    ----------
    distances : ndarray, shape [N, n, k], float64
        Ascending in the last axis; inf where a class has fewer than k samples to offer, or was not searched.
    indices : ndarray, shape [N, n, k], int64
        Rows of the samples searched; -1 where there is none.
    recall : float
        The share of the true neighbors that are among those found: 1 for an exact search, measured on a sample of the
        queries for an approximate one.

    Examples
    --------
    >>> from deepsimplex.distances import class_neighbors
    >>> found = class_neighbors(np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 1]))
    >>> found.distances[..., 0].tolist(), found.indices[..., 0].tolist()
    ([[1.0, 3.0], [1.0, 2.0], [2.0, inf]], [[1, 2], [0, 2], [1, -1]])
    """

    distances: NDArray[np.float64]
    indices: NDArray[np.int64]
    recall: float = 1.0


@dataclass(frozen=True, eq=False)
class Search:
    """A checked request for neighbors.

    Attributes
    ----------
    x : ndarray, shape [N, ...]
        The samples searched.
    y : ndarray, shape [N], int64
        Their classes.
    queries : ndarray, shape [M, ...], or None
        None: the samples themselves, each of them left out of its own neighborhood.
    query_labels : ndarray, shape [M], int64, or None
        Classes of the queries; None: not known, which needs classes "all".
    own_positive : bool
        Whether neighbors in the query's own class must lie at a positive distance.
    classes : {"all", "own", "other"}
        In which classes each query wants neighbors, by its own.
    num_classes, k : int
        n and k.
    block_bytes : int
        About how much memory one block of distances may take; a tile of as many pairs, with scores and prepared
        samples, takes several times that.
    checkpoint : pathlib.Path or None
        Where the state of a long search is kept.
    show_progress : bool or None
        As ``deepsimplex._utils.progress`` takes it.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    queries: NDArray[Any] | None
    query_labels: NDArray[np.int64] | None
    own_positive: bool
    classes: Classes
    num_classes: int
    k: int
    block_bytes: int
    checkpoint: Path | None
    show_progress: bool | None

    @property
    def num_queries(self) -> int:
        """Number of queries M."""
        return len(self.x if self.queries is None else self.queries)

    @property
    def symmetric(self) -> bool:
        """Whether samples and queries are the same, so that a pair serves both of its sides."""
        return self.queries is None

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

    def wants(self, label: int) -> NDArray[np.bool_]:
        """Whether each query wants neighbors in this class, shape [M]."""
        if self.query_labels is None:
            return np.ones(self.num_queries, dtype=bool)
        return np.where(self.query_labels == label, self.classes != "other", self.classes != "own")

    def positive(self, label: int) -> NDArray[np.bool_]:
        """Whether each query wants only positive distances in this class, shape [M]."""
        if not self.own_positive or self.query_labels is None:
            return np.zeros(self.num_queries, dtype=bool)
        return self.query_labels == label

    @property
    def num_pairs(self) -> int:
        """How many pairs of samples the answer depends on; a pair that serves both of its sides counts once."""
        pairs = self.num_queries * len(self.x)
        if self.query_labels is not None and self.classes != "all":
            own = int(
                np.bincount(self.query_labels, minlength=self.num_classes)
                @ np.bincount(self.y, minlength=self.num_classes)
            )
            pairs = own if self.classes == "own" else pairs - own
        if self.symmetric:
            pairs = (pairs - (0 if self.classes == "other" else len(self.x))) // 2
        return pairs

    def empty(self) -> Neighbors:
        """An answer without neighbors, to be filled: distances inf, indices -1."""
        shape = (self.num_queries, self.num_classes, self.k)
        return Neighbors(np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64))

    def due(self, label: int) -> NDArray[np.int64]:
        """How many neighbors in this class each query must at least be given by an exact search, shape [M].

        0 where only positive distances count: how many there are is not known beforehand.
        """
        columns = self.columns(label)
        there = np.full(self.num_queries, columns.stop - columns.start)
        if self.symmetric:
            there[self.y == label] -= 1
        return np.where(self.wants(label) & ~self.positive(label), np.minimum(there, self.k), 0)


def refuse_nan(distances: NDArray[np.float64], metric: str) -> None:
    """Refuse NaN among the distances that count: neither near nor far, their samples would be left out in silence.

    Raises
    ------
    ValueError
        Naming the metric, and how many of how many distances are NaN.
    """
    if distances.size and np.isnan(distances.min()):  # a single pass
        raise ValueError(
            f"distances must be numbers; found NaN in {int(np.isnan(distances).sum())} of {distances.size} that the "
            f"metric {metric!r} computed. Look for samples that it does not suit"
        )


def check_complete(found: Neighbors, search: Search, metric: str) -> Neighbors:
    """Return the answer of an exact search, or say that it lacks neighbors.

    Raises
    ------
    ValueError
        When a query has fewer neighbors in a class than there are: distances to the others were infinite, or NaN.
    """
    for label in range(search.num_classes):
        due, given = search.due(label), (found.indices[:, label] >= 0).sum(axis=1)
        lacking = np.flatnonzero(given < due)
        if len(lacking):
            first = lacking[0]
            raise ValueError(
                f"distances must be finite; under the metric {metric!r}, {len(lacking)} samples lack neighbors in "
                f"class {label}, the first at index {first}, which has {given[first]} of {due[first]}. "
                "Look for samples that are infinitely far from others"
            )
    return found
