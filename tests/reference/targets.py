"""Targets written as loops, straight from the formulas: slow, and independent of the package."""

import math

import numpy as np


def simplex_vertices(n):
    """[CASIMAC] B.1: fix one coordinate after the other by the norm and the inner products."""
    P = np.zeros((n, n - 1))
    for j in range(n - 1):
        P[j, j] = math.sqrt(1 - sum(P[j, m] ** 2 for m in range(j)))
        for i in range(j + 1, n):
            P[i, j] = (-1 / (n - 1) - sum(P[i, m] * P[j, m] for m in range(j))) / P[j, j]
    return P


def euclidean(a, b):
    return math.sqrt(sum((float(s) - float(t)) ** 2 for s, t in zip(np.ravel(a), np.ravel(b), strict=True)))


def casimac_latent(x, y, sample, label, n, *, alpha=0.0, beta=1.0, k_alpha=1, k_beta=1, leave_out=None,
                   distance=euclidean, f_A=None, f_R=None, f_C=None):  # fmt: skip
    """[CASIMAC] Eq. 4-8 and 32-33 for one sample among the training samples (x, y), ``leave_out`` excepted (Eq. 13)."""
    f_A = f_A or (lambda distances: 1 / (sum(distances) / len(distances)))
    f_R = f_R or (lambda distances: sum(distances) / len(distances))
    f_C = f_C or (lambda value: value)
    P = simplex_vertices(n)
    members = {c: [i for i in range(len(x)) if y[i] == c and i != leave_out] for c in range(n)}
    attraction = 0.0
    if alpha > 0:
        same_class = sorted(distance(sample, x[i]) for i in members[label])
        attraction = f_A([d for d in same_class if d > 0][:k_alpha])
    latent = np.zeros(n - 1)
    for c in range(n):
        if c == label:
            continue
        repulsion = f_R(sorted(distance(sample, x[i]) for i in members[c])[:k_beta]) if beta > 0 else 0.0
        latent -= f_C(alpha * attraction + beta * repulsion) * P[c]
    return latent


def casimac_latents(x, y, n, **parameters):
    """Latents of the training samples, each left out of its own neighborhood."""
    return np.array([casimac_latent(x, y, x[i], y[i], n, leave_out=i, **parameters) for i in range(len(x))])


def ilr_center(k, n, smoothing):
    """[ILR-GP] sec. 3.1: V log pi of the smoothed label, with Helmert rows written out."""
    pi = [(1 - smoothing) / n + (smoothing if c == k else 0.0) for c in range(n)]
    z = []
    for i in range(1, n):
        row = [1.0] * i + [-float(i)] + [0.0] * (n - 1 - i)
        z.append(sum(r * math.log(p) for r, p in zip(row, pi, strict=True)) / math.sqrt(i * (i + 1)))
    return np.array(z)


def dirichlet_observation(k, n, concentration):
    """[GPD] sec. 4: means and variances of the log-normal that has the moments of Gamma(alpha_c, 1)."""
    mean, variance = [], []
    for c in range(n):
        alpha = concentration + (1.0 if c == k else 0.0)
        s2 = math.log(1 / alpha + 1)
        variance.append(s2)
        mean.append(math.log(alpha) - s2 / 2)
    return np.array(mean), np.array(variance)
