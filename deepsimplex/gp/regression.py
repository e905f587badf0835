"""Base classes of Gaussian-process regression onto latents: settings, and the objective that is minimized."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import is_sliced_by_rows, not_finite
from deepsimplex._utils.memory import check_memory
from deepsimplex._utils.validation import check_array, check_choice, check_flag, check_sample_weight, check_whole
from deepsimplex.gp.gpflow_kernels import make_kernel
from deepsimplex.gp.optimize import Callback, Optimum, Report, Step, minimize
from deepsimplex.gp.posterior import Posterior, predict_latents
from deepsimplex.gp.scaling import Arrays, Scaling, survey
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples import ArraySamples, Samples

NoiseName = Literal["auto", "target", "learned", "scaled"]
# Initial variance of a learned noise if the observations have none, in units of the latents' own variance.
_START = 0.1
# Least initial variance: below the floor all derivatives are zero.
_LEAST_START = 1e-3
# Least variance, in the same units: keeps the covariance matrix of distinct rows invertible.
_FLOOR = 1e-6


@dataclass(eq=False, repr=False)
class GaussianProcess(ABC):
    """A Gaussian process from features to latents.

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52"} or gpflow.kernels.Kernel
        One for all latent dimensions. Named ones start at the median distance; a GPflow kernel is copied and starts as
        it is. Default "rbf".
    ard : bool
        Whether every feature has its own lengthscale; for kernels by name. Default False.
    noise : {"auto", "target", "learned", "scaled"}
        Variance of the observations. "target": the target's own. "learned": one number for all in its place. "scaled":
        the target's own times a learned number, one per latent dimension if the target states a variance of each
        (Dirichlet: the additional noise of [GPD]). "auto" (default): "target" if the target states a noise (ILR,
        Dirichlet), else "learned".
    scale_features : bool
        Whether features are standardized first. Default True: one lengthscale for all features needs it.
    max_iter : int
        L-BFGS iterations of every start. Default 200.
    n_restarts : int
        Further random starts of the hyperparameters of kernel and noise; the best is kept. Default 0.
    random_state : int
        Seed of every random choice. Default 0.

    Attributes
    ----------
    posterior_ : Posterior
    objective_ : float
        Negative log marginal likelihood (or its bound) of the scaled latents, at the end.
    n_iter_ : int
        Iterations of L-BFGS over all starts, or epochs.

    Examples
    --------
    >>> from deepsimplex.gp import ExactGaussianProcess
    >>> isinstance(ExactGaussianProcess("matern52", ard=True, noise="learned"), GaussianProcess)
    True
    """

    kernel: Any = "rbf"
    _: KW_ONLY
    ard: bool = False
    noise: str = "auto"
    scale_features: bool = True
    max_iter: int = 200
    n_restarts: int = 0
    random_state: int = 0
    _objective: ClassVar[type["Objective"]]
    # Matrices [N, N] that a fit holds at once.
    _matrices: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_choice(self.noise, "noise", get_args(NoiseName))
        check_flag(self.ard, "ard")
        check_flag(self.scale_features, "scale_features")
        check_whole(self.max_iter, "max_iter", 0)
        check_whole(self.n_restarts, "n_restarts", 0)

    def fit(
        self,
        X: ArrayLike,
        observation: LatentGaussian,
        y: ArrayLike | None = None,
        callback: Callback | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to features X [N, d] and their latent observations (N of them, at least two).

        Parameters
        ----------
        X : array_like, shape [N, d]
            Objects that can be sliced by rows, such as memory maps, are read in blocks. With more than 20,000 rows,
            inducing points and hyperparameters are initialized from a random sample of 20,000 and one of every class.
        observation : LatentGaussian
            With an isotropic or diagonal scale.
        y : array_like, shape [N], optional
            Classes, among which inducing points are distributed.
        callback : callable, optional
            Called with a ``Step`` after every iteration.
        sample_weight : array_like, shape [N], optional
            Exponents of the rows' likelihoods: a row of weight 2 counts as two. A weight w divides
            the noise by w, up to a factor that depends on the noise alone. Rows of weight 0 are left out.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` ended the search.
        """
        return self.fit_samples(observed_rows(X, observation, y, sample_weight), callback)

    def fit_samples(self, samples: Samples, callback: Callback | None = None) -> Self:
        """Fit to samples that are read in blocks: features, means and scales of latents, weights, classes.

        Parameters
        ----------
        samples : Samples
            X [N, d], loc [N, L], scale [N, 1] or [N, L], weights [N] above zero, float64, and classes [N].
        callback : callable, optional
            See ``fit``.
        """
        self.check_rows(samples.num_rows)
        objective = self._objective(self, samples)

        def report(iteration: int, value: float, values: Values) -> None:
            if callback is not None:
                posterior = partial(objective.posterior, values)
                callback(Step(iteration, value, objective.hyperparameters(values), posterior))

        values, self.objective_, self.n_iter_ = self._optimize(objective, report)
        self.posterior_ = objective.posterior(values)
        return self

    def check_rows(self, N: int) -> None:
        """Raise MemoryError if the matrices of a fit to N rows are larger than the memory."""
        hint = "inference='collapsed' or 'stochastic' takes as many, by inducing points"
        check_memory(float(self._matrices) * N**2, f"an exact Gaussian process of {N:,} rows X", hint)

    def _optimize(self, objective: Any, report: Report) -> Optimum:
        rng = np.random.default_rng(self.random_state)
        starts = [objective.start, *(objective.random_start(rng) for _ in range(self.n_restarts))]
        return minimize(objective.evaluate, starts, self.max_iter, report)

    def predict(self, X: ArrayLike) -> LatentGaussian:
        """Return the latents of features X [N, d].

        They are isotropic if all latent dimensions share one variance, else diagonal, and without observation noise.
        """
        return predict_latents(self, X)


def observed_rows(
    X: ArrayLike, observation: LatentGaussian, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> ArraySamples:
    """Check the arrays of ``GaussianProcess.fit``, and return the samples that ``fit_samples`` takes."""
    features = check_features(X)
    if not isinstance(observation, LatentGaussian):
        raise TypeError(f"observation must be a LatentGaussian; found {type(observation).__name__}")
    if observation.covariance == "full":
        raise ValueError("observation must have an isotropic or diagonal scale; found a full one, [N, L, L]")
    classes = np.zeros(len(features), np.int64) if y is None else np.asarray(y)
    for name, count in {"observation": len(observation), "y": len(classes)}.items():
        if count != len(features):
            raise ValueError(f"{name} must have as many rows as X, {len(features)}; found {count}")
    weights, observed = check_sample_weight(sample_weight, len(features)), observation.numpy()
    return ArraySamples(features, observed.loc, observed.scale, weights, classes, used=weights > 0)


def check_features(X: ArrayLike) -> Any:
    """Return features [N, d] of at least two rows: as they are if they can be read in blocks, else in an array."""
    if not is_sliced_by_rows(X):
        return check_array(X, "X", "[N, d]", least=2)
    features: Any = X
    check_array(features[:2], "X", least=2, finite=False)
    if where := not_finite(features):
        raise ValueError(f"X must be finite; found {features[where[0]][where[1]]} at {list(where)}")
    return features


Values = dict[str, Any]
"""Unconstrained hyperparameters: "kernel", a list; "noise", logarithms, if learned; "shift" of learned points."""


class Objective(ABC):
    """Negative log marginal likelihood of scaled latents, or a bound of it, as a function of the hyperparameters.

    Parameters
    ----------
    process : GaussianProcess
    samples : Samples
        See ``GaussianProcess.fit_samples``.

    Attributes
    ----------
    kernel : NamedKernel or GivenKernel
    noise : {"target", "learned", "scaled"}
    start : dict
        Hyperparameters to start from.
    features, latents : Scaling
    samples : Samples
        Scaled X [N, d] and Z [N, L], variances that the target states, [N, 1] or [N, L], and weights [N].
    drawn : tuple of ndarray
        The same of some rows drawn at random, and their classes; see ``survey``.
    """

    def __init__(self, process: GaussianProcess, samples: Samples) -> None:
        (X_moments, loc_moments, scale_moments), drawn = survey(samples, process.random_state)
        X, _, scale, weights, classes = drawn
        self.features = Scaling.for_features(X_moments) if process.scale_features else Scaling.identity(X.shape[1])
        self.latents = Scaling.for_latents(loc_moments)
        stated = bool(scale_moments.largest.any())
        if process.noise in ("target", "scaled") and not stated:
            raise ValueError(f"noise={process.noise!r} needs a target that states its noise, such as ILR; found none")
        self.noise = process.noise if process.noise != "auto" else "target" if stated else "learned"
        self.drawn = *self._scaled(*drawn), classes
        self.samples: Any = samples.map(self._scaled)
        rng = np.random.default_rng(process.random_state)
        self.kernel, kernel_start = make_kernel(process.kernel, self.drawn[0], process.ard, rng)
        self.start: Values = {"kernel": kernel_start}
        variances = np.square(scale / self.latents.width[0])
        if self.noise == "learned":
            mean = float(np.average(variances, axis=0, weights=weights).mean())
            self.start["noise"] = np.log(np.full((), max(mean, _LEAST_START) if stated else _START))
        elif self.noise == "scaled":
            self.start["noise"] = np.zeros(variances.shape[1])

    def _scaled(self, X: Any, loc: Any, scale: Any, weights: Any, _: Any) -> Arrays:
        variances = np.square(scale / self.latents.width[0])
        return self.features(X), self.latents(loc), variances[:, :1] if self.noise == "learned" else variances, weights

    def random_start(self, rng: np.random.Generator) -> Values:
        """Add normal noise to all hyperparameters but the inducing points."""
        return {
            name: value if name == "shift" else tf.nest.map_structure(lambda v: v + rng.normal(size=v.shape), value)
            for name, value in self.start.items()
        }

    def hyperparameters(self, values: Values) -> dict[str, NDArray[np.float64]]:
        """Return the kernel's hyperparameters, and the noise's if it is learned, by their names."""
        named = self.kernel.hyperparameters(values["kernel"])
        return {**named, "noise": np.exp(values["noise"])} if "noise" in values else named

    @abstractmethod
    def evaluate(self, values: Values) -> tuple[float, Values]:
        """Compute the objective and its derivatives."""

    @abstractmethod
    def posterior(self, values: Values) -> Posterior:
        """Compute the posterior."""


def noise_variances(noise: str, values: Values, stated: Any) -> Any:
    """Compute the noise variances [N, 1] or [N, L] of rows from those that the target states."""
    if noise == "learned":
        stated = tf.fill(tf.shape(stated), tf.exp(values["noise"]))
    elif noise == "scaled":
        stated = tf.maximum(stated, _FLOOR) * tf.exp(values["noise"])
    return tf.maximum(stated, _FLOOR)


def gradients(tape: Any, target: Any, kernel: Any, values: Values, by_target: Any = None) -> Values:
    """Compute derivatives by the hyperparameters, from those by the target if it is not a single number."""
    sources = {**values, "kernel": kernel.sources(values["kernel"])}
    return tape.gradient(target, sources, by_target, unconnected_gradients="zero")
