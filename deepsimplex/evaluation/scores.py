"""Scores that are means over samples: accuracy, top-k accuracy, likelihood, proba-loss, Brier score."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_whole
from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.prepared import Prepared


def _mean(terms: NDArray[Any]) -> float:
    return float(np.mean(terms))


def _own_probabilities(y: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """The probability of every sample's true class [N]."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    return np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0].astype(np.float64)


def prepare_accuracy(y: ArrayLike, p: ArrayLike) -> Prepared:
    """See ``accuracy``."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    return Prepared(_mean, (probabilities.argmax(axis=1) == labels,))


def prepare_top_k_accuracy(y: ArrayLike, p: ArrayLike, k: int) -> Prepared:
    """See ``top_k_accuracy``."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    if check_whole(k, "k", 1) > n:
        raise ValueError(f"k must be at most the number of classes, {n}; found {k!r}")
    own = np.take_along_axis(probabilities, labels[:, None], axis=1)
    ahead = (probabilities > own) | ((probabilities == own) & (np.arange(n) < labels[:, None]))
    return Prepared(_mean, (ahead.sum(axis=1) < k,))


def prepare_negative_log_likelihood(y: ArrayLike, p: ArrayLike) -> Prepared:
    """See ``negative_log_likelihood``."""
    with np.errstate(divide="ignore"):
        return Prepared(_mean, (-np.log(_own_probabilities(y, p)),))


def prepare_proba_loss(y: ArrayLike, p: ArrayLike) -> Prepared:
    """See ``proba_loss``."""
    return Prepared(_mean, (1 - _own_probabilities(y, p),))


def prepare_brier_score(y: ArrayLike, p: ArrayLike) -> Prepared:
    """See ``brier_score``."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    squares = np.sum(np.square(probabilities.astype(np.float64) - np.eye(n)[labels]), axis=1)
    return Prepared(_mean, (squares / 2 if n == 2 else squares,))


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
    return float(prepare_accuracy(y, p).value())


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
    return float(prepare_top_k_accuracy(y, p, k).value())


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
    return float(prepare_negative_log_likelihood(y, p).value())


def proba_loss(y: ArrayLike, p: ArrayLike) -> float:
    """Mean predicted probability error: one minus the mean probability of the true class ([CASIMAC] Eq. 21).

    It is no proper score: where labels are random, probabilities of 0 and 1 beat the true ones. The paper takes it
    where a known rule gives every label.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.

    Returns
    -------
    float
        In [0, 1], up to the tolerance that rows sum to 1 with (``SUM_TOLERANCE``); 0 is perfect.

    Examples
    --------
    >>> proba_loss([0, 1], [[0.5, 0.5], [0.75, 0.25]])
    0.625
    """
    return float(prepare_proba_loss(y, p).value())


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
    return float(prepare_brier_score(y, p).value())
