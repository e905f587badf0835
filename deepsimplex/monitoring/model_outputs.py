"""What a Keras classifier gives for the samples of a board, while it is trained and without touching that."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex.classifier import SimplexClassifier
from deepsimplex.monitoring.samples import rows_of

_HALF = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance from 1 to the next number."""


class ModelOutputs:
    """A classifier as a function of samples, traced once.

    Parameters
    ----------
    model : keras.Model
        Gives class probabilities [N, n], or [N, 1] for the probability of class 1 of two.
    samples : ndarray or structure of ndarray
        Any that are like those to come.
    batch_size : int
        Samples to go through the model at once.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, "sigmoid")])
    >>> x = np.zeros((5, 4), np.float32)
    >>> ModelOutputs(model, x, batch_size=2)(x)["probabilities"].shape
    (5, 2)
    """

    def __init__(self, model: keras.Model, samples: Any, batch_size: int) -> None:
        self.model = model
        self.batch_size = batch_size

        def outputs(batch: Any) -> dict[str, Any]:
            if not isinstance(model, SimplexClassifier):
                return {"probabilities": model(batch, training=False)}
            latent = model.predictive(model.latent(batch, training=False))
            single = {name: tf.cast(part, tf.float32) for name, part in latent.items()}
            return {**single, "probabilities": model.readout(latent)}

        batches = keras.tree.map_structure(lambda leaf: tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype), samples)
        self._outputs = outputs if model.run_eagerly else tf.function(outputs, input_signature=[batches])

    def __call__(self, x: Any) -> dict[str, NDArray[Any]]:
        """Arrays of "probabilities" [N, n] and, of a SimplexClassifier, of "loc" [N, L] and "scale"."""
        rows = len(keras.tree.flatten(x)[0])
        batches = [slice(start, start + self.batch_size) for start in range(0, rows, self.batch_size)]
        with _undisturbed(self.model):
            parts = [
                {name: keras.ops.convert_to_numpy(value) for name, value in self._outputs(rows_of(x, batch)).items()}
                for batch in batches
            ]
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return found | {"probabilities": _as_probabilities(found["probabilities"])}


@contextmanager
def _undisturbed(model: keras.Model) -> Iterator[None]:
    """Put back the state of the model's random layers: some draw in predictions too, and training would go on anew."""
    weights = {id(variable) for variable in model.weights}
    seeds = [v for v in model.variables if id(v) not in weights and v.name == "seed_generator_state"]
    before = [seed.numpy() for seed in seeds]
    try:
        yield
    finally:
        for seed, state in zip(seeds, before, strict=True):
            seed.assign(state)


def _as_probabilities(p: NDArray[Any]) -> NDArray[Any]:
    """Class probabilities [N, n]; those in half precision in double precision, divided by their sum."""
    if p.ndim != 2:
        raise ValueError(f"the model must give class probabilities [N, n]; found outputs of shape {p.shape}")
    spacing = _HALF.get(p.dtype.name)
    if spacing is not None:
        p = p.astype(np.float64)
    if p.shape[1] == 1:
        return np.concatenate([1 - p, p], axis=1)
    if spacing is None:
        return p
    total = p.sum(axis=1, keepdims=True)
    # What is farther from one was never divided by its sum: it is left to be refused.
    return np.where(np.abs(total - 1) <= 4 * spacing, p / total, p)
