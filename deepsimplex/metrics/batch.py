"""What a Keras model and its data give for a batch, brought to one form; and the bins of calibration errors."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from deepsimplex.evaluation.bins import equal_width_edges

SUM_TOLERANCE = 1e-2
"""How far the probabilities of one sample may sum from 1: room for a softmax in bfloat16."""


class Batch(NamedTuple):
    """Samples of a batch.

    Attributes
    ----------
    labels : tensor, shape [N], int32
        Class numbers 0..n-1.
    probabilities : tensor, shape [N, n]
    weights : tensor, shape [N]
        Of the dtype of the probabilities; NaN for a sample that weighs something and has no class of 0..n-1, or no
        class probabilities. Nothing can be raised inside a graph: every sum over such a sample is NaN, and is seen.
    """

    labels: Any
    probabilities: Any
    weights: Any

    @classmethod
    def of(cls, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> "Batch":
        """The batch of what Keras hands to a metric.

        ``y_pred`` [N] or [N, 1] is the probability of class 1 (a sigmoid output). ``y_true`` [N] or [N, 1] holds class
        numbers; [N, n] holds one-hot or soft labels, of which the largest counts.
        """
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.cast(y_pred, dtype)
        if len(y_pred.shape) == 1 or y_pred.shape[-1] == 1:
            q = ops.reshape(y_pred, (-1,))
            y_pred = ops.stack([1 - q, q], axis=-1)
        known, labels = _labels(y_true, y_pred)
        known = known & ops.all(y_pred >= 0, axis=-1)
        known = known & (ops.abs(ops.sum(y_pred, axis=-1) - 1) <= SUM_TOLERANCE)
        weights = _weights(sample_weight, y_pred[:, 0])
        return cls(labels, y_pred, ops.where(known | (weights == 0), weights, np.nan))


def _labels(y_true: Any, probabilities: Any) -> tuple[Any, Any]:
    """Which labels are classes, and all of them as class numbers: others take the place of the nearest."""
    n = probabilities.shape[-1]
    if len(y_true.shape) == 1 or y_true.shape[-1] == 1:
        given = ops.reshape(y_true, (-1,))
        labels = ops.clip(ops.cast(given, "int32"), 0, n - 1)
        return ops.equal(ops.cast(labels, given.dtype), given), labels
    if len(y_true.shape) != 2 or y_true.shape[-1] != n:
        raise ValueError(
            "y_true must have shape [N] or [N, 1] (class numbers) or [N, n] (one-hot or soft labels); found "
            f"{tuple(y_true.shape)} for probabilities of shape {tuple(probabilities.shape)}"
        )
    labels = ops.cast(ops.argmax(y_true, axis=-1), "int32")
    return ops.ones_like(labels, dtype="bool"), labels


def _weights(sample_weight: Any, like: Any) -> Any:
    """``sample_weight`` as a vector [N], ones where there is none."""
    if sample_weight is None:
        return ops.ones_like(like)
    weights = ops.cast(sample_weight, like.dtype)
    return ops.broadcast_to(ops.reshape(weights, (-1,)), ops.shape(like))


def weighted(weights: Any, terms: Any) -> Any:
    """Weights times terms [N]; a sample of weight 0 is left out, where 0 * inf would be NaN."""
    return ops.where(weights == 0, ops.zeros_like(terms), weights * terms)


def bin_membership(confidences: Any, bins: int) -> Any:
    """One-hot rows [..., bins] that name the right-closed bin of each confidence, the first closed at 0 too."""
    dtype = keras.backend.standardize_dtype(confidences.dtype)
    inner_edges = ops.convert_to_tensor(equal_width_edges(bins)[1:-1].astype(dtype))
    # The number of inner edges strictly below: unlike searchsorted it is one fused comparison under XLA.
    index = ops.sum(ops.cast(confidences[..., None] > inner_edges, "int32"), axis=-1)
    return ops.one_hot(index, bins, dtype=dtype)
