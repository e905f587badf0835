"""LSM and BSM of [ILR-GP] Table 3: processes whose categorical likelihood auxiliary variables turn into a Gaussian one.

The logistic softmax gives class k the probability sigma(f_k) / sum_j sigma(f_j) (Galy-Fajou et al., 2020). The
bijective one fixes the last latent at zero: sigma(f_k) / (1/2 + sum_j sigma(f_j)), so that no class but the last
exceeds 2/3. In

    1 / (D + sum_j sigma(f_j)) = 1 / (b - sum_j sigma(-f_j)),    b = number of latents + D,    D = 0 or 1/2,

a series of negative multinomial counts n_j multiplies powers of sigmoids, which are Gaussian in f given Polya-Gamma
variables. Given the latents' means m and second moments c^2, with g_j = exp(-m_j / 2) / (2 cosh(c_j / 2)), the expected
counts are g_j / (b - sum_j g_j). Every update is in closed form, and the bound of the evidence never falls.
"""

from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import kmeans_plusplus

from deepsimplex.kernels import median_distance

Array = NDArray[np.float64]

REST = 0.5
"""sigma(0), of the last class of the bijective."""
JITTER = 1e-6
"""Added to the diagonal of the kernel matrix, in units of the variance."""
UPDATES = 5
"""Updates of the auxiliary variables between two searches for the kernel's hyperparameters."""
SEARCH = 5
"""Iterations of a search."""
DRAWS = 1000
"""Draws of the latents over which a probability is averaged."""


class LogisticSoftmaxGaussianProcess(ClassifierMixin, BaseEstimator):
    """A Gaussian process with the logistic softmax, of one latent per class or, if bijective, of one less.

    Parameters
    ----------
    bijective : bool
        Whether the last class has no latent. Default False.
    inducing : int or None
        Inducing points, chosen by k-means++ and kept. None: all training rows. Default None.
    classes : array_like, shape [C], optional
        Classes; default those of the labels.
    rounds : int
        Searches for the lengthscale and the variance, fewer where the bound grows by less than ``tolerance`` of itself.
        Default 50.
    tolerance : float
        Growth of the bound, in units of the bound, below which the searches end. Default 1e-4.
    random_state : int or None
        Seed of the inducing points and of the draws. Default 0.

    Attributes
    ----------
    kernel_ : ndarray, shape [2]
        Logarithms of the variance and the lengthscale of the squared exponential kernel of all latents.
    bounds_ : list of float
        The evidence bound after every update, in nats.
    """

    def __init__(
        self,
        bijective: bool = False,
        inducing: int | None = None,
        classes: ArrayLike | None = None,
        rounds: int = 50,
        tolerance: float = 1e-4,
        random_state: int | None = 0,
    ) -> None:
        self.bijective = bijective
        self.inducing = inducing
        self.classes = classes
        self.rounds = rounds
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: NDArray[np.float64], y: NDArray[Any]) -> Self:
        """Fit rows X [N, d] of labels y [N]."""
        self.classes_ = np.unique(y if self.classes is None else self.classes)
        latents = len(self.classes_) - self.bijective
        members = np.equal.outer(self.classes_[:latents], y).astype(np.float64)
        self.points_ = (
            X if self.inducing is None else kmeans_plusplus(X, self.inducing, random_state=self.random_state)[0]
        )
        self.kernel_ = np.array([0.0, np.log(median_distance(X))])
        precisions, potentials = (tf.Variable(np.zeros_like(members)) for _ in range(2))
        constant = np.log(REST) * np.sum(members.sum(axis=0) == 0.0)

        @tf.function
        def update(kernel: tf.Tensor) -> tf.Tensor:
            """Update the auxiliary variables' terms r and t of exp(r'f - f' diag(t) f / 2); the bound."""
            A, residual = project(kernel, self.points_, X)
            factors, m = posterior(A, precisions, potentials)
            mean, variance = marginals(A, residual, factors, m)
            c = tf.sqrt(tf.square(mean) + variance)
            log_twice_cosh = c / 2.0 + tf.math.softplus(-c)
            g = tf.exp(-mean / 2.0 - log_twice_cosh)
            left = latents + REST * self.bijective - tf.reduce_sum(g, axis=0)
            counts = g / left
            precisions.assign((members + counts) * tf.tanh(c / 2.0) / (2.0 * c))
            potentials.assign((members - counts) / 2.0)
            likelihood = tf.reduce_sum(members * (mean / 2.0 - log_twice_cosh)) - tf.reduce_sum(tf.math.log(left))
            return likelihood + constant - divergence(factors, m)

        @tf.function
        def loss(kernel: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Negative kernel terms of the bound, with the optimal Gaussian given the auxiliary variables; gradient."""
            with tf.GradientTape() as tape:
                tape.watch(kernel)
                A, residual = project(kernel, self.points_, X)
                factors, m = posterior(A, precisions, potentials)
                fit = tf.reduce_sum(tf.matmul(m, A) * potentials)
                value = (log_determinant(factors) - fit + tf.reduce_sum(precisions * residual)) / 2.0
            return value, tape.gradient(value, kernel)

        self.bounds_ = [float(update(self.kernel_)) for _ in range(UPDATES)]
        for _ in range(self.rounds):
            search = minimize(
                lambda at: [of.numpy() for of in loss(at)], self.kernel_, jac=True, options={"maxiter": SEARCH}
            )
            self.kernel_ = search.x
            self.bounds_ += [float(update(self.kernel_)) for _ in range(UPDATES)]
            if self.bounds_[-1] - self.bounds_[-1 - UPDATES] < self.tolerance * abs(self.bounds_[-1]):
                break
        self.posterior_ = posterior(project(self.kernel_, self.points_, X)[0], precisions, potentials)
        return self

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Class probabilities [N, C], averaged over draws of the latents."""
        mean, variance = marginals(*project(self.kernel_, self.points_, X), *self.posterior_)
        scale = np.sqrt(variance)
        sums = np.zeros((len(self.classes_), len(X)))
        rng = np.random.default_rng(self.random_state)
        for _ in range(DRAWS):
            weights = expit(mean + scale * rng.standard_normal(mean.shape))
            if self.bijective:
                weights = np.r_[weights, np.full((1, len(X)), REST)]
            sums += weights / weights.sum(axis=0)
        return sums.T / DRAWS


def project(kernel: Array | tf.Tensor, Z: Array, X: Array) -> tuple[tf.Tensor, tf.Tensor]:
    """A [M, N] of latents f = A'u + rest, with u ~ N(0, 1) at the points Z [M, d]; variances [N] of the rest.

    The kernel is squared exponential: ``kernel`` has the logarithms of its variance and lengthscale.
    """
    variance, scale = tf.exp(kernel[0]), tf.exp(-2.0 * kernel[1]) / -2.0
    factor = tf.linalg.cholesky(tf.exp(scale * cdist(Z, Z, "sqeuclidean")) + JITTER * np.eye(len(Z)))
    A = tf.sqrt(variance) * tf.linalg.triangular_solve(factor, tf.exp(scale * cdist(Z, X, "sqeuclidean")))
    return A, tf.maximum(variance - tf.reduce_sum(tf.square(A), axis=0), 0.0)


def posterior(A: tf.Tensor, precisions: tf.Tensor, potentials: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cholesky factors [C, M, M] of the precisions of u, and its means [C, M]."""
    eye = tf.eye(len(A), dtype=A.dtype)
    factors = tf.map_fn(lambda t: tf.linalg.cholesky(eye + tf.matmul(A * t, A, transpose_b=True)), precisions)
    projected = tf.matmul(potentials, A, transpose_b=True)
    return factors, tf.linalg.cholesky_solve(factors, projected[..., tf.newaxis])[..., 0]


def marginals(A: tf.Tensor, residual: tf.Tensor, factors: tf.Tensor, m: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and variances [C, N] of the latents."""

    def spread(factor: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(tf.linalg.triangular_solve(factor, A)), axis=0)

    return tf.matmul(m, A), residual + tf.map_fn(spread, factors)


def log_determinant(factors: tf.Tensor) -> tf.Tensor:
    """Sum over the latents of log |precision|."""
    return 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factors)))


def divergence(factors: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
    """Kullback-Leibler divergence of u from N(0, 1), of all latents."""
    traces = tf.reduce_sum(tf.square(tf.linalg.inv(factors)))
    return (traces + tf.reduce_sum(tf.square(m)) - float(m.shape[0] * m.shape[1]) + log_determinant(factors)) / 2.0
