"""Point sets of the readouts: scrambled Sobol sequences, made once per setting and held as constants."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.special import ndtri
from scipy.stats import qmc


@lru_cache(maxsize=32)
def sobol(num_points: int, dims: int, seed: int) -> NDArray[np.float64]:
    """Scrambled Sobol points in the open unit cube, shape [num_points, dims].

    ``num_points`` must be a power of two, which is what balances the sequence.
    """
    points = qmc.Sobol(dims, scramble=True, rng=seed).random_base2(int(num_points).bit_length() - 1)
    # Scrambled points are multiples of 2^-30 or so: zero occurs, and what single precision would round to one.
    inside = np.clip(points, 2.0**-31, 1.0 - 2.0**-24)
    inside.setflags(write=False)
    return inside


@lru_cache(maxsize=32)
def gaussian(num_points: int, dims: int, seed: int) -> NDArray[np.float64]:
    """Standard normal points, shape [num_points, dims]: Sobol points through the normal quantile function.

    Where there are enough of them, their mean is exactly zero and their covariance the identity. Expectations under
    narrow Gaussians, nearly quadratic in the noise, then err 5 to 20 times less (deviations of 0.1, ten classes), those
    under wide ones by as much as before (of 3), up to twice as much in one or two dimensions, where errors are small.
    """
    # Antithetic pairs were tried: they halve the points that the sequence spreads, and err 1.4 times as much.
    points = ndtri(sobol(num_points, dims, seed))
    if num_points > 2 * dims:
        points = points - points.mean(axis=0)
        points = solve_triangular(cholesky(points.T @ points / num_points, lower=True), points.T, lower=True).T
    points.setflags(write=False)
    return points
