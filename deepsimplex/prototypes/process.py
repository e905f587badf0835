"""The Gaussian process on prototypes: their labels +-1, regressed on where they are."""

import numpy as np
from numpy.typing import NDArray

from deepsimplex.latent import LatentGaussian
from deepsimplex.prototypes.decision import squared_distances
from deepsimplex.prototypes.likelihood import LEAST_NOISE, covariance

# Of a process's variance: above the round-off of what is left of 1 with the least noise.
_LEAST_VARIANCE = 1e-9


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
        """Means and deviations [N, 1] at features X [N, d]."""
        from scipy.linalg import solve_triangular

        k = self._covariances(X)
        explained = np.sum(np.square(solve_triangular(self._factor[0], k.T, lower=True)), axis=0)
        variance = np.maximum(1.0 - explained, _LEAST_VARIANCE)
        return LatentGaussian((k @ self.weights)[:, None], np.sqrt(variance)[:, None])

    def contributions(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """What every prototype adds to the means, k(x, w_j) beta_j, shape [N, P]."""
        return self._covariances(X) * self.weights

    def _covariances(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return covariance(squared_distances(X, self._W), self._lengthscale)
