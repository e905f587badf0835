"""Argmax readout under any Gaussian: orthant probabilities by Genz's sequential conditioning.

Class y wins where every difference g_y - g_k of scores is positive. Conditioning on one difference after the other,
along a Cholesky factor of their covariance, turns that orthant probability into the mean of a smooth, positive
function over the unit cube, here over scrambled Sobol points (Genz 1992).
"""

from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex.readout.logarithms import log_or_else
from deepsimplex.readout.normal import log_density, log_ndtr, log_ndtri, ndtr, smallest_mass, tiny_of
from deepsimplex.readout.points import sobol
from deepsimplex.readout.scores import score_covariance


def _others(n: int) -> np.ndarray:
    """For every class the other classes, shape [n, n - 1]."""
    k = np.arange(n - 1)
    return k + (k >= np.arange(n)[:, None])


def _differences(mean: Any, factor: Any) -> tuple[Any, Any]:
    """Means [N, n, n - 1] and covariances [N, n, n - 1, n - 1] of g_y - g_k, k != y, in the order of conditioning."""
    n = mean.shape[-1]
    covariance = score_covariance(mean, factor)
    others = tf.broadcast_to(tf.constant(_others(n), tf.int32), [tf.shape(mean)[0], n, n - 1])
    gap = _along(mean[:, :, tf.newaxis] - mean[:, tf.newaxis, :], others)
    own = tf.linalg.diag_part(covariance)[:, :, tf.newaxis]
    cross = _along(covariance, others)
    pairs = _along(tf.gather(covariance, others, batch_dims=1), others, axis=3)
    pairs = pairs - cross[:, :, :, tf.newaxis] - cross[:, :, tf.newaxis, :] + own[:, :, :, tf.newaxis]
    order = _tightest_first(tf.stop_gradient(gap), tf.stop_gradient(pairs))
    return _along(gap, order), _along(_along(pairs, order), order, axis=3)


def _along(values: Any, order: Any, axis: int = 2) -> Any:
    return tf.gather(values, order, batch_dims=2, axis=axis)


def _tightest_first(gap: Any, covariance: Any) -> Any:
    """Order [N, n, n - 1] in which the differences are conditioned on: the least likely to be positive first.

    Given that those before it are positive, at their mean: conditioning on the tightest constraint first leaves the
    least variance to the points [Genz and Bretz 2009, sec. 4.1.3].
    """
    count = gap.shape[-1]
    taken, order = tf.zeros_like(gap), []
    for _ in range(count):
        deviation = tf.sqrt(tf.maximum(tf.linalg.diag_part(covariance), tiny_of(gap.dtype) ** 0.5))
        z = gap / deviation
        tightest = tf.argmin(tf.where(taken > 0, tf.constant(np.inf, gap.dtype), z), axis=-1, output_type=tf.int32)
        order.append(tightest)
        chosen = tf.one_hot(tightest, count, dtype=gap.dtype)
        taken = taken + chosen
        z, deviation = (tf.reduce_sum(part * chosen, axis=-1, keepdims=True) for part in (z, deviation))
        slope = tf.linalg.matvec(covariance, chosen) / deviation
        # Mean of a standard normal variable above -z.
        gap = gap + slope * tf.exp(log_density(z) - log_ndtr(z))
        covariance = covariance - slope[..., tf.newaxis] * slope[..., tf.newaxis, :]
    return tf.stack(order, axis=-1)


def probabilities(mean: Any, factor: Any, num_points: int, seed: int) -> Any:
    """Class probabilities of jointly Gaussian scores, normalised over the classes.

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
    n = mean.shape[-1]
    centre, weights = _conditions(mean, factor)
    points = sobol(num_points, max(n - 2, 1), seed)
    mass = ndtr(centre[:, :, :1])  # of the next difference being positive, given those before: [N, n, points]
    product = mass
    draws: list[Any] = []
    for i in range(1, n - 1):
        w = tf.constant(points[:, i - 1], mean.dtype)
        # -draws is normal, truncated to where difference i - 1 is positive.
        draws.append(tf.math.ndtri(w * tf.maximum(mass, smallest_mass(mean.dtype))))
        mass = ndtr(centre[:, :, i : i + 1] - _shift(weights, draws))
        product = product * mass
    answer = tf.reduce_mean(product, axis=-1)
    return answer / tf.reduce_sum(answer, axis=-1, keepdims=True)


def log_probabilities(mean: Any, factor: Any, num_points: int, seed: int) -> Any:
    """Their logarithms, for probabilities that the dtype cannot hold too."""

    def logarithms(mean: Any, factor: Any) -> Any:
        n = mean.shape[-1]
        centre, weights = _conditions(mean, factor)
        points = sobol(num_points, max(n - 2, 1), seed)
        log_mass = log_ndtr(centre[:, :, :1])
        total = log_mass
        draws: list[Any] = []
        for i in range(1, n - 1):
            log_w = tf.constant(np.log(points[:, i - 1]), mean.dtype)
            draws.append(log_ndtri(log_w + log_mass))
            log_mass = log_ndtr(centre[:, :, i : i + 1] - _shift(weights, draws))
            total = total + log_mass
        return tf.nn.log_softmax(tf.reduce_logsumexp(total, axis=-1), axis=-1)

    return log_or_else(probabilities(mean, factor, num_points, seed), logarithms, (mean, factor))


def _conditions(mean: Any, factor: Any) -> tuple[Any, Any]:
    """Standardised means [N, n, n - 1] of the differences, and how each depends on the draws before it."""
    gap, covariance = _differences(mean, factor)
    C = tf.linalg.cholesky(covariance)
    pivots = tf.linalg.diag_part(C)
    return gap / pivots, C / pivots[..., tf.newaxis]


def _shift(weights: Any, draws: list[Any]) -> Any:
    """What the draws so far, each [N, n, points], take from the mean of the next difference."""
    i = len(draws)
    return tf.squeeze(tf.matmul(weights[:, :, i : i + 1, :i], tf.stack(draws, axis=2)), axis=2)
