"""Logarithms of probabilities beyond what the dtype can hold."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from deepsimplex.readout.normal import tiny_of


def smallest_exact(dtype: tf.DType) -> float:
    """Probabilities above this carry their full relative precision: 1e-30 in float32, 6e-247 in float64."""
    return float(tiny_of(dtype) ** 0.8)


def log_or_else(probabilities: Any, logarithms: Callable[[], Any], least: float = 0.0) -> Any:
    """Logarithms of probabilities, and ``logarithms()`` in place of those too small to have an exact one.

    Whether it is called depends on all rows; what an entry becomes depends on that entry alone.

    Parameters
    ----------
    probabilities : tensor, shape [N, n]
    logarithms : callable
        Makes the logarithms of all of them, in log space.
    least : float
        Probabilities above this are exact where the dtype can hold them.

    Returns
    -------
    tensor, shape [N, n]
    """
    held = probabilities > max(least, smallest_exact(probabilities.dtype))

    def replaced() -> Any:
        # The ones keep the gradient of the entries that are not used finite.
        direct = tf.math.log(tf.where(held, probabilities, tf.ones_like(probabilities)))
        return tf.where(held, direct, logarithms())

    return tf.cond(tf.reduce_all(held), lambda: tf.math.log(probabilities), replaced)
