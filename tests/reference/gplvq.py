"""GPLVQ by loops, as the thesis writes it."""

import math

import numpy as np


def kernel(x, w, lengthscale):
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x, w, strict=True)) / (2 * lengthscale**2))


def log_likelihood(x, y, w, c, lengthscale, noise):
    """log N(y | c k / (1 + s^2), 1 - k^2 / (1 + s^2)) [GPLVQ Eq. B.24]."""
    k = kernel(x, w, lengthscale)
    mean, variance = c * k / (1 + noise), 1 - k**2 / (1 + noise)
    return -0.5 * math.log(2 * math.pi * variance) - 0.5 * (y - mean) ** 2 / variance


def present(X, y, W, c, rates, gradient):
    """[GPLVQ Eq. 4.7], one row after the other, no step longer than the way to the sample."""
    W = [w.copy() for w in W]
    for x, label, rate in zip(X, y, rates, strict=True):
        j = min(range(len(W)), key=lambda j: float(np.sum((x - W[j]) ** 2)))
        step, way = rate * gradient(x, label, W[j], c[j]), np.linalg.norm(x - W[j])
        W[j] = W[j] + step * min(1.0, way / max(np.linalg.norm(step), 1e-300))
    return np.array(W)
