"""The nearest samples of every class."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.distances.base import check_alike
from deepsimplex.distances.blockwise import check_block_bytes
from deepsimplex.distances.registry import get_distance
from deepsimplex.distances.search import Neighbours, Search

BLOCK_BYTES = 2**24


def class_neighbours(
    x: ArrayLike,
    y: ArrayLike,
    distance: Any = "euclidean",
    k: int = 1,
    *,
    queries: ArrayLike | None = None,
    query_labels: ArrayLike | None = None,
    num_classes: int | None = None,
    own_positive: bool = False,
    block_bytes: int = BLOCK_BYTES,
    show_progress: bool | None = None,
) -> Neighbours:
    """Find, for every sample, the k nearest samples of every class, exactly.

    Parameters
    ----------
    x : array_like, shape [N, ...]
        Samples.
    y : array_like of int, shape [N]
        Their classes, 0..num_classes-1. A class may have no samples.
    distance : str, mapping, callable, ndarray or Distance
        The distance, as ``get_distance`` takes it. The default is "euclidean".
    k : int
        How many neighbours of each class, at least 1. The default is 1.
    queries : array_like, shape [M, ...], optional
        Other samples whose neighbours among ``x`` are wanted. None (default): those of ``x`` itself, each sample left
        out of its own neighbourhood by its index [CASIMAC Eq. 13], so that true duplicates are neighbours.
    query_labels : array_like of int, shape [M], optional
        Classes of the queries: needed where ``own_positive`` meets ``queries``.
    num_classes : int, optional
        n. The default is one more than the largest label.
    own_positive : bool
        Whether only neighbours at a positive distance count in the query's own class [CASIMAC Eq. 7a].
        The default is False.
    block_bytes : int
        About how much memory one block of distances may take; the answer does not depend on it. The default is 16 MiB.
    show_progress : bool, optional
        None (default) shows a progress bar on terminals and in notebooks when the work takes long.

    Returns
    -------
    Neighbours
        ``distances`` [N, n, k] (M rows for queries), ascending, and ``indices`` [N, n, k] into ``x``; inf and -1 where
        a class has fewer than k samples to offer. Of equally near samples those with the lowest indices are taken.

    Raises
    ------
    TypeError
        When samples are no real numbers or labels no integers.
    ValueError
        When lengths or shapes do not fit together, a label or argument is out of its range, or the samples do not suit
        the distance.

    Examples
    --------
    >>> nearest = class_neighbours([[0.0], [1.0], [5.0]], [0, 0, 1])
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
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be a whole number of neighbours, at least 1; found {k!r}")
    samples = metric.check(x, "x")
    if len(samples) == 0:
        raise ValueError("x must hold at least one sample; found none")
    others = None
    if queries is not None:
        others = metric.check(queries, "queries")
        check_alike(samples, others, "x", "queries")
    elif query_labels is not None:
        raise ValueError("query_labels belong to queries; found query_labels alone")
    labels = _labels(y, "y", samples, "x")
    other_labels = None if query_labels is None or others is None else _labels(
        query_labels, "query_labels", others, "queries"
    )  # fmt: skip
    if own_positive and others is not None and other_labels is None:
        raise ValueError("own_positive needs query_labels, the classes of the queries")
    own_labels = labels if others is None else other_labels
    count = _count_classes(num_classes, {"y": labels, "query_labels": other_labels})
    return metric.neighbours(
        Search(
            x=samples,
            y=labels,
            queries=others,
            query_labels=own_labels if own_positive else None,
            num_classes=count,
            k=int(k),
            block_bytes=check_block_bytes(block_bytes),
            show_progress=show_progress,
        )
    )


def _labels(y: ArrayLike, name: str, samples: NDArray[Any], samples_name: str) -> NDArray[np.int64]:
    """Labels as int64 [N], one per sample, or an error."""
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != len(samples):
        raise ValueError(
            f"{name} must have shape [{len(samples)}], a label per sample of {samples_name}; found {list(labels.shape)}"
        )
    if labels.dtype.kind not in "iu" and labels.size:
        raise TypeError(f"{name} must hold integer labels; found dtype {labels.dtype}")
    return labels.astype(np.int64)


def _count_classes(num_classes: int | None, named: dict[str, NDArray[np.int64] | None]) -> int:
    """The number of classes, after a check that it suits all labels."""
    present = {name: labels for name, labels in named.items() if labels is not None and labels.size}
    if num_classes is None:
        num_classes = max(int(labels.max()) for labels in present.values()) + 1
    elif isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer) or num_classes < 1:
        raise ValueError(f"num_classes must be a whole number, at least 1; found {num_classes!r}")
    for name, labels in present.items():
        if labels.min() < 0 or labels.max() >= num_classes:
            raise ValueError(
                f"{name} must lie in 0..{num_classes - 1}; found labels from {labels.min()} to {labels.max()}"
            )
    return int(num_classes)
