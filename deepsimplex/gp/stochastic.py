"""Sparse Gaussian processes by minibatches: natural gradients for the inducing variables, Adam for all else."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.gp.collapsed_bound import CollapsedGaussianProcess, SparseModel, SparseProblem, Sums, negative_bound
from deepsimplex.gp.optimize import Optimum, Report
from deepsimplex.gp.rows import Rows

# Learning rate at the end, as a share of the first.
_LAST_RATE = 0.05
# Largest default batch.
_LARGEST_BATCH = 512
# Adam's decay rates and the constant in its denominator, as in Keras.
_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-7


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
    **settings
        ``inducing`` and ``separate_inducing`` of ``CollapsedGaussianProcess``, and those of ``GaussianProcess``, of
        which ``max_iter`` and ``n_restarts`` are not used.

    Attributes
    ----------
    objective_ : float
        Negative bound over all samples, at the end.

    Notes
    -----
    [ILR-GP sec. 3.2] proposes these minibatches to scale beyond Titsias' bound. A step costs M^3 + M^2 batch_size,
    whatever the number of samples; Dirichlet targets cost M^3 for every class. Rows are read in blocks twice
    before the first epoch and twice after the last, and in minibatches between; ``fit_rows`` takes rows of files.

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
        learn_inducing: bool = True,
        epochs: int = 30,
        batch_size: int | None = None,
        learning_rate: float = 0.03,
        natural_step: float = 0.1,
        **settings: Any,
    ) -> None:
        super().__init__(kernel, learn_inducing=learn_inducing, **settings)
        self.schedule = Schedule(epochs, batch_size, learning_rate, natural_step)

    def _optimize(self, problem: SparseProblem, report: Report) -> Optimum:
        def end(state: State) -> tuple[State, float]:
            value, _ = negative_bound(*problem.sums(state.values))
            return state, float(value)

        batches = self.schedule.batches(problem.rows, np.random.default_rng(self.random_state))
        step = functools.partial(bound_step(problem.model), problem.frame)
        state = State.initial(problem.start, problem.sums(problem.start))
        state, objective = self.schedule.run(
            step, state, batches, end, lambda epoch, value, at: report(epoch, value, at.values)
        )
        return Optimum(state.values, objective, self.schedule.epochs)


@functools.lru_cache(maxsize=32)
def bound_step(model: SparseModel) -> Any:
    """Return the compiled step of a model: ``step(frame, state, rates, *rows)`` gives a value and a state."""

    def step(frame: Any, state: State, rates: Rates, *rows: Any) -> tuple[Any, State]:
        share = rates.share(rows[0])
        with tf.GradientTape() as tape:
            tape.watch(state.values)
            of_batch, sources = model.block(state.values, frame, *rows)
        sums = rates.towards(state.sums, [share * part for part in of_batch])
        value, by_sums = negative_bound(*sums)
        by_batch = Sums(*(share * part for part in by_sums))
        gradients = tape.gradient(of_batch, sources, by_batch, unconnected_gradients="zero")
        return value, adam(state, gradients, rates)._replace(sums=sums)

    return tf.function(step, autograph=False, reduce_retracing=True)


class State(NamedTuple):
    """The state of an optimization by minibatches, which compiled steps take and return.

    Attributes
    ----------
    values : list of tensor
        Unconstrained hyperparameters.
    first, second : list of tensor
        Adam's moments of their gradients.
    sums : list of tensor
        Natural parameters of the inducing variables, as sums over all samples.
    """

    values: list[Any]
    first: list[Any]
    second: list[Any]
    sums: list[Any]

    @classmethod
    def initial(cls, values: Sequence[Any], sums: Sequence[Any]) -> "State":
        """Begin at these values and sums."""
        tensors = [tf.convert_to_tensor(value) for value in values]
        zeros = [tf.zeros_like(value) for value in tensors]
        return cls(tensors, zeros, zeros, [tf.convert_to_tensor(part) for part in sums])


class Rates(NamedTuple):
    """Numbers of a step, as tensors: its number from 1, Adam's learning rate, the natural step, and N."""

    number: Any
    learning: Any
    natural: Any
    num_samples: Any

    def share(self, x: Any) -> Any:
        """Return the factor by which sums over rows x estimate sums over all samples."""
        return self.num_samples / tf.cast(tf.shape(x)[0], tf.float64)

    def towards(self, sums: Sequence[Any], estimates: Sequence[Any]) -> list[Any]:
        """Take a natural-gradient step: move the sums by rho towards their estimates."""
        return [total + self.natural * (estimate - total) for total, estimate in zip(sums, estimates, strict=True)]


def adam(state: State, gradients: Sequence[Any], rates: Rates) -> State:
    """Take a step of Adam by the gradients of a sum over all samples, divided by their number as losses are.

    Its state is a value of the compiled loop; the optimizers of Keras hold theirs in variables.
    """
    bias = tf.sqrt(1.0 - _SQUARE_DECAY**rates.number) / (1.0 - _DECAY**rates.number)
    per_sample = [gradient / rates.num_samples for gradient in gradients]
    first = [m + (g - m) * (1.0 - _DECAY) for m, g in zip(state.first, per_sample, strict=True)]
    second = [v + (g * g - v) * (1.0 - _SQUARE_DECAY) for v, g in zip(state.second, per_sample, strict=True)]
    values = [
        value - rates.learning * bias * m / (tf.sqrt(v) + _EPSILON)
        for value, m, v in zip(state.values, first, second, strict=True)
    ]
    return State(values, first, second, state.sums)


@dataclass(frozen=True)
class Schedule:
    """Length and speed of an optimization by minibatches; see ``StochasticGaussianProcess``."""

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

    def batches(self, rows: Rows, rng: np.random.Generator) -> "Batches":
        """Divide rows into minibatches."""
        N = rows.num_rows
        size = min(_LARGEST_BATCH, max(1, N // 10)) if self.batch_size is None else min(self.batch_size, N)
        return Batches(rows, size, rng)

    def run(
        self,
        step: Callable[..., tuple[Any, State]],
        state: State,
        batches: "Batches",
        end: Callable[[State], tuple[State, float]],
        report: Callable[[int, float, State], None],
    ) -> tuple[State, float]:
        """Take a step by every batch of every epoch, then ``end``; return its state and objective.

        Every epoch is reported by its number, from 1, the mean of its steps' values and the state; the last after
        ``end``.
        """
        steps, number = self.epochs * len(batches), 0
        natural, num_samples = (tf.constant(float(x), tf.float64) for x in (self.natural_step, batches.rows.num_rows))
        for epoch in range(1, self.epochs + 1):
            values = []
            for batch in batches:
                cosine = 0.5 * (1.0 + math.cos(math.pi * number / steps))
                rate = self.learning_rate * ((1.0 - _LAST_RATE) * cosine + _LAST_RATE)
                number += 1
                step_number, learning = (tf.constant(x, tf.float64) for x in (number, rate))
                value, state = step(state, Rates(step_number, learning, natural, num_samples), *batch)
                values.append(value)
            if epoch < self.epochs:
                report(epoch, float(np.mean(values)), state)
        state, objective = end(state)
        if self.epochs:
            report(self.epochs, objective, state)
        return state, objective


@dataclass(frozen=True)
class Batches:
    """Minibatches of rows as tensors, an epoch whenever they are iterated over; see ``deepsimplex.gp.rows``."""

    rows: Rows
    size: int
    rng: np.random.Generator

    def __len__(self) -> int:
        return self.rows.num_batches(self.size)

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self.rows.batches(self.size, self.rng):
            yield [tf.constant(part) for part in batch]
