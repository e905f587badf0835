"""Exact neighbors of flattened samples: scores in float32, distances and the decision in float64.

Samples are centered, brought into [-1, 1] by one scale and rounded to float32. The score t of a pair is their squared
Euclidean distance, by a matrix product, or their cityblock distance. With unit roundoff u = 2^-24, d features and
g = gamma_(d+12) = (d+12) u / (1-(d+12) u) [Higham, Accuracy and Stability of Numerical Algorithms, ch. 3], for points
a, b in float32,

- Euclidean: | t - ||a - b||^2 | <= g (||a|| + ||b||)^2, whatever the order of summation, by the expansion
  ||a||^2 + ||b||^2 - 2 a.b as well;
- cityblock: | t - |a - b|_1 | <= g |a - b|_1;
- and the float32 points lie within u ||a|| (and a float64 rounding) of the centered, scaled samples.

A sample b no farther than D from a has ||b|| <= ||a|| + D, so its score has an upper bound in which b does not occur.
Pairs whose score exceeds that bound, for the D of the k-th nearest known so far, lie farther away and cannot be in the
answer. All others are evaluated by direct differences, in float64, on the samples as they were given: duplicates get
exactly 0. So the answer is exact: float32 only decides how long it takes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import parts
from deepsimplex.distances.base import Distance, check_real
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.search import BlockFunction, Neighbors, PairFunction, Search

# Squares of differences beyond this overflow float64.
LARGEST = 1e150
_ROUNDOFF = 2.0**-24  # unit roundoff of float32
_UNDERFLOW = 2.0**-126  # an upper bound of what float32 loses where results are too small for it
_ROWS_AT_ONCE = 4096


class VectorDistance(Distance):
    """A distance between flattened samples: a sum over features, or its root."""

    squared: bool  # whether sums are of squared differences, and the distance is their root

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[np.float64] | NDArray[np.float32]:
        array = check_real(x, name)
        if array.ndim < 2:
            raise ValueError(
                f"{name} must have shape [N, ...], a row per sample; found shape {list(array.shape)}. "
                f"Give samples of one feature as {name}[:, None]"
            )
        if array.dtype.kind != "f":
            # Integers of up to 16 bits are exact in float32.
            array = array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
        if array.size and max(array.max(), -array.min()) > LARGEST:
            raise ValueError(f"{name} must be below {LARGEST:g} in size, else distances overflow; scale the samples")
        return array.reshape(len(array), int(np.prod(array.shape[1:])))

    def blocks(self, x: NDArray[Any], queries: NDArray[Any] | None, order: NDArray[np.int64]) -> BlockFunction:
        from deepsimplex.distances._vector_kernels import distance_block

        rows_of = x if queries is None else queries

        def block(rows: slice, columns: slice) -> NDArray[np.float64]:
            return distance_block(rows_of[rows], x, order[columns], self.squared)

        return block

    def paired(self, x: NDArray[Any], queries: NDArray[Any] | None) -> PairFunction:
        from deepsimplex.distances._vector_kernels import evaluate_pairs

        rows_of = x if queries is None else queries

        def distances(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
            pairs = np.arange(len(rows), dtype=np.int32)
            return evaluate_pairs(
                np.stack([pairs, pairs]), np.full(len(rows), np.inf), rows_of, rows, x, columns, self.squared
            )

        return distances

    def neighbors(self, search: Search) -> Neighbors:
        """Scores in float32 leave few pairs to evaluate: see this module's text for the proof."""
        from deepsimplex.distances.screening import search_screened, sides

        rows, columns = sides(search)
        screen = VectorScreen(search, rows.indices, columns.indices, self.squared)
        checkpoint = Checkpoint.of(search, self.cache_key())
        return search_screened(screen, search, rows, columns, self.name, checkpoint)


class _Tile(NamedTuple):
    """Some rows or columns: their indices, what the scores are made of, and the points' norms."""

    indices: NDArray[np.int64]
    points: NDArray[np.float32]
    norms: NDArray[np.float64]


class VectorScreen:
    """Scores in float32, evaluation in float64.

    Parameters
    ----------
    search : Search
    rows, columns : ndarray of int64
        Which queries and samples stand in the rows and columns.
    squared : bool
        Whether the distance is the Euclidean one; else it is the cityblock distance.
    """

    parts = 1

    def __init__(self, search: Search, rows: NDArray[np.int64], columns: NDArray[np.int64], squared: bool) -> None:
        self.squared = squared
        self._samples, self._columns = search.x, columns
        self._queries, self._rows = (search.x if search.queries is None else search.queries), rows
        self._features = search.x.shape[1]
        self._mean, self._scale = center(search.x, search.queries)
        self._column_points, self._column_norms = self._points(self._samples, columns)
        if search.symmetric:
            self._row_points, self._row_norms = self._column_points, self._column_norms
        else:
            self._row_points, self._row_norms = self._points(self._queries, rows)
        self.sample_bytes = 4 * self._column_points.shape[1]

    def _points(
        self, samples: NDArray[Any], order: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Centered and scaled points [R, D] and their norms [R].

        For the Euclidean distance, 1 and the square of the norm stand behind a point; zeros fill up a vector of the
        compiled kernels.
        """
        from deepsimplex.distances._lanes import aligned, lanes_of

        lanes, features = lanes_of(np.float32), self._features
        points = aligned((len(order), -(-(features + 2) // lanes) * lanes), np.float32)
        norms = np.empty(len(order))
        for part in parts(slice(0, len(order)), _ROWS_AT_ONCE):
            some = points[part, :features]
            some[...] = (samples[order[part]] - self._mean) / self._scale
            if self.squared:
                squares = np.einsum("nd,nd->n", some, some, dtype=np.float64)
                points[part, features], points[part, features + 1] = 1.0, squares
                norms[part] = np.sqrt(squares)
            else:
                norms[part] = np.abs(some).sum(axis=1, dtype=np.float64)
        return points, norms

    def rows(self, positions: slice) -> _Tile:
        points, norms = self._row_points[positions], self._row_norms[positions]
        if self.squared:
            # (-2 a, ||a||^2, 1) . (b, 1, ||b||^2) = ||a - b||^2
            points = points * np.float32(-2.0)
            points[:, self._features], points[:, self._features + 1] = norms**2, 1.0
        return _Tile(self._rows[positions], points, norms)

    def columns(self, positions: slice) -> _Tile:
        return _Tile(self._columns[positions], self._column_points[positions], self._column_norms[positions])

    def score(self, rows: _Tile, columns: _Tile, out: NDArray[np.float32]) -> None:
        if self.squared:
            from deepsimplex.distances.products import multiply

            multiply(rows.points, columns.points, out=out[0])
        else:
            from deepsimplex.distances._vector_kernels import cityblock_block

            cityblock_block(rows.points, columns.points, out[0])

    def ceilings(self, tile: _Tile, limits: NDArray[np.float64]) -> NDArray[np.float32]:
        terms = (self._features + 12) * _ROUNDOFF
        if terms >= 0.5:
            return np.full(limits.shape, np.inf, np.float32)
        error, underflow = 1.001 * terms / (1.0 - terms), self._features * _UNDERFLOW
        limits = limits / self._scale
        # Norms of the two points together; the factors 1.001 cover what the bound itself loses to rounding.
        reach = 1.001 * (2 * tile.norms[:, None] + limits) + underflow
        farthest = limits + 1.001 * _ROUNDOFF * reach + 2.0 * underflow
        with np.errstate(over="ignore"):
            bound = farthest**2 + error * reach**2 + 4.0 * underflow if self.squared else farthest * (1.0 + error)
            return np.nextafter((bound * 1.001 + underflow).astype(np.float32), np.float32(np.inf))

    def evaluate(
        self, rows: _Tile, columns: _Tile, pairs: NDArray[np.int32], scores: NDArray[np.float32], limits: NDArray
    ) -> NDArray[np.float64]:
        from deepsimplex.distances._vector_kernels import evaluate_pairs

        return evaluate_pairs(pairs, limits, self._queries, rows.indices, self._samples, columns.indices, self.squared)


def center(x: NDArray[Any], queries: NDArray[Any] | None) -> tuple[NDArray[np.float64], float]:
    """The samples' mean, and the scale that brings samples and queries less the mean into [-1, 1]."""
    both = [x] if queries is None else [x, queries]
    mean = x.mean(axis=0, dtype=np.float64)
    spans = [np.maximum(part.max(axis=0) - mean, mean - part.min(axis=0)).max() for part in both if part.size]
    return mean, float(max(spans, default=0.0)) or 1.0
