"""The Gaussian process on prototypes: their labels +-1, regressed on where they are."""

import numpy as np
from numpy.typing import NDArray

from deepsimplex.latent import LatentGaussian
from deepsimplex.prototypes.decision import squared_distances
from deepsimplex.prototypes.likelihood import LEAST_NOISE, covariance

# Of a process's variance: above the round-off of what is left of 1 with the least noise.
_LEAST_VARIANCE = 1e-9
# Below, log-odds are linear up to 1e-10 of themselves.
_NEAR_ZERO = 1e-5


class PrototypeProcess:
    """Regression of the labels of prototypes, a posterior over functions from features to -1 ... +1.

    Parameters
    ----------
    W : ndarray, shape [P, d]
        Prototypes.
    c : ndarray, shape [P]
        Their labels, +-1.
    lengthscale : float
        alpha, of the squared exponential kernel.
    noise : float
        Variance s^2 of the labels, at least 0; taken for 1e-6 where it is less, so that equal prototypes do not matter.

    Attributes
    ----------
    weights : ndarray, shape [P]
        beta = (K + s^2 I)^-1 c.

    Notes
    -----
    mean(x) = k(x)^T (K + s^2 I)^-1 c and var(x) = 1 - k(x)^T (K + s^2 I)^-1 k(x) [GPLVQ Eq. B.2-B.3]: of the function
    itself, without the noise of a label.

    Examples
    --------
    >>> process = PrototypeProcess(np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0]), lengthscale=1.0, noise=0.1)
    >>> latent = process(np.array([[0.0], [1.0], [99.0]]))
    >>> latent.loc.ravel().round(2).tolist(), latent.scale.ravel().round(2).tolist()
    ([0.0, 0.9, 0.0], [0.64, 0.3, 1.0])
    """

    def __init__(self, W: NDArray[np.float64], c: NDArray[np.float64], lengthscale: float, noise: float) -> None:
        from scipy.linalg import cho_factor, cho_solve

        self._W, self._lengthscale = W, lengthscale
        K = covariance(squared_distances(W, W), lengthscale)
        self._factor = cho_factor(K + max(noise, LEAST_NOISE) * np.eye(len(W)), lower=True)
        self.weights: NDArray[np.float64] = cho_solve(self._factor, c)

    def __call__(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Means and deviations [N, 1] at features X [N, d]. No mean is so small that it loses its sign."""
        from scipy.linalg import solve_triangular

        squared = squared_distances(X, self._W)
        explained = solve_triangular(self._factor[0], covariance(squared, self._lengthscale).T, lower=True)
        variance = np.maximum(1.0 - np.sum(np.square(explained), axis=0), _LEAST_VARIANCE)
        return LatentGaussian(self._means(squared)[:, None], np.sqrt(variance)[:, None])

    def _means(self, squared: NDArray[np.float64]) -> NDArray[np.float64]:
        nearest = squared.min(axis=1, keepdims=True)
        relative = covariance(squared - nearest, self._lengthscale) @ self.weights
        means = relative * covariance(nearest, self._lengthscale)[:, 0]
        lost = np.copysign(np.finfo(np.float64).tiny, relative)
        return np.where((np.abs(means) < np.abs(lost)) & (relative != 0.0), lost, means)

    def contributions(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """What every prototype adds to the means, k(x, w_j) beta_j, shape [N, P]."""
        return covariance(squared_distances(X, self._W), self._lengthscale) * self.weights


def log_odds(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """log Phi(z) - log Phi(-z), whose sign is that of z however small: where Phi rounds to 1/2, a line.

    Examples
    --------
    >>> log_odds(np.array([-40.0, 1e-30, 1.0])).round(3).tolist(), bool(log_odds(np.array([1e-30]))[0] > 0)
    ([-804.608, 0.0, 1.668], True)
    """
    from scipy.special import log_ndtr

    return np.where(np.abs(z) < _NEAR_ZERO, np.sqrt(8.0 / np.pi) * z, log_ndtr(z) - log_ndtr(-z))
