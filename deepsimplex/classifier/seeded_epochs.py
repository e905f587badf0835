"""Epochs whose order and random layers follow from a seed and the optimizer's step."""

from typing import Any

import keras
import numpy as np


class SeededEpochs(keras.callbacks.Callback):
    """Draw each epoch's order and reseed the random layers from (seed, optimizer step) as the epoch begins.

    ``keras.callbacks.BackupAndRestore`` restores weights and optimizer, hence the step, but neither the state of Keras'
    seed generators nor that of a shuffle. With this callback a resumed run equals an uninterrupted one. Two calls of
    ``fit`` in a row still see different orders, since the step goes on.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.step = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Reseed the random layers."""
        self.step = int(self.model.optimizer.iterations.numpy())
        saved = {id(variable) for variable in self.model.weights}
        generators = [v for v in self.model.variables if id(v) not in saved and v.name == "seed_generator_state"]
        for index, state in enumerate(generators):
            words = np.random.SeedSequence([self.seed, self.step, index]).generate_state(2, np.uint32)
            state.assign(words.astype(state.dtype))

    def order(self, rows: int) -> np.ndarray:
        """Return the order of this epoch's samples, a permutation of range(rows), int64."""
        return np.random.default_rng([self.seed, self.step]).permutation(rows)
