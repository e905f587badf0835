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


def variational_two_classes(K_diagonal, K_um, K_uu, signs, slope, rounds=300):
    """[Hensman 2015] for p(y | f) = sigmoid(sign slope f): the best negative bound, means and deviations of f.

    Gauss-Hermite quadrature, and half a Newton step in every round, with q(u) = N(L m, L S L^T), K_uu = L L^T.
    """
    t, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    A = np.linalg.solve(np.linalg.cholesky(K_uu), K_um)
    precision, shift = np.eye(len(A)), np.zeros(len(A))
    for _ in range(rounds):
        S = np.linalg.inv(precision)
        m = S @ shift
        mean = A.T @ m
        deviation = np.sqrt(K_diagonal + np.einsum("mn,mk,kn->n", A, S - np.eye(len(A)), A))
        margin = (signs * slope)[:, None] * (mean[:, None] + deviation[:, None] * t)
        p = 1.0 / (1.0 + np.exp(-margin))
        divergence = 0.5 * (np.trace(S) + m @ m - len(m) + np.linalg.slogdet(precision)[1])
        bound = -(np.logaddexp(0.0, -margin) @ weights).sum() - divergence
        first, curvature = signs * slope * ((1.0 - p) @ weights), slope**2 * ((p * (1.0 - p)) @ weights)
        precision = 0.5 * (precision + np.eye(len(A)) + (A * curvature) @ A.T)
        shift = 0.5 * (shift + A @ (first + curvature * mean))
    return -bound, mean, deviation
