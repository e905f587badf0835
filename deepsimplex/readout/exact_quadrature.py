"""Argmax readout of independent scores, exact by one-dimensional quadrature.

With independent scores g_k ~ N(m_k, t_k^2) the class probabilities are

    p(y) = int phi((u - m_y) / t_y) / t_y prod_{k != y} Phi((u - m_k) / t_k) du,

where u is the winning score. One grid in u serves all classes: with F(u) the product of all n
distribution functions, the integrand of class y is F times its own phi / Phi, so that a row costs n Q, not n^2 Q.

Probabilities that the dtype can hold come from that product itself. Where they underflow its logarithm is computed,
at several times the cost, for batches of rows that need it. For many scores of one variance in single precision,
``tabulated_quadrature`` takes the place of nodes for every score.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import ndtri

from deepsimplex._utils.portable_operations import erfc, portable_format, smallest_normal
from deepsimplex.readout import tabulated_quadrature
from deepsimplex.readout.normal import log_density, log_ndtr, log_or_else, ndtr
from deepsimplex.readout.score_matrix import MANY_CLASSES, noise_floor

# How far below the best score, in standard deviations, a winning score is looked for: it wins with a probability
# that the dtype can hold only above this. Logarithms reach farther, to margins of 80 between two scores.
_DEPTH = {"float32": 9.0, "float64": 28.0}
_LOG_DEPTH, _LOG_NODES = 40.0, 256
# Where panels of the composite rule meet, in standard deviations around every score. The best of n equal scores lies
# within 4 above them and varies less than each: panels are narrowest there.
_PANELS = {
    "float32": (-13.0, -5.0, -2.0, 0.0, 2.0, 4.0, 6.0),
    "float64": (-38.0, -20.0, -10.0, -5.0, -2.0, 0.0, 2.0, 4.0, 8.0),
}
_LOG_PANELS = (-80.0, -60.0, -40.0, -28.0, *_PANELS["float64"][1:])
NODES_PER_PANEL = {"float32": 10, "float64": 16}


def default_num_points(n: int, dtype: tf.DType) -> int:
    """Nodes of the uniform rule for n scores.

    Its error falls as exp(-2 pi^2 w^2 / h^2), h the step and w the width of the integrand, which narrows slowly as
    more scores compete. A class far behind widens the step for all: these numbers suffice however far it is behind.
    """
    few, more, many = (128, 176, 208) if dtype == tf.float64 else (36, 48, 64)
    return few if n <= 16 else more if n <= 100 else many


def is_tabulated(n: int, num_points: int, dtype: tf.DType) -> bool:
    """Whether the default rule for n scores uses tables, which cost less than nodes for every score.

    They are of single precision, and made of operations that not every export format has.
    """
    tables = n >= MANY_CLASSES and dtype == tf.float32 and portable_format.get() is None
    return tables and num_points == default_num_points(n, dtype)


def row_size(n: int, dims: int, num_points: int, dtype: tf.DType) -> int:
    """Numbers in the largest tensor of a row of ``equal_variances``."""
    return tabulated_quadrature.row_size(n) if is_tabulated(n, num_points, dtype) else n * num_points


def num_panels(n: int, dtype: tf.DType) -> int:
    """Number of panels of ``unequal_variances`` for n scores."""
    return n * len(_PANELS[dtype.name]) - 1


def equal_variances(mean: Any, scale: Any, num_points: int, log: bool = False) -> Any:
    """Class probabilities of independent scores of one common variance, by the trapezoidal rule.

    Parameters
    ----------
    mean : tensor, shape [N, n]
        Mean scores.
    scale : tensor, shape [N, 1]
        Their standard deviation; zero is the limit.
    num_points : int
        Number of nodes, spread evenly over the part of the line where any class's integrand counts.
    log : bool
        Return logarithms, accurate to margins of 80 standard deviations, and finite beyond.

    Returns
    -------
    tensor, shape [N, n]
        Probabilities, of which those that the dtype cannot hold are zero, or logarithms.
    """
    # Relative to the best, in standard deviations: the answer depends on differences only.
    best = tf.stop_gradient(tf.reduce_max(mean, axis=-1, keepdims=True))
    a = (mean - best) * tf.math.reciprocal(tf.maximum(scale, noise_floor(mean)))
    if is_tabulated(a.shape[-1], num_points, a.dtype):
        return tabulated_quadrature.probabilities(a, log)
    probabilities = _equal_probabilities(a, *_even_nodes(a, num_points, _DEPTH[a.dtype.name]))
    if not log:
        return probabilities

    def logarithms(a: Any) -> Any:
        u, step = _even_nodes(a, max(num_points, _LOG_NODES), _LOG_DEPTH)
        z = u[:, tf.newaxis, :] - a[:, :, tf.newaxis]
        return tf.nn.log_softmax(_log_masses(z, step[:, :, tf.newaxis]), axis=-1)

    return log_or_else(probabilities, logarithms, (a,))


def unequal_variances(mean: Any, scale: Any, num_points: int, log: bool = False) -> Any:
    """Class probabilities of independent scores, each with its own variance, by composite Gauss-Legendre quadrature.

    The scores may differ in width by orders of magnitude, so the panels begin and end at fixed multiples of each
    score's own standard deviation around its mean.

    Parameters
    ----------
    mean, scale : tensor, shape [N, n]
        Means and standard deviations of the scores.
    num_points : int
        Nodes per panel.
    log : bool
        Return logarithms, accurate to margins of 80 of the narrower standard deviations.

    Returns
    -------
    tensor, shape [N, n]
        Probabilities, of which those that the dtype cannot hold are zero, or logarithms.
    """
    z, weights, width = _panel_nodes(mean, scale, num_points, _PANELS[mean.dtype.name])
    masses = winning_masses(ndtr(z), tf.exp(log_density(z)), weights) / width
    # Their sum is one up to quadrature error and round-off.
    probabilities = masses / tf.reduce_sum(masses, axis=-1, keepdims=True)
    if not log:
        return probabilities

    def logarithms(mean: Any, scale: Any) -> Any:
        z, weights, width = _panel_nodes(mean, scale, num_points, _LOG_PANELS)
        return tf.nn.log_softmax(_log_masses(z, weights) - tf.math.log(width), axis=-1)

    return log_or_else(probabilities, logarithms, (mean, scale))


def _even_nodes(a: Any, num_points: int, depth: float) -> tuple[Any, Any]:
    """Evenly spaced nodes u [N, Q] for standardized mean scores a [N, n], and their step [N, 1]."""
    # Against one rival the integrand of the worst class peaks halfway between the two, with a standard deviation of
    # sqrt(1/2); more rivals move it right and make it narrower. No more than round-off of a class's mass lies beyond
    # either end.
    eps = float(np.finfo(a.dtype.as_numpy_dtype).eps)
    worst = tf.reduce_min(tf.stop_gradient(a), axis=-1, keepdims=True)
    low = tf.maximum(0.5 * worst, -depth) + math.sqrt(0.5) * float(ndtri(eps))
    high = -float(ndtri(2.0 * eps / a.shape[-1]))
    step = (high - low) / (num_points - 1)
    return low + step * tf.range(num_points, dtype=a.dtype), step


def _panel_nodes(mean: Any, scale: Any, num_points: int, edges: tuple[float, ...]) -> tuple[Any, Any, Any]:
    """Standardized scores z [N, n, Q] at the nodes of all panels, the nodes' weights [N, 1, Q], and widths [N, n]."""
    m = mean - tf.stop_gradient(tf.reduce_max(mean, axis=-1, keepdims=True))
    t = tf.maximum(scale, noise_floor(mean))
    center, width = tf.stop_gradient(m)[:, :, tf.newaxis], tf.stop_gradient(t)[:, :, tf.newaxis]
    breaks = center + width * tf.constant(edges, mean.dtype)
    low = tf.reduce_max(breaks[:, :, 0], axis=-1, keepdims=True)
    high = tf.reduce_max(breaks[:, :, -1], axis=-1, keepdims=True)
    breaks = tf.reshape(breaks, [-1, mean.shape[-1] * len(edges)])
    breaks = tf.sort(tf.clip_by_value(breaks, low, high), axis=-1)
    x, w = np.polynomial.legendre.leggauss(num_points)
    left, half = breaks[:, :-1, tf.newaxis], 0.5 * (breaks[:, 1:] - breaks[:, :-1])[:, :, tf.newaxis]
    u = tf.reshape(left + half * tf.constant(1.0 + x, mean.dtype), [-1, 1, (breaks.shape[-1] - 1) * len(x)])
    weights = tf.reshape(half * tf.constant(w, mean.dtype), tf.shape(u))
    return (u - m[:, :, tf.newaxis]) / t[:, :, tf.newaxis], weights, t


@tf.custom_gradient
def _equal_probabilities(a: Any, u: Any, step: Any) -> tuple[Any, Any]:
    """sum_q step phi(u_q - a_y) prod_{k != y} Phi(u_q - a_k), shape [N, n], over its sum over the classes.

    Written out, with its gradient in a, because a training step through the readout spends its time here: every tensor
    of shape [N, n, Q] counts. Nodes and step are treated as constants.
    """
    n, root = a.shape[-1], math.sqrt(0.5)
    a, u = (root * a)[:, :, tf.newaxis], (root * u)[:, tf.newaxis, :]
    below = a - u
    twice_cdf = erfc(below)
    # The hazard rate phi / Phi up to a constant factor; where Phi vanishes, so does the product it is multiplied with.
    hazard = tf.math.divide_no_nan(tf.exp(below * (u - a)), twice_cdf)
    if n > 64:  # the powers of two would leave single precision
        product, halves = tf.reduce_prod(0.5 * twice_cdf, axis=1), 1.0
    else:
        product, halves = tf.reduce_prod(twice_cdf, axis=1), 0.5**n
    weighted = (halves * math.sqrt(2.0 / math.pi) * step) * product
    masses = tf.reduce_sum(hazard * weighted[:, tf.newaxis, :], axis=-1)
    # One up to quadrature error and round-off, which the division by it removes.
    total = tf.reduce_sum(masses, axis=-1, keepdims=True)

    def gradient(upstream: Any) -> tuple[Any, None, None]:
        # d p_y / d a_k = -sum_q w h_y h_k for k != y, and p does not change when all a move together.
        all_rivals = tf.reduce_sum(hazard, axis=1)
        rivals = tf.reduce_sum(upstream[:, :, tf.newaxis] * hazard, axis=1)
        by_all = tf.reduce_sum(hazard * (weighted * all_rivals)[:, tf.newaxis, :], axis=-1)
        by_rivals = tf.reduce_sum(hazard * (weighted * rivals)[:, tf.newaxis, :], axis=-1)
        return math.sqrt(2.0 / math.pi) * (upstream * by_all - by_rivals), None, None

    return masses / total, gradient


@tf.custom_gradient
def winning_masses(cdf: Any, density: Any, weights: Any) -> tuple[Any, Any]:
    """sum_q w_q C'_y(u_q) prod_{k != y} C_k(u_q): the probability that score y is the largest of independent ones.

    With its gradient written out: automatic differentiation would store a dozen tensors of this size, and the squares
    of reciprocals would overflow.

    Parameters
    ----------
    cdf, density : tensor, shape [N, n, Q]
        Distribution functions C_k of the scores at the nodes, and their derivatives by u, or by z in C(z).
    weights : tensor, shape [N, 1, Q]
        The nodes' weights, treated as constants.

    Returns
    -------
    tensor, shape [N, n]
    """
    reciprocal = 1.0 / tf.maximum(cdf, smallest_normal(cdf.dtype))
    # Where C vanishes, so does the product that the hazard rate C' / C is multiplied with.
    hazard = density * reciprocal
    weighted = weights * tf.reduce_prod(cdf, axis=1, keepdims=True)

    def gradient(upstream: Any) -> tuple[Any, Any, None]:
        g = upstream[:, :, tf.newaxis]
        without = weighted * reciprocal
        wins = g * hazard
        return without * (tf.reduce_sum(wins, axis=1, keepdims=True) - wins), without * g, None

    return tf.reduce_sum(weighted * hazard, axis=-1), gradient


@tf.custom_gradient
def _log_masses(z: Any, weights: Any) -> tuple[Any, Any]:
    """Logarithms of the ``winning_masses`` of normal scores z [N, n, Q], in log space throughout."""
    log_cdf = log_ndtr(z)
    log_hazard = log_density(z) - log_cdf
    # Panels shut by clipping have no width: a floor stands in for the logarithm of zero.
    log_weights = tf.math.log(tf.maximum(weights, smallest_normal(z.dtype)))
    terms = log_weights + tf.reduce_sum(log_cdf, axis=1, keepdims=True) + log_hazard
    answer = tf.reduce_logsumexp(terms, axis=-1, keepdims=True)

    def gradient(upstream: Any) -> tuple[Any, None]:
        shares = upstream[:, :, tf.newaxis] * tf.exp(terms - answer)
        return tf.exp(log_hazard) * (tf.reduce_sum(shares, axis=1, keepdims=True) - shares) - z * shares, None

    return answer[:, :, 0], gradient
