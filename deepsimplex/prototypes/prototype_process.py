"""Gaussian process regression of the labels +-1 of prototypes, and the likelihood of GPLVQ given one of them."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex import kernels
from deepsimplex.latent import LatentGaussian
from deepsimplex.prototypes.class_scores import finite_squared_distances

# Least noise: without any, the variance vanishes where a prototype meets a sample or another prototype.
LEAST_NOISE = 1e-6
# Least variance of the process: above the rounding error of 1 - k^T (K + s^2 I)^-1 k with the least noise.
_LEAST_VARIANCE = 1e-9
# Below this, log-odds are linear up to a relative error of 1e-10.
_NEAR_ZERO = 1e-5


def covariance(squared: NDArray[np.float64], lengthscale: float) -> NDArray[np.float64]:
    """Compute the squared exponential kernel k = exp(-|x - w|^2 / (2 alpha^2)) of squared distances [GPLVQ Eq. B.1].

    Examples
    --------
    >>> covariance(np.array([0.0, 4.0]), 2.0).round(4).tolist()
    [1.0, 0.6065]
    """
    with np.errstate(over="ignore"):
        return np.exp(-0.5 * squared / lengthscale**2)


def winner_log_likelihood(k: Any, agree: Any, noise: float) -> Any:
    """Compute log N(y | m, V) of a label y = +-1 by the Gaussian process on a single prototype.

    Parameters
    ----------
    k : array_like
        Covariance k(x, w) of the sample and the prototype, from 0 to 1.
    agree : array_like
        c y: +1 if the labels c of the prototype and y of the sample agree, else -1.
    noise : float
        Variance s^2 of the prototype's label, above 0.

    Returns
    -------
    array_like
        With m = c k / (1 + s^2) and V = 1 - k^2 / (1 + s^2) [GPLVQ Eq. B.24].

    Notes
    -----
    [GPLVQ Eq. 4.3-4.4] swap the mean m and the label y; the form of its appendix, used here, is a density of y.

    Examples
    --------
    >>> winner_log_likelihood(np.array([1.0, 0.5]), np.array([1, -1]), 0.5).round(3).tolist()
    [-0.536, -1.894]
    """
    mean, variance = k / (1.0 + noise), 1.0 - k * k / (1.0 + noise)
    return -0.5 * (np.log(2.0 * np.pi * variance) + (agree - mean) ** 2 / variance)


def winner_gradient(k: Any, agree: Any, noise: float) -> Any:
    """Compute g such that g (x - w) / alpha^2 is the gradient of ``winner_log_likelihood`` by the prototype w.

    Parameters
    ----------
    k, agree, noise
        See ``winner_log_likelihood``.

    Returns
    -------
    array_like
        k / ((1 + s^2) V^2) ((a - m) V + k m (2 a - k - m)), a = c y and m = k / (1 + s^2). It has the sign of a, since
        m < k <= 1: a sample attracts a prototype whose label agrees and repels others.

    Notes
    -----
    The derivative printed in [GPLVQ Eq. 4.5, B.7-B.30] starts from log(1 / V) instead of log(1 / V) / 2, which changes
    its first term; this is the gradient of the likelihood itself.

    Examples
    --------
    >>> winner_gradient(np.array([0.9, 0.1]), np.array([1, -1]), 0.5).round(3).tolist()
    [1.287, -0.073]
    """
    mean, variance = k / (1.0 + noise), 1.0 - k * k / (1.0 + noise)
    return k / ((1.0 + noise) * variance**2) * ((agree - mean) * variance + k * mean * (2.0 * agree - k - mean))


class PrototypeProcess:
    """Posterior of a Gaussian process that has observed the labels +-1 of prototypes.

    mean(x) = k(x)^T (K + s^2 I)^-1 c and var(x) = 1 - k(x)^T (K + s^2 I)^-1 k(x) [GPLVQ Eq. B.2-B.3], of the function
    without the noise of a label.

    Parameters
    ----------
    W : ndarray, shape [P, d]
        Prototypes.
    c : ndarray, shape [P]
        Their labels, +-1.
    lengthscale : float
        alpha, of the squared exponential kernel.
    noise : float
        Variance s^2 of the labels; values below 1e-6 count as 1e-6, so that equal prototypes are possible.

    Attributes
    ----------
    weights : ndarray, shape [P]
        (K + s^2 I)^-1 c.

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
        K = covariance(finite_squared_distances(W, W), lengthscale)
        self._factor = cho_factor(K + max(noise, LEAST_NOISE) * np.eye(len(W)), lower=True)
        self.weights: NDArray[np.float64] = cho_solve(self._factor, c)

    def __call__(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Compute means and standard deviations [N, 1] at features X [N, d]; means keep their sign however small."""
        from scipy.linalg import solve_triangular

        squared = finite_squared_distances(X, self._W)
        explained = solve_triangular(self._factor[0], covariance(squared, self._lengthscale).T, lower=True)
        variance = np.maximum(1.0 - np.sum(np.square(explained), axis=0), _LEAST_VARIANCE)
        return LatentGaussian(self._means(squared)[:, None], np.sqrt(variance)[:, None])

    def served(self, X: Any) -> tuple[Any, Any]:
        """Compute means and standard deviations [N, 1] of a tensor of features, in operations of all export formats."""
        from scipy.linalg import solve_triangular

        inverse = solve_triangular(self._factor[0], np.eye(len(self._W)), lower=True)
        k = tf.exp(-0.5 / self._lengthscale**2 * kernels.squared_distances(X, self._W))
        explained = tf.reduce_sum(tf.square(tf.matmul(k, inverse.T)), axis=1, keepdims=True)
        return tf.matmul(k, self.weights[:, None]), tf.sqrt(tf.maximum(1.0 - explained, _LEAST_VARIANCE))

    def _means(self, squared: NDArray[np.float64]) -> NDArray[np.float64]:
        nearest = squared.min(axis=1, keepdims=True)
        relative = covariance(squared - nearest, self._lengthscale) @ self.weights
        means = relative * covariance(nearest, self._lengthscale)[:, 0]
        underflow = np.copysign(np.finfo(np.float64).tiny, relative)
        return np.where((np.abs(means) < np.abs(underflow)) & (relative != 0.0), underflow, means)

    def contributions(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the terms k(x, w_j) weights_j of the means, shape [N, P]."""
        return covariance(finite_squared_distances(X, self._W), self._lengthscale) * self.weights


def log_odds(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute log Phi(z) - log Phi(-z); linear near zero, so that it keeps the sign of z.

    Examples
    --------
    >>> log_odds(np.array([-40.0, 1e-30, 1.0])).round(3).tolist(), bool(log_odds(np.array([1e-30]))[0] > 0)
    ([-804.608, 0.0, 1.668], True)
    """
    from scipy.special import log_ndtr

    return np.where(np.abs(z) < _NEAR_ZERO, np.sqrt(8.0 / np.pi) * z, log_ndtr(z) - log_ndtr(-z))
