"""Keras metrics for class probabilities, streaming over batches; the formulas are those of ``evaluation``."""

from typing import Any

import keras
import numpy as np
from keras import ops


def _labels_and_probabilities(y_true: Any, y_pred: Any, dtype: str) -> tuple[Any, Any]:
    """Class numbers [N] and class probabilities [N, n] of what a Keras model and its data give.

    ``y_pred`` [N] or [N, 1] is the probability of class 1 (a sigmoid output). ``y_true`` [N] or [N, 1] holds class
    numbers; [N, n] holds one-hot or soft labels, of which the largest counts.
    """
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.cast(y_pred, dtype)
    if len(y_pred.shape) == 1 or y_pred.shape[-1] == 1:
        q = ops.reshape(y_pred, (-1,))
        y_pred = ops.stack([1 - q, q], axis=-1)
    if len(y_true.shape) == 1 or y_true.shape[-1] == 1:
        return ops.cast(ops.reshape(y_true, (-1,)), "int32"), y_pred
    if len(y_true.shape) != 2 or y_true.shape[-1] != y_pred.shape[-1]:
        raise ValueError(
            "y_true must have shape [N] or [N, 1] (class numbers) or [N, n] (one-hot or soft labels); found "
            f"{tuple(y_true.shape)} for probabilities of shape {tuple(y_pred.shape)}"
        )
    return ops.argmax(y_true, axis=-1), y_pred


def _weights(sample_weight: Any, like: Any) -> Any:
    """``sample_weight`` as a vector [N], ones where there is none."""
    if sample_weight is None:
        return ops.ones_like(like)
    weights = ops.cast(sample_weight, like.dtype)
    return ops.broadcast_to(ops.reshape(weights, (-1,)), ops.shape(like))


@keras.saving.register_keras_serializable(package="deepsimplex")
class ExpectedCalibrationError(keras.metrics.Metric):
    """Expected calibration error over right-closed bins of equal width, as ``evaluation.expected_calibration_error``.

    For more than two classes the confidence is the largest probability; for two it is the probability of class 1. The
    state is three sums per bin, so that batches, epochs and devices add up to the exact answer.

    Parameters
    ----------
    bins : int
        Number of bins of [0, 1], 15 by default.
    name : str
    dtype : str, optional
        Of the sums; Keras's ``floatx`` by default. float32 counts exactly up to 2^24 samples.

    Examples
    --------
    >>> metric = ExpectedCalibrationError(bins=2)
    >>> metric.update_state([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 4)
    0.2333
    """

    def __init__(self, bins: int = 15, name: str = "expected_calibration_error", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        if isinstance(bins, bool) or bins != int(bins) or bins < 1:
            raise ValueError(f"bins must be a whole number, at least 1; found {bins!r}")
        self.bins = int(bins)
        self.counts = self.add_weight(shape=(self.bins,), initializer="zeros", name="counts")
        self.confidences = self.add_weight(shape=(self.bins,), initializer="zeros", name="confidences")
        self.events = self.add_weight(shape=(self.bins,), initializer="zeros", name="events")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities = _labels_and_probabilities(y_true, y_pred, self.dtype)
        if probabilities.shape[-1] == 2:
            confidences, happened = probabilities[:, 1], ops.equal(labels, 1)
        else:
            confidences = ops.max(probabilities, axis=-1)
            happened = ops.equal(ops.cast(ops.argmax(probabilities, axis=-1), labels.dtype), labels)
        weights = _weights(sample_weight, confidences)
        inner_edges = ops.convert_to_tensor((np.arange(1, self.bins) / self.bins).astype(self.dtype))
        # The number of inner edges strictly below: unlike searchsorted it is one fused comparison under XLA.
        index = ops.sum(ops.cast(confidences[:, None] > inner_edges, "int32"), axis=-1)
        membership = ops.one_hot(index, self.bins, dtype=self.dtype) * weights[:, None]
        self.counts.assign_add(ops.sum(membership, axis=0))
        self.confidences.assign_add(ops.sum(membership * confidences[:, None], axis=0))
        self.events.assign_add(ops.sum(membership * ops.cast(happened, self.dtype)[:, None], axis=0))

    def result(self) -> Any:
        """The error so far; 0 before any sample."""
        return ops.divide_no_nan(ops.sum(ops.abs(self.confidences - self.events)), ops.sum(self.counts))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}


@keras.saving.register_keras_serializable(package="deepsimplex")
class NegativeLogLikelihood(keras.metrics.Metric):
    """Mean negative logarithm of the true class's probability, in nats, as ``evaluation.negative_log_likelihood``.

    Unlike Keras's cross-entropies it does not clip: a true class of probability exactly 0 gives inf. Of soft labels
    the largest counts.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Of the sums; Keras's ``floatx`` by default.

    Examples
    --------
    >>> metric = NegativeLogLikelihood()
    >>> metric.update_state([0, 1], [[0.5, 0.5], [0.75, 0.25]])
    >>> round(float(metric.result()), 4)
    1.0397
    """

    def __init__(self, name: str = "negative_log_likelihood", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities = _labels_and_probabilities(y_true, y_pred, self.dtype)
        own = ops.take_along_axis(probabilities, labels[:, None], axis=-1)[:, 0]
        weights = _weights(sample_weight, own)
        # A sample of weight 0 is left out; 0 * inf would be NaN.
        terms = ops.where(weights > 0, -ops.log(own) * weights, ops.zeros_like(own))
        self.total.assign_add(ops.sum(terms))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Any:
        """The mean so far; 0 before any sample."""
        return ops.divide_no_nan(self.total, self.count)
