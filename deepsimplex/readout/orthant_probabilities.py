"""Argmax readout under any Gaussian: orthant probabilities of score differences, which are correlated.

**Three classes** (``three_classes``) are exact by quadrature over directions. Three scores differ in a plane. There
each class wins in a wedge, and the three wedges meet where all scores tie. In coordinates in which the Gaussian is
standard normal and that meeting point is a, the mass along the direction e is

    1/(2 pi) int_0^inf r exp(-||a + r e||^2 / 2) dr = exp(-||a||^2 / 2) / (2 pi) R(a . e),
    R(b) = 1 - b sqrt(2 pi) exp(b^2 / 2) Phi(-b),

and a class probability is the integral of that over the angles of its wedge. The integrand is positive, smooth and
known in log space, so that no difference of Owen's T functions is needed, which would lose small probabilities.

**More classes** (``genz``) take sequential conditioning. Class y wins where every difference g_y - g_k of scores is
positive. Conditioning on one difference after the other, along a pivoted Cholesky factor of their covariance, turns
that orthant probability into the mean of a smooth, positive function over the unit cube, here over scrambled Sobol
points (Genz 1992).
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex._utils.portable_operations import diag_part, log1p, smallest_normal
from deepsimplex.geometry import helmert
from deepsimplex.readout.normal import log_density, log_ndtr, log_ndtri, log_or_else, ndtr, ndtri, smallest_mass
from deepsimplex.readout.score_matrix import noise_floor, score_covariance
from deepsimplex.readout.sobol import sobol

# Where panels of the Gauss-Legendre rule meet, in units of the angle over which the integrand falls to 1/e.
_EDGES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 40.0)
NODES_PER_PANEL = {"float32": 10, "float64": 16}
# Panels of the three wedges, on both sides of their peaks.
PANELS = 3 * 2 * len(_EDGES)
# From here on R comes from its continued fraction: 1 - b M(b) would cancel.
_FAR, _LEVELS = 3.0, {"float32": 8, "float64": 24}


def three_classes(mean: Any, factor: Any, num_points: int, log: bool = False) -> Any:
    """Class probabilities of three jointly Gaussian scores, exact by quadrature over directions.

    Parameters
    ----------
    mean : tensor, shape [N, 3]
        Mean scores.
    factor : tensor, shape [N, 3, L]
        Factor G of their covariance G G^T.
    num_points : int
        Nodes per panel.
    log : bool
        Return logarithms.

    Returns
    -------
    tensor, shape [N, 3]
    """
    apex, first, second = _wedges(mean, factor)
    opening = _angle(first, second)
    # The integrand peaks in the direction from the apex to the mean, or on the wedge's ray nearest to that.
    towards = _angle(first, -apex)
    past_first, past_second = -towards, towards + 2.0 * math.pi - opening
    towards = tf.where((towards < 0) & (past_second < past_first), opening, towards)
    share = tf.stop_gradient(tf.clip_by_value(towards / opening, 0.0, 1.0))
    sides = [_log_side(apex, first, share * opening, end, num_points) for end in (tf.zeros_like(opening), opening)]
    log_p = tf.nn.log_softmax(tf.reduce_logsumexp(tf.stack(sides, axis=-1), axis=-1), axis=-1)
    return log_p if log else tf.exp(log_p)


def _wedges(mean: Any, factor: Any) -> tuple[Any, Any, Any]:
    """The point [N, 1, 2] where all scores tie, and the rays [N, 3, 2] with which each class's wedge begins and ends.

    In coordinates of the plane of score differences in which the Gaussian is standard normal.
    """
    basis = helmert(3)
    V = tf.constant(basis, mean.dtype)
    # Gram-Schmidt on the rows of the factor: a covariance would square the ratio of its two standard deviations. Noise
    # of the size of the scores' round-off keeps the rows apart.
    floor = noise_floor(mean)[:, :, tf.newaxis] * tf.eye(2, dtype=mean.dtype)
    first, second = tf.unstack(tf.concat([tf.matmul(V, factor), floor], axis=-1), axis=1)
    width = tf.norm(first, axis=-1, keepdims=True)
    first = first / width
    slope = tf.reduce_sum(first * second, axis=-1, keepdims=True)
    rest = tf.norm(second - slope * first, axis=-1, keepdims=True)

    def whitened(points: Any) -> Any:
        along = points[..., :1] / width[:, tf.newaxis]
        return tf.concat([along, (points[..., 1:] - slope[:, tf.newaxis] * along) / rest[:, tf.newaxis]], axis=-1)

    apex = whitened(-tf.matmul(mean, V, transpose_b=True)[:, tf.newaxis])
    # Away from the column of class l runs the ray on which its two rivals tie; counter-clockwise from class 0 to 2.
    rays = whitened(tf.constant(-basis.T[[1, 2, 0]], mean.dtype)[tf.newaxis])
    rays = rays / tf.norm(rays, axis=-1, keepdims=True)
    return apex, rays, tf.roll(rays, -1, axis=1)


def _cross(a: Any, b: Any) -> Any:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _dot(a: Any, b: Any) -> Any:
    return tf.reduce_sum(a * b, axis=-1)


def _angle(a: Any, b: Any) -> Any:
    """Angle from a to b, counter-clockwise, between -pi and pi."""
    return tf.math.atan2(_cross(a, b), _dot(a, b))


def _log_side(apex: Any, ray: Any, begin: Any, end: Any, num_points: int) -> Any:
    """Logarithm of the mass between two angles [N, 3] from ``ray``, the first of which is where the integrand peaks."""
    forward, across = _along(apex, ray, begin[:, :, tf.newaxis])
    distance = tf.norm(apex, axis=-1)
    fall = tf.abs(across) * tf.maximum(forward, 0.0) + distance[:, :, tf.newaxis]
    length = (end - begin)[:, :, tf.newaxis]
    unit = tf.stop_gradient(tf.minimum(1.0 / (fall * tf.abs(length) + smallest_normal(apex.dtype) ** 0.25), 1.0))
    inner = tf.minimum(unit * tf.constant(_EDGES, apex.dtype), 1.0)
    breaks = tf.concat([inner, tf.ones_like(length)], axis=-1)
    x, w = np.polynomial.legendre.leggauss(num_points)
    half = 0.5 * (breaks[:, :, 1:] - breaks[:, :, :-1])[..., tf.newaxis]
    shares = breaks[:, :, :-1, tf.newaxis] + half * tf.constant(1.0 + x, apex.dtype)
    flat = [-1, 3, half.shape[2] * num_points]
    angles = begin[:, :, tf.newaxis] + length * tf.reshape(shares, flat)
    weights = tf.abs(length) * tf.reshape(half * tf.constant(w, apex.dtype), flat)
    # Panels without width: a floor stands in for the logarithm of zero.
    log_weights = tf.math.log(tf.maximum(weights, smallest_normal(apex.dtype)))
    return tf.reduce_logsumexp(log_weights + _log_mass(*_along(apex, ray, angles)), axis=-1)


def _along(apex: Any, ray: Any, angles: Any) -> tuple[Any, Any]:
    """How far the mean lies from the apex along directions at ``angles`` [N, 3, Q] from ``ray``, and across them."""
    along, across = -_dot(apex, ray)[:, :, tf.newaxis], -_cross(ray, apex)[:, :, tf.newaxis]
    cosine, sine = tf.cos(angles), tf.sin(angles)
    return along * cosine + across * sine, across * cosine - along * sine


def _log_mass(forward: Any, across: Any) -> Any:
    """Logarithm of the mass per angle along directions from the apex, with the mean ``forward`` and ``across``."""
    near = tf.maximum(forward, -_FAR)
    inside = tf.exp(-0.5 * tf.square(near)) + math.sqrt(2.0 * math.pi) * near * ndtr(near)
    far = tf.maximum(-forward, _FAR)
    levels = _LEVELS[forward.dtype.name]
    tail = far
    for level in range(levels, 1, -1):
        tail = far + level / tail
    outside = -0.5 * tf.square(far) - log1p(far * tail)
    log_radial = tf.where(forward > -_FAR, tf.math.log(inside), outside)
    return log_radial - 0.5 * tf.square(across) - math.log(2.0 * math.pi)


def genz(mean: Any, factor: Any, num_points: int, seed: int, log: bool = False) -> Any:
    """Class probabilities of jointly Gaussian scores by Genz's method, normalized over the classes.

    Parameters
    ----------
    mean : tensor, shape [N, n]
        Mean scores.
    factor : tensor, shape [N, n, L]
        Factor G of their covariance G G^T.
    num_points : int
        Number of Sobol points, a power of two.
    seed : int
        Seed of their scrambling.
    log : bool
        Return logarithms, also of probabilities that underflow.

    Returns
    -------
    tensor, shape [N, n]
    """
    conditions = _conditions(mean, factor)
    masses = tf.reduce_sum(_masses(conditions, num_points, seed, mean.dtype, log=False), axis=-1)
    probabilities = masses / tf.reduce_sum(masses, axis=-1, keepdims=True)
    if not log:
        return probabilities

    def logarithms(*parts: Any) -> Any:
        masses = _masses(tf.nest.pack_sequence_as(conditions, parts), num_points, seed, mean.dtype, log=True)
        return tf.nn.log_softmax(tf.reduce_logsumexp(masses, axis=-1), axis=-1)

    return log_or_else(probabilities, logarithms, tf.nest.flatten(conditions))


def _masses(conditions: list[tuple[Any, Any]], num_points: int, seed: int, dtype: tf.DType, log: bool) -> Any:
    """Product [N, n, points] of the conditional probabilities that differences are positive, or its logarithm."""
    first, *others = conditions
    points = sobol(num_points, max(len(others), 1), seed)
    cdf = log_ndtr if log else ndtr
    mass = cdf(first[0])  # of the next difference being positive, given those before
    total = mass
    draws: list[Any] = []
    for point, condition in zip(points.T, others, strict=False):
        # -draws is normal, truncated to where the difference before is positive.
        if log:
            draws.append(log_ndtri(tf.constant(np.log(point), dtype) + mass))
        else:
            draws.append(ndtri(tf.constant(point, dtype) * tf.maximum(mass, smallest_mass(dtype))))
        mass = cdf(_given(condition, draws))
        total = total + mass if log else total * mass
    return total


def _conditions(mean: Any, factor: Any) -> list[tuple[Any, Any]]:
    """Differences g_y - g_k, k != y, of the scores, one after the other for every class y, each given those before it.

    A Cholesky factorization with pivoting: next comes the difference that is least likely to be positive, with those
    before at their mean given that they are positive. Conditioning on the tightest constraint first leaves the least
    variance to the points [Genz and Bretz 2009, sec. 4.1.3].

    Returns
    -------
    list of (center, weights)
        For difference i: its mean [N, n, 1] and the weights [N, n, i] of the draws before it, which are subtracted,
        both in units of its standard deviation given those draws.
    """
    n = mean.shape[-1]
    covariance = score_covariance(mean, factor)
    variances = diag_part(covariance)[:, :, tf.newaxis]
    variance = variances + tf.linalg.matrix_transpose(variances) - 2.0 * covariance
    gap = mean[:, :, tf.newaxis] - mean[:, tf.newaxis, :]
    expected, taken = tf.stop_gradient(gap), tf.broadcast_to(tf.eye(n, dtype=mean.dtype), tf.shape(gap))
    least = smallest_normal(mean.dtype) ** 0.5
    slopes: list[Any] = []
    conditions = []
    for _ in range(n - 1):
        z = tf.stop_gradient(expected / tf.sqrt(tf.maximum(variance, least)))
        tightest = tf.argmin(tf.where(taken > 0, tf.constant(np.inf, mean.dtype), z), axis=-1, output_type=tf.int32)
        chosen = tf.one_hot(tightest, n, dtype=mean.dtype)
        taken = taken + chosen
        std = tf.sqrt(tf.maximum(_select(chosen, variance), least))
        # Covariances with the chosen difference, less what the draws before explain.
        rival = tf.matmul(chosen, covariance)
        slope = rival - covariance - diag_part(rival)[:, :, tf.newaxis] + variances
        weights = gap[:, :, :0]
        if slopes:
            before = tf.stack(slopes, axis=2)
            weights = tf.reduce_sum(chosen[:, :, tf.newaxis] * before, axis=-1)
            slope = slope - tf.squeeze(tf.matmul(weights[:, :, tf.newaxis], before), axis=2)
        slope = slope / std
        conditions.append((_select(chosen, gap) / std, weights / std))
        # The mean of a standard normal variable above -z.
        z = _select(chosen, z)
        expected = expected + tf.stop_gradient(slope) * tf.exp(log_density(z) - log_ndtr(z))
        variance = variance - tf.square(slope)
        slopes.append(slope)
    return conditions


def _select(chosen: Any, values: Any) -> Any:
    """The values [N, n, n] of the chosen rivals, shape [N, n, 1]. Not a gather, which XLA could not differentiate."""
    return tf.reduce_sum(chosen * values, axis=-1, keepdims=True)


def _given(condition: tuple[Any, Any], draws: list[Any]) -> Any:
    """Standardized mean [N, n, points] of a difference, given the draws before it, each [N, n, points]."""
    center, weights = condition
    return center - tf.squeeze(tf.matmul(weights[:, :, tf.newaxis], tf.stack(draws, axis=2)), axis=2)
