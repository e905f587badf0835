"""The metric that GMLVQ starts from: that of linear discriminant analysis."""

import numpy as np
from numpy.typing import NDArray

# Of the mean variance within classes: no direction varies less, so that none is stretched without bound.
_LEAST_VARIANCE = 1e-6


def within_class_whitening(X: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """A matrix S [d, d] such that features S x vary by one in all directions around the means of their classes.

    Distances between whitened features are those of Mahalanobis; nearest class means by them are linear discriminant
    analysis with classes of equal frequency. The covariance is shrunk as Ledoit and Wolf have it, so that more features
    than samples will do.

    Parameters
    ----------
    X : ndarray, shape [N, d]
        No feature constant.
    y : ndarray, shape [N]
        Numbers of the classes.

    Returns
    -------
    ndarray, shape [d, d]
        Symmetric and invertible.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 2)) * [1.0, 0.5]
    >>> np.diag(within_class_whitening(X, np.arange(1000) % 2)).round(1).tolist()
    [1.0, 2.0]
    """
    from sklearn.covariance import ledoit_wolf  # imported here: the package comes in lightly

    residuals = X - _means(X, y)[np.unique(y, return_inverse=True)[1]]
    covariance = ledoit_wolf(residuals, assume_centered=True)[0]
    variances, directions = np.linalg.eigh(covariance)
    least = _LEAST_VARIANCE * float(variances.mean())
    if least <= 0.0:  # every sample is its class's mean
        return np.eye(X.shape[1])
    return (directions / np.sqrt(np.maximum(variances, least))) @ directions.T


def discriminant_directions(X: NDArray[np.float64], y: NDArray[np.int64], rank: int) -> NDArray[np.float64]:
    """Orthonormal rows [rank, d] along which class means differ most; the identity where they are d.

    Parameters
    ----------
    X : ndarray, shape [N, d]
        Whitened features: the directions are then those of linear discriminant analysis.
    y : ndarray, shape [N]
    rank : int
        From 1 to d. Beyond the classes less one, directions are such that the samples vary most along the rest.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> np.abs(discriminant_directions(X, np.array([0, 0, 1, 1]), 1)).round(3).tolist()
    [[1.0, 0.0]]
    """
    d = X.shape[1]
    if rank == d:
        return np.eye(d)
    means = _means(X, y)
    _, sizes, between = np.linalg.svd(means - means.mean(axis=0))
    kept = between[: min(rank, int(np.sum(sizes > 1e-9 * max(sizes.max(), 1e-300))))]
    rest = X - X.mean(axis=0)
    rest = rest - (rest @ kept.T) @ kept
    _, _, others = np.linalg.svd(rest.T @ rest)
    # Others lie in the complement as far as samples vary there; what is beyond is made orthogonal.
    rows = np.linalg.qr(np.concatenate([kept, others]).T)[0].T
    return rows[:rank]


def _means(X: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.stack([X[y == label].mean(axis=0) for label in np.unique(y)])
