"""Base class of Gaussian-process regression onto latents: settings, noise, and the scaled problem."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Self, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_choice, check_flag, check_whole
from deepsimplex.gp.gpflow_kernels import NamedKernel, OwnKernel, Values, make_kernel
from deepsimplex.gp.optimize import Callback, Optimum, Report, Step, minimize
from deepsimplex.gp.posterior import Posterior, fitted
from deepsimplex.gp.rows import Arrays, Rows, observed_rows, survey
from deepsimplex.gp.scaling import Scaling
from deepsimplex.latent import LatentGaussian

NoiseName = Literal["auto", "target", "learned", "scaled"]
# Initial variance of a learned noise if the observations have none, in units of the latents' own variance.
_START = 0.1
# Least initial variance: below the floor all derivatives are zero.
_LEAST_START = 1e-3
# Least variance, in the same units: keeps the covariance matrix of distinct rows invertible.
_FLOOR = 1e-6


@dataclass(frozen=True)
class Model:
    """Kernel and noise as functions of unconstrained hyperparameters.

    Compiled functions are cached by it: fits with equal models share them.

    Parameters
    ----------
    kernel : NamedKernel or OwnKernel
    noise : {"target", "learned", "scaled"}
    """

    kernel: NamedKernel | OwnKernel
    noise: str

    def bind(self, values: Values) -> tuple[Any, Callable[[Any], Any], list[Any]]:
        """Return the kernel, the noise, and the tensors or variables to differentiate by.

        Parameters
        ----------
        values : sequence of tensor
            The kernel's hyperparameters, the logarithm of the noise's, and whatever else is learned.
        """
        count = self.count(values)
        kernel, sources = self.kernel.bind(values[:count])
        parameter = None if self.noise == "target" else tf.exp(values[count])
        return kernel, partial(self._variances, parameter), [*sources, *values[count:]]

    def count(self, values: Values) -> int:
        """Return how many of the values are the kernel's."""
        return len(values) - (self.noise != "target")

    def _variances(self, parameter: Any, own: Any) -> Any:
        """Compute the noise variances [N, 1] or [N, L] of rows from the target's, ``own``."""
        if self.noise == "learned":
            own = tf.fill(tf.shape(own), parameter)
        elif self.noise == "scaled":
            own = tf.maximum(own, _FLOOR) * parameter
        return tf.maximum(own, _FLOOR)


@dataclass(frozen=True)
class Problem:
    """Scaled training samples, and the model whose hyperparameters are to be learned.

    Parameters
    ----------
    rows : Rows
        Scaled features X [N, d] and latents Z [N, L]; variances of the latents that the target states, [N, 1] or
        [N, L], one column if a learned number replaces them; and the numbers of samples [N] that the rows count as.
    sample : tuple of ndarray
        The same of some rows, and their classes; see ``deepsimplex.gp.rows.survey``.
    model : Model
    start : list of ndarray
        Hyperparameters to start from.
    features, latents : Scaling
    """

    rows: Rows
    sample: Arrays
    model: Any
    start: list[Any]
    features: Scaling
    latents: Scaling

    @cached_property
    def arrays(self) -> Arrays:
        """X, Z, variances and weights of all rows."""
        return self.rows.whole()

    @cached_property
    def pairs(self) -> Any:
        """Input of ``kernel.matrix`` for all rows."""
        return self.model.kernel.pairs(tf.constant(self.arrays[0]))

    @property
    def columns(self) -> list[tuple[int, slice]]:
        """Columns of the noise variances, each with the latent dimensions that have that noise."""
        dims, count = (part.shape[1] for part in self.sample[1:3])
        return [(0, slice(0, dims))] if count == 1 else [(column, slice(column, column + 1)) for column in range(count)]

    def spreads(self) -> list[float]:
        """Return the standard deviations of restarts: one for logarithms."""
        return [1.0] * len(self.start)

    def hyperparameters(self, values: Values) -> dict[str, NDArray[np.float64]]:
        """Return the kernel's hyperparameters, and the noise's if it is learned, by their names."""
        count = self.model.count(values)
        named = self.model.kernel.hyperparameters(values[:count])
        return named if self.model.noise == "target" else {**named, "noise": np.exp(np.asarray(values[count]))}

    def posterior(
        self,
        values: Values,
        support: NDArray[np.float64],
        weights: NDArray[np.float64],
        factors: NDArray[np.float64],
    ) -> Posterior:
        """Make the posterior with the kernel at these hyperparameters; see ``Posterior``."""
        kernel = self.model.kernel.at(values[: self.model.count(values)])
        return Posterior(kernel, support, weights, factors, self.features, self.latents)


class GaussianProcess(ABC):
    """A Gaussian process from features to latents.

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52"} or gpflow.kernels.Kernel
        One for all latent dimensions. Named ones start at the median distance; a GPflow kernel is copied and starts as
        it is. Default "rbf".
    ard : bool
        Whether every feature has a lengthscale of its own; for kernels by name. Default False.
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

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        ard: bool = False,
        noise: str = "auto",
        scale_features: bool = True,
        max_iter: int = 200,
        n_restarts: int = 0,
        random_state: int = 0,
    ) -> None:
        check_choice(noise, "noise", get_args(NoiseName))
        self.kernel, self.ard, self.noise = kernel, check_flag(ard, "ard"), noise
        self.scale_features = check_flag(scale_features, "scale_features")
        self.max_iter = check_whole(max_iter, "max_iter", 0)
        self.n_restarts = check_whole(n_restarts, "n_restarts", 0)
        self.random_state = random_state

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
        return self.fit_rows(observed_rows(X, observation, y, sample_weight), callback)

    def fit_rows(self, rows: Rows, callback: Callback | None = None) -> Self:
        """Fit to rows that are read in blocks: features, means and standard deviations of latents, weights, classes.

        Parameters
        ----------
        rows : Rows
            X [N, d], loc [N, L], scale [N, 1] or [N, L] and weights [N] above zero, all float64, and classes [N].
        callback : callable, optional
            See ``fit``.
        """
        problem = self._problem(rows)

        def report(iteration: int, objective: float, values: Sequence[Any]) -> None:
            if callback is not None:
                posterior = partial(self._posterior, problem, values)
                callback(Step(iteration, objective, problem.hyperparameters(values), posterior))

        values, self.objective_, self.n_iter_ = self._optimize(problem, report)
        self.posterior_ = self._posterior(problem, values)
        return self

    def predict(self, X: ArrayLike) -> LatentGaussian:
        """Return the latents of features X [N, d].

        They are isotropic if all latent dimensions share one variance, else diagonal, and without observation noise.
        """
        return fitted(self).predict(X)

    def _problem(self, rows: Rows) -> Problem:
        (of_features, of_latents, of_scales), sample = survey(rows, self.random_state)
        X, _, scale, weights, classes = sample
        if scale.ndim == 3:
            raise ValueError("observation must have an isotropic or diagonal scale; found a full one, [N, L, L]")
        features = Scaling.of_features(of_features) if self.scale_features else Scaling.identity(X.shape[1])
        latents = Scaling.of_latents(of_latents)
        kernel, start = make_kernel(self.kernel, features(X), self.ard, np.random.default_rng(self.random_state))
        variances = np.square(scale / latents.width[0])
        noise, noise_start = self._noise(bool(of_scales.largest.any()), variances, weights)

        def scaled(X: Any, loc: Any, scale: Any, weights: Any, _: Any) -> Arrays:
            own = np.square(scale / latents.width[0])
            return features(X), latents(loc), own[:, :1] if noise == "learned" else own, weights

        some = *scaled(*sample), classes
        return Problem(rows.map(scaled), some, Model(kernel, noise), start + noise_start, features, latents)

    def _noise(
        self, stated: bool, variances: NDArray[np.float64], weights: Any
    ) -> tuple[str, list[NDArray[np.float64]]]:
        """Return the kind of noise, and its hyperparameters to start from, if any."""
        if self.noise in ("target", "scaled") and not stated:
            raise ValueError(f"noise={self.noise!r} needs a target that states its noise (ILR, Dirichlet); found none")
        kind = self.noise if self.noise != "auto" else "target" if stated else "learned"
        if kind == "learned":
            mean = float(np.average(variances, axis=0, weights=weights).mean())
            return kind, [np.log(max(mean, _LEAST_START) if stated else _START)]
        return kind, [np.zeros(variances.shape[1])] if kind == "scaled" else []

    def _optimize(self, problem: Any, report: Report) -> Optimum:
        """Minimize the objective over the problem's hyperparameters."""
        rng = np.random.default_rng(self.random_state)
        evaluate = partial(self._evaluate, problem)
        return minimize(evaluate, problem.start, self.max_iter, self.n_restarts, problem.spreads(), rng, report)

    @abstractmethod
    def _evaluate(self, problem: Any, values: Values) -> tuple[float, Sequence[Any]]:
        """Compute the negative log marginal likelihood, or a bound of it, and its derivatives by the values."""

    @abstractmethod
    def _posterior(self, problem: Any, values: Any) -> Posterior:
        """Compute the posterior at these hyperparameters."""
