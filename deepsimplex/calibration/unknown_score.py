"""Score of samples of no known class, from class probabilities and latent variances."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import tf
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.validation import check_array

# Number of quantiles that are stored: scores have a resolution of a thousandth.
_QUANTILES = 1000
_LEVELS = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
# Exponent of the generalized entropy, and weight of squared variances.
_EXPONENT, _VARIANCE_WEIGHT = 0.1, 0.1


class UnknownScore:
    """Score of samples of no known class: the share of known samples that look more known, [N], from 0 to 1.

    With the generalized entropy G = sum_k (p_k (1 - p_k))^0.1 of class probabilities p, and the variance v of a latent,
    both minus their mean and in units of their standard deviation over known samples, samples are ordered by

        G + max(0, v)^2 / 10.

    Entropy detects images that resemble the known ones, variance those that do not; small variances say nothing, as
    some kernels have the smallest ones at the center of the features.

    Parameters
    ----------
    numbers : ndarray, shape [1004], optional
        ``numbers_`` of a fitted score.

    Attributes
    ----------
    numbers_ : ndarray, shape [1004]
        Means and standard deviations of G and v, then quantiles of the order.

    Notes
    -----
    The known samples must not be those that the classifier was trained on, unless they are left out.

    Source of G: Liu, Lochman, Zach: *GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection*, 2023.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score = UnknownScore().fit(np.log(rng.dirichlet([1.0] * 3, 1000)), rng.random(1000))
    >>> log_p = np.log([[0.998, 0.001, 0.001], [0.4, 0.3, 0.3]])
    >>> score(log_p, np.array([0.5, 5.0])).numpy().round(2).tolist()
    [0.0, 1.0]
    """

    def __init__(self, numbers: NDArray[np.float64] | None = None) -> None:
        if numbers is not None:
            self.numbers_ = numbers

    def fit(self, log_p: ArrayLike, variance: ArrayLike) -> Self:
        """Fit to log-probabilities [N, n] and latent variances [N] of known samples that were left out."""
        entropy = _entropy(tf.constant(check_array(log_p, "log_p", "[N, n]", finite=False))).numpy()
        variances = check_array(variance, "variance", "[N]", rows=len(entropy), finite=False)
        moments = [entropy.mean(), entropy.std() or 1.0, variances.mean(), variances.std() or 1.0]
        order = _order(tf.constant(entropy), tf.constant(variances), moments).numpy()
        self.numbers_ = np.concatenate([moments, known_quantiles(order)])
        return self

    def add(self, log_p: ArrayLike, variance: ArrayLike, before: int) -> "UnknownScore":
        """Return a score of the known samples so far, ``before`` many, and of further ones; the moments stay."""
        moments, quantiles = np.split(self.numbers_, [4])
        order = _order(_entropy(tf.constant(log_p, tf.float64)), tf.constant(variance, tf.float64), moments).numpy()
        weights = np.repeat([before / _QUANTILES, 1.0], [_QUANTILES, len(order)])
        joined = np.quantile(np.concatenate([quantiles, order]), _LEVELS, weights=weights, method="inverted_cdf")
        return UnknownScore(np.concatenate([moments, joined]))

    def __call__(self, log_p: Any, variance: Any) -> Any:
        """Return the scores [N] of log-probabilities [N, n] and latent variances [N], a tensor of dtype float32.

        Beyond all known samples they grow on, within the last thousandth.
        """
        log_p = tf.cast(log_p, precise_dtype())
        moments, quantiles = np.split(self.numbers_, [4])
        return share_more_known(_order(_entropy(log_p), tf.cast(variance, log_p.dtype), moments), quantiles)


def known_quantiles(order: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the quantiles [1000] by which ``share_more_known`` ranks samples: those of known samples' order [N].

    Examples
    --------
    >>> known_quantiles(np.arange(2001.0))[[0, -1]].tolist()
    [1.0, 1999.0]
    """
    return np.quantile(order, _LEVELS)


def share_more_known(order: Any, quantiles: NDArray[np.float64]) -> Any:
    """Return the share of known samples whose order is smaller, [N], float32, of an order [N], a tensor.

    Beyond all known samples it grows on, within the last thousandth.

    Examples
    --------
    >>> share_more_known(tf.constant([-1.0, 250.0]), known_quantiles(np.arange(1001.0))).numpy().round(2).tolist()
    [0.0, 0.25]
    """
    share = tf.reduce_mean(tf.cast(order[:, tf.newaxis] > tf.constant(quantiles, order.dtype), order.dtype), axis=1)
    excess = tf.maximum(order - tf.constant(quantiles[-1], order.dtype), 0.0)
    return tf.cast((_QUANTILES * share + excess / (1.0 + excess)) / (_QUANTILES + 1), "float32")


def are_unknown(scores: Any, rejected: float) -> Any:
    """Return whether samples of these scores [N] are unknown, if a share ``rejected`` of the known ones may be.

    Examples
    --------
    >>> are_unknown(np.array([0.5, 0.97]), rejected=0.05)
    array([False,  True])
    """
    return scores > 1.0 - rejected


def _entropy(log_p: Any) -> Any:
    """Generalized entropies [N]. Probabilities near 1 are 1 minus the sum of the others, which rounding leaves."""
    p = tf.exp(log_p)
    likeliest = tf.one_hot(tf.argmax(log_p, axis=1), log_p.shape[1], dtype=log_p.dtype)
    others = tf.reduce_sum((1.0 - likeliest) * p, axis=1, keepdims=True)
    complement = likeliest * others + (1.0 - likeliest) * (1.0 - p)
    return tf.reduce_sum(tf.pow(p * complement, _EXPONENT), axis=1)


def _order(entropy: Any, variance: Any, moments: Any) -> Any:
    mean, deviation, variance_mean, variance_deviation = (tf.constant(number, entropy.dtype) for number in moments)
    excess = tf.maximum((variance - variance_mean) / variance_deviation, 0.0)
    return (entropy - mean) / deviation + _VARIANCE_WEIGHT * tf.square(excess)
