"""Keras metrics that are means over samples, and the checks that all metrics of class probabilities share."""

from typing import Any

import keras
import numpy as np
from keras import ops

SUM_TOLERANCE = 1e-2
"""How far the probabilities of one sample may sum from 1: room for a softmax in bfloat16."""


def checked_batch(y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> tuple[Any, Any, Any]:
    """Convert what Keras passes to a metric to labels, probabilities and weights.

    Parameters
    ----------
    y_true : tensor, shape [N], [N, 1] or [N, n]
        Class numbers 0..n-1; or one-hot or soft labels, of which the largest counts.
    y_pred : tensor, shape [N, n], or [N] or [N, 1]
        Class probabilities, or the probability of class 1 (a sigmoid output).
    sample_weight : tensor, shape [N], or None

    Returns
    -------
    labels : tensor, shape [N], int32
        In 0..n-1.
    probabilities : tensor, shape [N, n]
    weights : tensor, shape [N]
        NaN for a sample of nonzero weight whose label is not a class or whose outputs are not probabilities: an error
        cannot be raised inside a graph, but every sum over such a sample is NaN.
    """
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.cast(y_pred, dtype)
    if len(y_pred.shape) == 1 or y_pred.shape[-1] == 1:
        q = ops.reshape(y_pred, (-1,))
        y_pred = ops.stack([1 - q, q], axis=-1)
    n = y_pred.shape[-1]
    valid = ops.all(y_pred >= 0, axis=-1) & (ops.abs(ops.sum(y_pred, axis=-1) - 1) <= SUM_TOLERANCE)
    if len(y_true.shape) == 1 or y_true.shape[-1] == 1:
        given = ops.reshape(y_true, (-1,))
        labels = ops.clip(ops.cast(given, "int32"), 0, n - 1)
        valid = valid & ops.equal(ops.cast(labels, given.dtype), given)
    elif len(y_true.shape) == 2 and y_true.shape[-1] == n:
        labels = ops.cast(ops.argmax(y_true, axis=-1), "int32")
    else:
        raise ValueError(
            "y_true must have shape [N] or [N, 1] (class numbers) or [N, n] (one-hot or soft labels); found "
            f"{tuple(y_true.shape)} for probabilities of shape {tuple(y_pred.shape)}"
        )
    weights = ops.ones_like(y_pred[:, 0])
    if sample_weight is not None:
        weights = ops.broadcast_to(ops.reshape(ops.cast(sample_weight, dtype), (-1,)), ops.shape(weights))
    return labels, y_pred, ops.where(valid | (weights == 0), weights, np.nan)


class MeanScore(keras.metrics.Mean):
    """Base class of metrics that are the weighted mean of a score of single samples; 0 before the first batch.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Of the sums. The default is Keras' ``floatx``.
    """

    def score(self, labels: Any, probabilities: Any) -> Any:
        """The score [N] of samples with labels [N] and probabilities [N, n]."""
        raise NotImplementedError

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities, weights = checked_batch(y_true, y_pred, sample_weight, self.dtype)
        scores = self.score(labels, probabilities)
        # A sample of weight 0 is left out: 0 * inf would be NaN.
        super().update_state(ops.where(weights == 0, ops.zeros_like(scores), scores), weights)


@keras.saving.register_keras_serializable(package="deepsimplex")
class NegativeLogLikelihood(MeanScore):
    """Mean negative logarithm of the true class's probability, in nats, as ``evaluation.negative_log_likelihood``.

    Unlike Keras' cross-entropies it does not clip: a true class of probability exactly 0 gives inf. The class of a
    soft label is its largest entry.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Of the sums. The default is Keras' ``floatx``.

    Notes
    -----
    Invalid labels and outputs make the result NaN: see ``ExpectedCalibrationError``.

    Examples
    --------
    >>> metric = NegativeLogLikelihood()
    >>> metric.update_state([0, 1], [[0.5, 0.5], [0.75, 0.25]])
    >>> round(float(metric.result()), 4)
    1.0397
    """

    def __init__(self, name: str = "negative_log_likelihood", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def score(self, labels: Any, probabilities: Any) -> Any:
        return -ops.log(ops.take_along_axis(probabilities, labels[:, None], axis=-1)[:, 0])


@keras.saving.register_keras_serializable(package="deepsimplex")
class BrierScore(MeanScore):
    """Mean squared distance of probabilities from one-hot labels, halved for two classes: ``evaluation.brier_score``.

    The class of a soft label is its largest entry.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Of the sums. The default is Keras' ``floatx``.

    Notes
    -----
    Invalid labels and outputs make the result NaN: see ``ExpectedCalibrationError``.

    Examples
    --------
    >>> metric = BrierScore()
    >>> metric.update_state([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    >>> float(metric.result())
    0.125
    """

    def __init__(self, name: str = "brier_score", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def score(self, labels: Any, probabilities: Any) -> Any:
        n = probabilities.shape[-1]
        squares = ops.sum(ops.square(probabilities - ops.one_hot(labels, n, dtype=self.dtype)), axis=-1)
        return squares / 2 if n == 2 else squares
