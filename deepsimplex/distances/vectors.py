"""Exact neighbours of flattened samples: candidates in float32, proof and distances in float64.

faiss gives, for every query and class, the m > k candidates of smallest float32 estimate t_1 <= ... <= t_m. Their
distances are then evaluated directly, in float64, on the samples as they were given: duplicates get exactly 0. Let D_k
be the k-th of these. A sample that faiss did not return has an estimate of at least t_m, and estimates are wrong by no
more than rounding can make them: with unit roundoff u = 2^-24, d features and g = gamma_(d+8) = (d+8) u / (1-(d+8) u)
[Higham, Accuracy and Stability of Numerical Algorithms, ch. 3],

- Euclidean: | t - ||a - b||^2 | <= g (||a|| + ||b||)^2 for float32 points a, b, whatever the order of summation and
  whether by the expansion or by differences;
- cityblock: | t - |a - b|_1 | <= g |a - b|_1;
- the float32 points lie within u ||a|| (and a float64 rounding) of the centred, scaled samples.

A sample j nearer than D_k to query i has ||b_j|| <= ||a_i|| + D_k, so one bound holds for all samples that matter. If
D_k is smaller than t_m less that bound, no other sample can be nearer, nor as near. If not (ties, duplicates, huge
values beside small ones), the row is searched again by direct differences over the whole class. So the answer is exact
in either case: float32 only decides how long it takes.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.distances.base import Distance, check_real
from deepsimplex.distances.search import BlockFunction, Neighbours, Search
from deepsimplex.progress import progress

# Squares of differences beyond this overflow float64.
LARGEST = 1e150
# Candidates beyond the k asked for: enough that float32 settles nearly all rows of real images, few enough to be cheap.
EXTRA_CANDIDATES = 5
_ROWS_AT_ONCE = 4096
# Fewer queries at a time leave faiss no matrix product to make, and cost more in calls than they save in memory.
_ROWS_AT_LEAST = 64


class VectorDistance(Distance):
    """A distance between flattened samples that faiss knows."""

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
            sums = distance_block(rows_of[rows], x, order[columns], self.squared)
            return np.sqrt(sums, out=sums) if self.squared else sums

        return block

    def neighbours(self, search: Search) -> Neighbours:
        """Candidates from faiss, confirmed in float64: see this module's text for the proof."""
        from deepsimplex.distances._vector_kernels import confirm

        exact_queries = search.x if search.queries is None else search.queries
        samples, queries, scale = _single_precision(search.x, search.queries)
        sizes = _norms(queries, self.squared)
        result = search.empty()
        total = search.num_queries * len(search.x)
        with progress(f"{self.name} neighbours", total=total, show=search.show_progress) as advance:
            for label in range(search.num_classes):
                members = search.order[search.columns(label)]
                if len(members) == 0:
                    continue
                # One for the query itself, which is dropped by its index.
                count = min(search.k + 1 + EXTRA_CANDIDATES, len(members))
                index = self._index(samples[members])
                positive = search.positive(label)
                height = min(_ROWS_AT_ONCE, max(_ROWS_AT_LEAST, search.block_bytes // (12 * count)))
                for begin in range(0, search.num_queries, height):
                    rows = slice(begin, min(begin + height, search.num_queries))
                    estimates, candidates = index.search(queries[rows], count)
                    own = np.arange(rows.start, rows.stop) if search.queries is None else np.full(len(candidates), -1)
                    confirm(
                        exact_queries[rows], search.x, members, own, positive[rows], self.squared,
                        candidates, estimates[:, -1], sizes[rows], scale,
                        result.distances[rows, label], result.indices[rows, label],
                    )  # fmt: skip
                    advance((rows.stop - rows.start) * len(members))
        if self.squared:
            np.sqrt(result.distances, out=result.distances)
        return result

    def _index(self, points: NDArray[np.float32]) -> Any:
        import faiss

        index = faiss.IndexFlat(points.shape[1], faiss.METRIC_L2 if self.squared else faiss.METRIC_L1)
        index.add(points)
        return index


def _single_precision(
    x: NDArray[Any], queries: NDArray[Any] | None
) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Samples and queries less the samples' mean, divided by the scale that brings them all into [-1, 1]."""
    both = [x] if queries is None else [x, queries]
    mean = x.mean(axis=0, dtype=np.float64)
    spans = [np.maximum(part.max(axis=0) - mean, mean - part.min(axis=0)).max() for part in both if part.size]
    scale = float(max(spans, default=0.0)) or 1.0
    points = [np.empty(part.shape, dtype=np.float32) for part in both]
    for part, point in zip(both, points, strict=True):
        for begin in range(0, len(part), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            point[rows] = (part[rows] - mean) / scale
    return points[0], points[-1], scale


def _norms(points: NDArray[np.float32], squared: bool) -> NDArray[np.float64]:
    """Euclidean or absolute norms [N] of float32 points, summed in float64."""
    if squared:
        return np.sqrt(np.einsum("nd,nd->n", points, points, dtype=np.float64))
    return np.concatenate(
        [
            np.abs(points[begin : begin + _ROWS_AT_ONCE]).sum(axis=1, dtype=np.float64)
            for begin in range(0, len(points), _ROWS_AT_ONCE)
        ]
    )
