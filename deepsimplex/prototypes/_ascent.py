"""Compiled steps of GPLVQ, sample by sample."""

import numpy as np
from numba import njit

from deepsimplex.prototypes import likelihood
from deepsimplex.prototypes._competition import move, squared_distance

# Numba does not see that a formula in another file has changed: remove __pycache__ then.
_pull_of_likelihood = njit(cache=True)(likelihood.pull_of_likelihood)
_pull_of_thesis = njit(cache=True)(likelihood.pull_of_thesis)


@njit(cache=True)
def present(X, y, W, c, order, rates, lengthscale, noise, thesis):
    """Present rows in their order and move prototypes W in place: see ``ascent.LikelihoodAscent``.

    Row order[i] is presented with the learning rate rates[i].
    """
    for i in range(len(order)):
        x = X[order[i]]
        winner, nearest = -1, np.inf
        for j in range(len(W)):
            distance = squared_distance(x, W[j])
            if distance < nearest:
                winner, nearest = j, distance
        if winner < 0:  # no distance is finite
            continue
        k = np.exp(-0.5 * nearest / lengthscale**2)
        agree = c[winner] * y[order[i]]
        pull = _pull_of_thesis(k, agree, noise) if thesis else _pull_of_likelihood(k, agree, noise)
        move(W[winner], x, min(max(rates[i] * pull, -1.0), 1.0))
