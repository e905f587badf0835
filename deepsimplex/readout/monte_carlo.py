"""Argmax readout by plain Monte Carlo, as in [CASIMAC] B.3, kept for comparison with the exact ways."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray


def frequencies(mean: Any, factor: Any, num_points: int, seed: int) -> Any:
    """Share of draws in which each class scores highest, shape [N, n].

    All rows see the same draws, so that a row's answer does not depend on its place in a batch.
    """
    draws = tf.random.stateless_normal([num_points, factor.shape[-1]], [seed, 0], dtype=mean.dtype)
    scores = mean[:, :, tf.newaxis] + tf.matmul(factor, draws, transpose_b=True)
    wins = tf.one_hot(tf.argmax(scores, axis=1), mean.shape[-1], dtype=mean.dtype)  # [N, points, n]
    return tf.reduce_mean(wins, axis=1)


def monte_carlo_standard_error(p: ArrayLike, num_points: int) -> NDArray[np.float64]:
    """Standard error of class probabilities that were estimated by plain Monte Carlo.

    Parameters
    ----------
    p : array_like
        Estimated class probabilities, in [0, 1], of any shape.
    num_points : int
        Number N of draws they were estimated from, at least 2.

    Returns
    -------
    ndarray, shape of ``p``, float64
        sqrt((p^2 (1 - p) + p (1 - p)^2) / (N - 1)) [CASIMAC Eq. 38-39].

    Examples
    --------
    >>> monte_carlo_standard_error([0.5, 0.1], 101)
    array([0.05, 0.03])
    """
    if num_points < 2:
        raise ValueError(f"num_points must be at least 2; found {num_points}")
    p = np.asarray(p, dtype=np.float64)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError("p must lie in [0, 1]")
    return np.sqrt((p**2 * (1 - p) + p * (1 - p) ** 2) / (num_points - 1))
