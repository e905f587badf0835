"""The nearest samples of every class."""

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.distances.approximate import check_approximate, search_approximately
from deepsimplex.distances.base import check_alike
from deepsimplex.distances.blockwise import check_block_bytes
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.registry import get_distance
from deepsimplex.distances.search import CLASSES, Classes, Neighbors, Search, check_complete

BLOCK_BYTES = 2**24
Method = Literal["exact", "brute_force", "approximate"]
METHODS = get_args(Method)


def class_neighbors(
    x: ArrayLike,
    y: ArrayLike,
    distance: Any = "euclidean",
    k: int = 1,
    *,
    queries: ArrayLike | None = None,
    query_labels: ArrayLike | None = None,
    num_classes: int | None = None,
    own_positive: bool = False,
    classes: Classes = "all",
    method: Method = "exact",
    candidates: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    checkpoint: Any = None,
    show_progress: bool | None = None,
) -> Neighbors:
    """Find, for every sample, the k nearest samples of every class.

    Exact by default, in memory that grows with the block and with the samples, never with the number of pairs.

    Parameters
    ----------
    x : array_like, shape [N, ...]
        Samples.
    y : array_like of int, shape [N]
        Their classes, 0..num_classes-1. A class may have no samples.
    distance : str, mapping, callable, ndarray or Distance
        The distance, as ``get_distance`` takes it. The default is "euclidean".
    k : int
        How many neighbors of each class, at least 1. The default is 1.
    queries : array_like, shape [M, ...], optional
        Other samples whose neighbors among ``x`` are wanted. None (default): those of ``x`` itself, each sample left
        out of its own neighborhood by its index [CASIMAC Eq. 13], so that true duplicates are neighbors.
    query_labels : array_like of int, shape [M], optional
        Classes of the queries: needed where ``own_positive`` or ``classes`` meets ``queries``.
    num_classes : int, optional
        n. The default is one more than the largest label.
    own_positive : bool
        Whether only neighbors at a positive distance count in the query's own class [CASIMAC Eq. 7a].
        The default is False.
    classes : {"all", "own", "other"}
        In which classes a query's neighbors are wanted, by its own. What is not wanted stays inf and -1, and takes no
        time. The default is "all".
    method : {"exact", "brute_force", "approximate"}
        "exact" (default) leaves out pairs that cannot be in the answer, where the distance knows how to tell;
        "brute_force" evaluates every pair, for comparison; "approximate" evaluates only as many candidates of every
        class as ``candidates`` says, the nearest by the Euclidean distance as an index finds them, and measures the
        share of true neighbors among what it finds (``recall``): for samples by the million.
    candidates : int
        How many samples of each class "approximate" evaluates for every query, at least k. None (default): 32, or k
        where that is more.
    block_bytes : int
        About how much memory one block of distances may take; the answer does not depend on it. An exact search takes
        several times as much: as many pairs at a time have scores that take 0.6 times that, under the structural
        similarity 2.6 times, and what is prepared of their samples takes up to 8 times (in all, 7 times were measured
        on Fashion-MNIST under ``SSIM(5)``). The default is 16 MiB.
    checkpoint : path-like, optional
        A folder in which the state of a long search is kept, every 20 seconds; the same search goes on from there
        after it was killed, and removes it when it is finished. Needs a distance that a key can name. None (default)
        keeps nothing.
    show_progress : bool, optional
        None (default) shows a progress bar on terminals and in notebooks when the work takes long; True also prints
        lines where there is no terminal.

    Returns
    -------
    Neighbors
        ``distances`` [N, n, k] (M rows for queries), ascending, and ``indices`` [N, n, k] into ``x``; inf and -1 where
        a class has fewer than k samples to offer. Of equally near samples those with the lowest indices are taken.
        ``recall`` is 1 unless the search is approximate.

    Raises
    ------
    TypeError
        When samples are no real numbers or labels no integers.
    ValueError
        When lengths or shapes do not fit together, a label or argument is out of its range, the samples do not suit
        the distance, or a distance that was computed is NaN, or infinite where there is nothing nearer.
    OSError
        When ``checkpoint`` cannot be written.

    Warns
    -----
    CheckpointWarning
        When the state of an earlier search is damaged, or cannot be written any more; the answer is right all the same.

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
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be a whole number of neighbors, at least 1; found {k!r}")
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
    if classes not in CLASSES:
        raise ValueError(f"classes must be one of {', '.join(CLASSES)}; found {classes!r}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; found {method!r}")
    if others is not None and other_labels is None and (own_positive or classes != "all"):
        what = "own_positive" if own_positive else f"classes={classes!r}"
        raise ValueError(f"{what} needs query_labels, the classes of the queries")
    own_labels = labels if others is None else other_labels
    count = _count_classes(num_classes, {"y": labels, "query_labels": other_labels})
    search = Search(
        x=samples,
        y=labels,
        queries=others,
        query_labels=own_labels,
        own_positive=bool(own_positive),
        classes=classes,
        num_classes=count,
        k=int(k),
        block_bytes=check_block_bytes(block_bytes),
        checkpoint=None if checkpoint is None else Path(checkpoint).expanduser(),
        show_progress=show_progress,
    )
    if search.checkpoint is not None:
        Checkpoint.check(search.checkpoint, metric.cache_key())  # before a model looks at every sample
    if method == "approximate":
        check_approximate(metric, search, candidates)
    elif candidates is not None:
        raise ValueError(f"candidates belong to method='approximate'; found {candidates!r} with method={method!r}")
    metric, search = metric.resolve(search)
    if method == "approximate":
        return search_approximately(metric, search, candidates)
    found = metric.brute_force(search) if method == "brute_force" else metric.neighbors(search)
    return check_complete(found, search, metric.name)


def _labels(y: ArrayLike, name: str, samples: NDArray[Any], samples_name: str) -> NDArray[np.int64]:
    """Labels as int64 [N], one per sample, or an error."""
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != len(samples):
        hint = f"; of one-hot labels give {name}.argmax(axis=1)" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise ValueError(
            f"{name} must have shape [{len(samples)}], a label per sample of {samples_name}; found "
            f"{list(labels.shape)}{hint}"
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
