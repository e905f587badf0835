"""Softmax readout of independent scores, exact by quadrature, through the Gumbel identity.

With independent standard Gumbel variables G_k, softmax(g)_y = P[argmax_k (g_k + G_k) = y]. Of independent scores
g_k ~ N(m_k, s_k^2) the expected softmax is therefore the probability that the sum g_y + G_y is the largest,

    E[softmax(g)_y] = int C'_y(u) prod_{k != y} C_k(u) du,    C_k(u) = P[g_k + G_k <= u] = C(u - m_k; s_k).

C is the distribution function of a Gaussian plus a Gumbel variable, by quadrature too; where the scores share their
deviation, from a table.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex.readout.gumbel_convolution import convolution, lowest, num_terms
from deepsimplex.readout.gumbel_table import num_nodes, shared_winning_masses
from deepsimplex.readout.quadrature import winning_masses

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


def row_size(num_classes: int, shared: bool, num_points: int, dtype: tf.DType) -> int:
    """Numbers in the largest tensor of a row, for one deviation shared by its scores or one for each."""
    if shared:
        return num_nodes(dtype) * num_terms(dtype) + 6 * num_classes * num_points
    return num_classes * num_points * num_terms(dtype)


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
    center, s = tf.stop_gradient(m), tf.stop_gradient(deviations)
    low = tf.reduce_max(center - _DEPTH * s, axis=-1, keepdims=True) + lowest(mean.dtype)
    # The tail is exponential, and a Gaussian moves it up by s^2 / 2 before its own tail is left behind.
    high = tf.reduce_max(center + tf.minimum(0.5 * tf.square(s), 0.75 * _DEPTH * s), axis=-1, keepdims=True)
    high = high + math.log(mean.shape[-1]) + _REACH[mean.dtype.name]
    # A score's own part of the line, as wide as its deviation or the Gumbel variable's, lies within so many of its
    # widths from the low end: nodes may lie the farther apart the farther from it they are.
    reach = tf.asinh((high - low) / _DEPTH)
    tau = reach * tf.constant(np.linspace(0.0, 1.0, num_points), mean.dtype)
    u = low + _DEPTH * tf.sinh(tau)
    weights = _DEPTH * tf.cosh(tau) * (reach / (num_points - 1))
    if deviations.shape[-1] == 1:
        masses = shared_winning_masses(m, deviations, u, weights)
    else:
        values = convolution(u[:, tf.newaxis, :] - m[:, :, tf.newaxis], deviations[:, :, tf.newaxis])
        masses = winning_masses(*values, weights[:, tf.newaxis, :])
    return masses / tf.reduce_sum(masses, axis=-1, keepdims=True)
