"""Exact neighbor search: visit the distance matrix tile by tile, and keep the k nearest samples of every class.

Samples are sorted by class and shuffled within each class. If a distance is symmetric and samples are compared with
each other, only the tiles on and above the diagonal are visited, and each serves its rows and its columns. Tiles do not
depend on one another: any order, and any division of the list among workers, gives the same k nearest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import fingerprint
from deepsimplex._utils.batching import parts
from deepsimplex._utils.progress import progress
from deepsimplex.distances.checkpoint import Checkpoint

Classes = Literal["all", "own", "other"]
CLASSES = get_args(Classes)
# Smaller tiles cost more in calls than they save in memory.
SMALLEST_TILE = 16


class Neighbors(NamedTuple):
    """The nearest samples of every class, as ``class_neighbors`` returns them.

    Attributes
    ----------
    distances : ndarray, shape [N, n, k], float64
        Ascending in the last axis; inf if a class has fewer than k samples to offer, or was not searched.
    indices : ndarray, shape [N, n, k], int64
        Rows of the samples searched; -1 for missing neighbors.
    recall : float
        The share of the true neighbors that were found: 1 for an exact search, measured on a sample of the queries for
        an approximate one.

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
    """Arguments of a neighbor search, validated.

    Attributes
    ----------
    x : ndarray, shape [N, ...]
        The samples searched, sorted by class.
    y : ndarray, shape [N], int64
        Their classes, ascending.
    ids : ndarray, shape [N], int64
        Their indices in the caller's order.
    queries : ndarray, shape [M, ...], or None
        None: the samples themselves, each of them left out of its own neighborhood.
    query_labels : ndarray, shape [M], int64
        Classes of the queries (of the samples, if there are none); -1 if they are not known.
    own_positive : bool
        Whether neighbors in the query's own class must lie at a positive distance.
    classes : {"all", "own", "other"}
        In which classes each query wants neighbors, by its own.
    num_classes, k : int
        n and k.
    block_bytes : int
        Approximate memory of one tile of float64 distances.
    checkpoint : pathlib.Path or None
        Folder for the state of a long search.
    show_progress : bool or None
        As ``deepsimplex._utils.progress`` takes it.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    ids: NDArray[np.int64]
    queries: NDArray[Any] | None
    query_labels: NDArray[np.int64]
    own_positive: bool
    classes: Classes
    num_classes: int
    k: int
    block_bytes: int
    checkpoint: Path | None
    show_progress: bool | None

    @property
    def rows(self) -> NDArray[Any]:
        """The samples in the rows of the distance matrix [M, ...]."""
        return self.x if self.queries is None else self.queries

    @cached_property
    def row_ids(self) -> NDArray[np.int64]:
        """Index of each row among the samples, shape [M]; -1 for queries."""
        return self.ids if self.queries is None else np.full(len(self.queries), -1)

    @property
    def wanted(self) -> NDArray[np.bool_]:
        """Whether neighbors in the own class, and in other classes, are wanted, shape [2]."""
        return np.array([self.classes != "other", self.classes != "own"])

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """First column of every class, and the number of columns, shape [n + 1]."""
        return np.searchsorted(self.y, np.arange(self.num_classes + 1))

    def empty(self) -> Neighbors:
        """Return an answer without neighbors: distances inf, indices -1."""
        shape = (len(self.rows), self.num_classes, self.k)
        return Neighbors(np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64))

    def tiles(self, both_sides: bool) -> list[tuple[slice, slice]]:
        """Rows and columns of every tile; only those on and above the diagonal if each serves ``both_sides``."""
        length = max(SMALLEST_TILE, int((self.block_bytes / 8) ** 0.5))
        return [
            (rows, columns)
            for rows in parts(slice(0, len(self.rows)), length)
            for columns in parts(slice(rows.start if both_sides else 0, len(self.x)), length)
        ]

    def kept(self, distance_key: str | None) -> Checkpoint:
        """Return the checkpoint of this search under a distance."""
        if self.checkpoint is None:
            return Checkpoint(None, "")
        arrays = self.x, self.y, self.ids, self.queries, self.query_labels
        options = self.own_positive, self.classes, self.num_classes, self.k, self.block_bytes
        return Checkpoint(self.checkpoint, fingerprint(distance_key, *options, *arrays))

    def has_wanted(self, rows: slice, columns: slice) -> bool:
        """Whether a tile has pairs of the classes that are wanted."""
        labels, others = self.query_labels[rows], self.y[columns]
        if self.classes == "own":
            return bool(np.isin(labels, others).any())
        return self.classes == "all" or bool((labels != others[0]).any() or (others != others[0]).any())


def search_tiles(
    visit: Callable[[slice, slice, Neighbors], None], search: Search, metric: Any, both_sides: bool
) -> Neighbors:
    """Visit all tiles, and keep the nearest.

    Parameters
    ----------
    visit : callable
        Merges the pairs of a tile, given by its rows and columns, into the lists of its rows (and columns).
    search : Search
    metric : Distance
        Named beside the progress bar; its key names the checkpoint, whose finished tiles are not visited again.
    both_sides : bool
        Whether a tile serves its rows and its columns.

    Returns
    -------
    Neighbors
        Of the queries, in their order. Equally near samples are ordered by their indices.
    """
    found, tiles, begin = search.empty(), search.tiles(both_sides), 0
    checkpoint = search.kept(metric.cache_key())
    state = checkpoint.load()
    if state is not None:
        found.distances[...], found.indices[...], begin = state["distances"], state["indices"], int(state["tiles"])
    areas = [(rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in tiles]
    with progress(
        f"{metric!r} neighbors", sum(areas), search.show_progress, unit="pairs", done=sum(areas[:begin])
    ) as advance:
        for number, (rows, columns) in enumerate(tiles[begin:], begin):
            if search.has_wanted(rows, columns):
                visit(rows, columns, found)
            advance(areas[number])
            checkpoint.keep({"distances": found.distances, "indices": found.indices, "tiles": np.array(number + 1)})
    checkpoint.clear()
    if search.queries is None:
        for array in (found.distances, found.indices):
            array[search.ids] = array.copy()
    return found


def search_blocks(block: Callable[[slice, slice], NDArray[np.float64]], search: Search, metric: Any) -> Neighbors:
    """Find exact neighbors by evaluating every pair, once if the distance is symmetric.

    Raises
    ------
    ValueError
        If a distance that counts is NaN.
    """
    from deepsimplex.distances.k_nearest import merge_block

    both_sides = metric.symmetric and search.queries is None
    options = search.wanted, search.own_positive

    def visit(rows: slice, columns: slice, found: Neighbors) -> None:
        values = block(rows, columns)
        row, column = (search.query_labels[rows], search.row_ids[rows]), (search.y[columns], search.ids[columns])
        if np.isnan(values.min(initial=0.0)):
            # Distances of samples to themselves do not matter.
            counted = search.wanted[(row[0][:, None] != column[0]).astype(int)] & (row[1][:, None] != column[1])
            refuse_nan(values[counted], repr(metric))
        merge_block(values, row, column, *options, found.distances[rows], found.indices[rows])
        if both_sides and rows != columns:
            turned = np.ascontiguousarray(values.T)
            merge_block(turned, column, row, *options, found.distances[columns], found.indices[columns])

    return search_tiles(visit, search, metric, both_sides)


def refuse_nan(distances: NDArray[np.float64], name: str) -> None:
    """Raise an error if distances that count are NaN: their samples would be left out silently."""
    missing = int(np.isnan(distances).sum())
    if missing:
        raise ValueError(
            f"distances must be numbers; found NaN in {missing} of {distances.size} that {name} computed. "
            "Look for samples that it does not suit"
        )
