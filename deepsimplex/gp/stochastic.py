"""Sparse Gaussian processes by minibatches: natural gradients for the inducing variables, Adam for all else."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex.gp.base import Report
from deepsimplex.gp.collapsed import CollapsedGaussianProcess
from deepsimplex.gp.inputs import check_whole
from deepsimplex.gp.sparse import SparseProblem, Sums

# Least learning rate, as a share of the first: what remains when the steps of Adam have been made smaller and smaller.
_LAST_RATE = 0.05

# Rows of a batch whose size is left open: at most so many.
_LARGEST_BATCH = 512


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
        self.epochs = check_whole(epochs, "epochs", 0)
        self.batch_size = None if batch_size is None else check_whole(batch_size, "batch_size", 1)
        self.learning_rate, self.natural_step = check_rates(learning_rate, natural_step)

    def _optimise(self, problem: SparseProblem, report: Report) -> float:
        parts = (problem.X, problem.Z, problem.noise.own)
        batches = Batches(parts, self.batch_size, np.random.default_rng(self.seed))
        optimizer = keras.optimizers.Adam(falling_rate(self.learning_rate, self.epochs * len(batches)))
        ascent = _Ascent(problem, optimizer, self.natural_step)
        for epoch in range(self.epochs):
            values = [ascent.step(*batch) for batch in batches]
            report(epoch + 1, float(np.mean(values)))
        value, _ = problem.bound(*problem.sums())
        return float(value)


def check_rates(learning_rate: float, natural_step: float) -> tuple[float, float]:
    """Return both, or say what they may be."""
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be above 0; found {learning_rate!r}")
    if not 0 < natural_step <= 1:
        raise ValueError(f"natural_step must be above 0 and at most 1; found {natural_step!r}")
    return float(learning_rate), float(natural_step)


def falling_rate(learning_rate: float, steps: int) -> Any:
    """A learning rate that falls along a half cosine in so many steps."""
    return keras.optimizers.schedules.CosineDecay(learning_rate, max(steps, 1), alpha=_LAST_RATE)


class Batches:
    """Minibatches of arrays' rows, in another order every time they are gone through.

    Parameters
    ----------
    parts : tuple of ndarray
        Of as many rows.
    size : int or None
        Of a batch; None for a tenth of the rows, at most 512. The rows that are left over after the last whole batch
        are left out, others every time.
    rng : numpy.random.Generator
    """

    def __init__(self, parts: tuple[NDArray[np.float64], ...], size: int | None, rng: np.random.Generator) -> None:
        N = len(parts[0])
        self._parts, self._rng = parts, rng
        self._size = min(_LARGEST_BATCH, max(1, N // 10)) if size is None else min(size, N)

    def __len__(self) -> int:
        return len(self._parts[0]) // self._size

    def __iter__(self) -> Iterator[list[Any]]:
        order = self._rng.permutation(len(self._parts[0]))
        for start in range(0, len(self) * self._size, self._size):
            rows = order[start : start + self._size]
            yield [tf.constant(part[rows]) for part in self._parts]


class _Ascent:
    """Steps that share their sums and the state of Adam."""

    def __init__(self, problem: SparseProblem, optimizer: Any, natural_step: float) -> None:
        self._problem, self._optimizer, self._natural_step = problem, optimizer, natural_step
        self._variables = list(problem.trainable_variables)
        optimizer.build(self._variables)
        self._sums = [tf.Variable(part) for part in problem.sums()]

    @cached_property
    def step(self) -> Any:
        """Move the sums, then the variables, by a batch's rows; the negative bound at the sums."""
        return tf.function(self._step, input_signature=self._problem.signature, autograph=False)

    def _step(self, x: Any, z: Any, own: Any) -> Any:
        N = float(len(self._problem.X))
        share = N / tf.cast(tf.shape(x)[0], tf.float64)
        with tf.GradientTape() as tape:
            of_batch = self._problem.of_block(x, z, own)
        for total, part in zip(self._sums, of_batch, strict=True):
            total.assign_add(self._natural_step * (share * part - total))
        value, by_sums = self._problem.bound(*self._sums)
        by_batch = Sums(*(share * part for part in by_sums))
        gradients = tape.gradient(of_batch, self._variables, by_batch, unconnected_gradients="zero")
        if self._variables:
            # Per sample, as losses are.
            self._optimizer.apply_gradients([(g / N, v) for g, v in zip(gradients, self._variables, strict=True)])
        return value
