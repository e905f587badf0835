"""Softmax readout: the expected softmax of the scores under a latent Gaussian."""

import math
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from deepsimplex._utils.portable_operations import log_sigmoid, smallest_normal
from deepsimplex._utils.validation import check_choice, check_whole
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import gumbel
from deepsimplex.readout.formula import ANY, EQUAL_VARIANCES, TWO_CLASSES, UNEQUAL_VARIANCES, Formula, choose
from deepsimplex.readout.normal import log_ndtr, log_or_else
from deepsimplex.readout.score_matrix import Scores, check_scores, difference
from deepsimplex.readout.sobol import gaussian

SoftmaxMethod = Literal["auto", "exact", "quasi_monte_carlo"]

_SAMPLES = 1024
# Standard deviation of the score difference above which the noise is the smooth part, not the logistic function.
_WIDE = 4.0


def _sampled_scores(scores: Scores, loc: Any, scale: Any, num_points: int, seed: int) -> Any:
    """Scores [N, n, points] at Sobol points, the same for all rows."""
    points = gaussian(num_points, loc.shape[1], seed)
    if scale.shape[-1] == 1:  # isotropic, or L = 1: every row has the same shape of noise
        noise = tf.constant(scores.centered @ points.T, loc.dtype) * tf.reshape(scale, [-1, 1, 1])
        return scores.mean(loc)[:, :, tf.newaxis] + noise
    mean, factor = scores.moments(loc, scale)
    return mean[:, :, tf.newaxis] + tf.matmul(factor, tf.constant(points.T, loc.dtype))


def _average(scores: Scores, loc: Any, scale: Any, num_points: int, seed: int, log: bool) -> Any:
    """Average of the softmax over Sobol points."""
    sampled = _sampled_scores(scores, loc, scale, num_points, seed)
    if log:
        return tf.reduce_logsumexp(tf.nn.log_softmax(sampled, axis=1), axis=-1) - math.log(num_points)
    return tf.reduce_sum(tf.nn.softmax(sampled, axis=1), axis=-1) / num_points


def _independent(scores: Scores, loc: Any, scale: Any, num_points: int, log: bool) -> Any:
    """Quadrature for independent scores; logarithms of small probabilities are averages over Sobol points."""
    p = gumbel.probabilities(*scores.independent_moments(loc, scale), num_points)
    if not log:
        return p
    sampled = partial(_average, scores, num_points=_SAMPLES, seed=0, log=True)
    return log_or_else(p, sampled, (loc, scale), least=gumbel.SMALLEST)


def _two_classes(scores: Scores, loc: Any, scale: Any, num_points: int, log: bool) -> Any:
    """E[sigmoid(x)], x ~ N(m, s^2), and that of -x, or their logarithms, by the trapezoidal rule.

    It is P[x + e > 0] with e logistic. Where s is large the integral runs over e, whose density keeps its width, with
    the distribution function of x inside: nodes spread over x would miss the step of the sigmoid.
    """
    m, variance = difference(*scores.moments(loc, scale))
    s = tf.sqrt(tf.maximum(variance, smallest_normal(loc.dtype) ** 0.5))
    m = tf.stack([m, -m], axis=1)  # [N, 2, 1]
    s = s[:, tf.newaxis]
    # Far below, sigmoid(x) = exp(x) sigmoid(-x) under the Gaussian that exp(x) tilts: neither rule reaches that far.
    half = 0.5 * tf.square(s)
    far = m < -half
    tilted, m = tf.where(far, m + half, tf.zeros_like(m)), tf.where(far, -m - 2.0 * half, m)
    x = np.linspace(-11.0, 11.0, num_points)
    log_density = -0.5 * x**2 - np.log(np.exp(-0.5 * x**2).sum())
    narrow = log_sigmoid(m + tf.minimum(s, _WIDE) * tf.constant(x, loc.dtype))
    narrow = tf.reduce_logsumexp(narrow + tf.constant(log_density, loc.dtype), axis=-1)
    e = np.linspace(-38.0, 38.0, num_points)
    log_logistic = -2.0 * np.log(2.0 * np.cosh(0.5 * e))
    log_logistic -= np.log(np.exp(log_logistic).sum())
    wide = log_ndtr((m + tf.constant(e, loc.dtype)) / tf.maximum(s, _WIDE))
    wide = tf.reduce_logsumexp(wide + tf.constant(log_logistic, loc.dtype), axis=-1)
    # Each on its own, so that the smaller keeps its precision; their sum is one but for quadrature error.
    log_p = tf.nn.log_softmax(tf.where(s[:, 0] < _WIDE, narrow, wide) + tilted[:, :, 0], axis=-1)
    return log_p if log else tf.exp(log_p)


FORMULAS = (
    Formula(
        "exact",
        TWO_CLASSES,
        None,
        _two_classes,
        default_points=lambda n, dtype: 128,
        row_size=lambda n, dims, points, dtype: 2 * points,
        cheap=True,
    ),
    Formula(
        "exact",
        EQUAL_VARIANCES,
        None,
        _independent,
        default_points=lambda n, dtype: gumbel.NODES[dtype.name],
        row_size=lambda n, dims, points, dtype: gumbel.row_size(n, True, points, dtype),
    ),
    Formula(
        "exact",
        UNEQUAL_VARIANCES,
        None,
        _independent,
        default_points=lambda n, dtype: gumbel.NODES[dtype.name],
        row_size=lambda n, dims, points, dtype: gumbel.row_size(n, False, points, dtype),
    ),
    Formula(
        "quasi_monte_carlo",
        ANY,
        None,
        _average,
        default_points=lambda n, dtype: _SAMPLES,
        row_size=lambda n, dims, points, dtype: n * max(points, dims),
    ),
)
"""Formulas of the softmax readout, in the order of preference."""


def softmax(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: SoftmaxMethod = "auto",
    num_points: int | None = None,
    seed: int = 0,
    log: bool = False,
) -> Any:
    """Expected softmax of the scores, E[softmax(scores f)] with f ~ N(loc, Sigma).

    Parameters
    ----------
    latent : LatentGaussian or dict
        Latents f, or the dict {"loc", "scale"}, in NumPy arrays or tensors. Scale zero gives softmax(scores loc).
        Arrays are checked. Tensors are not: the sign of a standard deviation does not matter, and NaN gives NaN in its
        own row.
        To read out through a target's noise, add it first: ``latent.with_noise(noise)``.
    scores : array_like, shape [n, L], optional
        Scores S: V^T (ILR), I (Dirichlet), tau P, or the vertices P (the default, L = n - 1).
    method : {"auto", "exact", "quasi_monte_carlo"}
        "exact" is a quadrature: for n = 2, for an isotropic scale with the scores of a regular simplex (ILR), and for
        independent components with scores proportional to the identity (Dirichlet), through the Gumbel identity.
        "quasi_monte_carlo" averages over Sobol points of matched moments, for any scale and scores. "auto" is exact
        where that is possible; ``method_for`` returns which.
    num_points : int, optional
        Quadrature nodes (default 128 for n = 2, else 80 in float32 and 128 in float64) or Sobol points, a power of
        two (default 1024).
    seed : int
        Seed of the Sobol scrambling for "quasi_monte_carlo". The same call gives the same answer, row by row.
    log : bool
        Return log-probabilities, which do not underflow. Below 1e-30 those of the Gumbel identity are sampled: they
        err by 0.07 where scores have standard deviation 2, by 0.4 at 3, and more beyond. Default False.

    Returns
    -------
    ndarray or tensor, shape [N, n]
        Rows sum to one. Tensors in, tensor out; the dtype is that of ``loc``, float32 for tensors of half precision.

    Raises
    ------
    ValueError
        When the shapes do not fit, or no exact method exists for method="exact".

    Notes
    -----
    [ILR-GP] sec. 3.2, [GPD] sec. 4. In float64 the quadratures err by 1e-12 for n = 2 and by 1e-9 otherwise, at any
    scale; in float32 by 1e-6; equal scores give 1/n to 1e-15. 1024 Sobol points err by about 1e-3 at ten classes and
    scales near one, and equal scores of any scale give 1/n to within that.

    Examples
    --------
    >>> import numpy as np
    >>> softmax({"loc": np.array([[2.0]]), "scale": np.array([[0.0]])}, scores=[[0.5], [-0.5]]).round(4)
    array([[0.8808, 0.1192]])
    """
    latent = LatentGaussian.of(latent)
    check_choice(method, "method", get_args(SoftmaxMethod))
    check_whole(seed, "seed", 0)
    chosen = choose(FORMULAS, latent.loc, latent.scale, check_scores(scores), method, num_points, seed)
    return chosen.predict(latent, log)
