"""Scores of the assigned classes: accuracy, top-k accuracy, weighted precision, recall and F1."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_whole
from deepsimplex.evaluation.bootstrap import PreparedScore, mean_score, score


@score
def accuracy(y: Any, p: Any) -> PreparedScore:
    """Fraction of samples whose most probable class is the true one.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities. Of equal ones the lowest class is assigned.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> accuracy([0, 1], [[0.9, 0.1], [0.8, 0.2]])
    0.5
    """
    return mean_score(p.argmax(axis=1) == y)


@score
def top_k_accuracy(y: Any, p: Any, k: int) -> PreparedScore:
    """Fraction of samples whose true class is among the k most probable ones.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities. Of equal ones the lower class ranks first, so that k = 1 is ``accuracy``.
    k : int
        From 1 to n.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> top_k_accuracy([1, 2], [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], k=2)
    0.5
    """
    n = p.shape[1]
    check_whole(k, "k", 1, n)
    true = np.take_along_axis(p, y[:, None], axis=1)
    ahead = (p > true) | ((p == true) & (np.arange(n) < y[:, None]))
    return mean_score(ahead.sum(axis=1) < k)


def _weighted(y: Any, p: Any, class_scores: Callable[..., NDArray[np.float64]]) -> PreparedScore:
    """Prepare a score of every class, weighted by its number of samples.

    ``class_scores`` takes the weights [n] of the samples of every class, of those assigned to it, and of correct ones.
    """
    n = p.shape[1]

    def finish(labels: NDArray[Any], assigned: NDArray[Any], weights: NDArray[np.float64]) -> float:
        counted = ((labels, weights), (assigned, weights), (labels, weights * (labels == assigned)))
        true, chosen, correct = (np.bincount(group, count, n) for group, count in counted)
        return float(true / weights.sum() @ class_scores(true, chosen, correct))

    return PreparedScore(finish, (y, p.argmax(axis=1)))


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide; 0 / 0 is 0."""
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


@score
def weighted_precision(y: Any, p: Any) -> PreparedScore:
    """Precision of every class, weighted by its number of samples.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds. A class without samples has weight 0.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned. A class that is never assigned has precision 0.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``precision_score(average="weighted", zero_division=0)`` ([CASIMAC] sec. 3.2).

    Examples
    --------
    >>> round(weighted_precision([0, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), 4)
    0.8333
    """
    return _weighted(y, p, lambda true, chosen, correct: _share(correct, chosen))


@score
def weighted_recall(y: Any, p: Any) -> PreparedScore:
    """Recall of every class, weighted by its number of samples: equal to the accuracy.

    [CASIMAC] sec. 3.2 prints the ratio of the precision; this is TP / (TP + FN).

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds. A class without samples has weight 0.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``recall_score(average="weighted")``.

    Examples
    --------
    >>> round(weighted_recall([0, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), 4)
    0.6667
    """
    return mean_score(p.argmax(axis=1) == y)


@score
def weighted_f1(y: Any, p: Any) -> PreparedScore:
    """Harmonic mean of precision and recall of every class, weighted by its number of samples.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds. A class without samples has weight 0.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned. A class that is never assigned has F1 = 0.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``f1_score(average="weighted", zero_division=0)`` ([CASIMAC] sec. 3.2).

    Examples
    --------
    >>> round(weighted_f1([0, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), 4)
    0.6667
    """
    return _weighted(y, p, lambda true, chosen, correct: _share(2 * correct, true + chosen))
