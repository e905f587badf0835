"""The negative log-likelihood as a Keras metric."""

from typing import Any

import keras
from keras import ops

from deepsimplex.metrics.mean_score import MeanScore


@keras.saving.register_keras_serializable(package="deepsimplex")
class NegativeLogLikelihood(MeanScore):
    """Mean negative logarithm of the true class's probability, in nats, as ``evaluation.negative_log_likelihood``.

    Unlike Keras's cross-entropies it does not clip: a true class of probability exactly 0 gives inf. Of soft labels
    the largest counts.

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
    >>> metric = NegativeLogLikelihood()
    >>> metric.update_state([0, 1], [[0.5, 0.5], [0.75, 0.25]])
    >>> round(float(metric.result()), 4)
    1.0397
    """

    def __init__(self, name: str = "negative_log_likelihood", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def score(self, labels: Any, probabilities: Any) -> Any:
        return -ops.log(ops.take_along_axis(probabilities, labels[:, None], axis=-1)[:, 0])
