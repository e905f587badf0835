"""Choice of the inducing points of sparse Gaussian processes by k-means++."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import kmeans_plusplus

from deepsimplex._utils.memory import check_memory
from deepsimplex._utils.validation import check_array, check_whole
from deepsimplex.gp.scaling import Scaling


def inducing_points(
    inducing: int | ArrayLike,
    X: NDArray[np.float64],
    features: Scaling,
    seed: int,
    y: ArrayLike | None,
    sets: int = 1,
) -> NDArray[np.float64]:
    """Choose sets of inducing points [sets, M, d] of scaled features.

    Parameters
    ----------
    inducing : int or array_like, shape [M, d]
        Number of points to choose among the rows, or the points themselves, in the units of the data.
    X : ndarray, shape [N, d]
        Scaled features.
    features : Scaling
        Maps points in the units of the data to scaled features.
    seed : int
    y : array_like, shape [N], optional
        Classes.
    sets : int
        Number of sets. Chosen points differ between sets, given ones do not. Default 1.

    Raises
    ------
    TypeError, ValueError
        For neither a number of points nor points of as many features as X has.

    Examples
    --------
    >>> X = np.arange(6.0)[:, None]
    >>> inducing_points(6, X, Scaling.identity(1), 0, None)[0].ravel()
    array([0., 1., 2., 3., 4., 5.])
    """
    if np.ndim(inducing) == 0:
        number = check_whole(inducing, "inducing, unless it holds points [M, d],", 1)
        most = min(number, len(X))
        check_memory(12.0 * sets * most**2, f"inducing={number} of {len(X):,} rows", "take fewer inducing points")
        rng = np.random.default_rng(seed)
        return np.stack([choose_points(X, number, rng, y) for _ in range(sets)])
    if np.ndim(inducing) == 1:
        columns, shape = X.shape[1], np.shape(inducing)
        hint = "np.reshape(inducing, (-1, 1)) makes them points of a single feature"
        if columns > 1:
            hint = "np.reshape(inducing, (1, -1)) makes them a single point"
        raise ValueError(f"inducing must be a whole number or points [M, {columns}]; found shape {shape}. {hint}")
    points: Any = features(check_array(inducing, "inducing", "[M, d]", columns=X.shape[1], least=1))
    return np.repeat(points[np.newaxis], sets, axis=0)


def choose_points(
    X: NDArray[np.float64], number: int, rng: np.random.Generator, y: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Choose distinct rows of X [N, d] by k-means++, within every class if classes are given.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    number : int
        Rows wanted. All distinct rows are taken if there are no more.
    rng : numpy.random.Generator
    y : array_like, shape [N], optional
        Classes. Each gets points in proportion to its distinct rows, and at least one.

    Returns
    -------
    ndarray, shape [M, d]

    Raises
    ------
    ValueError
        If there are more classes than rows wanted.

    Examples
    --------
    >>> X = np.arange(10.0)[:, None]
    >>> bool((choose_points(X, 2, np.random.default_rng(0), y=[0] * 9 + [1]) == 9.0).any())
    True
    """
    distinct, positions = np.unique(X, axis=0, return_inverse=True)
    classes = np.zeros(len(X), dtype=int) if y is None else np.unique(np.asarray(y), return_inverse=True)[1]
    first = np.full(len(distinct), len(X))
    np.minimum.at(first, positions.ravel(), classes)  # equal rows of several classes count for the first
    groups = [distinct[first == label] for label in np.unique(first)]
    if number < len(groups):
        raise ValueError(f"inducing must be at least the number of classes, {len(groups)}; found {number}")
    if number >= len(distinct):
        return distinct
    sizes = np.array([len(group) for group in groups])
    shares = np.ones_like(sizes)
    for _ in range(number - len(groups)):  # Webster's method: the next goes to the class with most rows per point
        shares[np.argmax(np.where(shares < sizes, sizes / (shares + 0.5), -1.0))] += 1
    seeds = [int(rng.integers(2**31)) for _ in groups]
    chosen = zip(groups, shares, seeds, strict=True)
    return np.concatenate([g if n == len(g) else kmeans_plusplus(g, int(n), random_state=s)[0] for g, n, s in chosen])
