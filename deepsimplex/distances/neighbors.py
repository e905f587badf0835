"""Find the nearest samples of every class, and measure the leave-one-out error of the nearest neighbor."""

from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import row_blocks
from deepsimplex._utils.validation import check_choice, check_labels, check_whole
from deepsimplex.distances.approximate_search import (
    check_approximate,
    check_candidates,
    search_approximately,
    search_in_turn,
)
from deepsimplex.distances.distance import Distance, check_same_shape
from deepsimplex.distances.exact_search import (
    BLOCK_BYTES,
    CLASSES,
    EXECUTORS,
    Classes,
    Executor,
    Neighbors,
    Search,
    search_tiles,
)
from deepsimplex.distances.named_distances import get_distance

Method = Literal["exact", "approximate"]
METHODS = get_args(Method)
_SEED = 0


def class_neighbors(
    x: ArrayLike,
    y: ArrayLike,
    distance: Any = "euclidean",
    k: int = 1,
    *,
    queries: ArrayLike | None = None,
    query_labels: ArrayLike | None = None,
    num_classes: int | None = None,
    exclude_duplicates: bool = False,
    classes: Classes = "all",
    method: Method = "exact",
    candidates: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    executor: Executor | None = None,
    show_progress: bool | None = None,
) -> Neighbors:
    """Find, for every sample, the k nearest samples of every class.

    Exact by default, in memory that grows with the block and with the samples (which are copied once, bytes as bytes),
    not with the number of pairs. Samples may be a ``numpy.memmap``.

    Parameters
    ----------
    x : array_like, shape [N, ...]
        Samples.
    y : array_like of int, shape [N]
        Their classes, 0..num_classes-1. A class may have no samples.
    distance : str, dict, callable, ndarray or Distance
        The distance, as ``get_distance`` takes it. The default is "euclidean".
    k : int
        Number of neighbors of each class, at least 1. The default is 1.
    queries : array_like, shape [M, ...], optional
        Other samples whose neighbors among ``x`` are wanted. None (default): those of ``x`` itself, each sample left
        out as its neighbor by its index [CASIMAC Eq. 13], so that true duplicates are neighbors.
    query_labels : array_like of int, shape [M], optional
        Classes of the queries, needed if ``queries`` are given with ``exclude_duplicates`` or ``classes``.
    num_classes : int, optional
        n. The default is one more than the largest label.
    exclude_duplicates : bool
        Whether copies of the query, at distance zero, are left out in its class [CASIMAC Eq. 7a].
        The default is False.
    classes : {"all", "same", "other"}
        Whether neighbors are searched in all classes, in that of the query, or in the others; elsewhere they stay inf
        and -1, and take no time. The default is "all".
    method : {"exact", "approximate"}
        "exact" (default) skips pairs that cannot be in the answer, if the distance has a bound for them. "approximate"
        evaluates only ``candidates`` samples of every class, the nearest by the Euclidean distance of their first
        principal components as an index finds them, and measures the share of true neighbors that it finds
        (``recall``): for millions of samples.
    candidates : int
        Number of samples of each class that "approximate" evaluates for every query, at least k: more find a larger
        share of the true neighbors, and take longer. None (default): 16, or k if that is more.
    block_bytes : int
        Approximate memory of one block of float64 distances; the answer does not depend on it. A search takes a few
        times as much. The default is 16 MiB.
    executor : {None, "ray"}
        Where the search runs: None (default) on this machine, "ray" on the nodes of a Ray cluster, that of the
        environment variable RAY_ADDRESS or one of this machine's cores. An exact answer is the same bit for bit.
        Needs the extra ``cluster``.
    show_progress : bool, optional
        None (default) shows a progress bar on terminals and in notebooks if the work takes long; True also prints
        lines elsewhere.

    Returns
    -------
    Neighbors
        ``distances`` [N, n, k] (M rows for queries), ascending, and ``indices`` [N, n, k] into ``x``; inf and -1 if
        a class has fewer than k samples to offer. Of equally near samples those with the lowest indices are taken.
        ``recall`` is 1 unless the search is approximate.

    Raises
    ------
    TypeError
        If samples are not real numbers or labels not class numbers.
    ValueError
        If lengths or shapes do not match, a label or argument is out of its range, the samples do not suit the
        distance, or a distance that was computed is NaN, or infinite with nothing nearer.
    OSError
        For ``executor="ray"``, if the cluster is not reached, or its nodes have other versions.
    ImportError, MemoryError
        For ``executor="ray"``: without Ray, if its object store is full.

    Examples
    --------
    >>> nearest = class_neighbors([[0.0], [1.0], [5.0]], [0, 0, 1])
    >>> nearest.distances[:, :, 0]
    array([[ 1.,  5.],
           [ 1.,  4.],
           [ 4., inf]])
    >>> nearest.indices[:, :, 0]
    array([[ 1,  2],
           [ 0,  2],
           [ 1, -1]])
    """
    metric = get_distance(distance)
    k, block_bytes = check_whole(k, "k", 1), check_whole(block_bytes, "block_bytes", 8)
    samples = metric.check(x, "x")
    if len(samples) == 0:
        raise ValueError("x must hold at least one sample; found none")
    labels, n = check_labels(y, num_classes, rows=len(samples), least_classes=1)
    others = other_labels = None
    if queries is not None:
        others = metric.check(queries, "queries")
        check_same_shape(samples, others, "x", "queries")
    if query_labels is not None:
        if others is None:
            raise ValueError("query_labels belong to queries; found query_labels alone")
        options: dict[str, Any] = {"name": "query_labels", "rows": len(others), "of": "queries"}
        other_labels, most = check_labels(query_labels, num_classes, least_classes=1, **options)
        n = max(n, most)
    check_choice(classes, "classes", CLASSES)
    check_choice(method, "method", METHODS)
    check_candidates(candidates, method, k)
    if executor is not None:
        check_choice(executor, "executor", EXECUTORS)
    if others is not None and other_labels is None and (exclude_duplicates or classes != "all"):
        option = "exclude_duplicates" if exclude_duplicates else f"classes={classes!r}"
        raise ValueError(f"{option} needs query_labels, the classes of the queries")
    return nearest_neighbors(
        samples,
        labels,
        n,
        metric,
        k,
        queries=others,
        query_labels=other_labels,
        exclude_duplicates=bool(exclude_duplicates),
        classes=classes,
        method=method,
        candidates=candidates,
        block_bytes=block_bytes,
        executor=executor,
        show_progress=show_progress,
    )


def nearest_neighbors(
    samples: NDArray[Any],
    labels: NDArray[np.int64],
    num_classes: int,
    metric: Distance,
    k: int = 1,
    *,
    queries: NDArray[Any] | None = None,
    query_labels: NDArray[np.int64] | None = None,
    method: Method = "exact",
    candidates: int | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> Neighbors:
    """Find the neighbors that ``class_neighbors`` describes, for arguments that have been checked.

    ``samples`` and ``queries`` are arrays that ``metric.check`` has returned; ``options`` are the last fields of
    ``Search``.
    """
    if executor == "ray":
        from deepsimplex.distances.cluster_search import candidates_on_cluster, ray_module, search_on_cluster

        ray_module()  # before an embedding is computed
    # Sorted by class, and shuffled within each so that a search finds near samples early.
    order = np.random.default_rng(_SEED).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    if queries is None:
        query_labels = labels[order]
    elif query_labels is None:
        query_labels = np.full(len(queries), -1)  # not known
    ordered = _ordered(samples, order), labels[order], order
    search = Search(*ordered, queries, query_labels, num_classes, k, **options)
    if method == "approximate":
        check_approximate(metric, search)
        find = candidates_on_cluster if executor == "ray" else search_in_turn
        return search_approximately(*metric.resolve(search), candidates, find)
    metric, search = metric.resolve(search)
    if executor == "ray":
        neighbors = search_on_cluster(search, metric)
    else:
        neighbors = search_tiles(metric.visitor(search), search, metric)
    _check_complete(neighbors, search, metric)
    return neighbors


def _ordered(samples: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return ``samples[order]``, read in the order of ``samples``: random access to a memory map is slow."""
    place, ordered = np.empty_like(order), np.empty_like(samples, subok=False)
    place[order] = np.arange(len(order))
    for rows in row_blocks(samples):
        ordered[place[rows]] = samples[rows]
    return ordered


def _check_complete(neighbors: Neighbors, search: Search, metric: Distance) -> None:
    """Raise an error if a query has too few neighbors of a class because distances were infinite."""
    labels = search.query_labels
    if search.queries is None:
        labels = np.empty_like(search.y)
        labels[search.ids] = search.y
    for label, size in enumerate(np.diff(search.bounds)):
        same_class = labels == label
        due = np.minimum(size - (same_class if search.queries is None else 0), search.k)
        # The number at a positive distance is not known.
        due = np.where(same_class, (not search.exclude_duplicates) & search.wanted[0], search.wanted[1]) * due
        given = (neighbors.indices[:, label] >= 0).sum(axis=1)
        lacking = np.flatnonzero(given < due)
        if len(lacking):
            first = lacking[0]
            raise ValueError(
                f"distances must be finite; under {metric!r}, {len(lacking)} samples lack neighbors in class {label}, "
                f"the first at index {first}, which has {given[first]} of {due[first]}. "
                "Look for samples that are infinitely far from others"
            )


def neighbor_error(
    x: ArrayLike, y: ArrayLike, distance: Any = "euclidean", *, max_samples: int = 1000, seed: int = 0
) -> float:
    """Return the share of samples whose nearest other sample is of another class.

    With many samples it is at most twice the Bayes error (Cover and Hart).

    Parameters
    ----------
    x : array_like, shape [N, ...]
        Samples.
    y : array_like of int, shape [N]
        Their classes.
    distance : str, dict, callable, ndarray or Distance
        As ``get_distance`` takes it. The default is "euclidean".
    max_samples : int
        Number of samples, drawn at random, whose nearest neighbor among all is searched. The default 1000 gives a
        standard error of at most 0.016.
    seed : int
        Seed of the draw. The default is 0.

    Returns
    -------
    float
        In [0, 1]. A sample that is as near to another class as to its class counts by a half.

    Raises
    ------
    TypeError, ValueError
        As ``class_neighbors``; for less than two samples.

    Notes
    -----
    Cover, Hart: *Nearest Neighbor Pattern Classification*, 1967.

    Examples
    --------
    >>> neighbor_error([[0.0], [1.0], [5.0], [6.0]], [0, 0, 1, 0])
    0.5
    """
    metric = get_distance(distance)
    samples = metric.check(x, "x")
    if len(samples) < 2:
        raise ValueError(f"x must hold at least two samples; found {len(samples)}")
    labels, n = check_labels(y, rows=len(samples), least_classes=1)
    max_samples, seed = check_whole(max_samples, "max_samples", 1), check_whole(seed, "seed", 0)
    return nearest_error(samples, labels, n, metric, max_samples, seed)


def nearest_error(
    samples: NDArray[Any],
    labels: NDArray[np.int64],
    num_classes: int,
    metric: Distance,
    max_samples: int = 1000,
    seed: int = 0,
) -> float:
    """Compute ``neighbor_error`` of arguments that have been checked."""
    search = partial(nearest_neighbors, samples, labels, num_classes, metric, show_progress=False)
    if max_samples >= len(samples) or not metric.has_features:  # samples may be indices into a matrix
        nearest = search().distances[..., 0]
    else:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(samples))[:max_samples])
        # Two of each class, since one may be the sample itself.
        two = search(k=2, queries=samples[chosen])
        nearest = np.where(two.indices == chosen[:, None, None], np.inf, two.distances).min(axis=-1)
        labels = labels[chosen]
    rows = np.arange(len(labels))
    same_class = nearest[rows, labels]
    nearest[rows, labels] = np.inf
    others = nearest.min(axis=-1)
    return float(np.mean((others < same_class) + 0.5 * (others == same_class)))
