"""Exact Gaussian-process regression: one Cholesky factor for all latent dimensions that share their noise."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, solve_triangular

from deepsimplex.gp.cholesky import cholesky, inverse_triangle
from deepsimplex.gp.gpflow_kernels import Values
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.regression import GaussianProcess, Model, Problem


class ExactGaussianProcess(GaussianProcess):
    """Exact Gaussian-process regression onto latents, with hyperparameters that maximize the marginal likelihood.

    sum_l log N(z_l | 0, K + diag(noise_l)), with one kernel for all latent dimensions. If they share their noise
    (CASIMAC, ILR, one-hot) one Cholesky factor serves all of them, and every prediction has one variance; else
    (Dirichlet) there is one per dimension.

    Parameters
    ----------
    **settings : dict
        See ``GaussianProcess``.

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4]. The derivative by the kernel matrix, (A^-1 - a a^T) / 2 with a = A^-1 z, is in
    closed form; those of the kernel are computed by automatic differentiation. A step costs N^3, memory 12 N^2 numbers
    (and 3 N^2 more per dimension if noise differs): up to some thousands of samples.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> process = ExactGaussianProcess().fit(X, LatentGaussian(np.sin(X), np.full((40, 1), 0.01)))
    >>> bool(abs(process.predict(X).loc - np.sin(X)).max() < 0.01)
    True
    """

    def _evaluate(self, problem: Problem, values: Values) -> tuple[float, Sequence[Any]]:
        moments, derivatives = _compiled(problem.model)
        _, Z, own, weights = problem.arrays
        arguments = [tf.convert_to_tensor(value) for value in values], problem.pairs, tf.constant(own)
        K, variances = (moment.numpy() for moment in moments(*arguments))
        value, *by_moments = marginal_likelihood(K, Z, variances, problem.columns, weights)
        return value, derivatives(*arguments, *map(tf.constant, by_moments))

    def _posterior(self, problem: Problem, values: Values) -> Posterior:
        moments, _ = _compiled(problem.model)
        X, Z, own, counts = problem.arrays
        tensors = [tf.convert_to_tensor(value) for value in values]
        K, variances = (moment.numpy() for moment in moments(tensors, problem.pairs, tf.constant(own)))
        factors, weights = [], []
        for column, dims in problem.columns:
            L = cholesky(_plus(K, variances[:, column] / counts), warn=True)
            weights.append(cho_solve((L, True), Z[:, dims]))
            factors.append(solve_triangular(L, np.eye(len(L)), lower=True))
        return problem.posterior(values, X, np.concatenate(weights, axis=1), np.stack(factors))


@functools.lru_cache(maxsize=32)
def _compiled(model: Model) -> tuple[Any, Any]:
    """Return the kernel matrix and the noise variances as a function of values, pairs and own; and its derivatives."""

    def moments(values: Any, pairs: Any, own: Any) -> Any:
        kernel, noise, _ = model.bind(values)
        return model.kernel.matrix(kernel, pairs), noise(own)

    def derivatives(values: Any, pairs: Any, own: Any, *by_moments: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            kernel, noise, sources = model.bind(values)
            computed = model.kernel.matrix(kernel, pairs), noise(own)
        return tape.gradient(computed, sources, list(by_moments), unconnected_gradients="zero")

    return tuple(tf.function(step, autograph=False, reduce_retracing=True) for step in (moments, derivatives))


def _plus(K: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    A = K.T.copy(order="F")  # LAPACK reads matrices by columns; this one is symmetric
    A[np.diag_indices_from(A)] += variances
    return A


def marginal_likelihood(
    K: NDArray[np.float64], Z: NDArray[np.float64], variances: NDArray[np.float64], columns: Any, weights: Any
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Compute the negative log marginal likelihood of latents and its derivatives.

    Parameters
    ----------
    K : ndarray, shape [N, N]
        Kernel matrix.
    Z : ndarray, shape [N, L]
    variances : ndarray, shape [N, 1] or [N, L]
    columns : list of (int, slice)
        Each column of the variances with its latent dimensions.
    weights : ndarray, shape [N]
        Exponents of the rows' likelihoods: N(z | f, v)^w = N(z | f, v / w) (2 pi v)^((1 - w) / 2) w^(-1 / 2).

    Returns
    -------
    value : float
    by_K : ndarray, shape [N, N]
        The derivative's lower triangle, doubled below the diagonal, and zeros above: its inner products with symmetric
        matrices are those of the whole derivative.
    by_variances : ndarray, shape as theirs
    """
    value = 0.5 * Z.size * math.log(2.0 * math.pi)
    by_K, by_variances = np.zeros_like(K), np.empty_like(variances)
    for column, dims in columns:
        v, z = variances[:, column], Z[:, dims]
        L = cholesky(_plus(K, v / weights))
        a = cho_solve((L, True), z)
        value += 0.5 * float(np.sum(z * a)) + z.shape[1] * float(np.log(np.diagonal(L)).sum())
        value += 0.5 * z.shape[1] * float(np.sum((weights - 1.0) * np.log(2.0 * math.pi * v) + np.log(weights)))
        by_A = blas.dsyrk(-1.0, a, z.shape[1], inverse_triangle(L), lower=1, overwrite_c=1)
        by_A[np.diag_indices_from(by_A)] *= 0.5
        by_K += by_A.T
        by_variances[:, column] = np.diagonal(by_A) / weights + 0.5 * z.shape[1] * (weights - 1.0) / v
    return value, by_K, by_variances
