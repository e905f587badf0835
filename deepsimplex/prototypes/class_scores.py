"""Class scores from distances to prototypes, and the temperature that turns them into probabilities."""

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_sample_weight

# Range of temperatures; scores lie between -1 and 1.
_TEMPERATURES = (1e-4, 1e4)
# Largest squared distance: the sum of two is still finite.
FARTHEST = 1e307


def finite_squared_distances(
    X: NDArray[np.float64], W: NDArray[np.float64], Omega: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Compute d(x, w) = ||Omega (x - w)||^2, shape [N, P]: exactly zero for equal rows, and always finite.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    W : ndarray, shape [P, d]
    Omega : ndarray, shape [m, d] or [P, m, d], optional
        One matrix, or one for every prototype. Default: Euclidean distances.

    Examples
    --------
    >>> finite_squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]))
    array([[9.]])
    """
    from scipy.spatial.distance import cdist

    if Omega is not None and Omega.ndim == 3:
        distances = [np.sum(np.square((X - w) @ local.T), axis=1) for w, local in zip(W, Omega, strict=True)]
        return np.minimum(np.stack(distances, axis=1), FARTHEST)
    if Omega is not None:
        X, W = X @ Omega.T, W @ Omega.T
    return np.minimum(cdist(X, W, "sqeuclidean"), FARTHEST)


def nearest_of_classes(
    distances: NDArray[np.float64], labels: NDArray[np.int64], num_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Find the nearest prototype of every class.

    Parameters
    ----------
    distances : ndarray, shape [N, P]
    labels : ndarray, shape [P]
        Class numbers of the prototypes.
    num_classes : int

    Returns
    -------
    nearest : ndarray, shape [N, n]
        Its distance; infinity for a class without prototypes.
    which : ndarray, shape [N, n]
        Its number, the first of equally near ones; -1 for a class without prototypes.

    Examples
    --------
    >>> nearest_of_classes(np.array([[3.0, 1.0, 2.0]]), np.array([0, 0, 1]), 3)
    (array([[ 1.,  2., inf]]), array([[ 1,  2, -1]]))
    """
    table, present = members(labels, num_classes), np.isin(np.arange(num_classes), labels)
    which = table[np.arange(num_classes), np.argmin(distances[:, table], axis=2)]
    nearest = np.take_along_axis(distances, which, axis=1)
    return np.where(present, nearest, np.inf), np.where(present, which, -1)


def members(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    """List the prototypes of every class, [n, most of a class]; classes with fewer repeat their first.

    Examples
    --------
    >>> members(np.array([0, 0, 1]), 2).tolist()
    [[0, 1], [2, 2]]
    """
    table = np.zeros((num_classes, int(np.bincount(labels).max())), dtype=np.int64)
    for label in np.unique(labels):
        numbers = np.flatnonzero(labels == label)
        table[label] = numbers[0]
        table[label, : len(numbers)] = numbers
    return table


def relative_scores(nearest: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the relative distance of every class to the others, with the sign of a score.

    Parameters
    ----------
    nearest : ndarray, shape [N, n]
        Squared distances to the nearest prototype of every class; infinity for a class without prototypes.

    Returns
    -------
    ndarray, shape [N, n]
        -mu_c, mu_c = (d_c - d_others) / (d_c + d_others), from -1 to 1: the cost of GLVQ if c were the class
        [GPLVQ Eq. 3.2]. The nearest class has the largest score, all are about zero far from all prototypes, and a
        class without prototypes has -infinity.

    Examples
    --------
    >>> relative_scores(np.array([[1.0, 3.0, 7.0]]))
    array([[ 0.5 , -0.5 , -0.75]])
    """
    least, second = np.partition(nearest, 1, axis=1)[:, :2].T
    first = np.arange(nearest.shape[1]) == np.argmin(nearest, axis=1)[:, None]
    others = np.where(first, second[:, None], least[:, None])
    with np.errstate(invalid="ignore"):
        scores = (others - nearest) / np.maximum(others + nearest, np.finfo(np.float64).tiny)
    return np.where(np.isinf(nearest), -np.inf, np.where(np.isinf(others), 1.0, scores))


def fitted_temperature(
    scores: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64] | None = None
) -> float:
    """Find the temperature T of softmax(scores / T) that maximizes the likelihood of smoothed labels.

    Parameters
    ----------
    scores : ndarray, shape [N, n]
        -infinity for classes without samples.
    y : ndarray, shape [N]
        Class numbers.
    weights : ndarray, shape [N], optional
        Numbers of samples that the rows count as. Default: ones.

    Returns
    -------
    float
        From 1e-4 to 1e4.

    Notes
    -----
    If all samples are classified correctly, the likelihood grows without bound as T falls. As in Platt's scaling,
    labels are therefore smoothed: a sample of a class of N_c samples has the target (1 / n) / (N_c + 1) for each other
    class and the rest for its own, as if every class had one more sample, shared equally by all labels.

    Examples
    --------
    >>> scores = np.array([[0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [-0.5, 0.5]])
    >>> T = fitted_temperature(scores, np.array([0, 0, 1, 1]))
    >>> bool(np.isclose(1 / (1 + np.exp(-1 / T)), 5 / 6))
    True
    """
    from scipy.optimize import brentq
    from scipy.special import softmax

    present, y = np.unique(y, return_inverse=True)
    weights = check_sample_weight(weights, len(y), name="weights")
    scores, counts, n = scores[:, present], np.bincount(y, weights), len(present)
    if n == 1:
        return 1.0
    other = 1.0 / n / (counts[y] + 1.0)
    true_class = scores[np.arange(len(y)), y]
    linear = weights @ (true_class * (1.0 - n * other) + other * scores.sum(axis=1))  # sum of targets times scores

    def slope(inverse: float) -> float:
        """Derivative by 1 / T of the negative log-likelihood, which is convex in it."""
        return float(weights @ np.sum(softmax(inverse * scores, axis=1) * scores, axis=1) - linear)

    coldest, hottest = _TEMPERATURES
    if slope(1.0 / coldest) <= 0.0:
        return coldest
    if slope(1.0 / hottest) >= 0.0:
        return hottest
    return 1.0 / float(brentq(slope, 1.0 / hottest, 1.0 / coldest, xtol=1e-14, rtol=1e-13))
