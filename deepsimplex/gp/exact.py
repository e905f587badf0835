"""The exact Gaussian process: one Cholesky factor for all latent dimensions where they share their noise."""

import math

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, solve_triangular

from deepsimplex.gp.base import GaussianProcess
from deepsimplex.gp.cholesky import cholesky, inverse_triangle
from deepsimplex.gp.optimize import Evaluation
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.problem import Problem


class ExactGaussianProcess(GaussianProcess):
    """Exact Gaussian-process regression onto latents, with hyperparameters of the greatest marginal likelihood.

    sum_l log N(z_l | 0, K + diag(noise_l)), with one kernel for all latent dimensions. Where they share their noise
    (CASIMAC, ILR, one-hot) one Cholesky factor serves all of them, and every prediction has one variance; else
    (Dirichlet) there is one per dimension.

    Parameters
    ----------
    **settings
        See ``GaussianProcess``.

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4]. The derivative by the kernel matrix, (A^-1 - a a^T) / 2 with a = A^-1 z, is written
    out; the kernel's own comes from GPflow. A step costs N^3, memory 12 N^2 numbers (and 3 N^2 more per dimension where
    noise differs): up to some thousands of samples.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> process = ExactGaussianProcess().fit(X, LatentGaussian(np.sin(X), np.full((40, 1), 0.01)))
    >>> bool(abs(process.predict(X).loc - np.sin(X)).max() < 0.01)
    True
    """

    def _evaluation(self, problem: Problem) -> Evaluation:
        K, variances = (moment.numpy() for moment in problem.moments())
        value, *by_moments = marginal_likelihood(K, problem.Z, variances, problem.columns())
        return value, problem.pull_back(*map(tf.constant, by_moments))

    def _posterior(self, problem: Problem) -> Posterior:
        K, variances = (moment.numpy() for moment in problem.moments())
        factors, weights = [], []
        for column, dims in problem.columns():
            L = cholesky(_plus(K, variances[:, column]), warn=True)
            weights.append(cho_solve((L, True), problem.Z[:, dims]))
            factors.append(solve_triangular(L, np.eye(len(L)), lower=True))
        return problem.posterior(problem.X, np.concatenate(weights, axis=1), np.stack(factors))


def _plus(K: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.float64]:
    A = K.T.copy(order="F")  # of a symmetric matrix in rows, by columns, as LAPACK wants it
    A[np.diag_indices_from(A)] += variances
    return A


def marginal_likelihood(
    K: NDArray[np.float64], Z: NDArray[np.float64], variances: NDArray[np.float64], columns: list[tuple[int, slice]]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Negative log marginal likelihood of latents and its derivatives.

    Parameters
    ----------
    K : ndarray, shape [N, N]
        Kernel matrix.
    Z : ndarray, shape [N, L]
    variances : ndarray, shape [N, 1] or [N, L]
    columns : list of (int, slice)
        Each column of the variances with the latent dimensions that it belongs to.

    Returns
    -------
    value : float
    by_K : ndarray, shape [N, N]
        One triangle of it, off the diagonal twice, and zeros: with symmetric matrices it sums to the same.
    by_variances : ndarray, shape as theirs
    """
    value = 0.5 * Z.size * math.log(2.0 * math.pi)
    by_K, by_variances = np.zeros_like(K), np.empty_like(variances)
    for column, dims in columns:
        L = cholesky(_plus(K, variances[:, column]))
        z = Z[:, dims]
        a = cho_solve((L, True), z)
        value += 0.5 * float(np.sum(z * a)) + z.shape[1] * float(np.log(np.diagonal(L)).sum())
        by_A = blas.dsyrk(-1.0, a, z.shape[1], inverse_triangle(L), lower=1, overwrite_c=1)
        by_A[np.diag_indices_from(by_A)] *= 0.5
        by_K += by_A.T
        by_variances[:, column] = np.diagonal(by_A)
    return value, by_K, by_variances
