"""The sum of a Gaussian and a standard Gumbel variable: its distribution function C, by quadrature, and derivatives.

Over the Gaussian where that is narrow, over the Gumbel variable where it is wide. The derivatives come from the same
sums, and the heat equation dC/ds = s C'' gives that in the Gaussian's deviation s.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex.readout.normal import LOG_SQRT_TWO_PI, ndtr

# Gaussian deviation from which the sum runs over the Gumbel variable.
_WIDE = 0.5
# Nodes of the sum over a narrow Gaussian (Gauss-Hermite).
_NARROW_NODES = {"float32": 16, "float64": 32}
# Where the trapezoidal sum over the Gumbel variable begins, its step, and where its density is exponential to within
# the precision aimed at (1e-6 and 1e-10), so that the rest has a closed form.
_GUMBEL = {"float32": (-3.1, 0.5, 12.4), "float64": (-3.4, 0.4, 25.0)}


def lowest(dtype: tf.DType) -> float:
    """Where the Gumbel variable begins: it lies lower with a probability below the precision aimed at."""
    return _GUMBEL[dtype.name][0]


def num_terms(dtype: tf.DType) -> int:
    """Terms of the sums."""
    return max(_NARROW_NODES[dtype.name], len(_gumbel_nodes(dtype.name)[0]))


def _gumbel_nodes(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the sum over the Gumbel variable, without its exponential tail."""
    first, step, last = _GUMBEL[dtype]
    g = np.arange(first, last + 0.5 * step, step)
    weights = step * np.exp(-g - np.exp(-g))
    weights[-1] *= 0.5
    return g, weights


def derivatives(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    """C and its derivatives by x of the given orders, 0 to 3, at x [N, n, Q] for deviations s [N, n or 1, 1]."""
    narrow = s < _WIDE
    return [
        tf.where(narrow, a, b)
        for a, b in zip(
            _over_gaussian(x, tf.minimum(s, _WIDE), orders), _over_gumbel(x, tf.maximum(s, _WIDE), orders), strict=True
        )
    ]


def _over_gaussian(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    v, weights = _narrow_sum(x, s)
    e = tf.exp(-v)
    cdf = tf.exp(-e)
    # Derivatives of exp(-e), e' = -e.
    factors = {0: 1.0, 1: e, 2: e * (e - 1.0), 3: e * (1.0 + e * (e - 3.0))}
    return [_weighted(cdf * factors[order] if order else cdf, weights) for order in orders]


def _narrow_sum(x: Any, s: Any) -> tuple[Any, Any]:
    """The Gumbel variable's values [..., T] at Gauss-Hermite nodes, and their weights."""
    t, w = np.polynomial.hermite_e.hermegauss(_NARROW_NODES[x.dtype.name])
    v = x[..., tf.newaxis] - s[..., tf.newaxis] * tf.constant(t, x.dtype)
    # Below -6 the distribution function is as good as zero, while the powers of e still are numbers.
    return tf.maximum(v, -6.0), tf.constant(w / w.sum(), x.dtype)


def _over_gumbel(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    v, weights, start, height = _wide_sum(x, s)
    tail = height * _tilted(start, s)
    end = tf.exp(-0.5 * tf.square(start) - LOG_SQRT_TWO_PI) / s
    tails = {0: height * ndtr(start) - tail, 1: tail, 2: height * end - tail}
    tails[3] = -height * end * start / s - tails[2]
    density = tf.exp(-0.5 * tf.square(v) - LOG_SQRT_TWO_PI) / s[..., tf.newaxis] if max(orders) else None

    def term(order: int) -> Any:
        if order == 0:
            return ndtr(v)
        if order == 1:
            return density
        return density * (
            -v / s[..., tf.newaxis] if order == 2 else (tf.square(v) - 1.0) / tf.square(s)[..., tf.newaxis]
        )

    return [_weighted(term(order), weights) + tails[order] for order in orders]


def _wide_sum(x: Any, s: Any) -> tuple[Any, Any, Any, float]:
    """The Gaussian's standardized values [..., T] at the Gumbel variable's nodes, their weights, and its tail.

    That begins at the last node, where the standardized value is the third part, and is exponential with the height
    that is the fourth.
    """
    g, w = _gumbel_nodes(x.dtype.name)
    v = (x[..., tf.newaxis] - tf.constant(g, x.dtype)) / s[..., tf.newaxis]
    last = float(g[-1])
    return v, tf.constant(w, x.dtype), (x - last) / s, math.exp(-last - math.exp(-last))


def survival(x: Any, s: Any) -> Any:
    """1 - C, precise where it is small, at x [N, n, Q] for deviations s [N, n or 1, 1]."""
    return tf.where(
        s < _WIDE, _survival_over_gaussian(x, tf.minimum(s, _WIDE)), _survival_over_gumbel(x, tf.maximum(s, _WIDE))
    )


def _survival_over_gaussian(x: Any, s: Any) -> Any:
    v, weights = _narrow_sum(x, s)
    return _weighted(-tf.math.expm1(-tf.exp(-v)), weights)


def _survival_over_gumbel(x: Any, s: Any) -> Any:
    v, weights, start, height = _wide_sum(x, s)
    return _weighted(ndtr(-v), weights) + height * (ndtr(-start) + _tilted(start, s))


def _weighted(terms: Any, weights: Any) -> Any:
    """Sums over the last axis of terms [..., T].

    By the product of two matrices: TensorFlow's of [N, 1, Q, T] in float32 with a vector crashed now and then.
    """
    return tf.tensordot(terms, weights, 1)


def _tilted(start: Any, s: Any) -> Any:
    """exp(s^2 / 2 - s start) Phi(start - s), the density at ``start`` of a Gaussian plus an exponential variable."""
    shifted = start - s
    # Below -10 the exponential would overflow and the product is as good as zero beside what the nodes before add.
    above = tf.maximum(shifted, -10.0)
    inside = tf.exp(-0.5 * tf.square(s) - s * above) * ndtr(above)
    return tf.where(shifted > -10.0, inside, tf.zeros_like(inside))


@tf.custom_gradient
def convolution(x: Any, s: Any) -> tuple[tuple[Any, Any], Any]:
    """C and C' at x [N, n, Q] for deviations s [N, n or 1, 1]."""
    cdf, density = derivatives(x, s, (0, 1))

    def gradient(by_cdf: Any, by_density: Any) -> tuple[Any, Any]:
        second, third = derivatives(x, s, (2, 3))
        by_s = s * (by_cdf * second + by_density * third)
        if s.shape[1] == 1:
            by_s = tf.reduce_sum(by_s, axis=1, keepdims=True)
        return by_cdf * density + by_density * second, tf.reduce_sum(by_s, axis=2, keepdims=True)

    return (cdf, density), gradient
