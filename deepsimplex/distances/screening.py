"""Exact neighbors without evaluating every pair.

Every pair gets a score, a number that is cheap to compute for many pairs at once (a matrix product) and that bounds
the distance from below. A pair is evaluated only where its score leaves open that it is among the k nearest of one of
its two sides, as far as they are known by then; so what is left out cannot be in the answer. In every tile of the
matrix of pairs, the smallest scores of every row and column come first: they are likely to belong to near samples, and
once these are known few others matter. Between samples and themselves every pair is visited once and serves both of its
sides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import parts
from deepsimplex._utils.progress import progress
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.search import Neighbors, Search, refuse_nan

# A tile's prepared samples may take so many times the memory of a block of distances.
SAMPLES_PER_BLOCK = 4
# Shorter tiles cost more in calls than they save in memory.
SHORTEST_TILE = 16
# Leaders of every row and class in a tile, at most: many neighbors need not all be known before the others are looked
# at.
MOST_LEADERS = 16


@dataclass(frozen=True, eq=False)
class Side:
    """Rows or columns of the matrix of pairs, in the order in which they stand there.

    Attributes
    ----------
    indices : ndarray, shape [R], int64
        Their places among the samples, or among the queries.
    labels : ndarray, shape [R], int64
        Their classes; -1 where it is not known.
    positive : ndarray, shape [R], bool
        Whether they want only positive distances in their own class.
    distances, nearest : ndarray, shape [R, n, k]
        The nearest samples found so far, as in ``Neighbors``.
    """

    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    positive: NDArray[np.bool_]
    distances: NDArray[np.float64]
    nearest: NDArray[np.int64]

    @classmethod
    def of(cls, indices: NDArray[np.int64], labels: NDArray[np.int64], positive: bool, found: Neighbors) -> "Side":
        """A side whose lists are as empty as ``found``."""
        marks = np.full(len(indices), positive)
        return cls(indices, labels, marks, found.distances, found.indices)

    def __getitem__(self, positions: slice) -> "Side":
        return Side(*(getattr(self, field)[positions] for field in self.__dataclass_fields__))


class Screen(Protocol):
    """What a metric knows about many pairs at little cost. Tiles are whatever it prepares of a side's samples."""

    parts: int
    sample_bytes: int  # memory that one prepared sample takes

    def rows(self, positions: slice) -> Any:
        """Prepare some of the rows."""

    def columns(self, positions: slice) -> Any:
        """Prepare some of the columns."""

    def score(self, rows: Any, columns: Any, out: NDArray[np.float32]) -> None:
        """Fill ``out`` [parts, A, B]; the score of a pair is the sum of its parts."""

    def ceilings(self, tile: Any, limits: NDArray[np.float64]) -> NDArray[np.float32]:
        """The largest scores [A, n] that a pair at a distance of at most ``limits`` [A, n] can have."""

    def evaluate(
        self, rows: Any, columns: Any, pairs: NDArray[np.int32], scores: NDArray[np.float32], limits: NDArray
    ) -> NDArray[np.float64]:
        """Distances of pairs [2, S] of a tile; inf is allowed where they exceed ``limits`` [S]."""


def sides(search: Search) -> tuple[Side, Side]:
    """Rows and columns of the search's matrix of pairs; of a symmetric one they are the same object."""
    found = search.empty()
    labels = search.y[search.order]
    if search.symmetric:
        both = Side.of(search.order, labels, search.own_positive, found)
        return both, both
    query_labels = np.full(search.num_queries, -1) if search.query_labels is None else search.query_labels
    rows = Side.of(np.arange(search.num_queries), query_labels, search.own_positive, found)
    nothing = Neighbors(np.empty((len(labels), 0, search.k)), np.empty((len(labels), 0, search.k), np.int64))
    return rows, Side.of(search.order, labels, False, nothing)


def search_screened(
    screen: Screen, search: Search, rows: Side, columns: Side, name: str, checkpoint: Checkpoint
) -> Neighbors:
    """Visit all tiles of the matrix of pairs, evaluate what its screen leaves, and keep the nearest.

    Parameters
    ----------
    screen : Screen
        Of the rows and columns, in their order.
    search : Search
    rows, columns : Side
        As ``sides`` gives them; lists that hold something already make the search faster.
    name : str
        Of the metric, shown beside the progress bar.
    checkpoint : Checkpoint
        Tiles that it says are finished are not visited again.

    Returns
    -------
    Neighbors
        Of the queries, in their order.

    Raises
    ------
    ValueError
        When a distance that was evaluated is NaN.
    """
    length = _tile_length(search.block_bytes, screen.sample_bytes)
    memory = np.empty(screen.parts * min(length, len(rows.indices)) * min(length, len(columns.indices)), np.float32)
    tiles = list(_tiles(search, len(rows.indices), len(columns.indices), length))
    begin = 0
    state = checkpoint.load("search")
    if state is not None:
        rows.distances[...], rows.nearest[...], begin = state["distances"], state["nearest"], int(state["tiles"])
    total, done = _area(tiles), _area(tiles[:begin])
    with progress(f"{name} neighbors", total=total, show=search.show_progress, unit="pairs", done=done) as advance:
        latest, prepared = None, None
        for number in range(begin, len(tiles)):
            first, second = tiles[number]
            if first != latest:
                latest, prepared = first, screen.rows(first)
            if _worth_visiting(search, rows[first], columns[second]):
                shape = (screen.parts, first.stop - first.start, second.stop - second.start)
                scores = memory[: np.prod(shape)].reshape(shape)
                tile = prepared, screen.columns(second)
                screen.score(*tile, scores)
                diagonal = search.symmetric and first == second
                _visit(screen, search, name, tile, scores, rows[first], columns[second], diagonal)
            advance(_area([tiles[number]]))
            checkpoint.keep(
                "search", {"distances": rows.distances, "nearest": rows.nearest, "tiles": np.array(number + 1)}
            )
    checkpoint.clear()
    result = search.empty()
    result.distances[rows.indices], result.indices[rows.indices] = rows.distances, rows.nearest
    return result


def _tile_length(block_bytes: int, sample_bytes: int) -> int:
    """Rows and columns of a tile."""
    return max(SHORTEST_TILE, min(int((block_bytes / 8) ** 0.5), SAMPLES_PER_BLOCK * block_bytes // sample_bytes))


def _tiles(search: Search, rows: int, columns: int, length: int) -> Iterator[tuple[slice, slice]]:
    for first in parts(slice(0, rows), length):
        for second in parts(slice(first.start if search.symmetric else 0, columns), length):
            yield first, second


def _area(tiles: list[tuple[slice, slice]]) -> int:
    """Pairs in tiles; of one on the diagonal, those above it."""
    area = 0
    for first, second in tiles:
        height, width = first.stop - first.start, second.stop - second.start
        area += height * (height - 1) // 2 if first == second else height * width
    return area


def _worth_visiting(search: Search, rows: Side, columns: Side) -> bool:
    """Whether a tile has pairs of the classes asked for."""
    if search.classes == "all":
        return True
    if search.classes == "own":
        return bool(np.isin(rows.labels, columns.labels).any())
    return len(set(np.unique(rows.labels)) | set(np.unique(columns.labels))) > 1


def _visit(
    screen: Screen,
    search: Search,
    name: str,
    tile: tuple[Any, Any],
    scores: NDArray[np.float32],
    rows: Side,
    columns: Side,
    diagonal: bool,
) -> None:
    """Evaluate what must be evaluated in one tile: the leaders, and then whatever their distances do not rule out."""
    from deepsimplex.distances import _selection_kernels as kernels

    labels, symmetric = (rows.labels, columns.labels), search.symmetric
    wanted = np.array([search.classes != "other", search.classes != "own"])
    sums = kernels.add_parts(scores)
    if diagonal:
        np.fill_diagonal(sums, np.inf)  # nobody is their own neighbor

    def merge(pairs: NDArray[np.int32]) -> None:
        pairs = np.ascontiguousarray(pairs)
        limits = kernels.pair_limits(pairs, rows.distances, columns.distances, *labels, symmetric)
        values = screen.evaluate(*tile, pairs, scores, limits)
        refuse_nan(values, name)
        found = np.flatnonzero(values <= limits)
        found = found[np.isfinite(values[found])]
        kernels.merge_pairs(
            np.ascontiguousarray(pairs[:, found]), values[found],
            (rows.indices, rows.distances, rows.nearest), (columns.indices, columns.distances, columns.nearest),
            *labels, rows.positive, columns.positive, symmetric,
        )  # fmt: skip

    def ceilings() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Of rows [A, n] and of columns [n, B], as far as neighbors are known by now."""
        of_rows = screen.ceilings(tile[0], rows.distances[:, :, -1])
        if not symmetric:
            return of_rows, np.full((search.num_classes, len(columns.labels)), -np.inf, np.float32)
        return of_rows, np.ascontiguousarray(screen.ceilings(tile[1], columns.distances[:, :, -1]).T)

    of_rows, of_columns = ceilings()
    k = min(search.k, MOST_LEADERS)
    merge(_listed(kernels.row_leaders(sums, of_rows, labels, wanted, k)))
    if symmetric and not diagonal:
        merge(_listed(kernels.column_leaders(sums, of_columns, labels, wanted, k))[::-1])
    merge(kernels.select(sums, *ceilings(), labels, wanted, diagonal))


def _listed(leaders: NDArray[np.int32]) -> NDArray[np.int32]:
    """Leaders [A, R, k] as pairs [2, S]."""
    rows = np.broadcast_to(np.arange(len(leaders), dtype=np.int32)[:, None, None], leaders.shape)
    there = leaders >= 0
    return np.stack([rows[there], leaders[there]])
