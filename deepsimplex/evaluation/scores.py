"""Scores that are means over samples: accuracy, top-k accuracy, negative log likelihood, Brier score."""

import numpy as np
from numpy.typing import ArrayLike

from deepsimplex.evaluation.inputs import check_labels_and_probabilities


def accuracy(y: ArrayLike, p: ArrayLike) -> float:
    """Share of samples whose most probable class is the true one.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities; between equal ones the lowest class is assigned.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> accuracy([0, 1], [[0.9, 0.1], [0.8, 0.2]])
    0.5
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    return float(np.mean(probabilities.argmax(axis=1) == labels))


def top_k_accuracy(y: ArrayLike, p: ArrayLike, k: int) -> float:
    """Share of samples whose true class is among the k most probable ones.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities; among equal ones the lower class ranks first, so that k = 1 is ``accuracy``.
    k : int
        From 1 to n.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> top_k_accuracy([1, 2], [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], k=2)
    0.5
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    if k not in range(1, n + 1):
        raise ValueError(f"k must be a whole number from 1 to the number of classes, {n}; found {k!r}")
    own = np.take_along_axis(probabilities, labels[:, None], axis=1)
    ahead = (probabilities > own) | ((probabilities == own) & (np.arange(n) < labels[:, None]))
    return float(np.mean(ahead.sum(axis=1) < k))


def negative_log_likelihood(y: ArrayLike, p: ArrayLike) -> float:
    """Mean negative logarithm of the true class's probability, in nats.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities, not clipped.

    Returns
    -------
    float
        At least 0 up to the rounding of ``p``; inf where a true class has probability exactly 0.

    Examples
    --------
    >>> round(negative_log_likelihood([0, 1], [[0.5, 0.5], [0.75, 0.25]]), 4)
    1.0397
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    own = np.take_along_axis(probabilities, labels[:, None], axis=1).astype(np.float64)
    with np.errstate(divide="ignore"):
        return float(np.mean(-np.log(own)))


def brier_score(y: ArrayLike, p: ArrayLike) -> float:
    """Mean squared distance between the probabilities and the one-hot label, halved for two classes.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.

    Returns
    -------
    float
        In [0, 2], or in [0, 1] for two classes, where it is the mean squared error of the probability of class 1.
        The halving is scikit-learn's (``brier_score_loss``).

    Examples
    --------
    >>> brier_score([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.125
    """
    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    residuals = probabilities.astype(np.float64) - np.eye(n)[labels]
    total = float(np.mean(np.sum(np.square(residuals), axis=1)))
    return total / 2 if n == 2 else total
