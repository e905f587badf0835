"""Collapsed sparse Gaussian processes: Titsias' bound, with noise that may differ per sample and latent dimension."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, eigh, solve_triangular

from deepsimplex._utils.validation import check_flag
from deepsimplex.gp.cholesky import SingularError, cholesky
from deepsimplex.gp.gpflow_kernels import Values
from deepsimplex.gp.inducing_points import inducing_points
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.regression import GaussianProcess, Model, Problem
from deepsimplex.gp.rows import Rows
from deepsimplex.gp.scaling import Moments, Scaling

# Jitter on the diagonal of K(U, U), relative to the kernel's variance.
_JITTER = 1e-6
# Numbers in a block of K(U, X).
_BUDGET = 2**19


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
        Whether every latent dimension has inducing points of its own. Default False: one set for all. Separate sets
        fit better for the same number of points, at L times the cost; the variances of a prediction then differ
        between dimensions.
    **settings
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

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        inducing: int | ArrayLike = 200,
        learn_inducing: bool = False,
        separate_inducing: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(kernel, **settings)
        self.inducing, self.learn_inducing = inducing, check_flag(learn_inducing, "learn_inducing")
        self.separate_inducing = check_flag(separate_inducing, "separate_inducing")

    def _problem(self, rows: Rows) -> "SparseProblem":
        problem = super()._problem(rows)
        X, Z, own, _, classes = problem.sample
        sets = Z.shape[1] if self.separate_inducing else 1
        points = inducing_points(self.inducing, X, problem.features, self.random_state, classes, sets)
        model = SparseModel(problem.model.kernel, problem.model.noise, own.shape[1], sets > 1, self.learn_inducing)
        start = [*problem.start, np.zeros(points.shape)] if self.learn_inducing else problem.start
        return SparseProblem(**vars(problem) | {"model": model, "start": start}, points=points)

    def _evaluate(self, problem: "SparseProblem", values: Values) -> tuple[float, Sequence[Any]]:
        value, by_sums = negative_bound(*problem.sums(values))
        if not np.isfinite(value):
            check_factor(problem.factors(values))
        return float(value), problem.derivatives(values, by_sums)

    def _posterior(self, problem: "SparseProblem", values: Values) -> Posterior:
        return problem.optimal_posterior(values)


@dataclass(frozen=True)
class SparseModel(Model):
    """A model with inducing points.

    Parameters
    ----------
    columns : int
        Variances of the noise per sample, C: one, or L.
    separate : bool
        Whether every latent dimension has inducing points of its own.
    moves : bool
        Whether the points are learned. The last of the values is then their shift, in standard deviations of the
        features, so that steps of an optimizer do not depend on units.
    """

    columns: int
    separate: bool
    moves: bool

    def count(self, values: Values) -> int:
        return super().count(values) - self.moves

    def block(self, values: Values, frame: "Frame", x: Any, z: Any, own: Any, weights: Any) -> tuple["Sums", list[Any]]:
        """Compute the weighted sums over a block of rows, and return what to differentiate them by."""
        kernel, noise, sources = self.bind(values)
        U = move(frame.points, frame.width, values[-1] if self.moves else None)
        A = tf.linalg.triangular_solve(inducing_factor(kernel, U), kernel(U, x))  # [., M, rows]
        v, w = noise(own), weights[:, tf.newaxis]
        weighted = w * z / v
        if self.separate or self.columns == 1:
            gram = tf.matmul(A * tf.transpose(w / v)[:, tf.newaxis], A, transpose_b=True)
            right = tf.transpose(weighted)[..., tf.newaxis] if self.separate else weighted[tf.newaxis]
            projections = tf.matmul(A, right)
        else:
            gram = self._grams(A[0], own, v, weights, frame.usual, noise(frame.usual))
            projections = tf.transpose(tf.matmul(A[0], weighted))[..., tf.newaxis]
        sums = Sums(
            gram,
            projections,
            tf.reduce_sum(weighted * z),
            tf.reduce_sum(w * tf.math.log(2.0 * math.pi * v), axis=0),
            tf.reduce_sum(w * kernel(x, full_cov=False)[:, tf.newaxis] / v, axis=0),
        )
        return sums, sources

    def _grams(self, A: Any, own: Any, v: Any, weights: Any, usual: Any, usual_v: Any) -> Any:
        """Compute A diag(w / v_l) A^T for every l; rows with the usual variance of a dimension share one product."""
        shared = tf.matmul(A * weights, A, transpose_b=True)
        grams = []
        for column in range(self.columns):
            rows = tf.where(own[:, column] != usual[0, column])[:, 0]
            few = tf.gather(A, rows, axis=1)
            more = 1.0 / tf.gather(v[:, column], rows) - 1.0 / usual_v[0, column]
            more *= tf.gather(weights, rows)
            grams.append(shared / usual_v[0, column] + tf.matmul(few * more, few, transpose_b=True))
        return tf.stack(grams)


class Frame(NamedTuple):
    """Constants of the sums over rows, beside samples and hyperparameters.

    Attributes
    ----------
    points : tensor, shape [1, M, d] or [L, M, d]
        Inducing points where they start, of scaled features.
    width : tensor, shape [d]
        Standard deviations of the scaled features: the unit in which points are moved.
    usual : tensor, shape [1, C]
        The most frequent variance of every column.
    """

    points: Any
    width: Any
    usual: Any


class Sums(NamedTuple):
    """Sums over rows of weights w, with A = L^-1 K_uf and L L^T = K_uu of every set of inducing points.

    Latent dimensions that share both the inducing points and the variances v of the noise are one system of equations:
    there are S of them, one or L, and C variances of a row, one or L.

    Attributes
    ----------
    gram : tensor, shape [S, M, M]
        A diag(w / v) A^T, which is the paper's B without the identity.
    projections : tensor, shape [S, M, L / S]
        A diag(w / v) z.
    squares : tensor, shape []
        w z^2 / v, over the latent dimensions too.
    logarithms, priors : tensor, shape [C]
        w log(2 pi v), and w k(x, x) / v.
    """

    gram: Any
    projections: Any
    squares: Any
    logarithms: Any
    priors: Any


def _negative_bound(sums: Sums) -> Any:
    B = sums.gram + tf.eye(tf.shape(sums.gram)[-1], dtype=sums.gram.dtype)
    LB = tf.linalg.cholesky(B)
    c = tf.linalg.triangular_solve(LB, sums.projections)
    determinants = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(LB)), axis=-1)
    per_system = sums.logarithms + determinants + sums.priors - tf.linalg.trace(sums.gram)  # [S]
    shared = tf.cast(tf.shape(sums.projections)[2], B.dtype)
    return 0.5 * (shared * tf.reduce_sum(per_system) + sums.squares - tf.reduce_sum(tf.square(c)))


@functools.partial(tf.function, autograph=False, reduce_retracing=True)
def negative_bound(*sums: Any) -> Any:
    """Compute the negative bound from the sums over all samples, and its derivatives by them."""
    with tf.GradientTape() as tape:
        tape.watch(sums)
        value = _negative_bound(Sums(*sums))
    return value, Sums(*tape.gradient(value, sums))


@functools.lru_cache(maxsize=32)
def _compiled(model: SparseModel) -> tuple[Any, Any]:
    """Return the sums over a block of rows as a compiled function, and its derivatives by the values."""

    def sums(*arguments: Any) -> Any:
        return model.block(*arguments)[0]

    def derivatives(by_sums: Any, values: Any, *arguments: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            computed, sources = model.block(values, *arguments)
        return tape.gradient(computed, sources, Sums(*by_sums), unconnected_gradients="zero")

    return tuple(tf.function(step, autograph=False, reduce_retracing=True) for step in (sums, derivatives))


@dataclass(frozen=True)
class SparseProblem(Problem):
    """A problem with inducing points.

    Parameters
    ----------
    points : ndarray, shape [1, M, d] or [L, M, d]
        U where they start, of scaled features: one set for all latent dimensions, or one for each.
    """

    points: NDArray[np.float64]

    @functools.cached_property
    def frame(self) -> Frame:
        """The constants of the sums, as tensors."""
        X, _, own, weights, _ = self.sample
        usual = [[_most_frequent(column) for column in own.T]]
        width = Scaling.of_features(Moments.of(X, weights)).width
        return Frame(*map(tf.constant, (self.points, width, np.array(usual))))

    def spreads(self) -> list[float]:
        """Return the standard deviations of restarts; inducing points are not perturbed."""
        spreads = super().spreads()
        return [*spreads[:-1], 0.0] if self.model.moves else spreads

    def _blocks(self, values: Values) -> Iterator[tuple[Any, ...]]:
        tensors = [tf.convert_to_tensor(value) for value in values]
        most = max(1, _BUDGET // (self.points.shape[0] * self.points.shape[1]))
        for block in self.rows.blocks(most):
            yield tensors, self.frame, *map(tf.constant, block)

    def sums(self, values: Values) -> Sums:
        """Compute the sums over all rows."""
        compiled, _ = _compiled(self.model)
        parts = (compiled(*block) for block in self._blocks(values))
        return functools.reduce(lambda total, part: Sums(*(a + b for a, b in zip(total, part, strict=True))), parts)

    def derivatives(self, values: Values, by_sums: Sums) -> list[NDArray[np.float64]]:
        """Backpropagate derivatives by the sums to derivatives by the values."""
        _, compiled = _compiled(self.model)
        total = [np.zeros(np.shape(value)) for value in values]
        for block in self._blocks(values):
            for gradient, part in zip(total, compiled(by_sums, *block), strict=True):
                gradient += part.numpy()
        return total

    def inducing(self, values: Values) -> NDArray[np.float64]:
        """Return the inducing points [., M, d] at these values."""
        return np.asarray(move(self.points, self.frame.width, values[-1] if self.model.moves else None))

    def factors(self, values: Values) -> NDArray[np.float64]:
        """Compute the Cholesky factors [., M, M] of K_uu."""
        kernel, *_ = self.model.bind([tf.convert_to_tensor(value) for value in values])
        return inducing_factor(kernel, self.inducing(values)).numpy()

    def optimal_posterior(self, values: Values) -> Posterior:
        """Compute the posterior with the optimal distribution of the inducing variables."""
        U, factors = self.inducing(values), check_factor(self.factors(values))
        gram, projections, *_ = (part.numpy() for part in self.sums(values))
        parts = zip(np.broadcast_to(factors, gram.shape), gram, projections, strict=True)
        solved = [optimal(*part) for part in parts]
        weights, roots = zip(*solved, strict=True)
        return self.posterior(values, U if len(U) > 1 else U[0], np.concatenate(weights, axis=1), np.stack(roots))


def move(points: Any, width: Any, shift: Any) -> Any:
    """Move inducing points [., M, d] by a shift in units of the width [d]; None leaves them."""
    return points if shift is None else points + width * shift


def inducing_factor(kernel: Any, U: Any) -> Any:
    """Compute the Cholesky factor L of K(U, U) [..., M, M] with a little jitter."""
    K = kernel(U)
    jitter = _JITTER * tf.reduce_mean(tf.linalg.diag_part(K))
    return tf.linalg.cholesky(K + jitter * tf.eye(tf.shape(K)[-1], dtype=K.dtype))


def check_factor(L: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factor of K(U, U), or raise ``SingularError`` if TensorFlow found none."""
    if not np.isfinite(L).all():
        M = L.shape[-1]
        raise SingularError(
            f"the covariance matrix of the inducing points [{M}, {M}] is not positive definite, even "
            f"with {_JITTER:.0e} of its mean diagonal added, or not finite: check the kernel and the learning rate"
        )
    return L


def optimal(
    L: NDArray[np.float64], gram: NDArray[np.float64], projections: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the optimal distribution of inducing variables as weights and a factor of a posterior.

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
    # K^-1 less the precision left by the data is L^-T (I - B^-1) L^-1, which has a square root.
    values, vectors = eigh(B)
    root = np.sqrt(1.0 - 1.0 / np.maximum(values, 1.0))[:, None] * vectors.T
    return weights, solve_triangular(L, root.T, lower=True, trans="T").T


def _most_frequent(values: NDArray[np.float64]) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[np.argmax(counts)])
