"""Keras metrics that are means over samples."""

from typing import Any

import keras
from keras import ops

from deepsimplex.metrics.batch import Batch, weighted


class MeanScore(keras.metrics.Metric):
    """The weighted mean of a score of single samples.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Of the sums; Keras's ``floatx`` by default.
    """

    def __init__(self, name: str, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def score(self, labels: Any, probabilities: Any) -> Any:
        """The score [N] of samples with labels [N] and probabilities [N, n]."""
        raise NotImplementedError

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch: labels [N], [N, 1] or [N, n]; probabilities [N, n] or, of class 1, [N, 1]; weights [N]."""
        labels, probabilities, weights = Batch.of(y_true, y_pred, sample_weight, self.dtype)
        self.total.assign_add(ops.sum(weighted(weights, self.score(labels, probabilities))))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Any:
        """The mean so far; 0 before any sample."""
        return ops.divide_no_nan(self.total, self.count)
