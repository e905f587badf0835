"""Slow oracle of the sparse variational Gaussian process: in terms of the values at the inducing points, row by row."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def kernel_value(name: str, x: Array, y: Array, lengthscale: Array | float, variance: float) -> float:
    r = math.sqrt(sum(((x - y) / lengthscale) ** 2))
    if name == "rbf":
        return variance * math.exp(-r * r / 2)
    if name == "matern32":
        return variance * (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
    return variance * (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)


def kernel_matrix(name: str, X: Array, Y: Array, lengthscale: Array | float, variance: float) -> Array:
    return np.array([[kernel_value(name, x, y, lengthscale, variance) for y in Y] for x in X])


def posterior(K: Array, k: Array, variance: float, m: Array, R: Array) -> tuple[Array, Array]:
    """Means [N, L] and variances [N, L] at N points, of q(u_l) = N(C m_l, C R_l R_l^T C^T) with K = C C^T.

    K: [M, M] among inducing points, k: [N, M] to them, m: [M, L], R: [L, M, M].
    """
    C, inverse = np.linalg.cholesky(K), np.linalg.inv(K)
    means, variances = np.empty((len(k), m.shape[1])), np.empty((len(k), m.shape[1]))
    for i, row in enumerate(k):
        weights = inverse @ row
        for dimension in range(m.shape[1]):
            covariance = C @ R[dimension] @ R[dimension].T @ C.T
            means[i, dimension] = weights @ C @ m[:, dimension]
            variances[i, dimension] = variance - row @ weights + weights @ covariance @ weights
    return means, variances


def divergence(K: Array, m: Array, R: Array) -> float:
    """sum_l KL(N(C m_l, C R_l R_l^T C^T) || N(0, K))."""
    C, inverse = np.linalg.cholesky(K), np.linalg.inv(K)
    total = 0.0
    for dimension in range(m.shape[1]):
        mean, covariance = C @ m[:, dimension], C @ R[dimension] @ R[dimension].T @ C.T
        log_ratio = np.linalg.slogdet(K)[1] - np.linalg.slogdet(covariance)[1]
        total += 0.5 * (np.trace(inverse @ covariance) + mean @ inverse @ mean - len(K) + log_ratio)
    return total
