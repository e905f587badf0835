"""Winning masses of scores that share their deviation: by a table of C for every row; their gradient by sums.

C is the distribution function of a Gaussian plus a standard Gumbel variable, as in ``gumbel_convolution``.
Where all classes of a row share a deviation s, C(u - m_k; s) is one function of one variable for all of them. The table
holds log(-log C), which is nearly linear at both ends (for s = 0 it is -x itself), and interpolates it by polynomials
of degree five through the value and two derivatives at every node: to 1e-9 in float64, whatever the scale, relative to
C and to its hazard rate C' / C as small as they may be. The gradient wants two derivatives more, of which such
polynomials tell little: it comes from the sums for every pair of a class and a node, in pieces of rows.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex._utils.batching import row_slices
from deepsimplex.readout.gumbel_convolution import convolution, derivatives, num_terms, survival
from deepsimplex.readout.normal import tiny_of
from deepsimplex.readout.quadrature import winning_masses

# Nodes of the table.
_NODES = {"float32": 96, "float64": 256}
# How far above the lowest argument the nodes begin to lie the farther apart.
_WIDTH = 9.0
# Standard deviations above the mean, beyond which nothing is told from one; and how far the exponential tail goes on.
_TOP = 38.0
# Numbers in the largest tensor of a piece of rows that is differentiated.
_BUDGET = 2**20


def num_nodes(dtype: tf.DType) -> int:
    """Nodes of the table of a row."""
    return _NODES[dtype.name]


@tf.custom_gradient
def shared_winning_masses(m: Any, s: Any, u: Any, weights: Any) -> tuple[Any, Any]:
    """``winning_masses`` of Gaussians plus Gumbel variables of one deviation per row, through a table.

    Parameters
    ----------
    m : tensor, shape [N, n]
        Means.
    s : tensor, shape [N, 1]
        Deviations.
    u, weights : tensor, shape [N, Q]
        Nodes, the first the least, and their weights. No variables.

    Returns
    -------
    tensor, shape [N, n]
        Its gradient is that of the sums without a table.
    """
    # Hidden from a tape that is open outside: eagerly it would keep every tensor of the table.
    means, deviations = tf.stop_gradient(m), tf.stop_gradient(s)
    x = u[:, tf.newaxis, :] - means[:, :, tf.newaxis]
    log_cdf, hazard = _log_cdf_and_hazard(x, deviations, u[:, :1])
    weighted = weights * tf.exp(tf.reduce_sum(log_cdf, axis=1))

    def gradient(upstream: Any) -> tuple[Any, Any, None, None]:
        parts = (m, s, u, weights, upstream)
        if m.shape[0] is None:  # XLA, which layers are compiled by, has no loops of unknown length
            return *_slopes(*parts), None, None
        row_size = m.shape[1] * u.shape[1] * num_terms(m.dtype)
        pieces = [
            _slopes(*(part[rows] for part in parts)) for rows in row_slices(m.shape[0], max(1, _BUDGET // row_size))
        ]
        by_m, by_s = (tf.concat(of_pieces, axis=0) for of_pieces in zip(*pieces, strict=True))
        return by_m, by_s, None, None

    return tf.reduce_sum(hazard * weighted[:, tf.newaxis, :], axis=-1), gradient


def _slopes(m: Any, s: Any, u: Any, weights: Any, upstream: Any) -> tuple[Any, Any]:
    """Derivatives by m and s of the masses, without a table."""
    with tf.GradientTape() as tape:
        tape.watch([m, s])
        values = convolution(u[:, tf.newaxis, :] - m[:, :, tf.newaxis], s[:, :, tf.newaxis])
        masses = winning_masses(*values, weights[:, tf.newaxis, :])
    by_m, by_s = tape.gradient(masses, [m, s], upstream)
    return by_m, by_s


def _log_cdf_and_hazard(x: Any, s: Any, low: Any) -> tuple[Any, Any]:
    """log C and C' / C at x [N, n, Q], none below ``low`` [N, 1], for deviations s [N, 1]."""
    farthest = tf.reduce_max(x, axis=[1, 2])[:, tf.newaxis]
    high = tf.minimum(farthest, _TOP * s - math.log(tiny_of(x.dtype)))
    last = num_nodes(x.dtype) - 1
    # Nodes at low + _WIDTH sinh(step j): as far apart as the integral's own.
    step = tf.asinh((high - low) / _WIDTH) / last
    coefficients = _coefficients(s, low, step, last)
    y = (x - low[:, :, tf.newaxis]) / _WIDTH
    y = tf.clip_by_value(y, 0.0, (high - low)[:, :, tf.newaxis] / _WIDTH)
    root = tf.sqrt(tf.square(y) + 1.0)
    position = tf.math.log(y + root) / step[:, :, tf.newaxis]  # asinh
    piece = tf.clip_by_value(tf.cast(position, tf.int32), 0, last - 1)
    t = position - tf.cast(piece, position.dtype)
    c = tf.unstack(tf.gather(coefficients, piece, batch_dims=1), axis=-1)
    value, slope = c[5], 5.0 * c[5]
    for power in (4, 3, 2, 1):
        value, slope = value * t + c[power], slope * t + power * c[power]
    log_cdf = -tf.exp(value * t + c[0])
    # The chain rule back from the position to x.
    return log_cdf, log_cdf * slope / (root * (_WIDTH * step[:, :, tf.newaxis]))


def _coefficients(s: Any, low: Any, step: Any, last: int) -> Any:
    """Coefficients [N, last, 6] of the polynomials between the nodes of the table, from their left ends in steps."""
    tau = step * tf.constant(np.arange(last + 1), s.dtype)
    above = _WIDTH * tf.sinh(tau)
    M, first, second = _log_minus_log(low + above, s)
    stretch = _WIDTH * tf.cosh(tau) * step
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


def _log_minus_log(x: Any, s: Any) -> tuple[Any, Any, Any]:
    """log(-log C) and its first two derivatives at x [N, G] for deviations s [N, 1]."""
    x, s = x[:, tf.newaxis, :], s[:, :, tf.newaxis]
    least = tiny_of(x.dtype)
    C, C1, C2 = (part[:, 0] for part in derivatives(x, s, (0, 1, 2)))
    rest = tf.maximum(survival(x, s)[:, 0], least)
    C = tf.maximum(C, least)
    log_cdf = tf.where(rest < 0.5, tf.math.log1p(-tf.minimum(rest, 0.5)), tf.math.log(C))
    hazard = C1 / C
    first = hazard / log_cdf
    second = (C2 / C - tf.square(hazard)) / log_cdf - tf.square(first)
    # What is as good as one has the exponential tail's.
    known = rest > 1e6 * least
    return (
        tf.math.log(-log_cdf),
        tf.where(known, first, -tf.ones_like(first)),
        tf.where(known, second, tf.zeros_like(second)),
    )
