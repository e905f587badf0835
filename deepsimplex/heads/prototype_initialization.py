"""Initial prototypes of every class: class means, cluster centers or samples."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_array, check_choice, check_labels, check_sample_weight, check_whole

Initialization = Literal["means", "samples", "k-means++"]
INITIALIZATIONS: tuple[Initialization, ...] = ("means", "samples", "k-means++")


def initial_prototypes(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    number: int | Sequence[int],
    initialization: str = "means",
    rng: np.random.Generator | None = None,
    weights: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Choose initial prototypes of every class that has samples.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [N]
        Class numbers.
    number : int or sequence of int
        Prototypes of every class, or those of class 0, 1 and so on. A class with fewer distinct samples gets as many
        as those.
    initialization : {"means", "samples", "k-means++"}
        "means" (default): the class mean, or the k-means centers if ``number`` is above 1; "samples": drawn at random
        from the distinct samples [GPLVQ ch. 3]; "k-means++": samples far from one another.
    rng : numpy.random.Generator, optional
        Default: a generator of seed 0.
    weights : ndarray, shape [N], optional
        Sample weights for means and k-means. Default: ones.

    Returns
    -------
    prototypes : ndarray, shape [P, d]
        Sorted by class; no two of a class are equal.
    labels : ndarray, shape [P]
        Class numbers.

    Raises
    ------
    ValueError
        For an unknown initialization.

    Examples
    --------
    >>> X = np.array([[0.0], [2.0], [10.0], [11.0], [30.0]])
    >>> W, labels = initial_prototypes(X, np.array([0, 0, 1, 1, 1]), 2)
    >>> W.ravel().tolist(), labels.tolist()
    ([0.0, 2.0, 10.5, 30.0], [0, 0, 1, 1])
    """
    check_choice(initialization, "initialization", INITIALIZATIONS)
    X = check_array(X, "X", "[N, d]", least=1)
    y, _ = check_labels(y, rows=len(X), of="X", least_classes=1)
    rng = np.random.default_rng(0) if rng is None else rng
    classes, weights = np.unique(y), check_sample_weight(weights, len(X), name="weights")
    numbers = [check_whole(each, "number", 1) for each in (number if np.iterable(number) else [number] * (y.max() + 1))]
    chosen = [
        _class_prototypes(X[y == label], weights[y == label], numbers[label], initialization, rng) for label in classes
    ]
    return np.concatenate(chosen), np.repeat(classes, [len(rows) for rows in chosen])


def _class_prototypes(
    rows: NDArray[np.float64], weights: Any, number: int, initialization: str, rng: np.random.Generator
) -> NDArray[np.float64]:
    from sklearn.cluster import KMeans, kmeans_plusplus  # slow to import
    from threadpoolctl import threadpool_limits

    if initialization == "means" and number == 1:
        return np.average(rows, axis=0, weights=weights, keepdims=True)
    distinct = np.unique(rows, axis=0)
    if initialization == "samples":
        return distinct[np.sort(rng.permutation(len(distinct))[:number])]
    if number >= len(distinct):
        return distinct
    spread = kmeans_plusplus(distinct, number, random_state=int(rng.integers(2**31)))[0]
    if initialization == "k-means++":
        return spread
    with threadpool_limits(1):  # few samples: threads would mostly wait for one another
        centers = KMeans(number, init=spread, n_init=1).fit(rows, sample_weight=weights).cluster_centers_
    return np.unique(centers, axis=0)
