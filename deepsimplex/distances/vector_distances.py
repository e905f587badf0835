"""Euclidean and cityblock distances, and their exact neighbor search by scores in float32.

Samples are centered, scaled into [-1, 1] and rounded to float32. The score t of a pair is their squared Euclidean
distance, by a matrix product, or their cityblock distance. With unit roundoff u = 2^-24, d features and
g = gamma_(d+12) = (d+12) u / (1-(d+12) u) [Higham, Accuracy and Stability of Numerical Algorithms, ch. 3], for points
a, b in float32,

- Euclidean: | t - ||a - b||^2 | <= g (||a|| + ||b||)^2, whatever the order of summation, by the expansion
  ||a||^2 + ||b||^2 - 2 a.b as well;
- cityblock: | t - |a - b|_1 | <= g |a - b|_1;
- and the float32 points lie within u ||a|| (and a float64 rounding) of the centered, scaled samples.

A sample b no farther than D from a has ||b|| <= ||a|| + D, so its score has an upper bound in which b does not occur.
Pairs whose score exceeds that bound, for the distance D to the k-th nearest known so far, cannot be in the answer. All
others are evaluated by direct differences in float64 on the original samples, so the answer is exact and duplicates
have distance exactly 0. Since samples are shuffled, a query evaluates about k (1 + ln(N / k)) of the N samples of a
class.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from deepsimplex._utils.batching import parts, row_blocks
from deepsimplex._utils.registry import registered
from deepsimplex.distances.distance import BlockFunction, Distance, PairFunction
from deepsimplex.distances.exact_search import Neighbors, Search, Visit

# Squares of differences beyond this overflow float64.
LARGEST = 1e150
_ROUNDOFF = 2.0**-24  # unit roundoff of float32
_UNDERFLOW = 2.0**-126  # upper bound of the underflow error of float32


class VectorDistance(Distance):
    """Base class of the distances between flattened samples: a sum over features, or its square root."""

    symmetric: ClassVar[bool] = True
    sums_features: ClassVar[bool] = True
    squared: ClassVar[bool]  # whether sums are of squared differences, and the distance is their square root

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        array = super().check(x, name)
        if array.ndim < 2:
            raise ValueError(
                f"{name} must have shape [N, d]; found {list(array.shape)}. One feature is {name}[:, None]"
            )
        if array.dtype.kind != "f" and array.dtype != np.uint8:  # bytes are converted in parts: see _floats
            # Integers of up to 16 bits are exact in float32.
            array = array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
        if array.size and max(float(array.max()), -float(array.min())) > LARGEST:
            raise ValueError(f"{name} must be below {LARGEST:g} in size, else distances overflow; scale the samples")
        return np.ascontiguousarray(array.reshape(len(array), int(np.prod(array.shape[1:]))))

    def blocks(self, queries: NDArray[Any], x: NDArray[Any]) -> BlockFunction:
        from deepsimplex.distances.compiled_search import distance_block

        return lambda rows, columns: distance_block(_floats(queries[rows]), _floats(x[columns]), self.squared)

    def paired(self, queries: NDArray[Any], x: NDArray[Any]) -> PairFunction:
        from deepsimplex.distances.compiled_search import pair_distances

        return lambda rows, columns: pair_distances(queries, rows, x, columns, self.squared)

    def visitor(self, search: Search) -> Visit:
        """Return the visit of a tile that evaluates pairs by their scores; the module's docstring has the proof."""
        from deepsimplex.distances import compiled_search
        from deepsimplex.distances.simd import aligned

        features, both_sides = search.x.shape[1], search.both_sides(self)
        mean, scale = center(search.x, search.rows)
        # Tiles of the same rows, or columns, share their part.
        column_part = row_part = lru_cache(2)(_Side((search.x, search.y, search.ids), mean, scale, self.squared).part)
        if not both_sides:
            queries = search.rows, search.query_labels, search.row_ids
            row_part = lru_cache(1)(_Side(queries, mean, scale, self.squared).part)
        terms = (features + 12) * _ROUNDOFF
        error = 1.001 * terms / (1.0 - terms) if terms < 0.5 else np.inf
        rounding = self.squared, scale, error, _ROUNDOFF, features * _UNDERFLOW
        options = search.wanted, search.exclude_duplicates, rounding
        multiply = _Products()
        height, width = (min(len(samples), search.tile_length) for samples in (search.rows, search.x))
        memory = aligned((height * width,), np.float32)

        def visit(rows: slice, columns: slice, neighbors: Neighbors) -> None:
            row_points, row = row_part(rows.start, rows.stop)
            column_points, column = column_part(columns.start, columns.stop)
            shape = len(row_points), len(column_points)
            scores = memory[: shape[0] * shape[1]].reshape(shape)
            distances, indices, _ = neighbors
            if self.squared:
                multiply(row_points, column_points, scores)
            else:
                compiled_search.cityblock_scores(row_points, column_points, scores)
            compiled_search.merge_scored(scores, False, row, column, *options, distances[rows], indices[rows])
            if both_sides and rows != columns:
                lists = distances[columns], indices[columns]
                compiled_search.merge_scored(scores, True, column, row, *options, *lists)

        return visit


@registered
class Euclidean(VectorDistance):
    """d(a, b) = sqrt(sum_i (a_i - b_i)^2) between flattened samples; exact duplicates have distance exactly 0.

    Evaluated in float64 by direct differences: round-off in the expansion |a|^2 + |b|^2 - 2 a.b would give duplicates
    positive distances [CASIMAC Eq. 7a, errata]. Samples may be images or rows of features, of any real type.

    Examples
    --------
    >>> Euclidean().pairwise([[0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]])
    array([[5., 0.]])
    """

    squared = True


@registered
class Cityblock(VectorDistance):
    """d(a, b) = sum_i |a_i - b_i| between flattened samples, in float64; exact duplicates have distance exactly 0.

    Examples
    --------
    >>> Cityblock().pairwise([[0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]])
    array([[7., 0.]])
    """

    squared = False


class _Products:
    """Inner products of two sides, on as many threads as the compiled loops have.

    Each thread multiplies its share of the rows by a BLAS of one thread: BLAS's own threads keep waiting actively, and
    take the cores from the loops that follow.
    """

    def __init__(self) -> None:
        from numba import get_num_threads  # numba is imported when there is something to compare

        self._threads, self._libraries = get_num_threads(), ThreadpoolController()
        self._pool = ThreadPoolExecutor(self._threads)

    def __call__(self, rows: NDArray[Any], columns: NDArray[Any], out: NDArray[Any]) -> None:
        """Fill ``out`` [A, B] with the products of points [A, d] and [B, d]."""
        shares = list(parts(slice(0, len(rows)), -(-len(rows) // self._threads)))
        with self._libraries.limit(limits=1, user_api="blas"):
            list(self._pool.map(np.matmul, (rows[s] for s in shares), repeat(columns.T), (out[s] for s in shares)))


class _Side:
    """Samples in the rows or the columns of the distance matrix, as the compiled loops take them.

    ``given`` are the samples, their labels and their indices.
    """

    def __init__(self, given: tuple[NDArray[Any], ...], mean: NDArray[np.float64], scale: float, squared: bool) -> None:
        self._given, self._mean, self._scale = given, mean, scale
        self._norms, self._squares = np.empty(len(given[0])), np.zeros(len(given[0]))
        for part in row_blocks(given[0]):
            points = self._points(part)
            if squared:
                self._squares[part] = np.einsum("nd,nd->n", points, points, dtype=np.float64)
                self._norms[part] = np.sqrt(self._squares[part])
            else:
                self._norms[part] = np.abs(points).sum(axis=1, dtype=np.float64)

    def _points(self, rows: slice) -> NDArray[np.float32]:
        """Return some samples [A, d], centered, scaled, and rounded to float32."""
        return ((self._given[0][rows] - self._mean) / self._scale).astype(np.float32)

    def part(self, begin: int, end: int) -> tuple[NDArray[np.float32], tuple[NDArray[Any], ...]]:
        """Return the float32 points of some rows, and their samples, labels, indices, squared norms and norms."""
        from deepsimplex.distances.simd import aligned, lanes_of

        rows, lanes, features = slice(begin, end), lanes_of(np.float32), self._given[0].shape[1]
        # Zeros fill up the last SIMD vector.
        points = aligned((end - begin, -(-features // lanes) * lanes), np.float32)
        points[:, :features] = self._points(rows)
        samples = _floats(self._given[0][rows])
        samples.flags.writeable = False  # numba then compiles loops for one type only
        others = (part[rows] for part in (*self._given[1:], self._squares, self._norms))
        return points, (samples, *others)


def _floats(samples: NDArray[Any]) -> NDArray[Any]:
    """Samples as the compiled loops take them: bytes become float32, floats stay as they are."""
    return samples.astype(np.float32) if samples.dtype == np.uint8 else samples


def center(x: NDArray[Any], queries: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Return the samples' mean, and the scale that brings samples and queries less the mean into [-1, 1]."""
    mean = x.mean(axis=0, dtype=np.float64)
    both = [part for part in ((x,) if queries is x else (x, queries)) if part.size]
    spans = [np.maximum(part.max(axis=0) - mean, mean - part.min(axis=0)).max() for part in both]
    return mean, float(max(spans, default=0.0)) or 1.0
