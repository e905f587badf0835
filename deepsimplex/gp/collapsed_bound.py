"""Collapsed sparse Gaussian processes: Titsias' bound, with noise that may differ per sample and latent dimension."""

import functools
import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, eigh, solve_triangular

from deepsimplex._utils.validation import check_flag
from deepsimplex.gp.cholesky import SingularError, cholesky
from deepsimplex.gp.gpflow_kernels import GivenKernel, NamedKernel, compiled
from deepsimplex.gp.inducing_points import inducing_points
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.regression import GaussianProcess, Objective, Values, gradients, noise_variances
from deepsimplex.gp.scaling import Moments, Scaling
from deepsimplex.samples import Samples

# Jitter on the diagonal of Kuu, relative to the kernel's variance.
_JITTER = 1e-6
# Numbers in a block of Kuf.
_BUDGET = 2**19


def block_sums(
    kernel: NamedKernel | GivenKernel,
    noise: str,
    num_noises: int,
    separate: bool,
    values: Values,
    constants: Values,
    x: Any,
    z: Any,
    stated: Any,
    weights: Any,
) -> tuple[Any, ...]:
    """Compute the sums over a block of rows that Titsias' bound consists of.

    Latent dimensions that share both inducing points and noise are one system of equations; there are S of them, one
    or L.

    Parameters
    ----------
    kernel, noise, values
        See ``Objective``.
    num_noises : int
        Noise variances of a row, one or L.
    separate : bool
        Whether every latent dimension has its own inducing points.
    constants : dict
        See ``TitsiasBound``.
    x, z, stated, weights : tensor, shapes [B, d], [B, L], [B, num_noises], [B]
        Features, latents, the variances that the target states, and exponents w of the likelihoods.

    Returns
    -------
    AAT : tensor, shape [S, M, M]
        A diag(w / v) A^T with A = L^-1 Kuf, L L^T = Kuu, and noise variances v.
    Az : tensor, shape [S, M, L / S]
        A diag(w / v) z.
    zz : tensor, shape []
        Sum of w z^2 / v.
    log_v, trace_K : tensor, shape [num_noises]
        Sums of w log(2 pi v) and of w k(x, x) / v.
    """
    bound, U = kernel.bind(values["kernel"]), moved_points(values, constants)
    v, w = noise_variances(noise, values, stated), weights[:, tf.newaxis]
    A = tf.linalg.triangular_solve(inducing_factor(bound, U), bound(U, x))  # [., M, B]
    z_over_v = w * z / v
    if separate or num_noises == 1:
        AAT = tf.matmul(A * tf.transpose(w / v)[:, tf.newaxis], A, transpose_b=True)
        Az = tf.matmul(A, tf.transpose(z_over_v)[..., tf.newaxis] if separate else z_over_v[tf.newaxis])
    else:
        AAT = _grams(A[0], stated, v, weights, num_noises)
        Az = tf.transpose(tf.matmul(A[0], z_over_v))[..., tf.newaxis]
    log_v = tf.reduce_sum(w * tf.math.log(2.0 * math.pi * v), axis=0)
    trace_K = tf.reduce_sum(w * bound(x, full_cov=False)[:, tf.newaxis] / v, axis=0)
    return AAT, Az, tf.reduce_sum(z_over_v * z), log_v, trace_K


def _grams(A: Any, stated: Any, v: Any, weights: Any, num_noises: int) -> Any:
    """Compute A diag(w / v_l) A^T for every l; rows with the most frequent variance share one product."""
    shared, grams = tf.matmul(A * weights, A, transpose_b=True), []
    for column in range(num_noises):
        _, numbers, counts = tf.unique_with_counts(stated[:, column])
        frequent = tf.equal(numbers, tf.argmax(counts, output_type=tf.int32))
        frequent_v, rows = v[tf.argmax(frequent), column], tf.where(~frequent)[:, 0]
        few = tf.gather(A, rows, axis=1)
        more = tf.gather(weights, rows) * (1.0 / tf.gather(v[:, column], rows) - 1.0 / frequent_v)
        grams.append(shared / frequent_v + tf.matmul(few * more, few, transpose_b=True))
    return tf.stack(grams)


@compiled
def negative_bound(AAT: Any, Az: Any, zz: Any, log_v: Any, trace_K: Any) -> tuple[Any, tuple[Any, ...]]:
    """Compute the negative bound from the sums over all samples, and its derivatives by them."""
    sums = AAT, Az, zz, log_v, trace_K
    with tf.GradientTape() as tape:
        tape.watch(sums)
        B = AAT + tf.eye(tf.shape(AAT)[-1], dtype=AAT.dtype)
        LB = tf.linalg.cholesky(B)
        c = tf.linalg.triangular_solve(LB, Az)
        log_det_B = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(LB)), axis=-1)
        trace_Q = tf.linalg.trace(AAT)
        dims = tf.cast(tf.shape(Az)[-1], AAT.dtype)  # of every system
        log_det = dims * tf.reduce_sum(log_v + log_det_B + trace_K - trace_Q)
        value = 0.5 * (log_det + zz - tf.reduce_sum(tf.square(c)))
    return value, tape.gradient(value, sums)


@functools.lru_cache(maxsize=32)
def _compiled(kernel: NamedKernel | GivenKernel, noise: str, num_noises: int, separate: bool) -> tuple[Any, Any]:
    """Compile ``block_sums`` and its derivatives; fits of equal models share them."""
    sums = functools.partial(block_sums, kernel, noise, num_noises, separate)

    def derivatives(by_sums: Any, values: Values, *block: Any) -> Values:
        with tf.GradientTape() as tape:
            tape.watch(values)
            computed = sums(values, *block)
        return gradients(tape, computed, kernel, values, by_sums)

    return compiled(sums), compiled(derivatives)


class TitsiasBound(Objective):
    """The negative of Titsias' bound, from sums over blocks of rows.

    Attributes
    ----------
    constants : dict
        "points", the inducing points [1, M, d] or [L, M, d] of scaled features where they start: one set for all latent
        dimensions, or one for each; and "width" [d], the standard deviations of the features, in which learned points
        are shifted, so that steps of an optimizer do not depend on units.
    model : tuple
        The first arguments of ``block_sums``.
    """

    def __init__(self, process: Any, samples: Samples) -> None:
        super().__init__(process, samples)
        X, Z, stated, weights, classes = self.drawn
        sets = Z.shape[1] if process.separate_inducing else 1
        points = inducing_points(process.inducing, X, self.features, process.random_state, classes, sets)
        width = Scaling.for_features(Moments.of(X, weights)).width
        self.constants = {"points": tf.constant(points), "width": tf.constant(width)}
        if process.learn_inducing:
            self.start["shift"] = np.zeros(points.shape)
        self.model = self.kernel, self.noise, stated.shape[1], sets > 1

    def evaluate(self, values: Values) -> tuple[float, Values]:
        value, by_sums = negative_bound(*self.sums(values))
        if not np.isfinite(value):
            check_factor(self.kernel.bind(values["kernel"]), moved_points(values, self.constants))
        _, derivatives = _compiled(*self.model)
        return float(value), self._over_blocks(functools.partial(derivatives, by_sums), values)

    def sums(self, values: Values) -> tuple[Any, ...]:
        """Compute the sums of ``block_sums`` over all rows."""
        return self._over_blocks(_compiled(*self.model)[0], values)

    def _over_blocks(self, function: Any, values: Values) -> Any:
        sets, M, _ = self.constants["points"].shape
        blocks = self.samples.blocks(max(1, _BUDGET // (sets * M)))
        parts = (function(values, self.constants, *block) for block in blocks)
        return functools.reduce(functools.partial(tf.nest.map_structure, tf.add), parts)

    def posterior(self, values: Values) -> Posterior:
        """Compute the posterior with the optimal distribution of the inducing variables."""
        AAT, Az, *_ = self.sums(values)
        kernel, U = self.kernel.at(values["kernel"]), moved_points(values, self.constants)
        return sparse_posterior(kernel, U, AAT, Az, self.features, self.latents)


def moved_points(values: Values, constants: Values) -> Any:
    """Return the inducing points U [., M, d], moved by their shift if they are learned."""
    if "shift" not in values:
        return constants["points"]
    return constants["points"] + constants["width"] * values["shift"]


def inducing_factor(kernel: Any, U: Any) -> Any:
    """Compute the Cholesky factor L of Kuu [..., M, M] with a little jitter."""
    Kuu = kernel(U)
    jitter = _JITTER * tf.reduce_mean(tf.linalg.diag_part(Kuu))
    return tf.linalg.cholesky(Kuu + jitter * tf.eye(tf.shape(Kuu)[-1], dtype=Kuu.dtype))


def check_factor(kernel: Any, U: Any) -> NDArray[np.float64]:
    """Return ``inducing_factor``, or raise ``SingularError`` if it is not finite."""
    L: NDArray[np.float64] = inducing_factor(kernel, U).numpy()
    if not np.isfinite(L).all():
        M = L.shape[-1]
        raise SingularError(
            f"the covariance matrix of the inducing points [{M}, {M}] is not positive definite, even "
            f"with {_JITTER:.0e} of its mean diagonal added, or not finite: check the kernel and the learning rate"
        )
    return L


def sparse_posterior(
    kernel: Any, U: Any, AAT: Any, Az: Any, features: Scaling, latents: Scaling, scores: Any = None
) -> Posterior:
    """Compute the posterior with the optimal distribution of the inducing variables of every system.

    Parameters
    ----------
    kernel : gpflow.kernels.Kernel
    U : tensor, shape [1, M, d] or [L, M, d]
        Inducing points.
    AAT, Az : tensor, shapes [S, M, M], [S, M, L / S]
        See ``block_sums``.
    features, latents, scores
        See ``Posterior``.
    """
    L, weights, factors = check_factor(kernel, U), [], []
    for L_s, AAT_s, Az_s in zip(np.broadcast_to(L, AAT.shape), AAT.numpy(), Az.numpy(), strict=True):
        B = AAT_s + np.eye(len(L_s))
        LB = cholesky(B, warn=True)
        weights.append(solve_triangular(L_s, cho_solve((LB, True), Az_s), lower=True, trans="T"))
        # Data explain k^T L^-T (I - B^-1) L^-1 k of a variance; the matrix between has a square root.
        eigenvalues, eigenvectors = eigh(B)
        root = np.sqrt(1.0 - 1.0 / np.maximum(eigenvalues, 1.0))[:, None] * eigenvectors.T
        factors.append(solve_triangular(L_s, root.T, lower=True, trans="T").T)
    support = U if len(U) > 1 else U[0]
    return Posterior(kernel, support, np.hstack(weights), np.stack(factors), features, latents, scores)


@dataclass(eq=False, repr=False)
class CollapsedGaussianProcess(GaussianProcess):
    """Sparse Gaussian-process regression onto latents by Titsias' bound.

    sum_l log N(z_l | 0, Q + diag(v_l)) - tr((K - Q) / v_l) / 2 with Q = K_fu K_uu^-1 K_uf [Titsias 2009], with one
    kernel and, by default, one set of inducing points for all latent dimensions. If those share their noise too
    (CASIMAC, ILR, one-hot) one factor serves all; else (Dirichlet) there is one per dimension.

    Parameters
    ----------
    inducing : int or array_like, shape [M, d]
        Number of inducing points, chosen by k-means++ in every class; or the points, in the units of the features.
        Default 200.
    learn_inducing : bool
        Whether the points are optimized. Default False: they stay among the samples.
    separate_inducing : bool
        Whether every latent dimension has its own inducing points. Default False: one set for all. Separate sets
        fit better for the same number of points, at L times the cost; the variances of a prediction then differ
        between dimensions.
    kernel, ard, noise, scale_features, max_iter, n_restarts, random_state
        See ``GaussianProcess``.

    Notes
    -----
    [ILR-GP sec. 3.2], [GPD sec. 4]. Rows are summed block by block, forwards and once more for the derivatives, so that
    memory does not grow with M N. A step costs M^2 N, and as much again for every dimension's samples whose noise is
    not the most frequent of that dimension: Dirichlet targets of hard labels cost twice what ILR targets do, not n
    times.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> process = CollapsedGaussianProcess(inducing=20).fit(X, LatentGaussian(np.sin(X), np.full((200, 1), 0.01)))
    >>> bool(abs(process.predict(X).loc - np.sin(X)).max() < 0.01)
    True
    """

    _: KW_ONLY
    inducing: int | ArrayLike = 200
    learn_inducing: bool = False
    separate_inducing: bool = False
    _objective: ClassVar[type[Objective]] = TitsiasBound

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag(self.learn_inducing, "learn_inducing")
        check_flag(self.separate_inducing, "separate_inducing")
