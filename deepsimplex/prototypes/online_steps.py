"""Compiled loops over samples of LVQ1, LVQ2 and GPLVQ: each sample moves its nearest prototypes."""

import numpy as np
from numba import njit

from deepsimplex.prototypes import prototype_process

# Numba's cache does not notice a change in another file: delete __pycache__ after one.
_winner_gradient = njit(cache=True)(prototype_process.winner_gradient)


@njit(cache=True)
def _squared_distance(a, b):
    total = 0.0
    for d in range(len(a)):
        total += (a[d] - b[d]) ** 2
    return total


@njit(cache=True)
def _move(w, x, rate):
    for d in range(len(w)):
        w[d] += rate * (x[d] - w[d])


@njit(cache=True)
def lvq_epoch(X, y, W, labels, order, rates, also_correct, least_ratio):
    """Present the rows ``order`` of X with learning rates ``rates`` and move prototypes W in place.

    ``also_correct`` selects LVQ2; ``least_ratio`` is its window: the least ratio of the smaller to the larger squared
    distance.
    """
    for i in range(len(order)):
        x, label = X[order[i]], y[order[i]]
        winner, correct, nearest, nearest_correct = -1, -1, np.inf, np.inf
        for j in range(len(W)):
            distance = _squared_distance(x, W[j])
            if distance < nearest:
                winner, nearest = j, distance
            if labels[j] == label and distance < nearest_correct:
                correct, nearest_correct = j, distance
        if winner < 0:  # no distance is finite
            continue
        if winner == correct:
            _move(W[winner], x, rates[i])
        elif not also_correct:
            _move(W[winner], x, -rates[i])
        elif correct >= 0 and nearest >= least_ratio * nearest_correct:
            _move(W[winner], x, -rates[i])
            _move(W[correct], x, rates[i])


@njit(cache=True)
def gplvq_epoch(X, y, W, c, order, rates, lengthscale, noise):
    """Present the rows ``order`` of X with learning rates ``rates`` and move prototypes W in place.

    A step is at most as long as the distance to the sample: without that bound, noise near zero or a large rate would
    move prototypes far out of the data.
    """
    for i in range(len(order)):
        x = X[order[i]]
        winner, nearest = -1, np.inf
        for j in range(len(W)):
            distance = _squared_distance(x, W[j])
            if distance < nearest:
                winner, nearest = j, distance
        if winner < 0:  # no distance is finite
            continue
        k = np.exp(-0.5 * nearest / lengthscale**2)
        gradient = _winner_gradient(k, c[winner] * y[order[i]], noise)
        _move(W[winner], x, min(max(rates[i] * gradient, -1.0), 1.0))
