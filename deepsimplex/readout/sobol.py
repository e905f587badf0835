"""Scrambled Sobol points, uniform and Gaussian, computed once per setting and held as constants."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.special import ndtri
from scipy.stats import qmc


@lru_cache(maxsize=32)
def sobol(num_points: int, dims: int, seed: int) -> NDArray[np.float64]:
    """Scrambled Sobol points in the open unit cube, shape [num_points, dims].

    ``num_points`` must be a power of two, at which the sequence is balanced.
    """
    points = qmc.Sobol(dims, scramble=True, rng=seed).random_base2(int(num_points).bit_length() - 1)
    # Scrambled points are multiples of 2^-30 or so: zero occurs, and what single precision would round to one.
    inside = np.clip(points, 2.0**-31, 1.0 - 2.0**-24)
    inside.setflags(write=False)
    return inside


@lru_cache(maxsize=32)
def gaussian(num_points: int, dims: int, seed: int) -> NDArray[np.float64]:
    """Standard normal points, shape [num_points, dims]: Sobol points through the normal quantile function.

    Where there are more than 2 * dims of them, their mean is exactly zero and their covariance the identity, so that
    expectations of quadratic functions are exact.
    """
    points = ndtri(sobol(num_points, dims, seed))
    if num_points > 2 * dims:
        points = points - points.mean(axis=0)
        points = solve_triangular(cholesky(points.T @ points / num_points, lower=True), points.T, lower=True).T
    points.setflags(write=False)
    return points
