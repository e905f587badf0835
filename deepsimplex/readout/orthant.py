"""Argmax readout under any Gaussian: orthant probabilities by Genz's sequential conditioning.

Class y wins where every difference g_y - g_k of scores is positive. Conditioning on one difference after the other,
along a Cholesky factor of their covariance, turns that orthant probability into the mean of a smooth, positive
function over the unit cube, here over scrambled Sobol points (Genz 1992).
"""

from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex.readout.logarithms import log_or_else
from deepsimplex.readout.normal import log_density, log_ndtr, log_ndtri, ndtr, ndtri, smallest_mass, tiny_of
from deepsimplex.readout.points import sobol
from deepsimplex.readout.scores import score_covariance


def _contrasts(mean: Any, covariance: Any) -> Any:
    """Rows that make the differences g_y - g_k, k != y, of the scores, in the order of conditioning: [N, n, n - 1, n].

    The least likely to be positive come first, given that those before are positive, at their mean: conditioning on the
    tightest constraint first leaves the least variance to the points [Genz and Bretz 2009, sec. 4.1.3].
    """
    n = mean.shape[-1]
    own = tf.eye(n, dtype=mean.dtype)
    cross = covariance[:, :, :, tf.newaxis]  # [N, y, k, 1]
    variances = tf.linalg.diag_part(covariance)[:, :, tf.newaxis, tf.newaxis]
    pairs = covariance[:, tf.newaxis] - cross - tf.linalg.matrix_transpose(cross) + variances
    gap = mean[:, :, tf.newaxis] - mean[:, tf.newaxis, :]
    taken, contrasts = tf.broadcast_to(own, tf.shape(gap)), []
    for _ in range(n - 1):
        deviation = tf.sqrt(tf.maximum(tf.linalg.diag_part(pairs), tiny_of(mean.dtype) ** 0.5))
        z = gap / deviation
        tightest = tf.argmin(tf.where(taken > 0, tf.constant(np.inf, mean.dtype), z), axis=-1, output_type=tf.int32)
        chosen = tf.one_hot(tightest, n, dtype=mean.dtype)
        contrasts.append(own - chosen)
        taken = taken + chosen
        z, deviation = (tf.reduce_sum(part * chosen, axis=-1, keepdims=True) for part in (z, deviation))
        slope = tf.linalg.matvec(pairs, chosen) / deviation
        # Mean of a standard normal variable above -z.
        gap = gap + slope * tf.exp(log_density(z) - log_ndtr(z))
        pairs = pairs - slope[..., tf.newaxis] * slope[..., tf.newaxis, :]
    return tf.stop_gradient(tf.stack(contrasts, axis=2))


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
        draws.append(ndtri(w * tf.maximum(mass, smallest_mass(mean.dtype))))
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
    covariance = score_covariance(mean, factor)
    D = _contrasts(mean, covariance)
    C = tf.linalg.cholesky(tf.matmul(tf.matmul(D, covariance[:, tf.newaxis]), D, transpose_b=True))
    pivots = tf.linalg.diag_part(C)
    return tf.linalg.matvec(D, mean[:, tf.newaxis]) / pivots, C / pivots[..., tf.newaxis]


def _shift(weights: Any, draws: list[Any]) -> Any:
    """What the draws so far, each [N, n, points], take from the mean of the next difference."""
    i = len(draws)
    return tf.squeeze(tf.matmul(weights[:, :, i : i + 1, :i], tf.stack(draws, axis=2)), axis=2)
