"""Argmax readout under any Gaussian: orthant probabilities by Genz's sequential conditioning.

Class y wins where every difference g_y - g_k of scores is positive. Conditioning on one difference after the other,
along a Cholesky factor of their covariance, turns that orthant probability into the mean of a smooth, positive
function over the unit cube, here over scrambled Sobol points (Genz 1992).
"""

from typing import Any

import numpy as np
import tensorflow as tf

from deepsimplex.readout.logarithms import log_or_else
from deepsimplex.readout.normal import log_ndtr, log_ndtri, ndtr, smallest_mass, tiny_of
from deepsimplex.readout.points import sobol
from deepsimplex.readout.scores import score_covariance


def _others(n: int) -> np.ndarray:
    """For every class the other classes, shape [n, n - 1]."""
    k = np.arange(n - 1)
    return k + (k >= np.arange(n)[:, None])


def _differences(mean: Any, factor: Any) -> tuple[Any, Any]:
    """Means [N, n, n - 1] and covariances [N, n, n - 1, n - 1] of g_y - g_k, k != y, the likeliest losses first."""
    n = mean.shape[-1]
    covariance = score_covariance(mean, factor)
    variances = tf.linalg.diag_part(covariance)
    spread = variances[:, :, tf.newaxis] + variances[:, tf.newaxis, :] - 2.0 * covariance
    gap = mean[:, :, tf.newaxis] - mean[:, tf.newaxis, :]
    others = tf.constant(_others(n), tf.int32)[tf.newaxis]
    # Conditioning on the tightest constraint first leaves the least variance to the points.
    tightness = tf.stop_gradient(gap * tf.math.rsqrt(tf.maximum(spread, tiny_of(mean.dtype) ** 0.5)))
    order = tf.argsort(_along(tightness, tf.broadcast_to(others, tf.shape(gap[:, :, 1:]))), axis=-1)
    order = tf.gather(tf.broadcast_to(others, tf.shape(order)), order, batch_dims=2)
    own = tf.linalg.diag_part(covariance)[:, :, tf.newaxis]
    cross = _along(covariance, order)
    rows = tf.gather(covariance, order, batch_dims=1)
    pairs = tf.gather(rows, order, batch_dims=2, axis=3)
    pairs = pairs - cross[:, :, :, tf.newaxis] - cross[:, :, tf.newaxis, :] + own[:, :, :, tf.newaxis]
    return _along(gap, order), pairs


def _along(values: Any, order: Any) -> Any:
    return tf.gather(values, order, batch_dims=2)


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

    def logarithms() -> Any:
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

    return log_or_else(probabilities(mean, factor, num_points, seed), logarithms)


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
