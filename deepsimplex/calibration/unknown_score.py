"""Score of samples of no known class, from class probabilities and latent variances."""

from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.validation import check_array

# Number of quantiles that are stored: scores have a resolution of a thousandth.
_QUANTILES = 1000
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
    >>> score = UnknownScore().fit(rng.dirichlet([0.1] * 3, 1000), rng.random(1000))
    >>> score(np.array([[1.0, 0.0, 0.0], [0.4, 0.3, 0.3]]), np.array([0.5, 5.0])).numpy().round(2).tolist()
    [0.0, 1.0]
    """

    def __init__(self, numbers: NDArray[np.float64] | None = None) -> None:
        if numbers is not None:
            self.numbers_ = numbers

    def fit(self, p: ArrayLike, variance: ArrayLike) -> Self:
        """Fit to class probabilities [N, n] and latent variances [N] of known samples that were left out."""
        p = check_array(p, "p", "[N, n]")
        entropy, variances = _entropy(tf.constant(p)).numpy(), np.asarray(variance, np.float64)
        moments = [entropy.mean(), entropy.std() or 1.0, variances.mean(), variances.std() or 1.0]
        order = _order(tf.constant(entropy), tf.constant(variances), moments).numpy()
        self.numbers_ = np.concatenate([moments, np.quantile(order, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)])
        return self

    def __call__(self, p: Any, variance: Any) -> Any:
        """Return the scores [N] of class probabilities [N, n] and latent variances [N], a tensor of dtype float32.

        Beyond all known samples they grow on, within the last thousandth.
        """
        p = tf.cast(p, precise_dtype())  # entropies of flat probabilities differ by little
        moments, quantiles = np.split(self.numbers_, [4])
        order = _order(_entropy(p), tf.cast(variance, p.dtype), moments)
        share = tf.reduce_mean(tf.cast(order[:, tf.newaxis] > tf.constant(quantiles, p.dtype), p.dtype), axis=1)
        excess = tf.maximum(order - tf.constant(quantiles[-1], p.dtype), 0.0)
        return tf.cast((_QUANTILES * share + excess / (1.0 + excess)) / (_QUANTILES + 1), "float32")


def _entropy(p: Any) -> Any:
    return tf.reduce_sum(tf.pow(tf.maximum(p * (1.0 - p), 0.0), _EXPONENT), axis=1)


def _order(entropy: Any, variance: Any, moments: Any) -> Any:
    mean, deviation, variance_mean, variance_deviation = (tf.constant(number, entropy.dtype) for number in moments)
    excess = tf.maximum((variance - variance_mean) / variance_deviation, 0.0)
    return (entropy - mean) / deviation + _VARIANCE_WEIGHT * tf.square(excess)
