"""Sparse Gaussian processes by minibatches: natural gradients for the inducing variables, Adam for all else."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.exceptions import ConvergenceWarning

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.gp.cholesky import SingularError
from deepsimplex.gp.collapsed_bound import CollapsedGaussianProcess, TitsiasBound, block_sums, negative_bound
from deepsimplex.gp.gpflow_kernels import GivenKernel, NamedKernel, compiled
from deepsimplex.gp.optimize import Optimum, Report, pack, unpack
from deepsimplex.gp.regression import Values, gradients

# Learning rate at the end, as a share of the first.
_LAST_RATE = 0.05
# Largest default batch.
LARGEST_BATCH = 512
# Adam's decay rates and the constant in its denominator, as in Keras.
_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-7


@dataclass(frozen=True)
class Minibatches:
    """Optimization by minibatches: natural gradients move sums over samples, Adam moves hyperparameters.

    Parameters
    ----------
    epochs, batch_size, learning_rate, natural_step
        See ``StochasticGaussianProcess``.
    """

    epochs: int
    batch_size: int | None
    learning_rate: float
    natural_step: float

    def __post_init__(self) -> None:
        check_whole(self.epochs, "epochs", 0)
        if self.batch_size is not None:
            check_whole(self.batch_size, "batch_size", 1)
        check_number(self.learning_rate, "learning_rate", 0)
        check_number(self.natural_step, "natural_step", 0, 1)

    def train(
        self, step: Callable[..., Any], values: Values, sums: tuple[Any, ...], samples: Any, seed: int
    ) -> Iterator[tuple[int, float, Values, tuple[Any, ...], bool]]:
        """Take a step by every batch of every epoch.

        Parameters
        ----------
        step : callable
            ``step(values, sums, natural_step, number, *batch)`` returns the objective, its derivatives by the values,
            and the sums after a natural step.
        values : dict
            Hyperparameters to start from.
        sums : tuple of tensor
            Sums over samples to start from.
        samples : Samples
        seed : int
            Of the order of the rows.

        Yields
        ------
        epoch : int
            From 1.
        objective : float
            Mean over the steps.
        values : dict
        sums : tuple of tensor
        is_last : bool

        Raises
        ------
        SingularError
            If the objective is not finite at the start.

        Warns
        -----
        ConvergenceWarning
            If a later step leaves finite numbers. The state before it is then the last.
        """
        N, rng = samples.num_rows, np.random.default_rng(seed)
        size = min(LARGEST_BATCH, max(1, N // 10)) if self.batch_size is None else min(self.batch_size, N)
        number, steps = 0, self.epochs * samples.num_batches(size)
        theta = pack(values)
        mean, mean_square = np.zeros_like(theta), np.zeros_like(theta)
        finite, mean_objective = (theta, sums), 0.0
        for epoch in range(1, self.epochs + 1):
            objectives: list[float] = []
            batches = samples.batches(size, rng)
            for batch in batches if epoch < self.epochs else _last_twice(batches):
                cosine = 0.5 * (1.0 + math.cos(math.pi * number / steps))
                rate = self.learning_rate * ((1.0 - _LAST_RATE) * cosine + _LAST_RATE)
                number += 1
                objective, derivatives, moved = step(unpack(theta, values), sums, self.natural_step, number, *batch)
                # Adam, by the gradient of the mean over samples, as losses are.
                gradient = pack(derivatives) / N
                if not (np.isfinite(objective) and np.isfinite(gradient).all()):
                    _warn_diverged(number, epoch, self.learning_rate)
                    theta, sums = finite
                    yield epoch, float(np.mean(objectives or mean_objective)), unpack(theta, values), sums, True
                    return
                if number > steps:  # only the result of the last step was to be checked
                    break
                objectives.append(float(objective))
                finite, sums = (theta, sums), moved
                mean = mean + (gradient - mean) * (1.0 - _DECAY)
                mean_square = mean_square + (np.square(gradient) - mean_square) * (1.0 - _SQUARE_DECAY)
                rate *= math.sqrt(1.0 - _SQUARE_DECAY**number) / (1.0 - _DECAY**number)
                theta = theta - rate * mean / (np.sqrt(mean_square) + _EPSILON)
            mean_objective = float(np.mean(objectives))
            yield epoch, mean_objective, unpack(theta, values), sums, epoch == self.epochs


def _last_twice(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch
    yield batch


def _warn_diverged(number: int, epoch: int, learning_rate: float) -> None:
    """Warn that a step left finite numbers, or raise an error if it was the first."""
    if number == 1:
        raise SingularError("the bound or its derivatives are not finite at the start: are features too large?")
    warn_caller(
        f"training left finite numbers after step {number - 1}, in epoch {epoch}, and ended there: the fit is that of "
        f"the step before. Lower the learning_rate; found {learning_rate:g}",
        ConvergenceWarning,
    )


def natural_step(sums: Any, estimates: Any, size: Any) -> tuple[Any, ...]:
    """Move sums over samples towards their estimates from a minibatch."""
    return tuple(total + size * (estimate - total) for total, estimate in zip(sums, estimates, strict=True))


@functools.lru_cache(maxsize=32)
def _compiled(kernel: NamedKernel | GivenKernel, noise: str, num_noises: int, separate: bool) -> Any:
    """Compile a step by a minibatch, at sums that a natural step has moved; fits of equal models share it."""
    compute_sums = functools.partial(block_sums, kernel, noise, num_noises, separate)

    def step(values: Values, constants: Values, sums: Any, size: Any, share: Any, *batch: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            batch_sums = compute_sums(values, constants, *batch)
        sums = natural_step(sums, [share * part for part in batch_sums], size)
        value, by_sums = negative_bound(*sums)
        by_batch = [share * part for part in by_sums]
        return value, gradients(tape, batch_sums, kernel, values, by_batch), sums

    return compiled(step)


class StochasticBound(TitsiasBound):
    """Titsias' bound, from sums over samples that minibatches estimate."""

    def step(self, values: Values, sums: tuple[Any, ...], size: float, number: int, *batch: Any) -> Any:
        """Take a natural step; return the negative bound, its derivatives by the values, and the sums."""
        share = self.samples.num_rows / len(batch[0])
        step = _compiled(*self.model)
        return step(values, self.constants, sums, *(tf.constant(x, tf.float64) for x in (size, share)), *batch)


@dataclass(eq=False, repr=False)
class StochasticGaussianProcess(CollapsedGaussianProcess):
    """Sparse Gaussian-process regression onto latents, fitted by minibatches.

    The bound of the uncollapsed process [Hensman 2013] is conjugate here: for every set of hyperparameters the best
    distribution of the inducing variables has a closed form in sums over the samples, and a natural-gradient step of
    size rho moves these sums by rho towards those that a minibatch estimates. Adam moves the hyperparameters, and the
    inducing points, along the gradient of the bound at these sums. At the end one pass over all samples solves for the
    inducing variables at once, a natural-gradient step of size one.

    Parameters
    ----------
    learn_inducing : bool
        Whether to move the inducing points. Default True.
    epochs : int
        Passes over the samples. Default 30.
    batch_size : int, optional
        Default None: a tenth of the samples, at most 512, since small data sets need as many steps as large ones.
    learning_rate : float
        Adam's initial learning rate; it decays along a half cosine. Hyperparameters are logarithms, so it is the
        relative change in a step. Default 0.03.
    natural_step : float
        rho, above 0 and at most 1. Default 0.1.
    inducing, separate_inducing
        See ``CollapsedGaussianProcess``.
    kernel, ard, noise, scale_features, random_state
        See ``GaussianProcess``, of which ``max_iter`` and ``n_restarts`` are not used.

    Attributes
    ----------
    objective_ : float
        Negative bound over all samples, at the end.

    Notes
    -----
    [ILR-GP sec. 3.2] proposes these minibatches to scale beyond Titsias' bound. A step costs M^3 + M^2 batch_size,
    whatever the number of samples; Dirichlet targets cost M^3 for every class. Rows are read in blocks twice
    before the first epoch and twice after the last, and in minibatches between; ``fit_samples`` takes files.

    Examples
    --------
    >>> from deepsimplex import LatentGaussian
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> observation = LatentGaussian(np.sin(X), np.full((200, 1), 0.01))
    >>> process = StochasticGaussianProcess(inducing=20, batch_size=50).fit(X, observation)
    >>> bool(abs(process.predict(X).loc - np.sin(X)).max() < 0.02)
    True
    """

    _: KW_ONLY
    learn_inducing: bool = True
    epochs: int = 30
    batch_size: int | None = None
    learning_rate: float = 0.03
    natural_step: float = 0.1
    _objective = StochasticBound

    def __post_init__(self) -> None:
        super().__post_init__()
        self.minibatches = Minibatches(self.epochs, self.batch_size, self.learning_rate, self.natural_step)

    def _optimize(self, objective: StochasticBound, report: Report) -> Optimum:
        values, epoch = objective.start, 0
        sums = objective.sums(values)
        steps = self.minibatches.train(objective.step, values, sums, objective.samples, self.random_state)
        for epoch, mean, values, _, is_last in steps:
            if not is_last:
                report(epoch, mean, values)
        value = float(negative_bound(*objective.sums(values))[0])
        if epoch:
            report(epoch, value, values)
        return Optimum(values, value, epoch)
