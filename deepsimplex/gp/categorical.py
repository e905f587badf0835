"""The uncollapsed sparse Gaussian process of classes themselves: latents learned by the likelihood of labels."""

import copy
from typing import Any, Literal, Self, get_args

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex.geometry import helmert
from deepsimplex.gp.inducing import inducing_points
from deepsimplex.gp.inputs import check_features, check_whole
from deepsimplex.gp.kernels import kernel_hyperparameters, make_kernel
from deepsimplex.gp.posterior import Posterior, Scaling
from deepsimplex.gp.sparse import check_factor, inducing_factor, optimal
from deepsimplex.gp.step import Callback, tell
from deepsimplex.gp.stochastic import Batches, check_rates, falling_rate
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets.labels import any_labels

Link = Literal["ilr", "softmax"]
LINKS: tuple[str, ...] = get_args(Link)
# Variance at which the kernel starts: logits of a few units tell classes apart.
_VARIANCE = 4.0
# Draws of the latents of a sample and a step; as many more are their mirror images.
_DRAWS = 4


class CategoricalProcess:
    """Sparse variational Gaussian processes with a categorical likelihood, p(y | f) = softmax(S f)_y.

    The link "ilr" has n - 1 latent processes and S = V^T, with V the ILR basis; "softmax" has n and S = I, which is
    the usual sparse variational classifier. With ``mixing`` a learned square matrix W follows, S W. Every process has
    its own q(u) = N(m, S) at shared inducing points.

    Natural gradients move q: the derivatives of the expected log likelihood by the marginals of a minibatch are those
    of a Gaussian observation with a precision of its own, and a step of size rho moves the sums over such observations
    by rho, as ``StochasticGaussianProcess`` moves its own. Adam moves the kernel, the points and W.

    Parameters
    ----------
    link : {"ilr", "softmax"}
        Default "ilr".
    kernel, ard, scale_features, seed
        See ``GaussianProcess``. The kernel's variance starts at 4.
    mixing : bool
        Whether W is learned, from the identity. Default False.
    inducing, learn_inducing, epochs, batch_size, learning_rate, natural_step
        See ``StochasticGaussianProcess``.

    Attributes
    ----------
    posterior_ : Posterior
        After fit, with ``scores``.

    Notes
    -----
    [ILR-GP sec. 3.2, Uncollapsed-ILR], [Hensman 2015]. The expectations are averages over draws in mirrored pairs.

    Examples
    --------
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> y = (np.sin(X[:, 0]) > 0).astype(int)
    >>> process = CategoricalProcess(inducing=10, batch_size=50).fit(X, y)
    >>> score = process.predict(X).loc @ process.posterior_.scores.T
    >>> bool((score.argmax(axis=1) == y).mean() > 0.95)
    True
    """

    def __init__(
        self,
        link: Link = "ilr",
        kernel: Any = "rbf",
        *,
        mixing: bool = False,
        ard: bool = False,
        inducing: int | ArrayLike = 200,
        learn_inducing: bool = True,
        epochs: int = 30,
        batch_size: int | None = None,
        learning_rate: float = 0.03,
        natural_step: float = 0.1,
        scale_features: bool = True,
        seed: int = 0,
    ) -> None:
        if link not in LINKS:
            raise ValueError(f"link must be one of {', '.join(LINKS)}; found {link!r}")
        self.link, self.kernel, self.mixing, self.ard = link, kernel, mixing, ard
        self.inducing, self.learn_inducing = inducing, learn_inducing
        self.epochs = check_whole(epochs, "epochs", 0)
        self.batch_size = None if batch_size is None else check_whole(batch_size, "batch_size", 1)
        self.learning_rate, self.natural_step = check_rates(learning_rate, natural_step)
        self.scale_features, self.seed = scale_features, seed

    def fit(self, X: ArrayLike, y: ArrayLike, callback: Callback | None = None) -> Self:
        """Learn from features X [N, d] and labels y [N], or soft labels [N, n] whose rows sum to one."""
        features = check_features(X, least=2)
        labels, n = any_labels(y)
        if len(labels) != len(features):
            raise ValueError(f"y must have as many rows as X, {len(features)}; found {len(labels)}")
        shares = np.eye(n)[labels] if labels.ndim == 1 else labels
        rng = np.random.default_rng(self.seed)
        scaling = Scaling.of_features(features) if self.scale_features else Scaling.none(features.shape[1])
        scaled = scaling(features)
        kernel = make_kernel(self.kernel, scaled, self.ard, rng, variance=_VARIANCE)
        points = inducing_points(self.inducing, scaled, scaling, self.seed, shares.argmax(axis=1))
        model = CategoricalModel(kernel, points, helmert(n).T if self.link == "ilr" else np.eye(n), self)
        batches = Batches((scaled, shares), self.batch_size, rng)
        optimizer = keras.optimizers.Adam(falling_rate(self.learning_rate, self.epochs * len(batches)))
        ascent = _Ascent(model, optimizer, self.natural_step, len(scaled), self.seed)
        for epoch in range(self.epochs):
            value = float(np.mean([ascent.step(*batch) for batch in batches]))
            if callback is not None:
                tell(callback, epoch + 1, value, kernel_hyperparameters(kernel), lambda: ascent.posterior(scaling))
        self.posterior_ = ascent.posterior(scaling)
        return self

    def predict(self, X: ArrayLike) -> LatentGaussian:
        """Latents of features X [N, d], with a diagonal scale."""
        if not hasattr(self, "posterior_"):
            raise ValueError("predict needs a posterior: call fit first")
        return self.posterior_.predict(check_features(X, columns=len(self.posterior_.features.centre)))


class CategoricalModel(tf.Module):
    """What Adam moves, and the likelihood at a distribution of the inducing variables.

    Parameters
    ----------
    kernel : gpflow.kernels.Kernel
    points : ndarray, shape [M, d]
        Inducing points, of scaled features.
    basis : ndarray, shape [n, L]
        Scores without mixing.
    settings : CategoricalProcess
        Says what is learned.
    """

    def __init__(
        self, kernel: Any, points: NDArray[np.float64], basis: NDArray[np.float64], settings: CategoricalProcess
    ) -> None:
        super().__init__()
        self.kernel, self._basis = kernel, basis
        self.inducing = tf.Variable(points, trainable=settings.learn_inducing, dtype=tf.float64)
        self.mixing = tf.Variable(np.eye(basis.shape[1]), trainable=settings.mixing, dtype=tf.float64)

    @property
    def scores(self) -> Any:
        """Scores S W [n, L] of the latents."""
        return tf.matmul(self._basis, self.mixing)

    def projected(self, x: Any) -> tuple[Any, Any]:
        """A = L^-1 K(U, x) [M, N] of features, and what of their prior variances [N] the inducing points leave."""
        A = tf.linalg.triangular_solve(inducing_factor(self.kernel, self.inducing), self.kernel(self.inducing, x))
        left = self.kernel(x, full_cov=False) - tf.reduce_sum(tf.square(A), axis=0)
        return A, tf.maximum(left, 0.0)


class _Ascent:
    """Steps that share the distribution of the inducing variables and the state of Adam.

    It is kept as the sums over samples of Gaussian observations that have the same derivatives as the likelihood:
    ``gram`` [L, M, M] of A diag(w_l) A^T and ``projections`` [M, L] of A diag(w_l) z_l, so that whitened variables have
    the precision I + gram.
    """

    def __init__(self, model: CategoricalModel, optimizer: Any, natural_step: float, num_samples: int, seed: int):
        self._model, self._optimizer, self._natural_step, self._N = model, optimizer, natural_step, num_samples
        self._variables = list(model.trainable_variables)
        optimizer.build(self._variables)
        L, M = model.mixing.shape[0], model.inducing.shape[0]
        self._gram = tf.Variable(tf.zeros((L, M, M), tf.float64))
        self._projections = tf.Variable(tf.zeros((M, L), tf.float64))
        self._draws = tf.random.Generator.from_seed(seed)
        signature = [tf.TensorSpec([None, model.inducing.shape[1]], tf.float64)]
        signature.append(tf.TensorSpec([None, model._basis.shape[0]], tf.float64))
        self.step = tf.function(self._step, input_signature=signature, autograph=False)

    def _step(self, x: Any, shares: Any) -> Any:
        """Move the sums, then Adam's variables, by a batch's rows; the negative bound before."""
        share = self._N / tf.cast(tf.shape(x)[0], tf.float64)
        factors = tf.linalg.cholesky(self._gram + tf.eye(self._gram.shape[-1], dtype=tf.float64))  # [L, M, M]
        identity = tf.eye(factors.shape[-1], batch_shape=[factors.shape[0]], dtype=factors.dtype)
        inverses = tf.linalg.triangular_solve(factors, identity)
        solved = tf.einsum("lkm,ml->lk", inverses, self._projections)
        means = tf.einsum("lkm,lk->lm", inverses, solved)  # [L, M]
        half = self._draws.normal((_DRAWS, tf.shape(x)[0], means.shape[0]), dtype=tf.float64)
        draws = tf.concat([half, -half], axis=0)
        with tf.GradientTape() as tape:
            A, left = self._model.projected(x)
            mean = tf.matmul(A, means, transpose_a=True, transpose_b=True)  # [N, L]
            # a^T (I + gram)^-1 a of every process.
            kept = tf.reduce_sum(tf.square(tf.matmul(inverses, A)), axis=1)  # [L, N]
            deviation = tf.sqrt(tf.transpose(kept) + left[:, tf.newaxis] + 1e-12)
            scores = self._model.scores
            logits = tf.einsum("snl,kl->snk", mean + deviation * draws, scores)
            likelihood = tf.reduce_sum(shares * tf.nn.log_softmax(logits), axis=-1)
            fit = share * tf.reduce_sum(likelihood) / (2 * _DRAWS)
        gradients = tape.gradient(fit, self._variables, unconnected_gradients="zero")
        first, curvature = _derivatives(logits, shares, scores)
        self._move(self._gram, share * tf.einsum("mn,nl,kn->lmk", A, curvature, A))
        self._move(self._projections, share * tf.matmul(A, first + curvature * mean))
        if self._variables:
            moves = [(-g / self._N, v) for g, v in zip(gradients, self._variables, strict=True)]
            self._optimizer.apply_gradients(moves)
        return _divergence(factors, inverses, means) - fit

    def _move(self, total: Any, part: Any) -> None:
        total.assign_add(self._natural_step * (part - total))

    def posterior(self, features: Scaling) -> Posterior:
        """As the sums and the hyperparameters are."""
        model, gram, projections = self._model, self._gram.numpy(), self._projections.numpy()
        L = check_factor(inducing_factor(model.kernel, model.inducing).numpy())
        solved = [optimal(L, gram[dim], projections[:, dim : dim + 1]) for dim in range(len(gram))]
        weights, factors = np.concatenate([part[0] for part in solved], axis=1), np.stack([part[1] for part in solved])
        # A copy: a posterior that is kept must not change when the optimisation goes on.
        kernel, inducing, scores = copy.deepcopy(model.kernel), model.inducing.numpy(), model.scores.numpy()
        return Posterior(kernel, inducing, weights, factors, features, Scaling.none(len(gram)), scores)


def _derivatives(logits: Any, shares: Any, scores: Any) -> tuple[Any, Any]:
    """Of the expected log likelihood by the latents' means [N, L]: the first, and less the second, never negative."""
    p = tf.nn.softmax(logits)  # [draws, N, n]
    first = tf.einsum("snk,kl->snl", shares - p, scores)
    centred = tf.einsum("snk,kl->snl", p, scores)
    curvature = tf.einsum("snk,kl->snl", p, tf.square(scores)) - tf.square(centred)
    return tf.reduce_mean(first, axis=0), tf.maximum(tf.reduce_mean(curvature, axis=0), 0.0)


def _divergence(factors: Any, inverses: Any, means: Any) -> Any:
    """Kullback-Leibler divergence of N(means_l, (R_l R_l^T)^-1) from N(0, I), over all l, of R_l and R_l^-1."""
    size = tf.cast(tf.size(means), factors.dtype)
    traces = tf.reduce_sum(tf.square(inverses)) + tf.reduce_sum(tf.square(means)) - size
    return 0.5 * traces + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factors)))
