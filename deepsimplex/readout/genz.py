"""Argmax readout under any Gaussian: orthant probabilities by Genz's method, sequential conditioning.

Class y wins where every difference g_y - g_k of scores is positive. Conditioning on one difference after the other,
along a pivoted Cholesky factor of their covariance, turns that orthant probability into the mean of a smooth, positive
function over the unit cube, here over scrambled Sobol points (Genz 1992).
"""

from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex._utils.portable_operations import diag_part
from deepsimplex.readout.normal import (
    log_density,
    log_ndtr,
    log_ndtri,
    log_or_else,
    ndtr,
    ndtri,
    smallest_mass,
    tiny_of,
)
from deepsimplex.readout.score_matrix import score_covariance
from deepsimplex.readout.sobol_points import sobol


def probabilities(mean: Any, factor: Any, num_points: int, seed: int) -> Any:
    """Class probabilities of jointly Gaussian scores, normalized over the classes.

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

    Returns
    -------
    tensor, shape [N, n]
    """
    return _shares(_conditions(mean, factor), num_points, seed, mean.dtype)


def log_probabilities(mean: Any, factor: Any, num_points: int, seed: int) -> Any:
    """Logarithms of the class probabilities, also of those that underflow."""
    conditions = _conditions(mean, factor)

    def logarithms(*parts: Any) -> Any:
        masses = _masses(tf.nest.pack_sequence_as(conditions, parts), num_points, seed, mean.dtype, log=True)
        return tf.nn.log_softmax(tf.reduce_logsumexp(masses, axis=-1), axis=-1)

    return log_or_else(_shares(conditions, num_points, seed, mean.dtype), logarithms, tf.nest.flatten(conditions))


def _shares(conditions: list[tuple[Any, Any]], num_points: int, seed: int, dtype: tf.DType) -> Any:
    masses = tf.reduce_sum(_masses(conditions, num_points, seed, dtype, log=False), axis=-1)
    return masses / tf.reduce_sum(masses, axis=-1, keepdims=True)


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
    own = diag_part(covariance)[:, :, tf.newaxis]
    variance = own + tf.linalg.matrix_transpose(own) - 2.0 * covariance
    gap = mean[:, :, tf.newaxis] - mean[:, tf.newaxis, :]
    expected, taken = tf.stop_gradient(gap), tf.broadcast_to(tf.eye(n, dtype=mean.dtype), tf.shape(gap))
    least = tiny_of(mean.dtype) ** 0.5
    slopes: list[Any] = []
    conditions = []
    for _ in range(n - 1):
        z = tf.stop_gradient(expected / tf.sqrt(tf.maximum(variance, least)))
        tightest = tf.argmin(tf.where(taken > 0, tf.constant(np.inf, mean.dtype), z), axis=-1, output_type=tf.int32)
        chosen = tf.one_hot(tightest, n, dtype=mean.dtype)
        taken = taken + chosen
        std = tf.sqrt(tf.maximum(_of(chosen, variance), least))
        before = tf.stack(slopes, axis=2) if slopes else tf.zeros_like(gap)[:, :, :0, tf.newaxis]
        weights = tf.reduce_sum(chosen[:, :, tf.newaxis] * before, axis=-1)
        # Covariances with the chosen difference, less what the draws before explain.
        of_rival = tf.matmul(chosen, covariance)
        slope = of_rival - covariance - diag_part(of_rival)[:, :, tf.newaxis] + own
        slope = (slope - tf.squeeze(tf.matmul(weights[:, :, tf.newaxis], before), axis=2)) / std
        conditions.append((_of(chosen, gap) / std, weights / std))
        # The mean of a standard normal variable above -z.
        z = _of(chosen, z)
        expected = expected + tf.stop_gradient(slope) * tf.exp(log_density(z) - log_ndtr(z))
        variance = variance - tf.square(slope)
        slopes.append(slope)
    return conditions


def _of(chosen: Any, values: Any) -> Any:
    """The values [N, n, n] of the chosen rivals, shape [N, n, 1]. Not a gather, which XLA could not differentiate."""
    return tf.reduce_sum(chosen * values, axis=-1, keepdims=True)


def _given(condition: tuple[Any, Any], draws: list[Any]) -> Any:
    """Standardized mean [N, n, points] of a difference, given the draws before it, each [N, n, points]."""
    center, weights = condition
    return center - tf.squeeze(tf.matmul(weights[:, :, tf.newaxis], tf.stack(draws, axis=2)), axis=2)
