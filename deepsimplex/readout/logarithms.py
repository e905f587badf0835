"""Logarithms of probabilities beyond what the dtype can hold."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from deepsimplex.readout.normal import tiny_of


def smallest_exact(dtype: tf.DType) -> float:
    """Probabilities above this carry their full relative precision: 1e-30 in float32, 6e-247 in float64."""
    return float(tiny_of(dtype) ** 0.8)


def log_or_else(
    probabilities: Any, logarithms: Callable[..., Any], moments: tuple[Any, Any], least: float = 0.0
) -> Any:
    """Logarithms of probabilities, and ``logarithms(*moments)`` in place of those too small to have an exact one.

    Whether it is called depends on all rows; what an entry becomes depends on that entry alone.

    Parameters
    ----------
    probabilities : tensor, shape [N, n]
    logarithms : callable
        Makes the logarithms of all of them, in log space.
    moments : tuple of tensors
        What it makes them of.
    least : float
        Probabilities above this are exact where the dtype can hold them.

    Returns
    -------
    tensor, shape [N, n]
    """
    least = max(least, smallest_exact(probabilities.dtype))

    @tf.custom_gradient
    def compute(probabilities: Any, *moments: Any) -> tuple[Any, Any]:
        held = probabilities > least
        all_held = tf.reduce_all(held)
        direct = tf.math.log(tf.maximum(probabilities, least))
        answer = tf.cond(all_held, lambda: direct, lambda: tf.where(held, direct, logarithms(*moments)))

        # Computed again, so that nothing but the arguments passes from one branch to the other: XLA wants that.
        def gradient(upstream: Any) -> tuple[Any, ...]:
            nothing = tf.zeros_like(upstream)
            by_probabilities = tf.where(held, upstream / tf.maximum(probabilities, least), nothing)

            def of_logarithms() -> list[Any]:
                with tf.GradientTape() as tape:
                    tape.watch(moments)
                    values = logarithms(*moments)
                return tape.gradient(values, list(moments), tf.where(held, nothing, upstream))

            by_moments = tf.cond(all_held, lambda: [tf.zeros_like(part) for part in moments], of_logarithms)
            return by_probabilities, *by_moments

        return answer, gradient

    return compute(probabilities, *moments)
