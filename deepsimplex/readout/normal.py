"""The standard normal distribution function and its relatives as TensorFlow ops, right in both tails."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
# Below these log Phi comes from its asymptotic series; Phi itself is still a normal number of the dtype there.
_TAIL = {"float32": -10.0, "float64": -25.0}


def tiny_of(dtype: tf.DType) -> float:
    """Smallest normal number of a float dtype."""
    return float(np.finfo(dtype.as_numpy_dtype).tiny)


def ndtr(z: Any) -> Any:
    """Distribution function Phi(z), with its relative accuracy in the lower tail."""
    return 0.5 * tf.math.erfc(-math.sqrt(0.5) * z)


def log_density(z: Any) -> Any:
    """Logarithm of the standard normal density."""
    return -0.5 * tf.square(z) - LOG_SQRT_TWO_PI


def _log_ndtr_tail(z: Any) -> Any:
    """log Phi(z) for z far below zero: the asymptotic series with its odd double factorials."""
    inverse = 1.0 / tf.square(z)
    series = -inverse * (1.0 - inverse * (3.0 - inverse * (15.0 - inverse * (105.0 - inverse * 945.0))))
    return log_density(z) - tf.math.log(-z) + tf.math.log1p(series)


@tf.custom_gradient
def log_ndtr(z: Any) -> Any:
    """log Phi(z) for any z, of either float dtype, with a gradient that neither overflows nor turns NaN.

    Parameters
    ----------
    z : tensor

    Returns
    -------
    tensor
        Of the shape and dtype of ``z``; the gradient is phi(z) / Phi(z).
    """
    tail = _TAIL[z.dtype.name]
    outside = ndtr(-tf.abs(tf.maximum(z, tail)))
    value = tf.where(z > 0, tf.math.log1p(-outside), tf.math.log(tf.maximum(outside, tiny_of(z.dtype))))
    value = tf.where(z < tail, _log_ndtr_tail(tf.minimum(z, tail)), value)

    def gradient(upstream: Any) -> Any:
        return upstream * tf.exp(log_density(z) - value)

    return value, gradient


def log_ndtri(log_p: Any) -> Any:
    """The z with log Phi(z) = log_p, for logarithms of any depth: Newton's method beyond what ndtri reaches.

    Parameters
    ----------
    log_p : tensor
        Logarithms of probabilities below one.

    Returns
    -------
    tensor
    """
    deep = log_p < math.log(smallest_mass(log_p.dtype))
    below = tf.minimum(log_p, math.log(smallest_mass(log_p.dtype)))
    z = -tf.sqrt(-2.0 * below)
    z = tf.stop_gradient(-tf.sqrt(-2.0 * (below + LOG_SQRT_TWO_PI + tf.math.log(-z))))
    for _ in range(2):
        z = tf.stop_gradient(z)
        value = log_ndtr(z)
        # The gradient of the step is that of its own equation, phi(z) / Phi(z) dz = d log_p.
        z = z - (value - below) * tf.exp(value - log_density(z))
    near = tf.math.ndtri(tf.exp(tf.where(deep, tf.fill(tf.shape(log_p), tf.cast(-1.0, log_p.dtype)), log_p)))
    return tf.where(deep, z, near)


def smallest_mass(dtype: tf.DType) -> float:
    """Least probability that may still be multiplied by a quantile without leaving the dtype's normal numbers."""
    return tiny_of(dtype) * 2.0**32
