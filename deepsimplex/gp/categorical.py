"""The uncollapsed sparse Gaussian process of classes themselves: latents learned by the likelihood of labels."""

import copy
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.scaling import Scaling
from deepsimplex._utils.validation import check_labels
from deepsimplex.geometry import helmert
from deepsimplex.gp.ascent import Ascent, Batches, Schedule
from deepsimplex.gp.base import Predictor
from deepsimplex.gp.inducing import inducing_points
from deepsimplex.gp.inputs import check_features
from deepsimplex.gp.kernels import kernel_hyperparameters, make_kernel
from deepsimplex.gp.points import MovablePoints
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.sparse import check_factor, inducing_factor, optimal
from deepsimplex.gp.step import Callback, tell

Link = Literal["ilr", "softmax"]
LINKS: tuple[str, ...] = get_args(Link)
# Variance at which the kernel starts: logits of a few units tell classes apart.
_VARIANCE = 4.0
# Draws of the latents of a sample, in a step and in a pass over all samples; as many more are their mirror images.
_DRAWS, _PASS_DRAWS = 4, 8
# Passes over all samples in the end, at most, after epochs and without any; and by how much a sample one must lower the
# bound for another.
_PASSES, _PASSES_ALONE, _GAIN = 4, 30, 1e-5
# Natural step between them. All processes are moved at once though labels couple them: where several pull together, a
# whole step goes too far.
_PASS_STEP = 0.4
# Numbers in the largest tensor of a block of rows.
_BUDGET = 2**22


class CategoricalProcess(Predictor):
    """Sparse variational Gaussian processes with a categorical likelihood, p(y | f) = softmax(S f)_y.

    The link "ilr" has n - 1 latent processes and S = V^T, with V the ILR basis; "softmax" has n and S = I, which is
    the usual sparse variational classifier. With ``mixing`` a learned square matrix W follows, S W. Every process has
    its own q(u) = N(m, S) at inducing points that are shared unless told otherwise.

    Natural gradients move q: the derivatives of the expected log likelihood by the marginals of a minibatch are those
    of a Gaussian observation with a precision of its own, and a step of size rho moves the sums over such observations
    by rho, as ``StochasticGaussianProcess`` moves its own. Adam moves the logarithms of the kernel's hyperparameters,
    the points in deviations of the features, and W: the units of the features do not matter. In the end a few
    natural steps by all samples lead q to where the hyperparameters have it, so that little of the last minibatches'
    noise is left. With ``epochs=0`` these steps are all there is, at the hyperparameters and points as they begin.

    Parameters
    ----------
    link : {"ilr", "softmax"}
        Default "ilr".
    kernel, ard, scale_features, seed
        See ``GaussianProcess``. The kernel's variance starts at 4.
    mixing : bool
        Whether W is learned, from the identity. Default False.
    inducing, learn_inducing, separate_inducing, epochs, batch_size, learning_rate, natural_step
        See ``StochasticGaussianProcess``.

    Attributes
    ----------
    posterior_ : Posterior
        After fit, with ``scores``.
    objective_ : float
        Negative bound over all samples, at the end.

    Notes
    -----
    [ILR-GP sec. 3.2, Uncollapsed-ILR], [Hensman 2015]. The expectations are averages over draws in mirrored pairs.
    The passes in the end take blocks of rows, so that memory does not grow with them, and the time of an epoch or two.

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
        seed: int = 0,
    ) -> None:
        if link not in LINKS:
            raise ValueError(f"link must be one of {', '.join(LINKS)}; found {link!r}")
        self.link, self.kernel, self.mixing, self.ard = link, kernel, mixing, ard
        self.inducing, self.learn_inducing, self.separate_inducing = inducing, learn_inducing, separate_inducing
        self.schedule = Schedule(epochs, batch_size, learning_rate, natural_step)
        self.scale_features, self.seed = scale_features, seed

    def fit(self, X: ArrayLike, y: ArrayLike, callback: Callback | None = None) -> Self:
        """Learn from features X [N, d] and labels y [N], or soft labels [N, n] whose rows sum to one."""
        features = check_features(X, least=2)
        labels, n = check_labels(y, soft=True)
        if len(labels) != len(features):
            raise ValueError(f"y must have as many rows as X, {len(features)}; found {len(labels)}")
        memberships = np.eye(n)[labels] if labels.ndim == 1 else labels
        rng = np.random.default_rng(self.seed)
        scaling = Scaling.of_features(features) if self.scale_features else Scaling.none(features.shape[1])
        scaled = scaling(features)
        kernel = make_kernel(self.kernel, scaled, self.ard, rng, variance=_VARIANCE)
        basis = helmert(n).T if self.link == "ilr" else np.eye(n)
        sets = basis.shape[1] if self.separate_inducing else 1
        points = inducing_points(self.inducing, scaled, scaling, self.seed, memberships.argmax(axis=1), sets)
        model = CategoricalModel(kernel, MovablePoints(points, scaled, self.learn_inducing), basis, self.mixing)
        schedule, samples = self.schedule, (scaled, memberships)
        batches = Batches(samples, schedule.batch_size, rng)
        passes = _PASSES if schedule.epochs else _PASSES_ALONE
        optimizer = schedule.adam(batches)
        ascent = _NaturalAscent(model, optimizer, schedule.natural_step, *samples, passes, self.seed)

        def report(epoch: int, value: float) -> None:
            if callback is not None:
                tell(callback, epoch, value, kernel_hyperparameters(kernel), lambda: ascent.posterior(scaling))

        self.objective_ = ascent.run(batches, schedule.epochs, report)
        self.posterior_ = ascent.posterior(scaling)
        return self


class CategoricalModel(tf.Module):
    """What Adam moves, and the likelihood at a distribution of the inducing variables.

    Parameters
    ----------
    kernel : gpflow.kernels.Kernel
    points : MovablePoints
        Inducing points, of scaled features.
    basis : ndarray, shape [n, L]
        Scores without mixing.
    mixing : bool
        Whether W is learned.
    """

    def __init__(self, kernel: Any, points: MovablePoints, basis: NDArray[np.float64], mixing: bool) -> None:
        super().__init__()
        self.kernel, self.points, self._basis = kernel, points, basis
        self.mixing = tf.Variable(np.eye(basis.shape[1]), trainable=mixing, dtype=tf.float64)

    @property
    def inducing(self) -> Any:
        """Inducing points U [G, M, d] where they are now: one set for all latent processes, or G = L sets."""
        return self.points()

    @property
    def scores(self) -> Any:
        """Scores S W [n, L] of the latents."""
        return tf.matmul(self._basis, self.mixing)

    def projected(self, x: Any) -> tuple[Any, Any]:
        """A = L^-1 K(U, x) [G, M, N] of features, and what of their prior variances [G, N] the points leave."""
        inducing = self.inducing
        A = tf.linalg.triangular_solve(inducing_factor(self.kernel, inducing), self.kernel(inducing, x))
        left = self.kernel(x, full_cov=False) - tf.reduce_sum(tf.square(A), axis=1)
        return A, tf.maximum(left, 0.0)


class _Whitened(NamedTuple):
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
    def of_sums(cls, gram: Any, projections: Any) -> "_Whitened":
        """With the precisions I + gram [L, M, M] and these times the means, projections [L, M]."""
        factors = tf.linalg.cholesky(gram + tf.eye(gram.shape[-1], dtype=gram.dtype))
        identity = tf.eye(factors.shape[-1], batch_shape=[factors.shape[0]], dtype=factors.dtype)
        inverses = tf.linalg.triangular_solve(factors, identity)
        solved = tf.einsum("lkm,lm->lk", inverses, projections)
        return cls(factors, inverses, tf.einsum("lkm,lk->lm", inverses, solved))

    def marginals(self, A: Any, left: Any) -> tuple[Any, Any]:
        """Means and deviations [N, L] of the latents, of what ``projected`` tells of their features."""
        mean = tf.matmul(self.means[:, tf.newaxis], A)[:, 0]  # [L, N]
        # a^T (I + gram)^-1 a of every process.
        kept = tf.reduce_sum(tf.square(tf.matmul(self.inverses, A)), axis=1)  # [L, N]
        return tf.transpose(mean), tf.sqrt(tf.transpose(kept + left) + 1e-12)

    def divergence(self) -> Any:
        """Kullback-Leibler divergence from N(0, I), over all processes."""
        size = tf.cast(tf.size(self.means), self.means.dtype)
        traces = tf.reduce_sum(tf.square(self.inverses)) + tf.reduce_sum(tf.square(self.means)) - size
        return 0.5 * traces + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self.factors)))


class _NaturalAscent(Ascent):
    """Steps that share the distribution of the inducing variables and the state of Adam.

    It is kept as the sums over samples of Gaussian observations that have the same derivatives as the likelihood:
    ``gram`` [L, M, M] of A diag(w_l) A^T and ``projections`` [L, M] of A diag(w_l) z_l, so that whitened variables have
    the precision I + gram.
    """

    def __init__(
        self,
        model: CategoricalModel,
        optimizer: Any,
        natural_step: float,
        X: NDArray[np.float64],
        memberships: NDArray[np.float64],
        passes: int,
        seed: int,
    ) -> None:
        L, (_, M, columns) = model.mixing.shape[0], model.inducing.shape
        sums = [tf.zeros((L, M, M), tf.float64), tf.zeros((L, M), tf.float64)]
        super().__init__(model, optimizer, natural_step, len(X), sums)
        self._model, self._X, self._memberships, self._passes = model, X, memberships, passes
        self._gram, self._projections = self._sums
        self._draws, self._seed = tf.random.Generator.from_seed(seed), seed
        rows = [tf.TensorSpec([None, size], tf.float64) for size in (columns, model.scores.shape[0])]
        self.step = tf.function(self._step, input_signature=rows, autograph=False)
        self._block = tf.function(self._of_block, autograph=False, reduce_retracing=True)

    def _step(self, x: Any, memberships: Any) -> Any:
        """Move the sums, then Adam's variables, by a batch's rows; the negative bound before."""
        share = self._share(x)
        q = _Whitened.of_sums(self._gram, self._projections)
        half = self._draws.normal((_DRAWS, tf.shape(x)[0], q.means.shape[0]), dtype=tf.float64)
        with tf.GradientTape() as tape:
            likelihood, A, mean, logits = self._likelihood(q, x, memberships, half)
            misfit = -share * likelihood
        gradients = tape.gradient(misfit, self._variables, unconnected_gradients="zero")
        self._move_sums([share * part for part in self._sums_of(A, mean, logits, memberships)])
        self._move_variables(gradients)
        return q.divergence() + misfit

    def _likelihood(self, q: _Whitened, x: Any, memberships: Any, half: Any) -> tuple[Any, Any, Any, Any]:
        """Expected log likelihood of rows by draws [S, N, L] and their mirror images; A, means and logits there."""
        A, left = self._model.projected(x)
        mean, deviation = q.marginals(A, left)
        latents = mean + deviation * tf.concat([half, -half], axis=0)
        logits = tf.einsum("snl,kl->snk", latents, self._model.scores)
        of_draws = tf.reduce_sum(memberships * tf.nn.log_softmax(logits), axis=-1)
        return tf.reduce_sum(tf.reduce_mean(of_draws, axis=0)), A, mean, logits

    def _sums_of(self, A: Any, mean: Any, logits: Any, memberships: Any) -> tuple[Any, Any]:
        """What gram and projections would be if these rows were all."""
        first, curvature = _derivatives(logits, memberships, self._model.scores)
        gram = tf.matmul(A * tf.transpose(curvature)[:, tf.newaxis], A, transpose_b=True)
        return gram, tf.matmul(A, tf.transpose(first + curvature * mean)[..., tf.newaxis])[..., 0]

    def end(self) -> float:
        """Natural steps by all rows, at the hyperparameters as they are; the negative bound where they lead.

        The draws are the same in every pass, so that bounds can be compared. A step that does not lower the negative
        bound is taken back and halved.
        """
        check_factor(inducing_factor(self._model.kernel, self._model.inducing).numpy())
        best, step = np.inf, _PASS_STEP
        reached = target = self._natural()
        for _ in range(self._passes):
            value, by_rows = self._over_all()
            gain = best - value
            if gain > 0.0:
                best, reached, target = value, self._natural(), by_rows
            else:
                step *= 0.5
            if abs(gain) <= _GAIN * self._N:
                break
            self._assign([a + step * (b - a) for a, b in zip(reached, target, strict=True)])
        self._assign(reached)
        return best

    def _over_all(self) -> tuple[float, list[Any]]:
        """The negative bound, and the sums over all rows by its derivatives."""
        q = _Whitened.of_sums(*self._natural())
        L, M = q.means.shape
        row_size = max(L * M, 2 * _PASS_DRAWS * self._memberships.shape[1])
        value, total = q.divergence(), None
        for number, rows in enumerate(row_slices(len(self._X), max(1, _BUDGET // row_size))):
            seed = tf.constant([self._seed, number], tf.int64)
            samples = tf.constant(self._X[rows]), tf.constant(self._memberships[rows])
            likelihood, *sums = self._block(*samples, seed, *q)
            value = value - likelihood
            total = sums if total is None else [a + b for a, b in zip(total, sums, strict=True)]
        assert total is not None
        return float(value), total

    def _of_block(self, x: Any, memberships: Any, seed: Any, *q: Any) -> Any:
        """Expected log likelihood of rows, and their part of the sums."""
        whitened = _Whitened(*q)
        size = (_PASS_DRAWS, tf.shape(x)[0], whitened.means.shape[0])
        half = tf.random.stateless_normal(size, seed, dtype=tf.float64)
        likelihood, A, mean, logits = self._likelihood(whitened, x, memberships, half)
        return likelihood, *self._sums_of(A, mean, logits, memberships)

    def _natural(self) -> list[Any]:
        return [total.read_value() for total in self._sums]

    def _assign(self, sums: list[Any]) -> None:
        for total, value in zip(self._sums, sums, strict=True):
            total.assign(value)

    def posterior(self, features: Scaling) -> Posterior:
        """As the sums and the hyperparameters are."""
        model, gram, projections = self._model, self._gram.numpy(), self._projections.numpy()
        inducing, scores = model.inducing.numpy(), model.scores.numpy()
        L = check_factor(inducing_factor(model.kernel, inducing).numpy())
        parts = zip(np.broadcast_to(L, gram.shape), gram, projections[..., np.newaxis], strict=True)
        weights, factors = zip(*(optimal(*part) for part in parts), strict=True)
        support = inducing if len(inducing) > 1 else inducing[0]
        # A copy: a posterior that is kept must not change when the optimization goes on.
        kernel, latents = copy.deepcopy(model.kernel), Scaling.none(len(gram))
        return Posterior(kernel, support, np.concatenate(weights, axis=1), np.stack(factors), features, latents, scores)


def _derivatives(logits: Any, memberships: Any, scores: Any) -> tuple[Any, Any]:
    """Of the expected log likelihood by the latents' means [N, L]: the first, and less the second, never negative."""
    p = tf.nn.softmax(logits)  # [draws, N, n]
    first = tf.einsum("snk,kl->snl", memberships - p, scores)
    centered = tf.einsum("snk,kl->snl", p, scores)
    curvature = tf.einsum("snk,kl->snl", p, tf.square(scores)) - tf.square(centered)
    return tf.reduce_mean(first, axis=0), tf.maximum(tf.reduce_mean(curvature, axis=0), 0.0)
