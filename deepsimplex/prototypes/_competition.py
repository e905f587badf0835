"""Compiled steps of LVQ1 and LVQ2, sample by sample."""

import numpy as np
from numba import njit


@njit(cache=True)
def squared_distance(a, b):
    total = 0.0
    for d in range(len(a)):
        total += (a[d] - b[d]) ** 2
    return total


@njit(cache=True)
def move(w, x, rate):
    for d in range(len(w)):
        w[d] += rate * (x[d] - w[d])


@njit(cache=True)
def present(X, y, W, labels, rates, also_correct, least_ratio):
    """Present rows one after the other and move prototypes W in place: see ``deepsimplex.prototypes.competition``.

    Rows are presented in their order, row i with the learning rate rates[i]. ``least_ratio`` is compared with the
    smaller of two squared distances by the larger.
    """
    for i in range(len(X)):
        winner, correct, nearest, nearest_correct = -1, -1, np.inf, np.inf
        for j in range(len(W)):
            distance = squared_distance(X[i], W[j])
            if distance < nearest:
                winner, nearest = j, distance
            if labels[j] == y[i] and distance < nearest_correct:
                correct, nearest_correct = j, distance
        if winner < 0:  # no distance is finite
            continue
        if winner == correct:
            move(W[winner], X[i], rates[i])
        elif not also_correct:
            move(W[winner], X[i], -rates[i])
        elif correct >= 0 and nearest >= least_ratio * nearest_correct:
            move(W[winner], X[i], -rates[i])
            move(W[correct], X[i], rates[i])
