"""What the Gaussian processes share: their settings, the scaled problem, and a posterior that predicts."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.scaling import Scaling
from deepsimplex._utils.validation import check_whole
from deepsimplex.gp.inputs import check_data, check_features
from deepsimplex.gp.kernels import make_kernel
from deepsimplex.gp.noise import Noise, check_noise
from deepsimplex.gp.optimize import Evaluation, minimize
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.problem import Problem
from deepsimplex.gp.step import Callback, tell
from deepsimplex.latent import LatentGaussian

Report = Callable[[int, float], None]


class Predictor:
    """What has learned a posterior and predicts by it.

    Attributes
    ----------
    posterior_ : Posterior
        After fit.
    """

    posterior_: Posterior

    def predict(self, X: ArrayLike) -> LatentGaussian:
        """Latents of features X [N, d]: isotropic where all latent dimensions share one variance, else diagonal."""
        if not hasattr(self, "posterior_"):
            raise ValueError("predict needs a posterior: call fit first")
        return self.posterior_.predict(check_features(X, columns=len(self.posterior_.features.center)))


class GaussianProcess(Predictor, ABC):
    """A Gaussian process from features to latents.

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52"} or gpflow.kernels.Kernel
        One for all latent dimensions. Those by name start at the median distance and are learned in logarithms. Of a
        GPflow kernel a copy is learned from where it is. Default "rbf".
    ard : bool
        Whether every feature has a lengthscale of its own; for kernels by name. Default False.
    noise : {"auto", "target", "learned", "scaled"}
        Variance of the observations: "target" the target's own, "learned" one number for all in its place, "scaled"
        the target's own times one learned number, per latent dimension where it states a variance of each (Dirichlet:
        [GPD]'s extra noise). "auto" (the default)
        is "target" where the target states a noise (ILR, Dirichlet) and "learned" where it does not.
    scale_features : bool
        Whether features are brought to mean zero and deviation one first. Default True: one lengthscale for all
        features means little otherwise.
    max_iterations : int
        L-BFGS iterations of every start. Default 200.
    restarts : int
        Further random starts of the hyperparameters of kernel and noise, of which the best is kept. Default 0.
    seed : int
        Of every random choice. Default 0.

    Attributes
    ----------
    posterior_ : Posterior
        After fit.
    objective_ : float
        Negative log marginal likelihood (or its bound) of the scaled latents, at the end.

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
        max_iterations: int = 200,
        restarts: int = 0,
        seed: int = 0,
    ) -> None:
        check_noise(noise)
        self.kernel, self.ard, self.noise, self.scale_features = kernel, ard, noise, scale_features
        self.max_iterations = check_whole(max_iterations, "max_iterations", 0)
        self.restarts = check_whole(restarts, "restarts", 0)
        self.seed = seed

    def fit(
        self,
        X: ArrayLike,
        observation: LatentGaussian,
        y: ArrayLike | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from features X [N, d] and their latent observations (N of them, at least two).

        Classes y [N] share inducing points out among them, where there are any. ``callback`` is called with a ``Step``
        after every iteration. A ``ConvergenceWarning`` of scikit-learn tells when ``max_iterations`` cut the search
        short.
        """
        problem = self._problem(*check_data(X, observation, y), y)

        def report(iteration: int, value: float) -> None:
            if callback is not None:
                tell(callback, iteration, value, problem.hyperparameters(), lambda: self._posterior(problem))

        self.objective_ = self._optimize(problem, report)
        self.posterior_ = self._posterior(problem)
        return self

    def _problem(self, X: NDArray[np.float64], observation: LatentGaussian, y: ArrayLike | None) -> Problem:
        features = Scaling.of_features(X) if self.scale_features else Scaling.none(X.shape[1])
        latents = Scaling.of_latents(observation.loc)
        scaled = features(X)
        kernel = make_kernel(self.kernel, scaled, self.ard, np.random.default_rng(self.seed))
        noise = Noise.of(observation, float(latents.width[0]), self.noise)
        return Problem(scaled, latents(observation.loc), kernel, noise, features, latents)

    def _optimize(self, problem: Any, report: Report) -> float:
        """Leave the problem's hyperparameters where the objective is least, which is returned."""
        rng = np.random.default_rng(self.seed)
        variables = problem.trainable_variables
        return minimize(
            lambda: self._evaluation(problem),
            variables,
            self.max_iterations,
            self.restarts,
            problem.spreads(variables),
            rng,
            report,
        )

    @abstractmethod
    def _evaluation(self, problem: Any) -> Evaluation:
        """Negative log marginal likelihood, or a bound of it, and its derivatives by the problem's variables."""

    @abstractmethod
    def _posterior(self, problem: Any) -> Posterior:
        """The posterior at the problem's hyperparameters as they are."""
