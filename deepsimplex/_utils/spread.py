"""Rows of features that stand for all of them, and how far apart rows typically lie: where Gaussian processes begin."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def median_distance(rows: NDArray[np.float64]) -> float:
    """Median distance between rows that differ; one where none do.

    Examples
    --------
    >>> median_distance(np.array([[0.0], [1.0], [3.0]]))
    2.0
    """
    from scipy.spatial.distance import pdist

    distances = pdist(rows)
    apart = distances[distances > 0]  # duplicated rows say nothing of the scale
    return float(np.median(apart)) if apart.size else 1.0


def spread_rows(
    rows: NDArray[np.float64], number: int, rng: np.random.Generator, y: ArrayLike | None = None
) -> NDArray[np.float64]:
    """As many of the rows as asked for, far from one another, by k-means++; within every class, where there are any.

    Parameters
    ----------
    rows : ndarray, shape [N, d]
    number : int
        Rows wanted. Where no more than that differ, all of those are taken.
    rng : numpy.random.Generator
    y : array_like, shape [N], optional
        Classes. Each gets a share as large as its share of the rows that differ, and at least one.

    Returns
    -------
    ndarray, shape [M, d]
        No two rows are equal.

    Raises
    ------
    ValueError
        When there are more classes than rows wanted.

    Examples
    --------
    >>> rows = np.arange(10.0)[:, None]
    >>> bool((spread_rows(rows, 2, np.random.default_rng(0), y=[0] * 9 + [1]) == 9.0).any())
    True
    """
    from sklearn.cluster import kmeans_plusplus  # imported here: the package comes in lightly

    distinct, positions = np.unique(rows, axis=0, return_inverse=True)
    groups = np.zeros(len(distinct), dtype=int) if y is None else _first_classes(np.asarray(y), positions)
    sizes = np.bincount(groups)
    if number < len(sizes):
        raise ValueError(f"inducing must be at least the number of classes, {len(sizes)}; found {number}")
    if number >= len(distinct):
        return distinct
    chosen = []
    for group, share in enumerate(_shares(sizes, number)):
        members = distinct[groups == group]
        seed = int(rng.integers(2**31))
        chosen.append(members if share == len(members) else kmeans_plusplus(members, share, random_state=seed)[0])
    return np.concatenate(chosen)


def _first_classes(y: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the classes of rows that differ: of several classes of equal rows the first, in whatever order."""
    classes = np.unique(y, return_inverse=True)[1]
    groups = np.full(positions.max() + 1, len(y))
    np.minimum.at(groups, positions.ravel(), classes)
    return np.unique(groups, return_inverse=True)[1]


def _shares(sizes: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """``number`` shared out in proportion to the sizes, none less than one nor more than its size."""
    shares = np.ones_like(sizes)
    for _ in range(number - len(sizes)):
        # The next goes where one row stands for most others (Webster's method).
        shares[np.argmax(np.where(shares < sizes, sizes / (shares + 0.5), -1.0))] += 1
    return shares
