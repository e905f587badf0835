"""Sparse Gaussian processes by minibatches: natural gradients for the inducing variables, Adam for all else."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from deepsimplex.gp.ascent import Ascent, Batches, Schedule
from deepsimplex.gp.base import Report
from deepsimplex.gp.collapsed import CollapsedGaussianProcess
from deepsimplex.gp.sparse import SparseProblem, Sums


class StochasticGaussianProcess(CollapsedGaussianProcess):
    """Sparse Gaussian-process regression onto latents, learned from minibatches.

    The bound of the uncollapsed process [Hensman 2013] is conjugate here: for every set of hyperparameters the best
    distribution of the inducing variables has a closed form in sums over the samples, and a natural-gradient step of
    size rho moves these sums by rho towards those that a minibatch estimates. Adam moves the hyperparameters, and the
    inducing points, along the gradient of the bound at these sums. In the end one pass over all samples solves for the
    inducing variables at once, a natural-gradient step of size one.

    Parameters
    ----------
    inducing, learn_inducing, separate_inducing
        See ``CollapsedGaussianProcess``. The points are moved by default.
    epochs : int
        Passes over the samples. Default 30.
    batch_size : int, optional
        None (default) takes a tenth of the samples, at most 512: few samples need as many steps as many do.
    learning_rate : float
        Adam's, at the start; it falls along a half cosine. Hyperparameters are logarithms, so it is the relative
        change in a step. Default 0.03.
    natural_step : float
        rho, above 0 and at most 1. Default 0.1.
    **settings
        See ``GaussianProcess``; ``max_iterations`` and ``restarts`` are of no use here.

    Attributes
    ----------
    objective_ : float
        Negative bound over all samples, at the end.

    Notes
    -----
    [ILR-GP sec. 3.2] names these minibatches as the way on from Titsias' bound. A step costs M^3 + M^2 batch_size,
    whatever the number of samples; Dirichlet targets have M^3 for every class.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> observation = LatentGaussian(np.sin(X), np.full((200, 1), 0.01))
    >>> process = StochasticGaussianProcess(inducing=20, batch_size=50).fit(X, observation)
    >>> bool(abs(process.predict(X).loc - np.sin(X)).max() < 0.02)
    True
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        inducing: int | ArrayLike = 200,
        learn_inducing: bool = True,
        separate_inducing: bool = False,
        epochs: int = 30,
        batch_size: int | None = None,
        learning_rate: float = 0.03,
        natural_step: float = 0.1,
        **settings: Any,
    ) -> None:
        super().__init__(
            kernel,
            inducing=inducing,
            learn_inducing=learn_inducing,
            separate_inducing=separate_inducing,
            **settings,
        )
        self.schedule = Schedule(epochs, batch_size, learning_rate, natural_step)

    def _optimize(self, problem: SparseProblem, report: Report) -> float:
        parts = (problem.X, problem.Z, problem.noise.own)
        batches = Batches(parts, self.schedule.batch_size, np.random.default_rng(self.seed))
        ascent = _BoundAscent(problem, self.schedule.adam(batches), self.schedule.natural_step)
        return ascent.run(batches, self.schedule.epochs, report)


class _BoundAscent(Ascent):
    """Steps by the bound at the sums."""

    def __init__(self, problem: SparseProblem, optimizer: Any, natural_step: float) -> None:
        super().__init__(problem, optimizer, natural_step, len(problem.X), problem.sums())
        self._problem = problem
        self.step = tf.function(self._step, input_signature=problem.signature, autograph=False)

    def _step(self, x: Any, z: Any, own: Any) -> Any:
        """Move the sums, then the variables, by a batch's rows; the negative bound at the sums."""
        share = self._share(x)
        with tf.GradientTape() as tape:
            of_batch = self._problem.of_block(x, z, own)
        self._move_sums([share * part for part in of_batch])
        value, by_sums = self._problem.bound(*self._sums)
        by_batch = Sums(*(share * part for part in by_sums))
        self._move_variables(
            tape.gradient(of_batch, self._variables, by_batch, unconnected_gradients="zero") if self._variables else ()
        )
        return value

    def end(self) -> float:
        """The negative bound; the posterior solves for the inducing variables."""
        value, _ = self._problem.bound(*self._problem.sums())
        return float(value)
