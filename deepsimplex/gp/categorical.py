"""Uncollapsed sparse Gaussian processes with a categorical likelihood."""

import functools
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike
from scipy.special import softmax

from deepsimplex._utils.validation import check_choice, check_flag, check_labels, check_sample_weight
from deepsimplex.geometry import helmert
from deepsimplex.gp.collapsed_bound import check_factor, inducing_factor, moved_points, sparse_posterior
from deepsimplex.gp.gpflow_kernels import GivenKernel, NamedKernel, compiled, make_kernel
from deepsimplex.gp.inducing_points import inducing_points
from deepsimplex.gp.optimize import Callback, Step
from deepsimplex.gp.posterior import Posterior, predict_latents
from deepsimplex.gp.regression import Values, check_features, gradients
from deepsimplex.gp.scaling import Arrays, Moments, Scaling, survey
from deepsimplex.gp.stochastic import LARGEST_BATCH, Minibatches, natural_step
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples import ArraySamples, Samples

Link = Literal["ilr", "softmax"]
# Variance that the kernel starts at: logits of a few units separate classes.
_VARIANCE = 4.0
# Draws of the latents of a sample in a step and in a pass over all samples; their mirror images double them.
_DRAWS, _PASS_DRAWS = 4, 8
# Most passes over all samples at the end, after epochs and without any; and the decrease of the bound per sample below
# which they end.
_PASSES, _PASSES_ALONE, _GAIN = 4, 30, 1e-5
# Factors of the latents' standard deviations that are compared, draws for that, and the least share of a precision that
# remains where a row is left out.
_FACTORS, _FACTOR_DRAWS, _LEAST_SHARE = np.linspace(0.1, 1.0, 10), 128, 0.25
# Natural step of these passes. All processes move at once though labels couple them, so that a whole step overshoots.
_PASS_STEP = 0.4
# By default at least so many rows of a batch, epochs, and steps.
_BATCH, _EPOCHS, _STEPS = 256, 30, 300
# Least and largest natural step by default, and Adam's learning rate in units of it.
_LEAST_STEP, _LARGEST_STEP, _RATE = 0.1, 1.0 / 3.0, 0.3
# Numbers in the largest tensor of a block of rows.
_BUDGET = 2**22


@dataclass(eq=False, repr=False)
class CategoricalProcess:
    """Sparse variational Gaussian processes with a categorical likelihood, p(y | f) = softmax(S f)_y.

    The link "ilr" has n - 1 latent processes and S = V^T, with V the ILR basis; "softmax" has n and S = I, which is
    the usual sparse variational classifier. With ``mixing`` a learned square matrix W follows, S W. Every process has
    its own q(u) = N(m, S), by default at inducing points that all share.

    Natural gradients move q: the derivatives of the expected log likelihood by the marginals of a minibatch are those
    of a Gaussian observation, and a step of size rho moves the sums over such observations by rho, as
    ``StochasticGaussianProcess`` moves its sums. Adam moves the logarithms of the kernel's hyperparameters,
    W, and the points in standard deviations of the features: the units of the features do not matter. At the end a few
    natural steps by all samples remove most of the last minibatches' noise from q. With ``epochs=0`` only these
    steps are taken, at the initial hyperparameters and points.

    The bound leaves variances so large that probabilities are too cautious. A last pass compares ten factors of the
    latents' standard deviations, 0.1 to 1, by the likelihood of rows that are left out of q, and multiplies by the mean
    of the factors, weighted by that likelihood. The latents' means stay.

    Parameters
    ----------
    link : {"ilr", "softmax"}
        Default "ilr".
    kernel, ard, scale_features, random_state
        See ``GaussianProcess``. The kernel's variance starts at 4.
    mixing : bool
        Whether W is learned, from the identity. Default False.
    inducing, learn_inducing, separate_inducing
        See ``StochasticGaussianProcess``.
    epochs : int, optional
        Passes over the samples. Default None: 30, and as many as make 300 steps.
    batch_size : int, optional
        Default None: 256, a tenth of the samples if that is more, at most 512. Noise of smaller batches lowers the
        kernel's variance, and probabilities are too cautious then.
    learning_rate, natural_step : float, optional
        See ``StochasticGaussianProcess``. Default None: 0.03 and 0.1, and without ``batch_size`` in proportion to the
        share of the samples that is in a batch where that is above a tenth, up to 0.1 and 1/3 for a third or more.
    scale_variances : bool
        Whether the last pass is made. Default True; False is the papers' posterior.

    Attributes
    ----------
    posterior_ : Posterior
        With ``scores``.
    objective_ : float
        Negative bound over all samples, at the end.
    std_factor_ : float
        What the standard deviations of the variational posterior were multiplied by in ``posterior_``; 1 without
        ``scale_variances``. Those that
        ``callback`` sees before the last epoch are not.
    n_iter_ : int
        Epochs.

    Notes
    -----
    A row is left out by dividing its Gaussian observation out of q [Opper and Winther 2000; Vehtari et al. 2016]: other
    observations, hyperparameters and inducing points have seen it. Points learned among hundreds of features fit the
    rows, and the factor is then the least one, as if the means were read out. The left-out likelihood does not estimate
    that of new rows, and is not kept.

    [ILR-GP sec. 3.2, Uncollapsed-ILR], [Hensman 2015]. The expectations are averages over draws in mirrored pairs.
    The passes at the end read blocks of rows, so that memory does not grow with N; they take the time of an epoch or
    two.

    Examples
    --------
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> y = (np.sin(X[:, 0]) > 0).astype(int)
    >>> process = CategoricalProcess(inducing=10, batch_size=50).fit(X, y)
    >>> score = process.predict(X).loc @ process.posterior_.scores.T
    >>> bool((score.argmax(axis=1) == y).mean() > 0.95)
    True
    """

    link: Link = "ilr"
    kernel: Any = "rbf"
    _: KW_ONLY
    mixing: bool = False
    ard: bool = False
    inducing: int | ArrayLike = 200
    learn_inducing: bool = True
    separate_inducing: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    natural_step: float | None = None
    scale_features: bool = True
    scale_variances: bool = True
    random_state: int = 0

    def __post_init__(self) -> None:
        check_choice(self.link, "link", get_args(Link))
        for name in ("mixing", "ard", "scale_features", "scale_variances", "learn_inducing", "separate_inducing"):
            check_flag(getattr(self, name), name)
        self._minibatches(1, 1)  # raises for numbers out of range

    def _minibatches(self, batch_size: int, num_batches: int) -> Minibatches:
        """Return the optimization by so many batches an epoch."""
        natural_step = _LEAST_STEP
        if self.batch_size is None:
            natural_step = min(max(1.0 / num_batches, _LEAST_STEP), _LARGEST_STEP)
        return Minibatches(
            max(_EPOCHS, -(-_STEPS // num_batches)) if self.epochs is None else self.epochs,
            batch_size if self.batch_size is None else self.batch_size,
            _RATE * natural_step if self.learning_rate is None else self.learning_rate,
            natural_step if self.natural_step is None else self.natural_step,
        )

    def fit(
        self, X: ArrayLike, y: ArrayLike, callback: Callback | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit to features X [N, d] and labels y [N], or soft labels [N, n] whose rows sum to one.

        ``callback`` is called with a ``Step`` after every epoch. ``sample_weight`` [N] are exponents of the rows'
        likelihoods: a row of weight 2 counts as two equal ones, one of weight 0 is left out.
        """
        return self.fit_samples(labeled_rows(X, y, sample_weight), callback)

    def fit_samples(self, samples: Samples, callback: Callback | None = None) -> Self:
        """Fit to samples that are read in blocks.

        Parameters
        ----------
        samples : Samples
            Features X [N, d] and memberships of the classes [N, n], which sum to the rows' weights above zero; float64.
        callback : callable, optional
            See ``fit``.
        """
        bound, epoch = CategoricalBound(self, samples), 0

        def report(epoch: int, objective: float, *state: Any) -> None:
            if callback is not None:
                named = bound.kernel.hyperparameters(state[0]["kernel"])
                callback(Step(epoch, objective, named, functools.partial(bound.posterior, *state)))

        values, sums = bound.start, bound.prior_sums()
        N, size = samples.num_rows, self.batch_size
        size = min(N, max(_BATCH, min(N // 10, LARGEST_BATCH)) if size is None else size)
        minibatches = self._minibatches(size, bound.samples.num_batches(size))
        steps = minibatches.train(bound.step, values, sums, bound.samples, self.random_state)
        for epoch, mean, values, sums, is_last in steps:
            if not is_last:
                report(epoch, mean, values, sums)
        sums, self.objective_ = bound.converge(values, sums, _PASSES if epoch else _PASSES_ALONE)
        state = values, sums, bound.std_factor(values, sums) if self.scale_variances else 1.0
        if epoch:
            report(epoch, self.objective_, *state)
        self.n_iter_, self.posterior_ = epoch, bound.posterior(*state)
        return self

    @property
    def std_factor_(self) -> float:
        """The factor of the latents' standard deviations."""
        return float(self.posterior_.latents.width[0])

    def predict(self, X: ArrayLike) -> LatentGaussian:
        """Return the latents of features X [N, d].

        They are isotropic if all latent dimensions share one variance, else diagonal, and without observation noise.
        """
        return predict_latents(self, X)


def labeled_rows(X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Samples:
    """Check the arrays of ``CategoricalProcess.fit``, and return the samples that ``fit_samples`` takes."""
    features = check_features(X)
    labels, n = check_labels(y, soft=True, rows=len(features), of="X")
    weights = check_sample_weight(sample_weight, len(features))
    return weighted_memberships(ArraySamples(features, labels, weights, used=weights > 0), n)


def weighted_memberships(samples: Samples, n: int) -> Samples:
    """Return the samples that ``fit_samples`` takes, from hard labels [N] or soft labels [N, n], and weights [N]."""

    def weighted(X: Any, y: Any, weights: Any) -> Arrays:
        return X, weights[:, np.newaxis] * (np.eye(n)[y] if y.ndim == 1 else y)

    return samples.map(weighted)


class Whitened(NamedTuple):
    """Distributions N(m_l, B_l^-1) of the whitened inducing variables of every latent process.

    Attributes
    ----------
    LB, LB_inverse : tensor, shape [L, M, M]
        Cholesky factor of B, lower-triangular, and its inverse.
    m : tensor, shape [L, M]
    """

    LB: Any
    LB_inverse: Any
    m: Any

    @classmethod
    def from_sums(cls, AAT: Any, Az: Any) -> "Whitened":
        """Compute the distributions with B = AAT + I [L, M, M] and B m = Az [L, M]."""
        identity = tf.eye(tf.shape(AAT)[-1], dtype=AAT.dtype)
        LB = tf.linalg.cholesky(AAT + identity)
        LB_inverse = tf.linalg.triangular_solve(LB, tf.broadcast_to(identity, tf.shape(AAT)))
        c = tf.einsum("lkm,lm->lk", LB_inverse, Az)
        return cls(LB, LB_inverse, tf.einsum("lkm,lk->lm", LB_inverse, c))

    def marginals(self, A: Any, unexplained: Any) -> tuple[Any, Any]:
        """Compute means and standard deviations [N, L] of the latents of rows; see ``projected``."""
        mean = tf.matmul(self.m[:, tf.newaxis], A)[:, 0]  # [L, N]
        variance = tf.reduce_sum(tf.square(tf.matmul(self.LB_inverse, A)), axis=1) + unexplained
        return tf.transpose(mean), tf.sqrt(tf.transpose(variance) + 1e-12)

    def divergence(self) -> Any:
        """Compute the Kullback-Leibler divergence from N(0, I), over all processes."""
        size = tf.cast(tf.size(self.m), self.m.dtype)
        traces = tf.reduce_sum(tf.square(self.LB_inverse)) + tf.reduce_sum(tf.square(self.m)) - size
        return 0.5 * traces + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self.LB)))


def projected(kernel: Any, U: Any, x: Any) -> tuple[Any, Any]:
    """Compute A = L^-1 Kuf [G, M, N], and the prior variance [G, N] that the inducing points do not explain."""
    A = tf.linalg.triangular_solve(inducing_factor(kernel, U), kernel(U, x))
    return A, tf.maximum(kernel(x, full_cov=False) - tf.reduce_sum(tf.square(A), axis=1), 0.0)


def learned_scores(values: Values, constants: Values) -> Any:
    """Compute the scores S W [n, L] of the latents."""
    basis = constants["basis"]
    return tf.matmul(basis, values["mixing"]) if "mixing" in values else basis


def block_likelihood(
    kernel: NamedKernel | GivenKernel,
    values: Values,
    constants: Values,
    q: Whitened,
    x: Any,
    memberships: Any,
    num_draws: int,
    seed: Any,
) -> tuple[Any, tuple[Any, Any]]:
    """Estimate the expected log likelihood of a block of rows by draws and their mirror images.

    Returns
    -------
    likelihood : tensor, shape []
    sums : tuple of tensor
        AAT [L, M, M] and Az [L, M] of the Gaussian observations that have the same derivatives.
    """
    A, unexplained = projected(kernel.bind(values["kernel"]), moved_points(values, constants), x)
    mean, std = q.marginals(A, unexplained)
    half = tf.random.stateless_normal((num_draws, tf.shape(x)[0], tf.shape(q.m)[0]), seed, dtype=tf.float64)
    scores = learned_scores(values, constants)
    logits = tf.einsum("snl,kl->snk", mean + std * tf.concat([half, -half], axis=0), scores)
    log_likelihoods = tf.reduce_sum(memberships * tf.nn.log_softmax(logits), axis=-1)
    first, curvature = derivatives_by_means(logits, memberships, scores)
    AAT = tf.matmul(A * tf.transpose(curvature)[:, tf.newaxis], A, transpose_b=True)
    Az = tf.matmul(A, tf.transpose(first + curvature * mean)[..., tf.newaxis])[..., 0]
    return tf.reduce_sum(tf.reduce_mean(log_likelihoods, axis=0)), (AAT, Az)


def derivatives_by_means(logits: Any, memberships: Any, scores: Any) -> tuple[Any, Any]:
    """Compute the first and the negative second derivative of the expected log likelihood by the means [N, L].

    The rows of memberships sum to the weights of the samples.
    """
    weights = tf.reduce_sum(memberships, axis=-1, keepdims=True)
    p = tf.nn.softmax(logits)  # [draws, N, n]
    first = tf.einsum("snk,kl->snl", memberships - weights * p, scores)
    centered = tf.einsum("snk,kl->snl", p, scores)
    curvature = tf.einsum("snk,kl->snl", p, tf.square(scores)) - tf.square(centered)
    return tf.reduce_mean(first, axis=0), weights * tf.maximum(tf.reduce_mean(curvature, axis=0), 0.0)


def left_out_latents(mean: Any, variance: Any, first: Any, curvature: Any) -> tuple[Any, Any]:
    """Divide Gaussian observations with these derivatives out of marginals, each out of its own.

    Parameters
    ----------
    mean, variance : tensor, shape [N, L]
        What the inducing variables determine of the latents.
    first, curvature : tensor, shape [N, L]
        See ``derivatives_by_means``.

    Returns
    -------
    mean, variance : tensor, shape [N, L]
    """
    # Before convergence the precision of an observation may exceed that of the marginal.
    variance = variance / tf.maximum(1.0 - curvature * variance, _LEAST_SHARE)
    return mean - variance * first, variance


def left_out_likelihoods(
    kernel: NamedKernel | GivenKernel,
    values: Values,
    constants: Values,
    q: Whitened,
    seed: Any,
    x: Any,
    memberships: Any,
) -> Any:
    """Compute log-likelihoods [F] of a block of rows, each left out of q, by factors of the standard deviations."""
    A, unexplained = projected(kernel.bind(values["kernel"]), moved_points(values, constants), x)
    mean, determined_std = q.marginals(A, 0.0)
    variance, unexplained = tf.square(determined_std), tf.transpose(unexplained)
    half = tf.random.stateless_normal((_FACTOR_DRAWS, tf.shape(x)[0], tf.shape(q.m)[0]), seed, dtype=tf.float64)
    draws, scores = tf.concat([half, -half], axis=0), learned_scores(values, constants)
    logits = tf.einsum("snl,kl->snk", mean + tf.sqrt(variance + unexplained) * draws, scores)
    mean, variance = left_out_latents(mean, variance, *derivatives_by_means(logits, memberships, scores))
    center = tf.matmul(mean, scores, transpose_b=True)
    spread = tf.einsum("snl,kl->snk", tf.sqrt(variance + unexplained) * draws, scores)

    def likelihood(factor: Any) -> Any:
        log_p = tf.reduce_logsumexp(tf.nn.log_softmax(center + factor * spread), axis=0)
        return tf.reduce_sum(memberships * (log_p - np.log(2 * _FACTOR_DRAWS)))

    return tf.map_fn(likelihood, tf.constant(_FACTORS))


@functools.lru_cache(maxsize=32)
def _compiled(kernel: NamedKernel | GivenKernel) -> tuple[Any, Any, Any]:
    """Compile a step by a minibatch, and the likelihood and sums, and left-out likelihoods, of a block of rows."""

    def step(
        values: Values, constants: Values, sums: Any, size: Any, share: Any, seed: Any, x: Any, memberships: Any
    ) -> Any:
        q = Whitened.from_sums(*sums)
        with tf.GradientTape() as tape:
            tape.watch(values)
            likelihood, batch_sums = block_likelihood(kernel, values, constants, q, x, memberships, _DRAWS, seed)
            misfit = -share * likelihood
        derivatives = gradients(tape, misfit, kernel, values)
        estimates = [share * part for part in batch_sums]
        return q.divergence() + misfit, derivatives, natural_step(sums, estimates, size)

    def block(values: Values, constants: Values, q: Whitened, seed: Any, x: Any, memberships: Any) -> Any:
        return block_likelihood(kernel, values, constants, q, x, memberships, _PASS_DRAWS, seed)

    return compiled(step), compiled(block), compiled(functools.partial(left_out_likelihoods, kernel))


class CategoricalBound:
    """The negative variational bound, at a distribution of the inducing variables that is kept as sums over samples.

    They are the sums AAT [L, M, M] and Az [L, M] of Titsias' bound, of the Gaussian observations that have the same
    derivatives as the likelihood.

    Parameters
    ----------
    process : CategoricalProcess
    samples : Samples
        See ``CategoricalProcess.fit_samples``.

    Attributes
    ----------
    start : dict
        Hyperparameters to start from, "kernel" and, if learned, "mixing" and "shift".
    constants : dict
        "points" [G, M, d] and "width" [d], see ``TitsiasBound``, and "basis", the scores S [n, L].
    """

    def __init__(self, process: CategoricalProcess, samples: Samples) -> None:
        def described(X: Any, memberships: Any) -> Arrays:
            return X, memberships, memberships.sum(axis=1), memberships.argmax(axis=1)

        self.seed = process.random_state
        (moments, _), (X, memberships, weights, classes) = survey(samples.map(described), self.seed)
        self.features = Scaling.for_features(moments) if process.scale_features else Scaling.identity(X.shape[1])
        self.samples: Any = samples.map(lambda X, memberships: (self.features(X), memberships))
        scaled, n = self.features(X), memberships.shape[1]
        rng = np.random.default_rng(self.seed)
        self.kernel, kernel_start = make_kernel(process.kernel, scaled, process.ard, rng, variance=_VARIANCE)
        basis = helmert(n).T if process.link == "ilr" else np.eye(n)
        L = basis.shape[1]
        sets = L if process.separate_inducing else 1
        points = inducing_points(process.inducing, scaled, self.features, self.seed, classes, sets)
        self.start: Values = {"kernel": kernel_start}
        if process.mixing:
            self.start["mixing"] = np.eye(L)
        if process.learn_inducing:
            self.start["shift"] = np.zeros(points.shape)
        width = Scaling.for_features(Moments.of(scaled, weights)).width
        self.constants = {"points": tf.constant(points), "width": tf.constant(width), "basis": tf.constant(basis)}

    def prior_sums(self) -> tuple[Any, Any]:
        """Return the sums over no samples, at which the distribution is the prior."""
        L, M = self.constants["basis"].shape[1], self.constants["points"].shape[1]
        return tf.zeros((L, M, M), tf.float64), tf.zeros((L, M), tf.float64)

    def step(self, values: Values, sums: Any, size: float, number: int, x: Any, memberships: Any) -> Any:
        """Take a natural step; return the negative bound before, its derivatives by the values, and the sums."""
        step, *_ = _compiled(self.kernel)
        size, share = (tf.constant(part, tf.float64) for part in (size, self.samples.num_rows / len(x)))
        seed = tf.constant([self.seed, number], tf.int64)
        return step(values, self.constants, sums, size, share, seed, x, memberships)

    def converge(self, values: Values, sums: Any, passes: int) -> tuple[Any, float]:
        """Run full-batch natural-gradient steps at fixed hyperparameters; return the sums and the negative bound.

        The draws are the same in every pass, so that bounds can be compared. A step that does not lower the negative
        bound is taken back and halved.
        """
        check_factor(self.kernel.bind(values["kernel"]), moved_points(values, self.constants))
        best, size = np.inf, _PASS_STEP
        current = reached = target = sums
        for _ in range(passes):
            value, estimates = self._over_all_rows(values, current)
            gain = best - value
            if gain > 0.0:
                best, reached, target = value, current, estimates
            else:
                size *= 0.5
            if abs(gain) <= _GAIN * self.samples.num_rows:
                break
            current = natural_step(reached, target, size)
        return reached, best

    def _over_all_rows(self, values: Values, sums: Any) -> tuple[float, Any]:
        """Compute the negative bound, and the sums over all rows by its derivatives."""
        q = Whitened.from_sums(*sums)
        value, total = q.divergence(), self.prior_sums()
        for likelihood, parts in self._blocks(_compiled(self.kernel)[1], values, q, _PASS_DRAWS):
            value, total = value - likelihood, tf.nest.map_structure(tf.add, total, parts)
        return float(value), total

    def _blocks(self, function: Any, values: Values, q: Whitened, num_draws: int) -> Iterator[Any]:
        """Yield the results of a compiled function for blocks of rows."""
        row_size = max(tf.size(q.m).numpy(), 2 * num_draws * len(self.constants["basis"]))
        for number, block in enumerate(self.samples.blocks(max(1, _BUDGET // row_size))):
            yield function(values, self.constants, q, tf.constant([self.seed, number], tf.int64), *block)

    def std_factor(self, values: Values, sums: Any) -> float:
        """Compute the mean of the factors of the latents' standard deviations under the left-out likelihood."""
        blocks = self._blocks(_compiled(self.kernel)[2], values, Whitened.from_sums(*sums), _FACTOR_DRAWS)
        return float(softmax(sum(part.numpy() for part in blocks)) @ _FACTORS)

    def posterior(self, values: Values, sums: Any, std_factor: float = 1.0) -> Posterior:
        """Compute the posterior at these hyperparameters and sums, with standard deviations times a factor."""
        AAT, Az = sums
        kernel, U = self.kernel.at(values["kernel"]), moved_points(values, self.constants)
        scores = np.asarray(learned_scores(values, self.constants))
        latents = Scaling(np.zeros(len(Az)), np.full(len(Az), std_factor))
        return sparse_posterior(kernel, U, AAT, Az[..., tf.newaxis] / std_factor, self.features, latents, scores)
