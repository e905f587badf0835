"""Keras metrics of class probabilities, accumulated over batches, with the formulas of ``evaluation``."""

from typing import Any

import keras
import numpy as np
from keras import ops

from deepsimplex._utils.array_operations import is_tensor
from deepsimplex._utils.validation import check_array, check_whole
from deepsimplex.evaluation.reliability_curve import check_bins, equal_width_edges

__all__ = ["BrierScore", "ClasswiseCalibrationError", "ExpectedCalibrationError", "NegativeLogLikelihood"]

_SUM_TOLERANCE = 1e-2
"""How far the probabilities of one sample may sum from 1: more than a softmax in bfloat16 rounds by."""


def _checked_batch(y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> tuple[Any, Any, Any]:
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
    y_true, y_pred = ops.convert_to_tensor(_numbers(y_true, "y_true")), ops.cast(_numbers(y_pred, "y_pred"), dtype)
    if len(y_pred.shape) not in (1, 2) or 0 in y_pred.shape[1:] or y_true.shape[:1] != y_pred.shape[:1]:
        raise ValueError(
            f"y_pred must have shape [N, n] or, of class 1, [N, 1], with the N of y_true; found {tuple(y_pred.shape)} "
            f"for y_true of shape {tuple(y_true.shape)}"
        )
    if len(y_pred.shape) == 1 or y_pred.shape[-1] == 1:
        q = ops.reshape(y_pred, (-1,))
        y_pred = ops.stack([1 - q, q], axis=-1)
    n = y_pred.shape[-1]
    valid = ops.all(y_pred >= 0, axis=-1) & (ops.abs(ops.sum(y_pred, axis=-1) - 1) <= _SUM_TOLERANCE)
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
        given = ops.reshape(ops.cast(_numbers(sample_weight, "sample_weight"), dtype), (-1,))
        if given.shape[0] not in (1, None, weights.shape[0]):
            raise ValueError(f"sample_weight must have shape [{weights.shape[0]}]; found shape {tuple(given.shape)}")
        weights = ops.broadcast_to(given, ops.shape(weights))
    return labels, y_pred, ops.where(valid | (weights == 0), weights, np.nan)


def _numbers(values: Any, name: str) -> Any:
    return values if is_tensor(values) else check_array(values, name, finite=False, dtype="any")


class _MeanScore(keras.metrics.Mean):
    """Base class of metrics that are the weighted mean of a score of single samples; 0 before the first batch.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Dtype of the sums. The default is Keras' ``floatx``.
    """

    def score(self, labels: Any, probabilities: Any) -> Any:
        """The score [N] of samples with labels [N] and probabilities [N, n]."""
        raise NotImplementedError

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities, weights = _checked_batch(y_true, y_pred, sample_weight, self.dtype)
        scores = self.score(labels, probabilities)
        # A sample of weight 0 is left out: 0 * inf would be NaN.
        super().update_state(ops.where(weights == 0, ops.zeros_like(scores), scores), weights)


@keras.saving.register_keras_serializable(package="deepsimplex")
class NegativeLogLikelihood(_MeanScore):
    """Mean negative logarithm of the true class's probability, in nats, as ``evaluation.negative_log_likelihood``.

    Unlike Keras' cross-entropies it does not clip: a true class of probability exactly 0 gives inf. The class of a
    soft label is its largest entry.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Dtype of the sums. The default is Keras' ``floatx``.

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
class BrierScore(_MeanScore):
    """Mean squared distance of probabilities from one-hot labels, halved for two classes: ``evaluation.brier_score``.

    The class of a soft label is its largest entry.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Dtype of the sums. The default is Keras' ``floatx``.

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


def _bin_membership(confidences: Any, bins: int) -> Any:
    """One-hot rows [..., bins] of the right-closed bin of each confidence, the first including 0."""
    dtype = keras.backend.standardize_dtype(confidences.dtype)
    inner_edges = ops.convert_to_tensor(equal_width_edges(bins)[1:-1].astype(dtype))
    # The number of inner edges strictly below: unlike searchsorted it is one fused comparison under XLA.
    index = ops.sum(ops.cast(confidences[..., None] > inner_edges, "int32"), axis=-1)
    return ops.one_hot(index, bins, dtype=dtype)


class _CalibrationError(keras.metrics.Metric):
    """Base class of calibration errors: the mean over k events of the sum over bins of |probability minus event|.

    The state is the sum of probability minus event in every bin of every event, [k, bins], and the weight of all
    samples, so that batches, epochs and devices add up to the exact result.
    """

    def __init__(self, bins: int, num_events: int | None, name: str, dtype: Any) -> None:
        super().__init__(name=name, dtype=dtype)
        self.bins = check_bins(bins)
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.gaps: Any = None
        if num_events is not None:
            self._make_gaps(num_events)

    def _make_gaps(self, num_events: int) -> None:
        self.gaps = self.add_weight(shape=(num_events, self.bins), initializer="zeros", name="gaps")

    def _add(self, probabilities: Any, events: Any, weights: Any) -> None:
        """Add probabilities of events and whether they happened, both [N, k]."""
        residuals = (probabilities - ops.cast(events, self.dtype)) * weights[:, None]
        membership = _bin_membership(probabilities, self.bins)  # [N, k, bins]
        self.gaps.assign_add(ops.sum(membership * residuals[..., None], axis=0))
        self.total.assign_add(ops.sum(weights))

    def result(self) -> Any:
        """Return the error of all batches; 0 before the first."""
        if self.gaps is None:
            return ops.zeros((), self.dtype)
        return ops.divide_no_nan(ops.sum(ops.abs(self.gaps)), self.gaps.shape[0] * self.total)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}


@keras.saving.register_keras_serializable(package="deepsimplex")
class ExpectedCalibrationError(_CalibrationError):
    """Expected calibration error over right-closed bins of equal width, as ``evaluation.expected_calibration_error``.

    For more than two classes the confidence is the largest probability; for two it is the probability of class 1.
    Batches, epochs and devices add up to the exact result.

    Parameters
    ----------
    bins : int
        Number of bins of [0, 1]. The default is 15.
    name : str
    dtype : str, optional
        Dtype of the sums. The default is Keras' ``floatx``; float32 counts exactly up to 2^24 samples.

    Notes
    -----
    Errors cannot be raised inside a compiled step. A sample of nonzero weight whose label is not in 0..n-1, or whose
    outputs are not probabilities (NaN, negative, or with a sum further than 0.01 from 1, as logits have), makes the
    result NaN, here and in the other metrics of this module.

    Examples
    --------
    >>> metric = ExpectedCalibrationError(bins=2)
    >>> metric.update_state([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 4)
    0.2333
    """

    def __init__(self, bins: int = 15, name: str = "expected_calibration_error", dtype: Any = None) -> None:
        super().__init__(bins, 1, name, dtype)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities, weights = _checked_batch(y_true, y_pred, sample_weight, self.dtype)
        if probabilities.shape[-1] == 2:
            confidences, happened = probabilities[:, 1], ops.equal(labels, 1)
        else:
            confidences = ops.max(probabilities, axis=-1, initial=0)  # a device may get no samples of a last batch
            happened = ops.equal(ops.cast(ops.argmax(probabilities, axis=-1), labels.dtype), labels)
        self._add(confidences[:, None], happened[:, None], weights)


@keras.saving.register_keras_serializable(package="deepsimplex")
class ClasswiseCalibrationError(_CalibrationError):
    """Mean over classes of each class's calibration error, as ``evaluation.classwise_calibration_error``.

    Batches, epochs and devices add up to the exact result.

    Parameters
    ----------
    bins : int
        Number of right-closed bins of equal width. The default is 15.
    num_classes : int, optional
        Number of classes n, at least 2; a sigmoid output has 2. The default None takes it from the first batch, which
        is sufficient within ``compile``. Pass it if the metric is used in your own ``tf.function``, which cannot
        create variables.
    name : str
    dtype : str, optional
        Dtype of the sums. The default is Keras' ``floatx``.

    Notes
    -----
    Invalid labels and outputs make the result NaN: see ``ExpectedCalibrationError``.

    Examples
    --------
    >>> metric = ClasswiseCalibrationError(bins=5)
    >>> metric.update_state([0, 2], [[0.8, 0.1, 0.1], [0.2, 0.2, 0.6]])
    >>> round(float(metric.result()), 4)
    0.2
    """

    def __init__(
        self,
        bins: int = 15,
        num_classes: int | None = None,
        name: str = "classwise_calibration_error",
        dtype: Any = None,
    ) -> None:
        self.num_classes = None if num_classes is None else check_whole(num_classes, "num_classes", 2)
        super().__init__(bins, self.num_classes, name, dtype)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities, weights = _checked_batch(y_true, y_pred, sample_weight, self.dtype)
        n = probabilities.shape[-1]
        if self.gaps is None:
            self._make_gaps(n)
        if self.gaps.shape[0] != n:
            raise ValueError(f"y_pred must hold probabilities of {self.gaps.shape[0]} classes; found {n}")
        self._add(probabilities, ops.one_hot(labels, n), weights)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_classes": self.num_classes}
