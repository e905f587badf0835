"""Slow, plain formulas of Gaussian-process regression."""

import numpy as np
from scipy.stats import multivariate_normal


def rbf(X, Y, variance, lengthscales):
    squares = np.square((X[:, None] - Y[None]) / lengthscales).sum(axis=-1)
    return variance * np.exp(-0.5 * squares)


def log_marginal_likelihood(K, Z, variances):
    """Dimension by dimension, as a multivariate normal density."""
    variances = np.broadcast_to(variances, Z.shape)
    return sum(
        multivariate_normal.logpdf(z, cov=K + np.diag(v), allow_singular=True)
        for z, v in zip(Z.T, variances.T, strict=True)
    )


def predict(K, k, prior, Z, variances):
    """Means and variances [N*, L] from K(X, X), k(X, X*) and k(X*, X*)'s diagonal."""
    variances = np.broadcast_to(variances, Z.shape)
    means, remaining = [], []
    for z, v in zip(Z.T, variances.T, strict=True):
        solved = np.linalg.solve(K + np.diag(v), np.column_stack([z, k]))
        means.append(k.T @ solved[:, 0])
        remaining.append(prior - np.einsum("ij,ij->j", k, solved[:, 1:]))
    return np.stack(means, axis=1), np.stack(remaining, axis=1)


def titsias_bound(K_diagonal, K_um, K_uu, Z, variances):
    """[Titsias 2009]: log N(z | 0, Q + V) - tr((K - Q) V^-1) / 2, summed over dimensions."""
    Q = K_um.T @ np.linalg.solve(K_uu, K_um)
    traces = ((K_diagonal - np.diagonal(Q))[:, None] / np.broadcast_to(variances, Z.shape)).sum()
    return log_marginal_likelihood(Q, Z, variances) - 0.5 * traces
