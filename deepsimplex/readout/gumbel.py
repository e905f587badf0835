"""Softmax readout of independent scores, exact by quadrature, through the Gumbel identity.

With independent standard Gumbel variables G_k, softmax(g)_y = P[argmax_k (g_k + G_k) = y]. Of independent scores
g_k ~ N(m_k, s_k^2) the expected softmax is therefore the probability that the sum g_y + G_y is the largest,

    E[softmax(g)_y] = int C'_y(u) prod_{k != y} C_k(u) du,    C_k(u) = P[g_k + G_k <= u] = C(u - m_k; s_k).

C is a Gaussian-Gumbel convolution, by quadrature too: over the Gaussian where that is narrow, over the Gumbel variable
where it is wide. Its derivatives come from the same sums, and the heat equation dC/ds = s C'' gives that in s.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex.readout.normal import LOG_SQRT_TWO_PI, ndtr
from deepsimplex.readout.quadrature import winning_masses

# Gaussian deviation from which the sum runs over the Gumbel variable.
_WIDE = 0.5
# Nodes of the sum over a narrow Gaussian (Gauss-Hermite).
_NARROW_NODES = {"float32": 16, "float64": 32}
# Where the trapezoidal sum over the Gumbel variable begins, its step, and where its density is exponential to within
# the precision aimed at (1e-6 and 1e-10), so that the rest has a closed form.
_GUMBEL = {"float32": (-3.1, 0.5, 12.4), "float64": (-3.4, 0.4, 25.0)}
# How far above the best score the largest sum is looked for: its density falls by e^-1 per unit.
_REACH = {"float32": 17.0, "float64": 25.0}
# Standard deviations of a score below its mean at which its distribution function counts as zero.
_DEPTH = 9.0
# Probabilities above this have a small relative error.
SMALLEST = 1e-30
_NODES = {"float32": 80, "float64": 128}


def default_num_points(dtype: tf.DType) -> int:
    """Nodes of the integral over the largest sum."""
    return _NODES[dtype.name]


def num_terms(dtype: tf.DType) -> int:
    """Terms of the sums that make the convolution."""
    return max(_NARROW_NODES[dtype.name], len(_gumbel_nodes(dtype.name)[0]))


def probabilities(mean: Any, deviations: Any, num_points: int) -> Any:
    """Expected softmax of independent Gaussian scores.

    Parameters
    ----------
    mean : tensor, shape [N, n]
        Mean scores.
    deviations : tensor, shape [N, n] or [N, 1]
        Their standard deviations; zero is the limit.
    num_points : int
        Nodes of the integral over the largest sum.

    Returns
    -------
    tensor, shape [N, n]
        Probabilities; those that the dtype cannot hold are zero.
    """
    m = mean - tf.stop_gradient(tf.reduce_max(mean, axis=-1, keepdims=True))
    centre, s = tf.stop_gradient(m), tf.stop_gradient(deviations)
    low = tf.reduce_max(centre - _DEPTH * s, axis=-1, keepdims=True) + _GUMBEL[mean.dtype.name][0]
    # The tail is exponential, and a Gaussian moves it up by s^2 / 2 before its own tail is left behind.
    high = tf.reduce_max(centre + tf.minimum(0.5 * tf.square(s), 0.75 * _DEPTH * s), axis=-1, keepdims=True)
    high = high + math.log(mean.shape[-1]) + _REACH[mean.dtype.name]
    # A score's own part of the line, as wide as its deviation or the Gumbel variable's, lies within so many of its
    # widths from the low end: nodes may lie the farther apart the farther from it they are.
    reach = tf.asinh((high - low) / _DEPTH)
    tau = reach * tf.constant(np.linspace(0.0, 1.0, num_points), mean.dtype)
    u = low + _DEPTH * tf.sinh(tau)
    weights = _DEPTH * tf.cosh(tau) * (reach / (num_points - 1))
    cdf, density = _convolution(u[:, tf.newaxis, :] - m[:, :, tf.newaxis], deviations[:, :, tf.newaxis])
    masses = winning_masses(cdf, density, weights[:, tf.newaxis, :])
    return masses / tf.reduce_sum(masses, axis=-1, keepdims=True)


def _gumbel_nodes(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the sum over the Gumbel variable, without its exponential tail."""
    first, step, last = _GUMBEL[dtype]
    g = np.arange(first, last + 0.5 * step, step)
    weights = step * np.exp(-g - np.exp(-g))
    weights[-1] *= 0.5
    return g, weights


def _derivatives(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    """C and its derivatives by x of the given orders, 0 to 3, at x [N, n, Q] for deviations s [N, n or 1, 1]."""
    narrow = s < _WIDE
    return [
        tf.where(narrow, a, b)
        for a, b in zip(
            _over_gaussian(x, tf.minimum(s, _WIDE), orders), _over_gumbel(x, tf.maximum(s, _WIDE), orders), strict=True
        )
    ]


def _over_gaussian(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    t, w = np.polynomial.hermite_e.hermegauss(_NARROW_NODES[x.dtype.name])
    weights = tf.constant(w / w.sum(), x.dtype)
    v = x[..., tf.newaxis] - s[..., tf.newaxis] * tf.constant(t, x.dtype)
    # Below -6 the distribution function is as good as zero, while the powers of e still are numbers.
    e = tf.exp(-tf.maximum(v, -6.0))
    cdf = tf.exp(-e)
    # Derivatives of exp(-e), e' = -e.
    factors = {0: 1.0, 1: e, 2: e * (e - 1.0), 3: e * (1.0 + e * (e - 3.0))}
    return [tf.linalg.matvec(cdf * factors[order] if order else cdf, weights) for order in orders]


def _over_gumbel(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    g, w = _gumbel_nodes(x.dtype.name)
    weights = tf.constant(w, x.dtype)
    v = (x[..., tf.newaxis] - tf.constant(g, x.dtype)) / s[..., tf.newaxis]
    # The exponential tail of the Gumbel density from the last node on.
    last = float(g[-1])
    height = math.exp(-last - math.exp(-last))
    start = (x - last) / s
    end = tf.exp(-0.5 * tf.square(start) - LOG_SQRT_TWO_PI) / s
    tail = height * _tilted(start, s)
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

    return [tf.linalg.matvec(term(order), weights) + tails[order] for order in orders]


def _tilted(start: Any, s: Any) -> Any:
    """exp(s^2 / 2 - s start) Phi(start - s), the density at ``start`` of a Gaussian plus an exponential variable."""
    shifted = start - s
    # Below -10 the exponential would overflow and the product is as good as zero beside what the nodes before add.
    above = tf.maximum(shifted, -10.0)
    inside = tf.exp(-0.5 * tf.square(s) - s * above) * ndtr(above)
    return tf.where(shifted > -10.0, inside, tf.zeros_like(inside))


@tf.custom_gradient
def _convolution(x: Any, s: Any) -> tuple[tuple[Any, Any], Any]:
    """C and C' at x [N, n, Q] for deviations s [N, n or 1, 1]."""
    cdf, density = _derivatives(x, s, (0, 1))

    def gradient(by_cdf: Any, by_density: Any) -> tuple[Any, Any]:
        second, third = _derivatives(x, s, (2, 3))
        by_s = s * (by_cdf * second + by_density * third)
        if s.shape[1] == 1:
            by_s = tf.reduce_sum(by_s, axis=1, keepdims=True)
        return by_cdf * density + by_density * second, tf.reduce_sum(by_s, axis=2, keepdims=True)

    return (cdf, density), gradient
