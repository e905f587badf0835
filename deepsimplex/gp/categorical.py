"""Uncollapsed sparse Gaussian processes with a categorical likelihood."""

import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_choice, check_flag
from deepsimplex.geometry import helmert
from deepsimplex.gp.collapsed_bound import check_factor, inducing_factor, move, optimal
from deepsimplex.gp.gpflow_kernels import NamedKernel, OwnKernel, Values, make_kernel
from deepsimplex.gp.inducing_points import inducing_points
from deepsimplex.gp.optimize import Callback, Step
from deepsimplex.gp.posterior import Posterior, fitted
from deepsimplex.gp.rows import Arrays, Rows, labeled_rows, survey
from deepsimplex.gp.scaling import Moments, Scaling
from deepsimplex.gp.stochastic import Rates, Schedule, State, adam
from deepsimplex.latent import LatentGaussian

Link = Literal["ilr", "softmax"]
# Variance that the kernel starts at: logits of a few units separate classes.
_VARIANCE = 4.0
# Draws of the latents of a sample in a step and in a pass over all samples; their mirror images double them.
_DRAWS, _PASS_DRAWS = 4, 8
# Most passes over all samples at the end, after epochs and without any; and the decrease of the bound per sample below
# which they end.
_PASSES, _PASSES_ALONE, _GAIN = 4, 30, 1e-5
# Natural step of these passes. All processes move at once though labels couple them, so that a whole step overshoots.
_PASS_STEP = 0.4
# Numbers in the largest tensor of a block of rows.
_BUDGET = 2**22


class CategoricalProcess:
    """Sparse variational Gaussian processes with a categorical likelihood, p(y | f) = softmax(S f)_y.

    The link "ilr" has n - 1 latent processes and S = V^T, with V the ILR basis; "softmax" has n and S = I, which is
    the usual sparse variational classifier. With ``mixing`` a learned square matrix W follows, S W. Every process has
    its own q(u) = N(m, S), by default at inducing points that all share.

    Natural gradients move q: the derivatives of the expected log likelihood by the marginals of a minibatch are those
    of a Gaussian observation with a precision of its own, and a step of size rho moves the sums over such observations
    by rho, as ``StochasticGaussianProcess`` moves its own. Adam moves the logarithms of the kernel's hyperparameters,
    W, and the points in standard deviations of the features: the units of the features do not matter. At the end a few
    natural steps by all samples remove most of the last minibatches' noise from q. With ``epochs=0`` only these
    steps are taken, at the initial hyperparameters and points.

    Parameters
    ----------
    link : {"ilr", "softmax"}
        Default "ilr".
    kernel, ard, scale_features, random_state
        See ``GaussianProcess``. The kernel's variance starts at 4.
    mixing : bool
        Whether W is learned, from the identity. Default False.
    inducing, learn_inducing, separate_inducing, epochs, batch_size, learning_rate, natural_step
        See ``StochasticGaussianProcess``.

    Attributes
    ----------
    posterior_ : Posterior
        With ``scores``.
    objective_ : float
        Negative bound over all samples, at the end.
    n_iter_ : int
        Epochs.

    Notes
    -----
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

    def __init__(
        self,
        link: Link = "ilr",
        kernel: Any = "rbf",
        *,
        mixing: bool = False,
        ard: bool = False,
        inducing: int | ArrayLike = 200,
        learn_inducing: bool = True,
        separate_inducing: bool = False,
        epochs: int = 30,
        batch_size: int | None = None,
        learning_rate: float = 0.03,
        natural_step: float = 0.1,
        scale_features: bool = True,
        random_state: int = 0,
    ) -> None:
        check_choice(link, "link", get_args(Link))
        for name, flag in {"mixing": mixing, "ard": ard, "scale_features": scale_features}.items():
            check_flag(flag, name)
        check_flag(learn_inducing, "learn_inducing")
        check_flag(separate_inducing, "separate_inducing")
        self.link, self.kernel, self.mixing, self.ard = link, kernel, mixing, ard
        self.inducing, self.learn_inducing, self.separate_inducing = inducing, learn_inducing, separate_inducing
        self.schedule = Schedule(epochs, batch_size, learning_rate, natural_step)
        self.scale_features, self.random_state = scale_features, random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, callback: Callback | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit to features X [N, d] and labels y [N], or soft labels [N, n] whose rows sum to one.

        ``callback`` is called with a ``Step`` after every epoch. ``sample_weight`` [N] are exponents of the rows'
        likelihoods: a row of weight 2 counts as two equal ones, one of weight 0 is left out.
        """
        return self.fit_rows(labeled_rows(X, y, sample_weight), callback)

    def fit_rows(self, rows: Rows, callback: Callback | None = None) -> Self:
        """Fit to rows that are read in blocks.

        Parameters
        ----------
        rows : Rows
            Features X [N, d] and memberships of the classes [N, n], which sum to the rows' weights above zero; float64.
        callback : callable, optional
            See ``fit``.
        """
        problem = self._problem(rows)
        model, schedule = problem.model, self.schedule

        def report(epoch: int, value: float, state: State) -> None:
            if callback is not None:
                named = model.kernel.hyperparameters(state.values[: model.count(state.values)])
                callback(Step(epoch, value, named, functools.partial(problem.posterior, state)))

        state, self.objective_ = schedule.run(
            problem.step,
            problem.initial_state(),
            schedule.batches(problem.rows, np.random.default_rng(self.random_state)),
            functools.partial(problem.converge, passes=_PASSES if schedule.epochs else _PASSES_ALONE),
            report,
        )
        self.n_iter_ = schedule.epochs
        self.posterior_ = problem.posterior(state)
        return self

    def predict(self, X: ArrayLike) -> LatentGaussian:
        """Return the latents of features X [N, d].

        They are isotropic if all latent dimensions share one variance, else diagonal, and without observation noise.
        """
        return fitted(self).predict(X)

    def _problem(self, rows: Rows) -> "CategoricalProblem":
        def described(X: Any, memberships: Any) -> Arrays:
            return X, memberships, memberships.sum(axis=1), memberships.argmax(axis=1)

        seed = self.random_state
        (moments, _), (X, memberships, weights, classes) = survey(rows.map(described), seed)
        features = Scaling.of_features(moments) if self.scale_features else Scaling.identity(X.shape[1])
        scaled, n = features(X), memberships.shape[1]
        kernel, start = make_kernel(self.kernel, scaled, self.ard, np.random.default_rng(seed), variance=_VARIANCE)
        basis = helmert(n).T if self.link == "ilr" else np.eye(n)
        sets = basis.shape[1] if self.separate_inducing else 1
        points = inducing_points(self.inducing, scaled, features, seed, classes, sets)
        start = start + ([np.eye(basis.shape[1])] if self.mixing else [])
        start = start + ([np.zeros(points.shape)] if self.learn_inducing else [])
        model = CategoricalModel(kernel, self.mixing, self.learn_inducing)
        width = Scaling.of_features(Moments.of(scaled, weights)).width
        frame = CategoricalFrame(*map(tf.constant, (points, width, basis)))
        scaled_rows = rows.map(lambda X, memberships: (features(X), memberships))
        return CategoricalProblem(scaled_rows, model, start, frame, features, seed)


class CategoricalFrame(NamedTuple):
    """Constants of the likelihood: inducing points [G, M, d], their unit of motion [d], and the scores S [n, L]."""

    points: Any
    width: Any
    basis: Any


@dataclass(frozen=True)
class CategoricalModel:
    """The likelihood at a distribution of the inducing variables; compiled functions are cached by it.

    Parameters
    ----------
    kernel : NamedKernel or OwnKernel
    mixing, moves : bool
        Whether W and the inducing points are learned. They follow the kernel's hyperparameters in the values.
    """

    kernel: NamedKernel | OwnKernel
    mixing: bool
    moves: bool

    def count(self, values: Values) -> int:
        """Return how many of the values are the kernel's."""
        return len(values) - self.mixing - self.moves

    def scores(self, values: Values, basis: Any) -> Any:
        """Compute the scores S W [n, L] of the latents."""
        return tf.matmul(basis, values[self.count(values)]) if self.mixing else basis

    def points(self, values: Values, frame: CategoricalFrame) -> Any:
        """Compute the inducing points U [G, M, d]: one set for all latent processes, or G = L sets."""
        return move(frame.points, frame.width, values[-1] if self.moves else None)

    def projected(self, kernel: Any, U: Any, x: Any) -> tuple[Any, Any]:
        """Compute A = L^-1 K(U, x) [G, M, N], and the prior variance [G, N] that the points do not explain."""
        A = tf.linalg.triangular_solve(inducing_factor(kernel, U), kernel(U, x))
        left = kernel(x, full_cov=False) - tf.reduce_sum(tf.square(A), axis=1)
        return A, tf.maximum(left, 0.0)

    def likelihood(
        self, values: Values, frame: CategoricalFrame, q: "Whitened", x: Any, memberships: Any, half: Any
    ) -> tuple[Any, Any, list[Any]]:
        """Estimate the expected log likelihood of rows by draws [S, N, L] and their mirror images.

        Returns
        -------
        likelihood : tensor, shape []
        sums : list of tensor
            Gram and projections of the rows, as ``CategoricalProblem`` keeps them.
        sources : list
            What to differentiate by.
        """
        kernel, sources = self.kernel.bind(values[: self.count(values)])
        A, left = self.projected(kernel, self.points(values, frame), x)
        mean, std = q.marginals(A, left)
        scores = self.scores(values, frame.basis)
        logits = tf.einsum("snl,kl->snk", mean + std * tf.concat([half, -half], axis=0), scores)
        of_draws = tf.reduce_sum(memberships * tf.nn.log_softmax(logits), axis=-1)
        first, curvature = derivatives_by_means(logits, memberships, scores)
        gram = tf.matmul(A * tf.transpose(curvature)[:, tf.newaxis], A, transpose_b=True)
        projections = tf.matmul(A, tf.transpose(first + curvature * mean)[..., tf.newaxis])[..., 0]
        likelihood = tf.reduce_sum(tf.reduce_mean(of_draws, axis=0))
        return likelihood, [gram, projections], [*sources, *values[self.count(values) :]]


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


class Whitened(NamedTuple):
    """Distributions N(means_l, (R_l R_l^T)^-1) of the whitened inducing variables of every latent process.

    Attributes
    ----------
    factors, inverses : tensor, shape [L, M, M]
        R_l, lower-triangular, and R_l^-1.
    means : tensor, shape [L, M]
    """

    factors: Any
    inverses: Any
    means: Any

    @classmethod
    def of_sums(cls, gram: Any, projections: Any) -> "Whitened":
        """With the precisions I + gram [L, M, M], and these times the means, projections [L, M]."""
        identity = tf.eye(tf.shape(gram)[-1], dtype=gram.dtype)
        factors = tf.linalg.cholesky(gram + identity)
        inverses = tf.linalg.triangular_solve(factors, tf.broadcast_to(identity, tf.shape(gram)))
        solved = tf.einsum("lkm,lm->lk", inverses, projections)
        return cls(factors, inverses, tf.einsum("lkm,lk->lm", inverses, solved))

    def marginals(self, A: Any, left: Any) -> tuple[Any, Any]:
        """Compute means and standard deviations [N, L] of the latents of rows, see ``CategoricalModel.projected``."""
        mean = tf.matmul(self.means[:, tf.newaxis], A)[:, 0]  # [L, N]
        kept = tf.reduce_sum(tf.square(tf.matmul(self.inverses, A)), axis=1)  # a^T (I + gram)^-1 a, [L, N]
        return tf.transpose(mean), tf.sqrt(tf.transpose(kept + left) + 1e-12)

    def divergence(self) -> Any:
        """Compute the Kullback-Leibler divergence from N(0, I), over all processes."""
        size = tf.cast(tf.size(self.means), self.means.dtype)
        traces = tf.reduce_sum(tf.square(self.inverses)) + tf.reduce_sum(tf.square(self.means)) - size
        return 0.5 * traces + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self.factors)))


@functools.lru_cache(maxsize=32)
def _compiled(model: CategoricalModel) -> tuple[Any, Any]:
    """Return a step of minibatches, and the likelihood and sums of a block of rows, as compiled functions."""

    def draws(count: int, x: Any, q: Whitened, seed: Any) -> Any:
        return tf.random.stateless_normal((count, tf.shape(x)[0], tf.shape(q.means)[0]), seed, dtype=tf.float64)

    def step(
        frame: CategoricalFrame, seed: Any, state: State, rates: Rates, x: Any, memberships: Any
    ) -> tuple[Any, State]:
        share, q = rates.share(x), Whitened.of_sums(*state.sums)
        half = draws(_DRAWS, x, q, tf.stack([seed, tf.cast(rates.number, tf.int64)]))
        with tf.GradientTape() as tape:
            tape.watch(state.values)
            likelihood, sums, sources = model.likelihood(state.values, frame, q, x, memberships, half)
            misfit = -share * likelihood
        gradients = tape.gradient(misfit, sources, unconnected_gradients="zero")
        sums = rates.towards(state.sums, [share * part for part in sums])
        return q.divergence() + misfit, adam(state, gradients, rates)._replace(sums=sums)

    def block(frame: CategoricalFrame, seed: Any, values: Any, q: Whitened, x: Any, memberships: Any) -> Any:
        return model.likelihood(values, frame, q, x, memberships, draws(_PASS_DRAWS, x, q, seed))[:2]

    return tuple(tf.function(one, autograph=False, reduce_retracing=True) for one in (step, block))


@dataclass(frozen=True)
class CategoricalProblem:
    """Rows of scaled features and weighted memberships, and a model to learn with its inducing variables.

    The distribution of the inducing variables is kept as sums over samples of the Gaussian observations that have the
    same derivatives as the likelihood: gram [L, M, M], of A diag(w_l) A^T, and projections [L, M], of A diag(w_l) z_l,
    so that whitened variables have the precision I + gram.
    """

    rows: Rows
    model: CategoricalModel
    start: list[Any]
    frame: CategoricalFrame
    features: Scaling
    seed: int

    def initial_state(self) -> State:
        """Begin at the prior."""
        L, M = self.frame.basis.shape[1], self.frame.points.shape[1]
        return State.initial(self.start, [np.zeros((L, M, M)), np.zeros((L, M))])

    def step(self, state: State, rates: Rates, *batch: Any) -> tuple[Any, State]:
        """Move the sums, then the values, by a batch; return the negative bound before, and the state."""
        compiled, _ = _compiled(self.model)
        return compiled(self.frame, tf.constant(self.seed, tf.int64), state, rates, *batch)

    def converge(self, state: State, passes: int) -> tuple[State, float]:
        """Take natural steps by all rows at fixed hyperparameters; return the state and the negative bound there.

        The draws are the same in every pass, so that bounds can be compared. A step that does not lower the negative
        bound is taken back and halved.
        """
        kernel, _ = self.model.kernel.bind(state.values[: self.model.count(state.values)])
        check_factor(inducing_factor(kernel, self.model.points(state.values, self.frame)).numpy())
        best, step = np.inf, _PASS_STEP
        current = reached = target = state.sums
        for _ in range(passes):
            value, by_rows = self._over_all(state.values, current)
            gain = best - value
            if gain > 0.0:
                best, reached, target = value, current, by_rows
            else:
                step *= 0.5
            if abs(gain) <= _GAIN * self.rows.num_rows:
                break
            current = [a + step * (b - a) for a, b in zip(reached, target, strict=True)]
        return state._replace(sums=reached), best

    def _over_all(self, values: Values, sums: list[Any]) -> tuple[float, list[Any]]:
        """Compute the negative bound, and the sums over all rows by its derivatives."""
        _, compiled = _compiled(self.model)
        q = Whitened.of_sums(*sums)
        L, M = q.means.shape
        row_size = max(L * M, 2 * _PASS_DRAWS * len(self.frame.basis))
        value, total = q.divergence(), [tf.zeros_like(part) for part in sums]
        for number, block in enumerate(self.rows.blocks(max(1, _BUDGET // row_size))):
            seed = tf.constant([self.seed, number], tf.int64)
            likelihood, parts = compiled(self.frame, seed, values, q, *map(tf.constant, block))
            value = value - likelihood
            total = [a + b for a, b in zip(total, parts, strict=True)]
        return float(value), total

    def posterior(self, state: State) -> Posterior:
        """Compute the posterior of a state."""
        values, (gram, projections) = state.values, (part.numpy() for part in state.sums)
        kernel = self.model.kernel.at(values[: self.model.count(values)])
        U = np.asarray(self.model.points(values, self.frame))
        L = check_factor(inducing_factor(kernel, U).numpy())
        parts = zip(np.broadcast_to(L, gram.shape), gram, projections[..., np.newaxis], strict=True)
        weights, factors = zip(*(optimal(*part) for part in parts), strict=True)
        scores = np.asarray(self.model.scores(values, self.frame.basis))
        support, latents = U if len(U) > 1 else U[0], Scaling.identity(len(gram))
        stacked = np.concatenate(weights, axis=1), np.stack(factors)
        return Posterior(kernel, support, *stacked, self.features, latents, scores)
