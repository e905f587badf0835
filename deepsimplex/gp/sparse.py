"""Titsias' bound as a function of sums over rows, which blocks of rows add up and differentiate one after the other."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.linalg import cho_solve, eigh, solve_triangular

from deepsimplex._utils.batching import row_slices
from deepsimplex.gp.cholesky import SingularError, cholesky
from deepsimplex.gp.points import MovablePoints
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.problem import Problem

# Added to the diagonal of K(U, U), relative to the kernel's variance.
_JITTER = 1e-6
# Numbers in a block of K(U, X).
_BUDGET = 2**19


class Sums(NamedTuple):
    """Sums over rows, with A = L^-1 K(U, X) and L L^T = K(U, U) of every set of inducing points.

    Latent dimensions that share both the inducing points and the variances v of the noise are one system of equations:
    there are S of them, one or L, and C variances of a row, one or L.

    Attributes
    ----------
    gram : tensor, shape [S, M, M]
        A diag(1 / v) A^T.
    projections : tensor, shape [S, M, L / S]
        A diag(1 / v) z.
    squares : tensor, shape []
        z^2 / v, over the latent dimensions too.
    logarithms, priors : tensor, shape [C]
        log v, and k(x, x) / v.
    """

    gram: Any
    projections: Any
    squares: Any
    logarithms: Any
    priors: Any


class SparseProblem(Problem):
    """A problem with inducing points.

    Parameters
    ----------
    problem : Problem
    inducing : MovablePoints
        U, of scaled features: one set [1, M, d] for all latent dimensions, or one for each, [L, M, d].
    """

    def __init__(self, problem: Problem, inducing: MovablePoints) -> None:
        super().__init__(problem.X, problem.Z, problem.kernel, problem.noise, problem.features, problem.latents)
        self.inducing = inducing
        self._sets, points, _ = inducing().shape
        self._systems = max(self._sets, self.noise.own.shape[1])
        own = self.noise.own
        # The most frequent variance of every column: rows that have it share one product.
        self._usual = np.array([[_most_frequent(column) for column in own.T]])
        self._rows = max(1, _BUDGET // (self._sets * points))

    def spreads(self, variables: Sequence[Any]) -> list[float]:
        """Inducing points are among the samples already."""
        return [float(variable is not self.inducing.shift) for variable in variables]

    def _blocks(self) -> Iterator[tuple[Any, Any, Any]]:
        for rows in row_slices(len(self.X), self._rows):
            yield tuple(tf.constant(part[rows]) for part in (self.X, self.Z, self.noise.own))

    def sums(self) -> Sums:
        """Over all rows."""
        total = None
        for block in self._blocks():
            part = self._block_sums(*block)
            total = part if total is None else Sums(*(a + b for a, b in zip(total, part, strict=True)))
        assert total is not None
        return total

    def pull_back_sums(self, by_sums: Sums) -> list[NDArray[np.float64]]:
        """Derivatives by ``trainable_variables`` of what has these derivatives by the sums."""
        total = [np.zeros(variable.shape) for variable in self.trainable_variables]
        for block in self._blocks():
            for gradient, part in zip(total, self._block_pull_back(*block, *by_sums), strict=True):
                gradient += part.numpy()
        return total

    @cached_property
    def signature(self) -> list[Any]:
        """Of a block of rows: features, latents and the noise's own variances."""
        return [tf.TensorSpec([None, part.shape[1]], tf.float64) for part in (self.X, self.Z, self.noise.own)]

    @cached_property
    def _block_sums(self) -> Any:
        return tf.function(self.of_block, input_signature=self.signature, autograph=False)

    @cached_property
    def _block_pull_back(self) -> Any:
        def compute(x: Any, z: Any, own: Any, *by_sums: Any) -> Any:
            with tf.GradientTape() as tape:
                sums = self.of_block(x, z, own)
            return tape.gradient(sums, self.trainable_variables, Sums(*by_sums), unconnected_gradients="zero")

        return tf.function(compute, autograph=False, reduce_retracing=True)

    def of_block(self, x: Any, z: Any, own: Any) -> Sums:
        """Sums over the rows of a block."""
        inducing = self.inducing()
        A = tf.linalg.triangular_solve(inducing_factor(self.kernel, inducing), self.kernel(inducing, x))  # [., M, rows]
        v = self.noise(own)
        weighted = z / v
        return Sums(
            self._gram(A, own, v),
            self._projections(A, weighted),
            tf.reduce_sum(weighted * z),
            tf.reduce_sum(tf.math.log(v), axis=0),
            tf.reduce_sum(self.kernel(x, full_cov=False)[:, tf.newaxis] / v, axis=0),
        )

    def _projections(self, A: Any, weighted: Any) -> Any:
        if self._systems == 1:
            return tf.matmul(A, weighted[tf.newaxis])
        if self._sets == 1:
            return tf.transpose(tf.matmul(A[0], weighted))[..., tf.newaxis]
        return tf.matmul(A, tf.transpose(weighted)[..., tf.newaxis])

    def _gram(self, A: Any, own: Any, v: Any) -> Any:
        if own.shape[1] == 1 or self._sets > 1:
            return tf.matmul(A / tf.transpose(v)[:, tf.newaxis], A, transpose_b=True)
        A, usual = A[0], 1.0 / self.noise(self._usual)  # [1, C]
        shared = tf.matmul(A, A, transpose_b=True)
        more = 1.0 / v - usual
        grams = []
        for column in range(own.shape[1]):
            rows = tf.where(own[:, column] != self._usual[0, column])[:, 0]
            few = tf.gather(A, rows, axis=1)
            own_part = tf.matmul(few * tf.gather(more[:, column], rows), few, transpose_b=True)
            grams.append(usual[0, column] * shared + own_part)
        return tf.stack(grams)

    @cached_property
    def bound(self) -> Any:
        """The negative bound of the sums, and its derivatives by them, compiled."""

        def compute(*sums: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(sums)
                value = self._negative_bound(Sums(*sums))
            return value, Sums(*tape.gradient(value, sums))

        return tf.function(compute, autograph=False)

    def _negative_bound(self, sums: Sums) -> Any:
        N, dims = self.Z.shape
        L = tf.linalg.cholesky(sums.gram + tf.eye(sums.gram.shape[-1], dtype=sums.gram.dtype))
        c = tf.linalg.triangular_solve(L, sums.projections)
        determinants = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=-1)
        per_dimension = sums.logarithms + determinants + sums.priors - tf.linalg.trace(sums.gram)  # [S]
        shared = dims // self._systems
        fit = sums.squares - tf.reduce_sum(tf.square(c))
        return 0.5 * (N * dims * math.log(2.0 * math.pi) + shared * tf.reduce_sum(per_dimension) + fit)

    def check_inducing(self) -> NDArray[np.float64]:
        """Factors [., M, M] of K(U, U), or an error that says that there are none."""
        return check_factor(inducing_factor(self.kernel, self.inducing()).numpy())

    def sparse_posterior(self) -> Posterior:
        """With the optimal distribution of the inducing variables."""
        inducing, factors = self.inducing().numpy(), self.check_inducing()
        gram, projections = (part.numpy() for part in self.sums()[:2])
        solved = [optimal(factors[min(s, self._sets - 1)], gram[s], projections[s]) for s in range(self._systems)]
        weights, roots = zip(*solved, strict=True)
        support = inducing if self._sets > 1 else inducing[0]
        return self.posterior(support, np.concatenate(weights, axis=1), np.stack(roots))


def inducing_factor(kernel: Any, inducing: Any) -> Any:
    """Cholesky factor L of K(U, U) [..., M, M] with a little on its diagonal."""
    K = kernel(inducing)
    jitter = _JITTER * tf.reduce_mean(tf.linalg.diag_part(K))
    return tf.linalg.cholesky(K + jitter * tf.eye(K.shape[-1], dtype=K.dtype))


def check_factor(L: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factor of K(U, U), or say that there is none."""
    if not np.isfinite(L).all():  # how TensorFlow says that there is none
        M = L.shape[-1]
        raise SingularError(
            f"the covariance matrix of the inducing points [{M}, {M}] is not positive definite, even "
            f"with {_JITTER:.0e} of its mean diagonal added, or not finite: check the kernel and the learning rate"
        )
    return L


def optimal(
    L: NDArray[np.float64], gram: NDArray[np.float64], projections: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best distribution of inducing variables for sums over samples, as a posterior takes it.

    Parameters
    ----------
    L : ndarray, shape [M, M]
        Factor of K(U, U).
    gram : ndarray, shape [M, M]
        A diag(1 / v) A^T, with A = L^-1 K(U, X).
    projections : ndarray, shape [M, D]
        A diag(1 / v) z.

    Returns
    -------
    weights : ndarray, shape [M, D]
    factor : ndarray, shape [M, M]
    """
    B = gram + np.eye(len(L))
    solved = cho_solve((cholesky(B, warn=True), True), projections)
    weights = solve_triangular(L, solved, lower=True, trans="T")
    # K^-1 less the precision that the data leave is L^-T (I - B^-1) L^-1, and that has a square root.
    values, vectors = eigh(B)
    root = np.sqrt(1.0 - 1.0 / np.maximum(values, 1.0))[:, None] * vectors.T
    return weights, solve_triangular(L, root.T, lower=True, trans="T").T


def _most_frequent(values: NDArray[np.float64]) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[np.argmax(counts)])
