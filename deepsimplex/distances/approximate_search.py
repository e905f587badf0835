"""Approximate neighbor search among candidates, for data too large to compare every pair.

Candidates of each class are the nearest by the Euclidean distance between flattened samples, or between their first
principal components if there are many features, as an inverted file of faiss finds them: k-means divides the class into
cells, of which a query visits the nearest, two for each of its candidates. Only candidates are evaluated under the
distance. Seeds are fixed, so that the same call gives the same answer. The recall depends on the data, and is measured
on a sample of the queries by an exact search.

With 4 sqrt(N) cells of a class of N samples, a query compares its components with 4 sqrt(N) centers and, of C
candidates, C sqrt(N) / 2 samples: all queries together take time like N^1.5.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from deepsimplex._utils.batching import parts, row_blocks
from deepsimplex._utils.progress import progress
from deepsimplex._utils.validation import check_whole
from deepsimplex.distances.distance import Distance
from deepsimplex.distances.exact_search import Neighbors, Search, refuse_nan, search_tiles
from deepsimplex.distances.vector_distances import center

CANDIDATES = 16
# Visiting a cell costs less than evaluating a candidate.
CELLS_PER_CANDIDATE = 2
# Queries on which recall is measured: its standard error is then below 0.01 for recalls above 0.9 at k = 1, n = 10.
RECALL_QUERIES = 256
# Below this number of samples an exhaustive index is as fast as cells.
FLAT = 2000
# Principal components in the index. On Fashion-MNIST they hold 88% of the variance, and 99.6% of the nearest neighbors
# are among 16 candidates.
COMPONENTS = 64
# Samples from which components are computed: at most the first, fewer if they hold more numbers than the second, but at
# least the third.
COMPONENT_ROWS, COMPONENT_NUMBERS, LEAST_ROWS = 2**14, 2**24, 512
QUERIES_AT_ONCE = 4096
_SEED = 0


@dataclass(frozen=True, eq=False)
class CandidateSearch:
    """An approximate search, prepared.

    Attributes
    ----------
    metric : Distance
    search : Search
    points : ndarray, shape [N, p], float32
        Features or principal components of the samples, as the index holds them.
    queries : ndarray, shape [M, p], float32
        Those of the queries.
    count : int
        Candidates of each class.
    """

    metric: Distance
    search: Search
    points: NDArray[np.float32]
    queries: NDArray[np.float32]
    count: int

    def index(self, label: int) -> Any:
        """Make the index of a class; None if no query needs neighbors in it."""
        import faiss

        search = self.search
        points = self.points[search.bounds[label] : search.bounds[label + 1]]
        if not len(points) or not search.wanted[np.where(search.query_labels == label, 0, 1)].any():
            return None
        features = points.shape[1]
        index: Any
        if len(points) < FLAT:
            index = faiss.IndexFlatL2(features)
        else:
            index = faiss.IndexIVFFlat(faiss.IndexFlatL2(features), features, int(4 * len(points) ** 0.5))
            index.cp.seed, index.nprobe = _SEED, CELLS_PER_CANDIDATE * self.count
            # More iterations cost more time than the better cells save.
            index.cp.niter, index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 10, 1, 64
            index.train(points)
        index.add(points)
        return index

    def nearest(self, index: Any, label: int, rows: slice) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Find the nearest candidates of a class: distances and indices [R, k] of some queries."""
        from deepsimplex.distances.compiled_search import merge_pairs

        search, begin = self.search, int(self.search.bounds[label])
        distances = np.full((rows.stop - rows.start, search.k), np.inf)
        indices = np.full(distances.shape, -1, dtype=np.int64)
        same_class = search.query_labels[rows] == label
        chosen = np.flatnonzero(search.wanted[np.where(same_class, 0, 1)])
        if index is None or not len(chosen):
            return distances, indices
        # One more for the query itself.
        _, places = index.search(self.queries[rows][chosen], min(self.count + 1, index.ntotal))
        near = np.where(places >= 0, begin + places, -1)
        if search.queries is None:
            near[near == rows.start + chosen[:, None]] = -1
        present = near >= 0
        first, second = np.broadcast_to(chosen[:, None], near.shape)[present], near[present]
        values = self.metric.paired(search.rows, search.x)(rows.start + first, second)
        refuse_nan(values, repr(self.metric))
        keep = (values > 0) | ~(search.exclude_duplicates & same_class[first])
        merge_pairs(first[keep], search.ids[second[keep]], values[keep], distances, indices)
        return distances, indices


ClassNeighbors = tuple[int, slice, NDArray[np.float64], NDArray[np.int64]]
"""A class, some queries, and distances and indices of their neighbors in that class."""


def search_in_turn(candidates: CandidateSearch) -> Iterator[ClassNeighbors]:
    """Search class by class, some queries at a time."""
    for label in range(candidates.search.num_classes):
        index = candidates.index(label)
        for rows in parts(slice(0, len(candidates.queries)), QUERIES_AT_ONCE):
            yield label, rows, *candidates.nearest(index, label, rows)


def check_candidates(candidates: Any, method: str, k: int = 1, name: str = "candidates") -> int | None:
    """Return the number of candidates, at least k, or None for the default; an exact search has none."""
    if candidates is not None and method != "approximate":
        raise ValueError(f"{name} must be None unless method='approximate'; found {candidates!r}")
    return None if candidates is None else check_whole(candidates, name, k)


def check_approximate(metric: Distance, search: Search) -> None:
    """Raise an error if an approximate search is not possible, before any work."""
    if search.x.ndim < 2 or not metric.has_features:
        raise ValueError(
            "method='approximate' needs samples [N, ...] with features that an index can search; "
            f"found shape {list(search.x.shape)} with {metric!r}. Set method='exact'"
        )


def search_approximately(
    metric: Distance,
    search: Search,
    candidates: int | None,
    find: Callable[[CandidateSearch], Iterator[ClassNeighbors]],
) -> Neighbors:
    """Find neighbors among candidates, and measure the share of the true ones that is found.

    Parameters
    ----------
    metric : Distance
    search : Search
    candidates : int, optional
        Samples of each class that are compared with a query.
    find : callable
        Searches every class, such as ``search_in_turn``.

    Returns
    -------
    Neighbors
        With the measured ``recall``.
    """
    result = search.empty()
    prepared = CandidateSearch(metric, search, *_points(search), candidates or max(CANDIDATES, search.k))
    total = len(search.rows) * search.num_classes
    with progress(f"{metric!r} candidates", total, search.show_progress, unit="searches") as advance:
        for label, rows, distances, indices in find(prepared):
            result.distances[rows, label], result.indices[rows, label] = distances, indices
            advance(rows.stop - rows.start)
    _complete(metric, search, result)
    recall = _recall(metric, search, result)
    return search.in_order(result)._replace(recall=recall)


def _points(search: Search) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Samples and queries for the index: flattened, centered, scaled into [-1, 1]; if long, principal components."""
    x = search.x.reshape(len(search.x), -1)
    others = x if search.queries is None else search.queries.reshape(len(search.queries), -1)
    mean, scale = center(x, others)

    def filled(samples: NDArray[Any], columns: int, axes: NDArray[Any] | None = None) -> NDArray[np.float32]:
        out = np.empty((len(samples), columns), np.float32)
        for part in row_blocks(samples):
            centered = ((samples[part] - mean) / scale).astype(np.float32)
            out[part] = centered if axes is None else centered @ axes
        return out

    columns, axes = x.shape[1], None
    if columns > COMPONENTS and len(x) > FLAT:
        from sklearn.decomposition import PCA

        rows = min(COMPONENT_ROWS, max(LEAST_ROWS, COMPONENT_NUMBERS // columns))
        sample = filled(x[:: -(-len(x) // rows)], columns)
        with threadpool_limits(limits=1, user_api="blas"):  # waiting BLAS threads would keep cores busy
            axes = PCA(COMPONENTS, random_state=_SEED, copy=False).fit(sample).components_.T
        columns = COMPONENTS
    points = filled(x, columns, axes)
    return points, points if others is x else filled(others, columns, axes)


def _complete(metric: Distance, search: Search, neighbors: Neighbors) -> None:
    """Search exactly for queries with fewer neighbors than a class has: copies of a sample can fill these cells."""
    sizes = np.diff(search.bounds)
    same_class = search.query_labels[:, None] == np.arange(search.num_classes)
    wanted = search.wanted[np.where(same_class, 0, 1)]
    possible = np.minimum(search.k, sizes - (same_class if search.queries is None else 0))
    short = (wanted & (np.isfinite(neighbors.distances).sum(axis=2) < possible)).any(axis=1)
    for rows in parts(slice(0, int(short.sum())), QUERIES_AT_ONCE):
        chosen = np.flatnonzero(short)[rows]
        neighbors.distances[chosen], neighbors.indices[chosen] = _exactly(metric, search, chosen)


def _exactly(metric: Distance, search: Search, chosen: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Distances and indices [R, n, k] of the nearest samples of some queries, found by an exact search."""
    # One more neighbor, for the query itself if it is among the samples.
    k = search.k + (search.queries is None)
    some = replace(search, queries=search.rows[chosen], query_labels=search.query_labels[chosen], k=k)
    exact = search_tiles(metric.visitor(some), some, metric)
    distances, indices = exact.distances, exact.indices
    if search.queries is None:
        itself = indices == search.ids[chosen][:, None, None]
        distances[itself], indices[itself] = np.inf, -1
        order = np.argsort(distances, axis=2, kind="stable")
        distances = np.take_along_axis(distances, order, axis=2)
        indices = np.take_along_axis(indices, order, axis=2)
    return distances[:, :, : search.k], indices[:, :, : search.k]


def _recall(metric: Distance, search: Search, neighbors: Neighbors) -> float:
    """Measure the share of the true neighbors of some queries that were found; one as near as the k-th counts."""
    count = min(RECALL_QUERIES, len(search.rows))
    if count == 0:
        return 1.0
    sample = np.sort(np.random.default_rng(_SEED).choice(len(search.rows), count, replace=False))
    distances, indices = _exactly(metric, search, sample)
    present = np.isfinite(distances)
    farthest = np.where(present, distances, -np.inf).max(axis=2, keepdims=True)
    same = (neighbors.indices[sample][:, :, :, None] == indices[:, :, None, :]).any(axis=3)
    hits = (same | (neighbors.distances[sample] <= farthest)) & present
    return float(hits.sum() / max(present.sum(), 1))
