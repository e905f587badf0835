"""What processes that learn from minibatches share: the batches, the learning rates, and the steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_whole

# Least learning rate, as a share of the first: what remains when the steps of Adam have been made smaller and smaller.
_LAST_RATE = 0.05
# Rows of a batch whose size is left open: at most so many.
_LARGEST_BATCH = 512


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to learn from minibatches.

    Attributes
    ----------
    epochs : int
    batch_size : int or None
    learning_rate : float
        Adam's, at the start.
    natural_step : float
        rho, above 0 and at most 1.
    """

    epochs: int
    batch_size: int | None
    learning_rate: float
    natural_step: float

    def __post_init__(self) -> None:
        check_whole(self.epochs, "epochs", 0)
        if self.batch_size is not None:
            check_whole(self.batch_size, "batch_size", 1)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0; found {self.learning_rate!r}")
        if not 0 < self.natural_step <= 1:
            raise ValueError(f"natural_step must be above 0 and at most 1; found {self.natural_step!r}")

    def adam(self, batches: "Batches") -> Any:
        """Adam, whose learning rate falls along a half cosine in all steps of all epochs."""
        steps = max(self.epochs * len(batches), 1)
        return keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(self.learning_rate, steps, alpha=_LAST_RATE)
        )


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


class Ascent(ABC):
    """Natural steps of sums over the samples, and Adam's for everything else.

    Parameters
    ----------
    model : tf.Module
        Whose trainable variables Adam moves.
    optimizer : keras.optimizers.Optimizer
    natural_step : float
        rho: the share of the way from the sums to a batch's that a step goes.
    num_samples : int
        N.
    sums : sequence of tensor
        Where they start.
    """

    def __init__(
        self, model: tf.Module, optimizer: Any, natural_step: float, num_samples: int, sums: Sequence[Any]
    ) -> None:
        self._optimizer, self._natural_step, self._N = optimizer, natural_step, num_samples
        self._variables = list(model.trainable_variables)
        optimizer.build(self._variables)
        self._sums = [tf.Variable(part) for part in sums]

    step: Callable[..., Any]
    """Moves sums and variables by the rows of a batch, and returns the negative bound there."""

    def run(self, batches: Batches, epochs: int, report: Callable[[int, float], None]) -> float:
        """Take a step by every batch of every epoch, and end; the negative bound over all samples in the end.

        Every epoch is reported by its number, from 1, and the mean of what its steps returned; the last after the end,
        by what is returned.
        """
        for epoch in range(1, epochs + 1):
            value = float(np.mean([self.step(*batch) for batch in batches]))
            if epoch < epochs:
                report(epoch, value)
        objective = self.end()
        if epochs:
            report(epochs, objective)
        return objective

    @abstractmethod
    def end(self) -> float:
        """Do what is to be done by all samples when the steps are over; the negative bound over them."""

    def _share(self, x: Any) -> Any:
        """What sums over rows x are to be multiplied by to stand for all samples."""
        return self._N / tf.cast(tf.shape(x)[0], tf.float64)

    def _move_sums(self, estimates: Sequence[Any]) -> None:
        for total, estimate in zip(self._sums, estimates, strict=True):
            total.assign_add(self._natural_step * (estimate - total))

    def _move_variables(self, gradients: Sequence[Any]) -> None:
        """Down the gradients of a sum over all samples; per sample, as losses are."""
        if self._variables:
            moves = [(g / self._N, v) for g, v in zip(gradients, self._variables, strict=True)]
            self._optimizer.apply_gradients(moves)
