"""The standard normal distribution as TensorFlow ops, and logarithms of small probabilities."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import special

from deepsimplex._utils.portable_operations import erfc, expm1, log1p, portable_format, smallest_normal

LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
# Below these log Phi comes from its asymptotic series; Phi itself is still a normal number of the dtype there.
_TAIL = {"float32": -10.0, "float64": -25.0}
# Degrees of the polynomials that make quantiles of probabilities (errors of 1e-7 and 1e-12) and of logarithms (1e-6 and
# 1e-11, of quantiles down to -80).
_DEGREE, _LOG_DEGREE = {"float32": 8, "float64": 20}, {"float32": 12, "float64": 20}
_LEAST_LOGARITHM = -3300.0


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Trace ``function`` once for each shape: in a graph, each of its calls is a single node.

    Loops over classes and their gradients are then traced faster. The nodes are not inlined: optimizing the copies
    would take the time that tracing saves.
    """
    compiled = tf.function(function, autograph=False, experimental_attributes={"_noinline": True})

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments) if tf.executing_eagerly() or portable_format.get() else compiled(*arguments)

    return call


def ndtr(z: Any) -> Any:
    """Distribution function Phi(z), to full relative accuracy in the lower tail."""
    return 0.5 * erfc(-math.sqrt(0.5) * z)


def log_density(z: Any) -> Any:
    """Logarithm of the standard normal density."""
    return -0.5 * tf.square(z) - LOG_SQRT_TWO_PI


@traced_once
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
    outside = 0.5 * erfc(math.sqrt(0.5) * tf.abs(tf.maximum(z, tail)))  # Phi(-|z|)
    value = tf.where(z > 0, log1p(-outside), tf.math.log(tf.maximum(outside, smallest_normal(z.dtype))))
    # Far below zero the asymptotic series, with its odd double factorials.
    far = tf.minimum(z, tail)
    inverse = 1.0 / tf.square(far)
    series = -inverse * (1.0 - inverse * (3.0 - inverse * (15.0 - inverse * (105.0 - inverse * 945.0))))
    value = tf.where(z < tail, log_density(far) - tf.math.log(-far) + log1p(series), value)

    def gradient(upstream: Any) -> Any:
        return upstream * tf.exp(log_density(z) - value)

    return value, gradient


@traced_once
@tf.custom_gradient
def ndtri(p: Any) -> tuple[Any, Any]:
    """Quantile of the standard normal distribution.

    Accurate for small p, unlike tf.math.ndtri under XLA, which computes it from 1 - 2p.

    Parameters
    ----------
    p : tensor
        Probabilities, normal numbers of the dtype.

    Returns
    -------
    tensor
    """
    z = _lower_quantile(tf.math.log(tf.minimum(p, 1.0 - p)), math.log(smallest_normal(p.dtype)), _DEGREE[p.dtype.name])
    z = tf.where(p < 0.5, z, -z)
    return z, lambda upstream: upstream * tf.exp(-log_density(z))


@traced_once
@tf.custom_gradient
def log_ndtri(log_p: Any) -> tuple[Any, Any]:
    """The z with log Phi(z) = log_p, for logarithms of any depth.

    Parameters
    ----------
    log_p : tensor
        Logarithms of probabilities below one.

    Returns
    -------
    tensor
    """
    # The logarithm of 1 - p, with its precision where p is close to one.
    log_other = tf.math.log(-expm1(tf.maximum(log_p, -1.0)))
    deep = log_p < _LEAST_LOGARITHM
    lower = tf.where(log_p < -math.log(2.0), tf.maximum(log_p, _LEAST_LOGARITHM), log_other)
    z = _lower_quantile(lower, _LEAST_LOGARITHM, _LOG_DEGREE[log_p.dtype.name])
    z = tf.where(log_p < -math.log(2.0), z, -z)
    z = tf.where(deep, _deep_quantile(tf.minimum(log_p, _LEAST_LOGARITHM)), z)

    def gradient(upstream: Any) -> Any:
        # Phi / phi: far out from its series, where the exponent would be a difference of large numbers.
        far = z < -40.0
        inverse = -1.0 / tf.minimum(z, -40.0)
        tail = inverse * (1.0 - tf.square(inverse) * (1.0 - 3.0 * tf.square(inverse)))
        return upstream * tf.where(far, tail, tf.exp(tf.where(far, tf.zeros_like(z), log_p - log_density(z))))

    return z, gradient


def _deep_quantile(log_p: Any) -> Any:
    """Quantiles whose logarithms lie below ``_LEAST_LOGARITHM``: the tail's asymptotics, and a step of Newton's."""
    z = -tf.sqrt(-2.0 * (log_p + LOG_SQRT_TWO_PI + 0.5 * tf.math.log(-2.0 * log_p)))
    return z - (log_ndtr(z) - log_p) / -z


def _lower_quantile(log_p: Any, least: float, degree: int) -> Any:
    """Quantiles of probabilities up to 1/2, whose logarithms are at least ``least``."""
    coefficients, center, half = _quantile_polynomial(least, degree)
    x = (tf.math.log(-log_p) - center) / half
    return functools.reduce(lambda value, coefficient: value * x + coefficient, coefficients)


@functools.cache
def _quantile_polynomial(least: float, degree: int) -> tuple[list[float], float, float]:
    """Fit the quantile by a polynomial in t = log(-log p): it is zero at the median, -sqrt(2) exp(t / 2) in the tail.

    Returns its coefficients, the highest first, and the center and half width of the interval that becomes [-1, 1].
    """
    low, high = math.log(math.log(2.0)), math.log(-least)
    center, half = 0.5 * (low + high), 0.5 * (high - low)
    fit = np.polynomial.Chebyshev.interpolate(lambda x: special.ndtri_exp(-np.exp(center + half * x)), degree)
    return fit.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist(), center, half


def smallest_mass(dtype: tf.DType) -> float:
    """Least probability that may still be multiplied by a quantile without leaving the dtype's normal numbers."""
    return smallest_normal(dtype) * 2.0**32


def smallest_exact(dtype: tf.DType) -> float:
    """Probabilities above this carry their full relative precision: 1e-30 in float32, 6e-247 in float64."""
    return float(smallest_normal(dtype) ** 0.8)


def log_or_else(probabilities: Any, logarithms: Callable[..., Any], moments: Sequence[Any], least: float = 0.0) -> Any:
    """Logarithms of probabilities, taken from ``logarithms(*moments)`` for those that underflow.

    ``logarithms`` is called if any entry needs it; which of the two an entry takes depends on that entry alone.

    Parameters
    ----------
    probabilities : tensor, shape [N, n]
    logarithms : callable
        Computes the logarithms of all of them in log space, from ``moments``.
    moments : sequence of tensors
    least : float
        Probabilities above this are exact where the dtype can hold them.

    Returns
    -------
    tensor, shape [N, n]
    """
    least = max(least, smallest_exact(probabilities.dtype))
    held = probabilities > least
    return where_known(held, tf.math.log(tf.maximum(probabilities, least)), logarithms, moments)


def where_known(known: Any, values: Any, others: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Values where they are known, elsewhere those of ``others(*arguments)``, which is called if any is needed.

    Which of the two an entry takes depends on that entry alone.

    Parameters
    ----------
    known : bool tensor, shape [N, n]
    values : tensor, shape [N, n]
    others : callable
        Computes all values from ``arguments``.
    arguments : sequence of tensors

    Returns
    -------
    tensor, shape [N, n]
    """

    @tf.custom_gradient
    def compute(values: Any, *arguments: Any) -> tuple[Any, Any]:
        all_known = tf.reduce_all(known)
        answer = tf.where(known, values, tf.cond(all_known, lambda: values, functools.partial(others, *arguments)))

        # Computed again, so that nothing but the arguments passes from one branch to the other, as XLA requires.
        def gradient(upstream: Any) -> tuple[Any, ...]:
            nothing = tf.zeros_like(upstream)

            def gradients_of_others() -> list[Any]:
                with tf.GradientTape() as tape:
                    tape.watch(arguments)
                    result = others(*arguments)
                return tape.gradient(result, list(arguments), tf.where(known, nothing, upstream), "zero")

            by_arguments = tf.cond(all_known, lambda: [tf.zeros_like(part) for part in arguments], gradients_of_others)
            return tf.where(known, upstream, nothing), *by_arguments

        return answer, gradient

    return compute(values, *arguments)
