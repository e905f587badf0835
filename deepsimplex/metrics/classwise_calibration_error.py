"""The class-wise calibration error as a Keras metric."""

from typing import Any

import keras
from keras import ops

from deepsimplex._utils.validation import check_whole
from deepsimplex.evaluation.bins import check_bins
from deepsimplex.metrics.batch import Batch, bin_membership


@keras.saving.register_keras_serializable(package="deepsimplex")
class ClasswiseCalibrationError(keras.metrics.Metric):
    """Mean over classes of each one's own calibration error, as ``evaluation.classwise_calibration_error``.

    The state is the sum of probability minus event in every bin of every class, [n, bins], and the weight of all
    samples: batches, epochs and devices add up to the exact answer.

    Parameters
    ----------
    bins : int
        Right-closed bins of equal width, 15 by default.
    num_classes : int, optional
        Number of classes n, at least 2; a sigmoid output has 2. None (default) takes it from the first batch: within
        ``compile`` that is early enough. Give it where the metric is used in a ``tf.function`` of one's own, which
        makes no variables.
    name : str
    dtype : str, optional
        Of the sums; Keras's ``floatx`` by default.

    Notes
    -----
    A sample that weighs something and has no class of 0..n-1, or no class probabilities, makes the result NaN: see
    ``ExpectedCalibrationError``.

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
        super().__init__(name=name, dtype=dtype)
        self.bins = check_bins(bins)
        self.num_classes = None if num_classes is None else check_whole(num_classes, "num_classes", 2)
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.gaps: Any = None
        if self.num_classes is not None:
            self._make_gaps(self.num_classes)

    def _make_gaps(self, num_classes: int) -> None:
        self.gaps = self.add_weight(shape=(num_classes, self.bins), initializer="zeros", name="gaps")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities, weights = Batch.of(y_true, y_pred, sample_weight, self.dtype)
        n = probabilities.shape[-1]
        if self.gaps is None:
            self._make_gaps(n)
        if self.gaps.shape[0] != n:
            raise ValueError(f"y_pred must hold probabilities of {self.gaps.shape[0]} classes; found {n}")
        residuals = (probabilities - ops.one_hot(labels, n, dtype=self.dtype)) * weights[:, None]
        membership = bin_membership(probabilities, self.bins)  # [N, n, bins]
        self.gaps.assign_add(ops.sum(membership * residuals[..., None], axis=0))
        self.total.assign_add(ops.sum(weights))

    def result(self) -> Any:
        """The error so far; 0 before any sample."""
        if self.gaps is None:
            return ops.zeros((), self.dtype)
        return ops.divide_no_nan(ops.sum(ops.abs(self.gaps)), self.gaps.shape[0] * self.total)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins, "num_classes": self.num_classes}
