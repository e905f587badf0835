"""Argmax readout of independent scores, exact by one-dimensional quadrature.

With independent scores g_k ~ N(m_k, t_k^2) the class probabilities are

    p(y) = int phi((u - m_y) / t_y) / t_y prod_{k != y} Phi((u - m_k) / t_k) du,

where u is the winning score. One grid in u serves all classes: with F(u) the product of all n
distribution functions, the integrand of class y is F times its own phi / Phi, so that a row costs n Q, not n^2 Q.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex.readout.normal import log_density, log_ndtr
from deepsimplex.readout.scores import noise_floor

# How far below the best score, in standard deviations, a winning score is looked for: it wins with a probability
# that the dtype can hold only above this.
_DEPTH = {"float32": 10.0, "float64": 28.0}
# Where panels of the composite rule meet, in standard deviations around every score. The best of n equal scores lies
# within 4 above them and varies less than each: panels are narrowest there.
_PANELS = {
    "float32": (-13.0, -5.0, -2.0, 0.0, 2.0, 4.0, 6.0),
    "float64": (-38.0, -20.0, -10.0, -5.0, -2.0, 0.0, 2.0, 4.0, 8.0),
}
NODES_PER_PANEL = {"float32": 10, "float64": 16}


def _margins(dtype: tf.DType) -> tuple[float, float]:
    """Exponents e^-x that count as nothing: for the two ends of the grid."""
    log_eps = -math.log(np.finfo(dtype.as_numpy_dtype).eps)
    return math.sqrt(log_eps), log_eps


def default_num_points(n: int, dtype: tf.DType) -> int:
    """Nodes of the uniform rule for n scores.

    Its error falls as exp(-2 pi^2 w^2 / h^2), h the step and w the width of the integrand, which narrows slowly as
    more scores compete.
    """
    if dtype == tf.float64:
        return 128
    return 48 if n <= 100 else 64


def num_panels(n: int, dtype: tf.DType) -> int:
    """Number of panels that ``unequal_variances`` lays for n scores."""
    return n * len(_PANELS[dtype.name]) - 1


def equal_variances(mean: Any, deviation: Any, num_points: int) -> Any:
    """Class probabilities of independent scores of one common variance, by the trapezoidal rule.

    Parameters
    ----------
    mean : tensor, shape [N, n]
        Mean scores.
    deviation : tensor, shape [N, 1]
        Their standard deviation; zero is the limit.
    num_points : int
        Number of nodes, spread evenly over the part of the line where any class's integrand counts.

    Returns
    -------
    tensor, shape [N, n]
        Log-probabilities.
    """
    t = tf.maximum(deviation, noise_floor(mean))
    # In units of t, relative to the best score: the answer knows differences only.
    a = (mean - tf.stop_gradient(tf.reduce_max(mean, axis=-1, keepdims=True))) / t
    below, log_eps = _margins(mean.dtype)
    # Against one rival the integrand of the worst class peaks halfway between the two; more rivals move it right.
    worst = tf.reduce_min(tf.stop_gradient(a), axis=-1, keepdims=True)
    low = tf.maximum(0.5 * worst, -_DEPTH[mean.dtype.name]) - below
    high = math.sqrt(2.0 * (math.log(mean.shape[-1]) + log_eps))
    step = (high - low) / (num_points - 1)
    u = low + step * tf.range(num_points, dtype=mean.dtype)
    z = u[:, tf.newaxis, :] - a[:, :, tf.newaxis]
    return _log_integral(z, tf.math.log(step)[:, :, tf.newaxis])


def unequal_variances(mean: Any, deviations: Any, num_points: int) -> Any:
    """Class probabilities of independent scores, each with its own variance, by composite Gauss-Legendre quadrature.

    The scores may differ in width by orders of magnitude, so the panels begin and end at fixed multiples of each
    score's own deviation around its mean.

    Parameters
    ----------
    mean, deviations : tensor, shape [N, n]
        Means and standard deviations of the scores.
    num_points : int
        Nodes per panel.

    Returns
    -------
    tensor, shape [N, n]
        Log-probabilities.
    """
    name = mean.dtype.name
    m = mean - tf.stop_gradient(tf.reduce_max(mean, axis=-1, keepdims=True))
    t = tf.maximum(deviations, noise_floor(mean))
    edges = np.asarray(_PANELS[name])
    centre, width = tf.stop_gradient(m)[:, :, tf.newaxis], tf.stop_gradient(t)[:, :, tf.newaxis]
    breaks = centre + width * tf.constant(edges, mean.dtype)
    low = tf.reduce_max(breaks[:, :, 0], axis=-1, keepdims=True)
    high = tf.reduce_max(breaks[:, :, -1], axis=-1, keepdims=True)
    breaks = tf.reshape(breaks, [-1, mean.shape[-1] * len(edges)])
    breaks = tf.sort(tf.clip_by_value(breaks, low, high), axis=-1)
    x, w = np.polynomial.legendre.leggauss(num_points)
    left, half = breaks[:, :-1, tf.newaxis], 0.5 * (breaks[:, 1:] - breaks[:, :-1])[:, :, tf.newaxis]
    u = tf.reshape(left + half * tf.constant(1.0 + x, mean.dtype), [-1, 1, (breaks.shape[-1] - 1) * len(x)])
    weights = tf.reshape(half * tf.constant(w, mean.dtype), tf.shape(u))
    # Panels shut by the clipping have no width: a floor stands in for the logarithm of zero.
    tiny = float(np.finfo(mean.dtype.as_numpy_dtype).tiny)
    z = (u - m[:, :, tf.newaxis]) / t[:, :, tf.newaxis]
    return _log_integral(z, tf.math.log(tf.maximum(weights, tiny)) - tf.math.log(t)[:, :, tf.newaxis])


def _log_integral(z: Any, log_weights: Any) -> Any:
    """Logarithm of sum_q w_q phi(z_yq) prod_{k != y} Phi(z_kq), for z of shape [N, n, Q], normalised over y.

    The sum over y is one but for quadrature error and round-off, which the normalisation shares out.
    """
    log_cdf = log_ndtr(z)
    log_maximum = tf.reduce_sum(log_cdf, axis=1, keepdims=True)
    log_integrand = log_weights + log_maximum + log_density(z) - log_cdf
    return tf.nn.log_softmax(tf.reduce_logsumexp(log_integrand, axis=-1), axis=-1)
