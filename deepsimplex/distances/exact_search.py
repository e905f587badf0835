"""Exact neighbor search: visit the distance matrix tile by tile, and keep the k nearest samples of every class.

Samples are sorted by class and shuffled within each class. If a distance is symmetric and samples are compared with
each other, only the tiles on and above the diagonal are visited, and each serves its rows and its columns. Tiles do not
depend on one another: any order, and any division of the list among workers, gives the same k nearest.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import parts
from deepsimplex._utils.progress import progress

Classes = Literal["all", "same", "other"]
CLASSES = get_args(Classes)
BLOCK_BYTES = 2**24
Executor = Literal["ray"]
EXECUTORS = get_args(Executor)
# Smaller tiles cost more in calls than they save in memory.
SMALLEST_TILE = 16
Tile = tuple[slice, slice]
"""Rows and columns of the distance matrix."""


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
    >>> neighbors = class_neighbors(np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 1]))
    >>> neighbors.distances[..., 0].tolist(), neighbors.indices[..., 0].tolist()
    ([[1.0, 3.0], [1.0, 2.0], [2.0, inf]], [[1, 2], [0, 2], [1, -1]])
    """

    distances: NDArray[np.float64]
    indices: NDArray[np.int64]
    recall: float = 1.0


@dataclass(eq=False)
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
        None: the samples themselves, each left out as its neighbor.
    query_labels : ndarray, shape [M], int64
        Classes of the queries (of the samples, without queries); -1 if they are not known.
    num_classes, k : int
        n and k.
    exclude_duplicates : bool
        Whether neighbors in the query's class must lie at a positive distance.
    classes : {"all", "same", "other"}
        Whether neighbors are searched in all classes, in that of the query, or in the others.
    block_bytes : int
        Approximate memory of one tile of float64 distances.
    show_progress : bool or None
        As ``deepsimplex._utils.progress`` takes it.
    rows : ndarray, shape [M, ...]
        The samples in the rows of the distance matrix: the queries, if any, else ``x`` itself.
    row_ids : ndarray, shape [M], int64
        Index of each row among the samples; -1 for queries.
    wanted : ndarray of bool, shape [2]
        Whether neighbors in the query's class, and in other classes, are wanted.
    bounds : ndarray, shape [n + 1]
        First column of every class, and the number of columns.
    tile_length : int
        Most rows, and most columns, of a tile.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    ids: NDArray[np.int64]
    queries: NDArray[Any] | None
    query_labels: NDArray[np.int64]
    num_classes: int
    k: int
    exclude_duplicates: bool = False
    classes: Classes = "all"
    block_bytes: int = BLOCK_BYTES
    show_progress: bool | None = None
    rows: NDArray[Any] = field(init=False)
    row_ids: NDArray[np.int64] = field(init=False)
    wanted: NDArray[np.bool_] = field(init=False)
    bounds: NDArray[np.int64] = field(init=False)
    tile_length: int = field(init=False)

    def __post_init__(self) -> None:
        self.row_ids = self.ids if self.queries is None else np.full(len(self.queries), -1)
        self.wanted = np.array([self.classes != "other", self.classes != "same"])
        self.bounds = np.searchsorted(self.y, np.arange(self.num_classes + 1))
        self.tile_length = max(SMALLEST_TILE, int((self.block_bytes / 8) ** 0.5))
        # Read-only, as in the workers of a cluster: numba then compiles loops for one type only.
        for name, array in list(vars(self).items()):
            if isinstance(array, np.ndarray):
                view = array.view()
                view.flags.writeable = False
                setattr(self, name, view)
        self.rows = self.x if self.queries is None else self.queries

    def empty(self) -> Neighbors:
        """Return an answer without neighbors: distances inf, indices -1."""
        shape = (len(self.rows), self.num_classes, self.k)
        return Neighbors(np.full(shape, np.inf), np.full(shape, -1, dtype=np.int64))

    def in_order(self, neighbors: Neighbors) -> Neighbors:
        """Sort the neighbors of the rows into the order of the queries, in place."""
        if self.queries is None:
            for array in (neighbors.distances, neighbors.indices):
                array[self.ids] = array.copy()
        return neighbors

    def both_sides(self, metric: Any) -> bool:
        """Whether each tile of a distance gives neighbors of its rows and of its columns."""
        return bool(metric.symmetric) and self.queries is None

    def tiles(self, metric: Any) -> list[Tile]:
        """Divide the distance matrix into tiles: on and above the diagonal alone, if each serves both sides."""
        both_sides, length = self.both_sides(metric), self.tile_length
        return [
            (rows, columns)
            for rows in parts(slice(0, len(self.rows)), length)
            for columns in parts(slice(rows.start if both_sides else 0, len(self.x)), length)
        ]

    def progress(self, metric: Any, tiles: list[Tile], name: str) -> AbstractContextManager[Callable[[int], Any]]:
        """Show how many pairs of these tiles are done; nothing of a single one, which ends with its first report."""
        if len(tiles) < 2:
            return nullcontext(lambda pairs: None)
        return progress(f"{metric!r} {name}", sum(map(num_pairs, tiles)), self.show_progress, unit="pairs")

    def has_wanted(self, rows: slice, columns: slice) -> bool:
        """Whether a tile has pairs of the classes that are wanted."""
        labels, others = self.query_labels[rows], self.y[columns]
        if self.classes == "same":
            return bool(np.isin(labels, others).any())
        return self.classes == "all" or bool((labels != others[0]).any() or (others != others[0]).any())


Visit = Callable[[slice, slice, Neighbors], None]
"""Merges the pairs of a tile, given by its rows and columns, into the lists of its rows (and columns)."""


def num_pairs(tile: Tile) -> int:
    """Return the number of pairs of a tile."""
    rows, columns = tile
    return (rows.stop - rows.start) * (columns.stop - columns.start)


def search_tiles(visit: Visit, search: Search, metric: Any) -> Neighbors:
    """Visit all tiles, and keep the nearest; ``metric`` is named beside the progress bar.

    Returns
    -------
    Neighbors
        Of the queries, in their order. Equally near samples are ordered by their indices.
    """
    tiles, neighbors = search.tiles(metric), search.empty()
    with search.progress(metric, tiles, "neighbors") as advance:
        for tile in tiles:
            if search.has_wanted(*tile):
                visit(*tile, neighbors)
            advance(num_pairs(tile))
    return search.in_order(neighbors)


def block_visit(block: Callable[[slice, slice], NDArray[np.float64]], search: Search, metric: Any) -> Visit:
    """Return the visit of a tile that evaluates every pair, once if the distance is symmetric.

    It raises a ValueError if a distance that counts is NaN.
    """
    from deepsimplex.distances.compiled_search import merge_block

    both_sides = search.both_sides(metric)
    options = search.wanted, search.exclude_duplicates

    def visit(rows: slice, columns: slice, neighbors: Neighbors) -> None:
        distances, indices, _ = neighbors
        values = block(rows, columns)
        row, column = (search.query_labels[rows], search.row_ids[rows]), (search.y[columns], search.ids[columns])
        if np.isnan(values.min(initial=0.0)):
            # Distances of samples to themselves do not matter.
            counted = search.wanted[(row[0][:, None] != column[0]).astype(int)] & (row[1][:, None] != column[1])
            refuse_nan(values[counted], repr(metric))
        merge_block(values, row, column, *options, distances[rows], indices[rows])
        if both_sides and rows != columns:
            merge_block(np.ascontiguousarray(values.T), column, row, *options, distances[columns], indices[columns])

    return visit


def refuse_nan(distances: NDArray[np.float64], name: str) -> None:
    """Raise an error if distances that count are NaN: their samples would be left out silently."""
    missing = int(np.isnan(distances).sum())
    if missing:
        raise ValueError(
            f"distances must be numbers; found NaN in {missing} of {distances.size} that {name} computed. "
            "Look for samples that it does not suit"
        )
