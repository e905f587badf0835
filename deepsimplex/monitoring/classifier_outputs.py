"""Outputs of a classifier for the samples of a board, computed without changing its training."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples.reservoir import take

SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # distance from 1 to the next number


@dataclass(frozen=True, eq=False)
class ClassifierOutputs:
    """Class probabilities with labels, and the latents behind them.

    Attributes
    ----------
    labels : ndarray, shape [N], int64
        Class numbers 0..n-1.
    probabilities : ndarray, shape [N, n]
        Class probabilities; NaN if training diverged.
    class_names : sequence of str, length n
    outside : ndarray, shape [M, n], optional
        Class probabilities of samples from outside the training distribution.
    images : ndarray, optional
        The samples [N, H, W] or [N, H, W, 3] in [0, 1], if they are images.
    latent : dict, optional
        "loc" and "scale" as arrays: a LatentGaussian would not accept NaN.
    scores : ndarray, shape [n, L], optional
        Scores of the classes in the latent space.
    readout : keras.layers.Layer, optional
        Readout that made the probabilities from ``latent``.
    """

    labels: NDArray[np.int64]
    probabilities: NDArray[Any]
    class_names: Sequence[str]
    outside: NDArray[Any] | None = None
    images: NDArray[Any] | None = None
    latent: dict[str, NDArray[Any]] | None = None
    scores: NDArray[Any] | None = None
    readout: Any = None

    @cached_property
    def not_finite(self) -> int:
        """Number of samples with NaN or infinity in their outputs."""
        parts = [self.probabilities, *(() if self.latent is None else self.latent.values())]
        finite = np.ones(len(self.labels), dtype=bool)
        for part in parts:
            finite &= np.isfinite(part).reshape(len(part), -1).all(axis=1)
        outside = 0 if self.outside is None else np.sum(~np.isfinite(self.outside).all(axis=1))
        return int(np.sum(~finite) + outside)

    @property
    def gaussian(self) -> LatentGaussian | None:
        """The latents, if there are any."""
        return None if self.latent is None else LatentGaussian.of(self.latent)

    @property
    def credible(self) -> dict[str, Any]:
        """Arguments for figures that draw credible intervals; none if the readout has no such intervals."""
        if self.latent is None or self.readout is None or not self.readout.credible_intervals:
            return {}
        return {"latent": self.gaussian, "scores": self.scores, "readout": self.readout}


class KerasOutputs:
    """A Keras classifier as a function from samples to outputs, traced once.

    Parameters
    ----------
    model : keras.Model
        Gives class probabilities [N, n], or [N, 1] for the probability of class 1 of two.
    samples : ndarray or structure of ndarray
        Samples of the shape and dtype of those to come.
    batch_size : int
        Samples per batch.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, "sigmoid")])
    >>> x = np.zeros((5, 4), np.float32)
    >>> KerasOutputs(model, x, batch_size=2)(x)["probabilities"].shape
    (5, 2)
    """

    def __init__(self, model: keras.Model, samples: Any, batch_size: int) -> None:
        self.model = model
        self.batch_size = batch_size

        def outputs(batch: Any) -> dict[str, Any]:
            if not isinstance(model, SimplexClassifier):
                return {"probabilities": model(batch, training=False)}
            latent = model.predictive_latent(model.latent(batch), calibrated=False)
            single = {name: tf.cast(part, tf.float32) for name, part in latent.items()}
            return {**single, "probabilities": model.unweighted_readout(latent)}

        batches = keras.tree.map_structure(lambda leaf: tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype), samples)
        self._outputs = outputs if model.run_eagerly else tf.function(outputs, input_signature=[batches])

    def __call__(self, x: Any) -> dict[str, NDArray[Any]]:
        """Return arrays: "probabilities" [N, n] and, for a SimplexClassifier, "loc" and "scale"."""
        slices = row_slices(len(keras.tree.flatten(x)[0]), self.batch_size)
        with _same_random_state(self.model):
            parts = [self._outputs(take(x, rows)) for rows in slices]
        arrays = {name: np.concatenate([keras.ops.convert_to_numpy(part[name]) for part in parts]) for name in parts[0]}
        return arrays | {"probabilities": _as_probabilities(arrays["probabilities"])}


@contextmanager
def _same_random_state(model: keras.Model) -> Iterator[None]:
    """Restore the seeds of random layers, some of which draw in predictions too."""
    weights = {id(variable) for variable in model.weights}
    seeds = [variable for variable in model.variables if id(variable) not in weights]
    before = [seed.numpy() for seed in seeds]
    try:
        yield
    finally:
        for seed, state in zip(seeds, before, strict=True):
            seed.assign(state)


def _as_probabilities(p: NDArray[Any]) -> NDArray[Any]:
    """Return class probabilities [N, n]; half precision becomes double precision, divided by its sum."""
    if p.ndim != 2:
        raise ValueError(f"the model must give class probabilities [N, n]; found outputs of shape {p.shape}")
    spacing = SPACING.get(p.dtype.name)
    if spacing is not None:
        p = p.astype(np.float64)
    if p.shape[1] == 1:
        return np.concatenate([1 - p, p], axis=1)
    if spacing is None:
        return p
    total = p.sum(axis=1, keepdims=True)
    # Rows farther from 1 are no rounded probabilities; they are rejected later.
    return np.where(np.abs(total - 1) <= 4 * spacing, p / total, p)
