"""Softmax readout of independent scores, exact by quadrature through the Gumbel identity.

With independent standard Gumbel variables G_k, softmax(g)_y = P[argmax_k (g_k + G_k) = y]. Of independent scores
g_k ~ N(m_k, s_k^2) the expected softmax is therefore the probability that the sum g_y + G_y is the largest,

    E[softmax(g)_y] = int C'_y(u) prod_{k != y} C_k(u) du,    C_k(u) = P[g_k + G_k <= u] = C(u - m_k; s_k).

C is the distribution function of a Gaussian plus a Gumbel variable, by quadrature too: over the Gaussian where that is
narrow, over the Gumbel variable where it is wide. Its derivatives come from the same sums, and the heat equation
dC/ds = s C'' gives the derivative by the Gaussian's standard deviation s.

Where all classes of a row share a standard deviation s, C(u - m_k; s) is one function of one variable for all of them,
and is interpolated from a table for each row, which is faster. The table holds log(-log C), which
is nearly linear at both ends (for s = 0 it is -x itself), and polynomials of degree five through the value and two
derivatives at every node: errors of 1e-9 in float64 at any scale, relative to C and to its hazard rate C' / C. The
gradient needs C'' / C besides, which comes from the same polynomials.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex._utils.portable_operations import expm1, log1p, smallest_normal
from deepsimplex.readout.exact_quadrature import winning_masses
from deepsimplex.readout.normal import log_density, ndtr

# How far above the best score the largest sum is looked for: its density falls by e^-1 per unit.
_REACH = {"float32": 17.0, "float64": 25.0}
# Standard deviations of a score below its mean at which its distribution function counts as zero.
_DEPTH = 9.0
# Probabilities above this have a small relative error.
SMALLEST = 1e-30
# Nodes of the integral over the largest sum.
NODES = {"float32": 80, "float64": 128}
# Nodes of the table; how far above the lowest argument they begin to lie farther apart; standard deviations above the
# mean at which 1 - C is no longer resolved.
_TABLE_NODES = {"float32": 96, "float64": 256}
_TABLE_WIDTH, _TABLE_TOP = 9.0, 38.0
# Standard deviation of the Gaussian from which C sums over the Gumbel variable, and Gauss-Hermite nodes below that.
_WIDE = 0.5
_NARROW_NODES = {"float32": 16, "float64": 32}
# Standard deviation beyond which the sums lose their precision, and a Gumbel variable beside it differs from a Gaussian
# of its variance by less than the precision aimed at (the sum's third cumulant is 2.4 / s^3 of the Gaussian's).
_WIDEST = {"float32": 100.0, "float64": 1000.0}
_GUMBEL_VARIANCE = math.pi**2 / 6.0
# Where the trapezoidal sum over the Gumbel variable begins, its step, and where its density is exponential to within
# the precision aimed at (1e-6 and 1e-10), so that the rest has a closed form.
_GUMBEL = {"float32": (-3.1, 0.5, 12.4), "float64": (-3.4, 0.4, 25.0)}


def num_terms(dtype: tf.DType) -> int:
    """Largest number of terms of the sums over the Gaussian and over the Gumbel variable."""
    return max(_NARROW_NODES[dtype.name], len(_gumbel_nodes(dtype.name)[0]))


def row_size(num_classes: int, shared: bool, num_points: int, dtype: tf.DType) -> int:
    """Numbers in the largest tensor of a row, for one standard deviation shared by its scores or one for each."""
    if shared:
        return _TABLE_NODES[dtype.name] * num_terms(dtype) + 6 * num_classes * num_points
    return num_classes * num_points * num_terms(dtype)


def probabilities(mean: Any, scale: Any, num_points: int) -> Any:
    """Expected softmax of independent Gaussian scores.

    Parameters
    ----------
    mean : tensor, shape [N, n]
        Mean scores.
    scale : tensor, shape [N, n] or [N, 1]
        Their standard deviations; zero is the limit.
    num_points : int
        Nodes of the integral over the largest sum.

    Returns
    -------
    tensor, shape [N, n]
        Probabilities; those that the dtype cannot hold are zero.
    """
    mean, scale = _narrowed(mean, scale)
    m = mean - tf.stop_gradient(tf.reduce_max(mean, axis=-1, keepdims=True))
    center, s = tf.stop_gradient(m), tf.stop_gradient(scale)
    low = tf.reduce_max(center - _DEPTH * s, axis=-1, keepdims=True) + _GUMBEL[mean.dtype.name][0]
    # The tail is exponential, and a Gaussian moves it up by s^2 / 2 before its own tail is left behind.
    high = tf.reduce_max(center + tf.minimum(0.5 * tf.square(s), 0.75 * _DEPTH * s), axis=-1, keepdims=True)
    high = high + math.log(mean.shape[-1]) + _REACH[mean.dtype.name]
    # A score's own part of the line, as wide as its standard deviation or the Gumbel variable's, lies within _DEPTH of
    # its widths from the low end: nodes may lie the farther apart the farther from it they are.
    reach = _asinh((high - low) / _DEPTH)
    tau = reach * tf.constant(np.linspace(0.0, 1.0, num_points), mean.dtype)
    sinh, cosh = _sinh_and_cosh(tau)
    u = low + _DEPTH * sinh
    weights = _DEPTH * cosh * (reach / (num_points - 1))
    if scale.shape[-1] == 1:
        masses = _shared_winning_masses(m, scale, u, weights)
    else:
        values = convolution(u[:, tf.newaxis, :] - m[:, :, tf.newaxis], scale[:, :, tf.newaxis])
        masses = winning_masses(*values, weights[:, tf.newaxis, :])
    return masses / tf.reduce_sum(masses, axis=-1, keepdims=True)


def _narrowed(mean: Any, scale: Any) -> tuple[Any, Any]:
    """Rescale the moments [N, n] of rows in which every score is too wide for the sums.

    A common factor on all sums g_k + G_k does not change which is the largest. It shrinks the narrowest Gaussian of a
    row to about ``_WIDEST``, with the variance that the Gumbel variables, which are not rescaled, would have lost.
    """
    widest = _WIDEST[mean.dtype.name]
    least = tf.maximum(tf.reduce_min(scale, axis=-1, keepdims=True), widest)
    # The squares of standard deviations would overflow.
    factor = (widest / least) * tf.sqrt((1.0 + _GUMBEL_VARIANCE / widest**2) / (1.0 + _GUMBEL_VARIANCE / least / least))
    return factor * mean, factor * scale


@tf.custom_gradient
def _shared_winning_masses(m: Any, s: Any, u: Any, weights: Any) -> tuple[Any, Any]:
    """``winning_masses`` of Gaussians plus Gumbel variables of one standard deviation per row, through a table.

    Parameters
    ----------
    m : tensor, shape [N, n]
        Means.
    s : tensor, shape [N, 1]
        Standard deviations.
    u, weights : tensor, shape [N, Q]
        Nodes, the first the smallest, and their weights, treated as constants.

    Returns
    -------
    tensor, shape [N, n]

    Notes
    -----
    With h_k = C'_k / C_k, r_k = C''_k / C_k and W the weights times the product of all C_k, a mass is sum_q W h_y. Its
    derivative by m_k is -sum_q W h_y h_k for k != y, and masses do not change when all means move together; by the heat
    equation and integration by parts that by s is s sum_q W (h_y sum_k r_k - r_y sum_k h_k).
    """
    # Not recorded by an outer gradient tape, which would keep every tensor of the table in eager mode.
    means, scale = tf.stop_gradient(m), tf.stop_gradient(s)
    x = u[:, tf.newaxis, :] - means[:, :, tf.newaxis]
    log_cdf, hazard, second_order = _log_cdf_and_hazard(x, scale, u[:, :1])
    weighted = weights * tf.exp(tf.reduce_sum(log_cdf, axis=1))

    def gradient(upstream: Any) -> tuple[Any, Any, None, None]:
        ratio, g = second_order(), upstream[:, :, tf.newaxis]
        all_hazards, all_ratios = tf.reduce_sum(hazard, axis=1), tf.reduce_sum(ratio, axis=1)
        by_hazard, by_ratio = tf.reduce_sum(g * hazard, axis=1), tf.reduce_sum(g * ratio, axis=1)
        terms = hazard * (
            weighted[:, tf.newaxis, :] * (g * all_hazards[:, tf.newaxis, :] - by_hazard[:, tf.newaxis, :])
        )
        by_s = tf.reduce_sum(weighted * (by_hazard * all_ratios - by_ratio * all_hazards), axis=1, keepdims=True)
        return tf.reduce_sum(terms, axis=-1), scale * by_s, None, None

    return tf.reduce_sum(hazard * weighted[:, tf.newaxis, :], axis=-1), gradient


def _log_cdf_and_hazard(x: Any, s: Any, low: Any) -> tuple[Any, Any, Callable[[], Any]]:
    """log C, C' / C and a function for C'' / C, at x [N, n, Q], none below ``low`` [N, 1], for deviations s [N, 1]."""
    farthest = tf.reduce_max(x, axis=[1, 2])[:, tf.newaxis]
    high = tf.minimum(farthest, _TABLE_TOP * s - math.log(smallest_normal(x.dtype)))
    last = _TABLE_NODES[x.dtype.name] - 1
    # Nodes at low + _TABLE_WIDTH sinh(step j): as far apart as the integral's own.
    step = _asinh((high - low) / _TABLE_WIDTH) / last
    coefficients = _coefficients(s, low, step, last)
    y = (x - low[:, :, tf.newaxis]) / _TABLE_WIDTH
    y = tf.clip_by_value(y, 0.0, (high - low)[:, :, tf.newaxis] / _TABLE_WIDTH)
    root = tf.sqrt(tf.square(y) + 1.0)
    position = _asinh(y) / step[:, :, tf.newaxis]
    piece = tf.clip_by_value(tf.cast(position, tf.int32), 0, last - 1)
    t = position - tf.cast(piece, position.dtype)
    c = tf.unstack(tf.gather(coefficients, piece, batch_dims=1), axis=-1)
    value, slope = c[5], 5.0 * c[5]
    for power in (4, 3, 2, 1):
        value, slope = value * t + c[power], slope * t + power * c[power]
    log_cdf = -tf.exp(value * t + c[0])
    rate = 1.0 / (root * (_TABLE_WIDTH * step[:, :, tf.newaxis]))  # the chain rule back from the position to x
    first = slope * rate
    hazard = log_cdf * first

    def second_order() -> Any:
        bend = 2.0 * c[2] + t * (6.0 * c[3] + t * (12.0 * c[4] + t * 20.0 * c[5]))
        second = bend * tf.square(rate) - first * y / (tf.square(root) * _TABLE_WIDTH)
        return hazard * (first + hazard) + log_cdf * second

    return log_cdf, hazard, second_order


def _coefficients(s: Any, low: Any, step: Any, last: int) -> Any:
    """Coefficients [N, last, 6] of the polynomials between the nodes of the table, from their left ends in steps."""
    tau = step * tf.constant(np.arange(last + 1), s.dtype)
    sinh, cosh = _sinh_and_cosh(tau)
    above = _TABLE_WIDTH * sinh
    M, first, second = _log_minus_log(low + above, s)
    stretch = _TABLE_WIDTH * cosh * step
    # Derivatives by the position in steps.
    first, second = first * stretch, second * tf.square(stretch) + first * above * tf.square(step)
    rise = M[:, 1:] - M[:, :-1]
    (f, f_next), (g, g_next) = ((part[:, :-1], part[:, 1:]) for part in (first, second))
    return tf.stack(
        [
            M[:, :-1],
            f,
            0.5 * g,
            10.0 * rise - 6.0 * f - 4.0 * f_next - 1.5 * g + 0.5 * g_next,
            -15.0 * rise + 8.0 * f + 7.0 * f_next + 1.5 * g - g_next,
            6.0 * rise - 3.0 * (f + f_next) + 0.5 * (g_next - g),
        ],
        axis=-1,
    )


def _sinh_and_cosh(x: Any) -> tuple[Any, Any]:
    """sinh and cosh from exponentials, which every export format has; small sinh have absolute precision only."""
    e = tf.exp(x)
    return 0.5 * (e - 1.0 / e), 0.5 * (e + 1.0 / e)


def _asinh(x: Any) -> Any:
    """asinh for x >= 0, from a logarithm, which every export format has."""
    return tf.math.log(x + tf.sqrt(tf.square(x) + 1.0))


def _log_minus_log(x: Any, s: Any) -> tuple[Any, Any, Any]:
    """log(-log C) and its first two derivatives at x [N, G] for standard deviations s [N, 1]."""
    x, s = x[:, tf.newaxis, :], s[:, :, tf.newaxis]
    least = smallest_normal(x.dtype)
    rest, C, C1, C2 = (part[:, 0] for part in derivatives(x, s, (-1, 0, 1, 2)))
    rest = tf.maximum(rest, least)
    C = tf.maximum(C, least)
    log_cdf = tf.where(rest < 0.5, log1p(-tf.minimum(rest, 0.5)), tf.math.log(C))
    hazard = C1 / C
    first = hazard / log_cdf
    second = (C2 / C - tf.square(hazard)) / log_cdf - tf.square(first)
    # Where C is nearly one, the derivatives are those of the exponential tail.
    known = rest > 1e6 * least
    return (
        tf.math.log(-log_cdf),
        tf.where(known, first, -tf.ones_like(first)),
        tf.where(known, second, tf.zeros_like(second)),
    )


def _gumbel_nodes(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the sum over the Gumbel variable, without its exponential tail."""
    first, step, last = _GUMBEL[dtype]
    g = np.arange(first, last + 0.5 * step, step)
    weights = step * np.exp(-g - np.exp(-g))
    weights[-1] *= 0.5
    return g, weights


def derivatives(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    """C and its derivatives by x at x [N, n, Q] for standard deviations s [N, n or 1, 1].

    ``orders`` are 0 to 3, or -1 for 1 - C, precise where it is small.
    """
    narrow = _over_gaussian(x, tf.minimum(s, _WIDE), orders)
    wide = _over_gumbel(x, tf.maximum(s, _WIDE), orders)
    return [tf.where(s < _WIDE, a, b) for a, b in zip(narrow, wide, strict=True)]


def _over_gaussian(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    """Sums over Gauss-Hermite nodes of the Gaussian."""
    t, w = np.polynomial.hermite_e.hermegauss(_NARROW_NODES[x.dtype.name])
    v = x[..., tf.newaxis] - s[..., tf.newaxis] * tf.constant(t, x.dtype)
    # Below -6 the distribution function is nearly zero, while the powers of e are still finite.
    e = tf.exp(-tf.maximum(v, -6.0))
    cdf = tf.exp(-e)
    terms = {
        -1: lambda: -expm1(-e),
        0: lambda: cdf,
        1: lambda: cdf * e,
        2: lambda: cdf * (e * (e - 1.0)),
        3: lambda: cdf * (e * (1.0 + e * (e - 3.0))),
    }
    return [_weighted(terms[order](), tf.constant(w / w.sum(), x.dtype)) for order in orders]


def _over_gumbel(x: Any, s: Any, orders: tuple[int, ...]) -> list[Any]:
    """Sums over nodes of the Gumbel variable, and the closed form of its exponential tail beyond the last."""
    g, w = _gumbel_nodes(x.dtype.name)
    scale, last = s[..., tf.newaxis], float(g[-1])
    v = (x[..., tf.newaxis] - tf.constant(g, x.dtype)) / scale
    start, height = (x - last) / s, math.exp(-last - math.exp(-last))
    tail = height * _tilted(start, s)
    end = height * tf.exp(log_density(start)) / s
    density = tf.exp(log_density(v)) / scale if max(orders) > 0 else None
    terms = {
        -1: lambda: (ndtr(-v), height * ndtr(-start) + tail),
        0: lambda: (ndtr(v), height * ndtr(start) - tail),
        1: lambda: (density, tail),
        2: lambda: (density * -v / scale, end - tail),
        3: lambda: (density * (tf.square(v) - 1.0) / tf.square(scale), -end * start / s - end + tail),
    }
    sums = [terms[order]() for order in orders]
    return [_weighted(term, tf.constant(w, x.dtype)) + rest for term, rest in sums]


def _weighted(terms: Any, weights: Any) -> Any:
    """Sums over the last axis of terms [..., T], as a product of two matrices."""
    return tf.tensordot(terms, weights, 1)


def _tilted(start: Any, s: Any) -> Any:
    """exp(s^2 / 2 - s start) Phi(start - s), the density at ``start`` of a Gaussian plus an exponential variable."""
    shifted = start - s
    # Below -10 the exponential would overflow, and the product is negligible beside the terms of the nodes before.
    above = tf.maximum(shifted, -10.0)
    inside = tf.exp(-0.5 * tf.square(s) - s * above) * ndtr(above)
    return tf.where(shifted > -10.0, inside, tf.zeros_like(inside))


@tf.custom_gradient
def convolution(x: Any, s: Any) -> tuple[tuple[Any, Any], Any]:
    """Compute the Gaussian-Gumbel convolution C and its derivative at x [N, n, Q], s [N, n or 1, 1]."""
    cdf, density = derivatives(x, s, (0, 1))

    def gradient(by_cdf: Any, by_density: Any) -> tuple[Any, Any]:
        second, third = derivatives(x, s, (2, 3))
        by_s = s * (by_cdf * second + by_density * third)
        if s.shape[1] == 1:
            by_s = tf.reduce_sum(by_s, axis=1, keepdims=True)
        return by_cdf * density + by_density * second, tf.reduce_sum(by_s, axis=2, keepdims=True)

    return (cdf, density), gradient
