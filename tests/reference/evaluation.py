"""Slow oracles of the evaluation room, one sample at a time."""

import math

import numpy as np


def expected_calibration_error(y: np.ndarray, p: np.ndarray, bins: int, weights: np.ndarray | None = None) -> float:
    """math.md sections 6 and 8: right-closed bins of equal width, the first closed at 0."""
    samples, n = p.shape
    weights = np.ones(samples) if weights is None else weights
    confidences, events = [], []
    for i in range(samples):
        if n == 2:
            confidences.append(float(p[i, 1]))
            events.append(float(y[i] == 1))
        else:
            best = max(range(n), key=lambda k: (p[i, k], -k))
            confidences.append(float(p[i, best]))
            events.append(float(y[i] == best))
    error = 0.0
    for b in range(bins):
        inside = [
            i for i in range(samples) if b / bins < confidences[i] <= (b + 1) / bins or (b == 0 and confidences[i] == 0)
        ]
        error += abs(sum(weights[i] * (confidences[i] - events[i]) for i in inside))
    return error / float(sum(weights))


def top_k_accuracy(y: np.ndarray, p: np.ndarray, k: int) -> float:
    """Sort the classes of each sample, lower classes first among equals."""
    hits = 0
    for i in range(len(y)):
        order = sorted(range(p.shape[1]), key=lambda c: (-p[i, c], c))
        hits += int(y[i]) in order[:k]
    return hits / len(y)


def negative_log_likelihood(y: np.ndarray, p: np.ndarray) -> float:
    return -sum(math.log(p[i, y[i]]) for i in range(len(y))) / len(y)
