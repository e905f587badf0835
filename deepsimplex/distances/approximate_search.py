"""Approximate neighbor search among candidates, for data too large to compare every pair.

Candidates of each class are the nearest by the Euclidean distance between flattened samples, as an inverted file of
faiss finds them (its cells are made by k-means from a fixed seed, so that the same call gives the same answer). Only
candidates are evaluated under the distance. The recall depends on the data, and is measured on a sample of the queries
by an exact search.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import parts
from deepsimplex._utils.progress import progress
from deepsimplex._utils.validation import check_whole
from deepsimplex.distances.distance import Distance
from deepsimplex.distances.exact_search import Neighbors, Search, refuse_nan, search_tiles
from deepsimplex.distances.vector_distances import center

CANDIDATES = 32
# Queries on which recall is measured: its standard error is then below 0.01 for recalls above 0.9 at k = 1, n = 10.
RECALL_QUERIES = 256
# Below this number of samples an exhaustive index is as fast as cells.
FLAT = 2000
# Cells per cell that a query visits.
CELLS_PER_PROBE = 16
_QUERIES_AT_ONCE = 4096
_SEED = 0


def check_approximate(metric: Distance, search: Search, candidates: int | None) -> None:
    """Raise an error if an approximate search is not possible, before any work."""
    if candidates is not None:
        check_whole(candidates, "candidates", search.k)
    if search.checkpoint is not None:
        raise ValueError("checkpoint belongs to exact searches; set checkpoint=None or method='exact'")
    if search.x.ndim < 2 or not metric.has_features:
        raise ValueError(
            "method='approximate' needs samples [N, ...] with features that an index can search; "
            f"found shape {list(search.x.shape)} with {metric!r}. Set method='exact'"
        )


def search_approximately(metric: Distance, search: Search, candidates: int | None = None) -> Neighbors:
    """Find neighbors among candidates, and measure the share of the true ones that is found.

    Parameters
    ----------
    metric : Distance
    search : Search
    candidates : int, optional
        Samples of each class that are compared with a query.

    Returns
    -------
    Neighbors
        With the measured ``recall``.
    """
    from deepsimplex.distances.k_nearest import merge_pairs

    result, count = search.empty(), int(candidates or max(CANDIDATES, search.k))
    compare = metric.paired(search.rows, search.x)
    points, queries = _points(search)
    with progress(
        f"{metric!r} candidates", len(queries) * search.num_classes, search.show_progress, unit="searches"
    ) as advance:
        for label, (begin, end) in enumerate(pairwise(search.bounds.tolist())):
            own = search.query_labels == label
            wanted = search.wanted[np.where(own, 0, 1)]
            index = _index(points[begin:end]) if end > begin and wanted.any() else None
            for rows in parts(slice(0, len(queries)), _QUERIES_AT_ONCE):
                chosen = np.arange(rows.start, rows.stop)[wanted[rows]]
                if index is not None and len(chosen):
                    # One more for the query itself.
                    _, places = index.search(queries[chosen], min(count + 1, end - begin))
                    near = np.where(places >= 0, begin + places, -1)
                    if search.queries is None:
                        near[near == chosen[:, None]] = -1
                    there = near >= 0
                    first, second = np.broadcast_to(chosen[:, None], near.shape)[there], near[there]
                    distances = compare(first, second)
                    refuse_nan(distances, repr(metric))
                    keep = (distances > 0) | ~(search.own_positive & own[first])
                    lists = result.distances[:, label], result.indices[:, label]
                    merge_pairs(first[keep], search.ids[second[keep]], distances[keep], *lists)
                advance(rows.stop - rows.start)
    recall = _recall(metric, search, result)
    if search.queries is None:
        for array in (result.distances, result.indices):
            array[search.ids] = array.copy()
    return result._replace(recall=recall)


def _points(search: Search) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Samples and queries, flat and in float32, about the samples' mean and of size 1 at most."""
    x = search.x.reshape(len(search.x), -1)
    others = x if search.queries is None else search.queries.reshape(len(search.queries), -1)
    mean, scale = center(x, others)
    points = []
    for some in (x,) if others is x else (x, others):
        points.append(np.empty(some.shape, np.float32))
        for rows in parts(slice(0, len(some)), _QUERIES_AT_ONCE):
            points[-1][rows] = (some[rows] - mean) / scale
    return points[0], points[-1]


def _index(points: NDArray[np.float32]) -> Any:
    import faiss

    features = points.shape[1]
    index: Any
    if len(points) < FLAT:
        index = faiss.IndexFlatL2(features)
    else:
        cells = int(len(points) ** 0.5)
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(features), features, cells)
        index.cp.seed = _SEED
        index.nprobe = max(1, cells // CELLS_PER_PROBE)
        index.train(points)
    index.add(points)
    return index


def _recall(metric: Distance, search: Search, found: Neighbors) -> float:
    """Measure the share of the true neighbors of some queries that were found; one as near as the k-th counts."""
    count = min(RECALL_QUERIES, len(search.rows))
    if count == 0:
        return 1.0
    sample = np.sort(np.random.default_rng(_SEED).choice(len(search.rows), count, replace=False))
    # One more neighbor, for the query itself if it is among the samples.
    k = search.k + (search.queries is None)
    some = replace(search, queries=search.rows[sample], query_labels=search.query_labels[sample], k=k)
    exact = search_tiles(metric.visitor(some), some, metric)
    distances, indices = exact.distances.copy(), exact.indices
    if search.queries is None:
        distances[indices == search.ids[sample][:, None, None]] = np.inf
        order = np.argsort(distances, axis=2, kind="stable")
        distances = np.take_along_axis(distances, order, axis=2)
        indices = np.take_along_axis(indices, order, axis=2)
    distances, indices = distances[:, :, : search.k], indices[:, :, : search.k]
    there = np.isfinite(distances)
    farthest = np.where(there, distances, -np.inf).max(axis=2, keepdims=True)
    same = (found.indices[sample][:, :, :, None] == indices[:, :, None, :]).any(axis=3)
    hits = (same | (found.distances[sample] <= farthest)) & there
    return float(hits.sum() / max(there.sum(), 1))
