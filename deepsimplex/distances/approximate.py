"""Neighbors among candidates: for samples so many that even a score of every pair takes too long.

Candidates of each class are the nearest by the Euclidean distance between flattened samples, as an inverted file of
faiss finds them (its cells are made by k-means from a fixed seed, so that the same call gives the same answer). Only
candidates are compared under the metric asked for. How much that misses depends on the data: it is measured, on some of
the queries against an exact search.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import parts
from deepsimplex._utils.progress import progress
from deepsimplex.distances.search import Neighbors, Search, refuse_nan
from deepsimplex.distances.vectors import center

if TYPE_CHECKING:
    from deepsimplex.distances.base import Distance

CANDIDATES = 32
# Queries on which recall is measured: its standard error is then below 0.01 for recalls above 0.9 at k = 1, n = 10.
RECALL_QUERIES = 256
# Below so many samples an exhaustive index is as fast as cells are.
FLAT = 2000
# A query looks into one in so many cells.
CELLS_PER_PROBE = 16
_QUERIES_AT_ONCE = 4096
_SEED = 0


def check_approximate(metric: "Distance", search: Search, candidates: int | None) -> None:
    """Say what stands in the way of an approximate search, before any work."""
    if candidates is not None and (
        isinstance(candidates, bool) or not isinstance(candidates, int | np.integer) or candidates < search.k
    ):
        raise ValueError(f"candidates must be a whole number, at least k={search.k}; found {candidates!r}")
    if search.checkpoint is not None:
        raise ValueError("checkpoint belongs to exact searches; set checkpoint=None or method='exact'")
    if search.x.ndim < 2 or not metric.has_features:
        raise ValueError(
            "method='approximate' needs samples [N, ...] whose features tell which are near; "
            f"found shape {list(search.x.shape)} with {metric.name!r}. Set method='exact'"
        )


def search_approximately(metric: "Distance", search: Search, candidates: int | None = None) -> Neighbors:
    """Find neighbors among candidates, and measure how many of the true ones are found.

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
    found = _among_candidates(metric, search, candidates or max(CANDIDATES, search.k))
    return found._replace(recall=_recall(metric, search, found))


def _among_candidates(metric: "Distance", search: Search, candidates: int) -> Neighbors:
    from deepsimplex.distances._selection_kernels import merge_candidates

    result = search.empty()
    compare = metric.paired(search.x, search.queries)
    points, queries = _points(search)
    with progress(
        f"{metric.name} candidates", search.num_queries * search.num_classes, search.show_progress, unit="searches"
    ) as advance:
        for label in range(search.num_classes):
            members = search.order[search.columns(label)]
            wanted, positive = search.wants(label), search.positive(label)
            if len(members) and wanted.any():
                # One more for the query itself.
                count = min(candidates + 1, len(members))
                index = _index(points[members])
            for rows in parts(slice(0, search.num_queries), _QUERIES_AT_ONCE):
                chosen = np.arange(rows.start, rows.stop)[wanted[rows]]
                if len(members) and len(chosen):
                    _, places = index.search(queries[chosen], count)
                    near = np.where(places >= 0, members[places], -1)
                    if search.symmetric:
                        near[near == chosen[:, None]] = -1
                    there = near >= 0
                    pairs = np.broadcast_to(chosen[:, None], near.shape)[there], near[there]
                    distances = compare(*pairs)
                    refuse_nan(distances, metric.name)
                    keep = ~(positive[pairs[0]] & (distances <= 0))
                    merge_candidates(
                        pairs[0][keep], pairs[1][keep], distances[keep],
                        result.distances[:, label], result.indices[:, label],
                    )  # fmt: skip
                advance(rows.stop - rows.start)
    return result


def _points(search: Search) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Samples and queries, flat and in float32, about the samples' mean and of size 1 at most."""
    x = search.x.reshape(len(search.x), -1)
    others = None if search.queries is None else search.queries.reshape(len(search.queries), -1)
    mean, scale = center(x, others)
    points = [
        np.concatenate([((some[rows] - mean) / scale).astype(np.float32) for rows in parts(slice(0, len(some)), 4096)])
        if len(some)
        else np.empty(some.shape, np.float32)
        for some in ([x] if others is None else [x, others])
    ]
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


def _recall(metric: "Distance", search: Search, found: Neighbors) -> float:
    """The share of the true neighbors of some queries that were found; one as near as the k-th counts."""
    count = min(RECALL_QUERIES, search.num_queries)
    if count == 0:
        return 1.0
    sample = np.sort(np.random.default_rng(_SEED).choice(search.num_queries, count, replace=False))
    queries = search.x if search.queries is None else search.queries
    labels = None if search.query_labels is None else search.query_labels[sample]
    # One more neighbor, for the query itself where it is among the samples.
    k = search.k + search.symmetric
    exact = metric.neighbors(replace(search, queries=queries[sample], query_labels=labels, k=k))
    distances, indices = exact.distances.copy(), exact.indices
    if search.symmetric:
        distances[indices == sample[:, None, None]] = np.inf
        order = np.argsort(distances, axis=2, kind="stable")
        distances = np.take_along_axis(distances, order, axis=2)
        indices = np.take_along_axis(indices, order, axis=2)
    distances, indices = distances[:, :, : search.k], indices[:, :, : search.k]
    there = np.isfinite(distances)
    farthest = np.where(there, distances, -np.inf).max(axis=2, keepdims=True)
    same = (found.indices[sample][:, :, :, None] == indices[:, :, None, :]).any(axis=3)
    hits = (same | (found.distances[sample] <= farthest)) & there
    return float(hits.sum() / max(there.sum(), 1))
