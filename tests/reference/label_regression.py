"""Regression on labels by plain formulas: one solve for every row that is left out."""

import numpy as np


def kernel(X, W, name, lengthscale, linear, power):
    """Kernel values [N, M] of transformed rows, one pair at a time."""
    values = np.empty((len(X), len(W)))
    for i, x in enumerate(X):
        for j, w in enumerate(W):
            r = np.sqrt(np.sum((x - w) ** 2)) / lengthscale
            stationary = {
                "rbf": np.exp(-(r**2) / 2),
                "matern12": np.exp(-r),
                "matern32": (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
                "matern52": (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r),
            }
            values[i, j] = stationary[name] + linear * np.dot(x, w) / power + 1
    return values


def predict(k_mm, k_nm, Y, noise, k, k_diagonal):
    """Means [R, n] and variances [R] of subsets of regressors, by the weight-space formulas."""
    S = k_nm.T @ k_nm + noise * k_mm
    mean = k @ np.linalg.solve(S, k_nm.T @ Y)
    inside = np.sum(k * np.linalg.solve(k_mm, k.T).T, axis=1)
    return mean, k_diagonal - inside + noise * np.sum(k * np.linalg.solve(S, k.T).T, axis=1)
