"""Exact Gaussian-process regression: one Cholesky factor for all latent dimensions that share their noise."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, solve_triangular

from deepsimplex.gp.cholesky import cholesky, inverse_triangle
from deepsimplex.gp.gpflow_kernels import GivenKernel, NamedKernel, compiled
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.regression import GaussianProcess, Objective, Values, gradients, noise_variances
from deepsimplex.samples import Samples


class MarginalLikelihood(Objective):
    """The negative log marginal likelihood, -sum_l log N(z_l | 0, Ky_l) with Ky_l = K + diag(v_l / w)."""

    def __init__(self, process: GaussianProcess, samples: Samples) -> None:
        super().__init__(process, samples)
        self.X, self.Z, stated, self.weights = self.samples.whole()
        # Constants of the covariance matrices.
        self._constants = self.kernel.pairs(tf.constant(self.X)), tf.constant(stated)

    def evaluate(self, values: Values) -> tuple[float, Values]:
        covariances, derivatives = _compiled(self.kernel, self.noise)
        K, v = (part.numpy() for part in covariances(values, *self._constants))
        value, *by_covariances = marginal_likelihood(K, self.Z, v, self.weights)
        return value, derivatives(values, *self._constants, *by_covariances)

    def posterior(self, values: Values) -> Posterior:
        covariances, _ = _compiled(self.kernel, self.noise)
        K, v = (part.numpy() for part in covariances(values, *self._constants))
        alphas, factors = [], []
        for variances, z in _systems(v, self.Z):
            L = cholesky(_plus(K, variances / self.weights), warn=True)
            alphas.append(cho_solve((L, True), z))
            factors.append(solve_triangular(L, np.eye(len(L)), lower=True))
        kernel = self.kernel.at(values["kernel"])
        return Posterior(kernel, self.X, np.hstack(alphas), np.stack(factors), self.features, self.latents)


@functools.lru_cache(maxsize=32)
def _compiled(kernel: NamedKernel | GivenKernel, noise: str) -> tuple[Any, Any]:
    """Compile K [N, N] and the noise variances v, and their derivatives; fits with equal kernels share them."""

    def covariances(values: Values, pairs: Any, stated: Any) -> tuple[Any, Any]:
        return kernel.matrix(kernel.bind(values["kernel"]), pairs), noise_variances(noise, values, stated)

    def derivatives(values: Values, pairs: Any, stated: Any, *by_covariances: Any) -> Values:
        with tf.GradientTape() as tape:
            tape.watch(values)
            K, v = covariances(values, pairs, stated)
        return gradients(tape, (K, v), kernel, values, by_covariances)

    return compiled(covariances), compiled(derivatives)


def _systems(v: NDArray[np.float64], Z: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.float64], ...]]:
    """Yield each column of the noise variances with the latent dimensions that have it."""
    return zip(v.T, np.split(Z, v.shape[1], axis=1), strict=True)


def _plus(K: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    Ky = K.T.copy(order="F")  # LAPACK reads matrices by columns; this one is symmetric
    Ky[np.diag_indices_from(Ky)] += variances
    return Ky


def marginal_likelihood(
    K: NDArray[np.float64], Z: NDArray[np.float64], v: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Compute the negative log marginal likelihood of latents and its derivatives.

    Parameters
    ----------
    K : ndarray, shape [N, N]
        Kernel matrix.
    Z : ndarray, shape [N, L]
    v : ndarray, shape [N, 1] or [N, L]
        Noise variances.
    weights : ndarray, shape [N]
        Exponents of the rows' likelihoods: N(z | f, v)^w = N(z | f, v / w) (2 pi v)^((1 - w) / 2) w^(-1 / 2).

    Returns
    -------
    value : float
    by_K : ndarray, shape [N, N]
        The derivative's lower triangle, doubled below the diagonal, and zeros above: its inner products with symmetric
        matrices are those of the whole derivative.
    by_v : ndarray, shape as v
    """
    value = 0.5 * Z.size * math.log(2.0 * math.pi)
    by_K, by_v = np.zeros_like(K), []
    for variances, z in _systems(v, Z):
        L = cholesky(_plus(K, variances / weights))
        alpha = cho_solve((L, True), z)
        value += 0.5 * float(np.sum(z * alpha)) + z.shape[1] * float(np.log(np.diagonal(L)).sum())
        value += 0.5 * z.shape[1] * float(np.sum((weights - 1.0) * np.log(2.0 * math.pi * variances) + np.log(weights)))
        by_Ky = blas.dsyrk(-1.0, alpha, z.shape[1], inverse_triangle(L), lower=1, overwrite_c=1)
        by_Ky[np.diag_indices_from(by_Ky)] *= 0.5
        by_K += by_Ky.T
        by_v.append(np.diagonal(by_Ky) / weights + 0.5 * z.shape[1] * (weights - 1.0) / variances)
    return value, by_K, np.stack(by_v, axis=1)


class ExactGaussianProcess(GaussianProcess):
    """Exact Gaussian-process regression onto latents, with hyperparameters that maximize the marginal likelihood.

    sum_l log N(z_l | 0, K + diag(noise_l)), with one kernel for all latent dimensions. If they share their noise
    (CASIMAC, ILR, one-hot) one Cholesky factor serves all of them, and every prediction has one variance; else
    (Dirichlet) there is one per dimension.

    Parameters
    ----------
    kernel, ard, noise, scale_features, max_iter, n_restarts, random_state
        See ``GaussianProcess``.

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4]. The derivative by the kernel matrix, (Ky^-1 - alpha alpha^T) / 2 with
    alpha = Ky^-1 z, is in closed form; those of the kernel are computed by automatic differentiation. A step costs N^3,
    memory 12 N^2 numbers (and 3 N^2 more per dimension if noise differs): up to some thousands of samples.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> process = ExactGaussianProcess().fit(X, LatentGaussian(np.sin(X), np.full((40, 1), 0.01)))
    >>> bool(abs(process.predict(X).loc - np.sin(X)).max() < 0.01)
    True
    """

    _objective = MarginalLikelihood
    _matrices = 12
