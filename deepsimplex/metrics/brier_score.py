"""The Brier score as a Keras metric."""

from typing import Any

import keras
from keras import ops

from deepsimplex.metrics.mean_score import MeanScore


@keras.saving.register_keras_serializable(package="deepsimplex")
class BrierScore(MeanScore):
    """Mean squared distance of probabilities from one-hot labels, halved for two classes: ``evaluation.brier_score``.

    Of soft labels the largest counts.

    Parameters
    ----------
    name : str
    dtype : str, optional
        Of the sums; Keras's ``floatx`` by default.

    Notes
    -----
    A sample that weighs something and has no class of 0..n-1, or no class probabilities, makes the result NaN: see
    ``ExpectedCalibrationError``.

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
