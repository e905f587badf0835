"""Learning Vector Quantization by loops, as the thesis writes it."""

import numpy as np


def squared_distance(x, w, Omega=None):
    """||Omega (x - w)||^2."""
    gap = x - w if Omega is None else Omega @ (x - w)
    return float(sum(g * g for g in gap))


def present(X, y, W, labels, rates, second=False, window=None):
    """LVQ1 [GPLVQ Eq. 3.1], and with ``second`` its LVQ2, one row after the other."""
    W = [w.copy() for w in W]
    for x, label, rate in zip(X, y, rates, strict=True):
        distances = [np.sqrt(squared_distance(x, w)) for w in W]
        winner = min(range(len(W)), key=lambda j: distances[j])
        correct = min((j for j in range(len(W)) if labels[j] == label), key=lambda j: distances[j])
        if labels[winner] == label:
            W[winner] = W[winner] + rate * (x - W[winner])
            continue
        inside = window is None or distances[winner] / distances[correct] >= (1 - window) / (1 + window)
        if second and inside:
            W[correct] = W[correct] + rate * (x - W[correct])
        if inside or not second:
            W[winner] = W[winner] - rate * (x - W[winner])
    return np.array(W)


def cost(X, y, W, labels, phi, Omega=None):
    """sum_i Phi((d_J - d_K) / (d_J + d_K)) [GPLVQ Eq. 3.2]."""
    total = 0.0
    for x, label in zip(X, y, strict=True):
        matrices = Omega if np.ndim(Omega) == 3 else [Omega] * len(W)
        distances = [squared_distance(x, w, local) for w, local in zip(W, matrices, strict=True)]
        correct = min(d for d, c in zip(distances, labels, strict=True) if c == label)
        other = min(d for d, c in zip(distances, labels, strict=True) if c != label)
        total += phi((correct - other) / (correct + other))
    return total
