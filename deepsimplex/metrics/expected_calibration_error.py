"""The expected calibration error as a Keras metric."""

from typing import Any

import keras
from keras import ops

from deepsimplex.evaluation.bins import check_bins
from deepsimplex.metrics.batch import Batch, bin_membership


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

    Notes
    -----
    Nothing can be raised inside a compiled step. A sample that weighs something whose label is none of 0..n-1, or whose
    outputs are no probabilities (NaN, below 0, or with a sum further than 0.01 from 1, as logits have), makes the
    result NaN, here and in the other metrics of this module.

    Examples
    --------
    >>> metric = ExpectedCalibrationError(bins=2)
    >>> metric.update_state([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 4)
    0.2333
    """

    def __init__(self, bins: int = 15, name: str = "expected_calibration_error", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.bins = check_bins(bins)
        self.counts = self.add_weight(shape=(self.bins,), initializer="zeros", name="counts")
        self.confidences = self.add_weight(shape=(self.bins,), initializer="zeros", name="confidences")
        self.events = self.add_weight(shape=(self.bins,), initializer="zeros", name="events")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities, weights = Batch.of(y_true, y_pred, sample_weight, self.dtype)
        if probabilities.shape[-1] == 2:
            confidences, happened = probabilities[:, 1], ops.equal(labels, 1)
        else:
            confidences = ops.max(probabilities, axis=-1, initial=0)  # a device may get no samples of a last batch
            happened = ops.equal(ops.cast(ops.argmax(probabilities, axis=-1), labels.dtype), labels)
        membership = bin_membership(confidences, self.bins) * weights[:, None]
        self.counts.assign_add(ops.sum(membership, axis=0))
        self.confidences.assign_add(ops.sum(membership * confidences[:, None], axis=0))
        self.events.assign_add(ops.sum(membership * ops.cast(happened, self.dtype)[:, None], axis=0))

    def result(self) -> Any:
        """The error so far; 0 before any sample."""
        return ops.divide_no_nan(ops.sum(ops.abs(self.confidences - self.events)), ops.sum(self.counts))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}
