"""The cost of generalized learning vector quantization, for networks that end in ``heads.PrototypeScores``."""

from typing import Any

import keras
import tensorflow as tf

from deepsimplex._utils.validation import check_choice, check_number
from deepsimplex.losses.label_forms import is_soft
from deepsimplex.losses.readout_losses import value_of_label


@keras.saving.register_keras_serializable(package="deepsimplex")
class GLVQ(keras.losses.Loss):
    """Cost Phi(mu) of the scores of ``heads.PrototypeScores``, with mu = -score of the label [GPLVQ Eq. 3.2].

    mu = (d_J - d_K) / (d_J + d_K) compares the squared distances to the nearest prototypes of the sample's class and of
    all others; it is -1 for samples that are well classified and 1 at worst.

    Parameters
    ----------
    activation : {"sigmoid", "linear"}
        Phi. Default "sigmoid": 1 / (1 + exp(-steepness mu)), for which samples near the decision boundary count most.
    steepness : float
        Slope of the sigmoid; at 1 it is almost linear. Default 2.
    reduction, name, dtype
        As in keras.losses.Loss.

    Raises
    ------
    ValueError
        For another activation, a steepness that is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[0.5, -0.5], [0.5, -0.5]], "float32")
    >>> GLVQ("linear", reduction=None)(np.array([0, 1]), scores).numpy()
    array([-0.5,  0.5], dtype=float32)
    """

    def __init__(
        self,
        activation: str = "sigmoid",
        steepness: float = 2.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "glvq",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.activation = check_choice(activation, "activation", ("sigmoid", "linear"))
        self.steepness = check_number(steepness, "steepness", 0.0)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        # y_true: [N], [N, 1] or [N, n], y_pred: [N, n]
        costs = -y_pred if self.activation == "linear" else tf.sigmoid(-self.steepness * y_pred)
        return (
            tf.reduce_sum(tf.cast(y_true, costs.dtype) * costs, axis=-1)
            if is_soft(y_true)
            else value_of_label(y_true, costs)
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.activation, "steepness": self.steepness}
