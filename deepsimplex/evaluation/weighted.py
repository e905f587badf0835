"""Precision, recall and f1 of the assigned classes, averaged by how many samples each class has."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.prepared import Prepared


def prepare_weighted(y: ArrayLike, p: ArrayLike) -> Prepared:
    """Weighted precision, recall and f1 [3] in one count of scikit-learn's."""
    from sklearn.metrics import precision_recall_fscore_support

    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]

    def finish(pairs: NDArray[np.int64]) -> NDArray[np.float64]:
        counts = np.bincount(pairs)
        filled = np.flatnonzero(counts)
        # One row for each pair of classes that occurs, as often as it does, is quicker than one for each sample.
        precision, recall, f1, _ = precision_recall_fscore_support(
            *np.divmod(filled, n),
            labels=np.arange(n),
            average="weighted",
            sample_weight=counts[filled],
            zero_division=0,
        )
        return np.array([precision, recall, f1])

    return Prepared(finish, (labels * n + probabilities.argmax(axis=1),))


def _one(position: int, y: ArrayLike, p: ArrayLike) -> Prepared:
    together = prepare_weighted(y, p)
    return Prepared(lambda pairs: together.finish(pairs)[position], together.rows)


def prepare_weighted_precision(y: ArrayLike, p: ArrayLike) -> Prepared:
    """See ``weighted_precision``."""
    return _one(0, y, p)


def prepare_weighted_recall(y: ArrayLike, p: ArrayLike) -> Prepared:
    """See ``weighted_recall``."""
    return _one(1, y, p)


def prepare_weighted_f1(y: ArrayLike, p: ArrayLike) -> Prepared:
    """See ``weighted_f1``."""
    return _one(2, y, p)


def weighted_precision(y: ArrayLike, p: ArrayLike) -> float:
    """Share of right ones among the samples assigned to a class, averaged over the true classes of samples.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1. A class without samples weighs nothing.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned. One never assigned has precision 0.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``precision_score(average="weighted", zero_division=0)`` ([CASIMAC] sec. 3.2).

    Examples
    --------
    >>> round(weighted_precision([0, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), 4)
    0.8333
    """
    return float(prepare_weighted_precision(y, p).value())


def weighted_recall(y: ArrayLike, p: ArrayLike) -> float:
    """Share of right ones among the samples of a class, averaged over the true classes: the accuracy by another name.

    [CASIMAC] sec. 3.2 prints precision's ratio for it; right is TP / (TP + FN).

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1. A class without samples weighs nothing.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``recall_score(average="weighted")``.

    Examples
    --------
    >>> round(weighted_recall([0, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), 4)
    0.6667
    """
    return float(prepare_weighted_recall(y, p).value())


def weighted_f1(y: ArrayLike, p: ArrayLike) -> float:
    """Harmonic mean of a class's precision and recall, averaged over the true classes of samples.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1. A class without samples weighs nothing.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned. One never assigned has f1 = 0.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``f1_score(average="weighted", zero_division=0)`` ([CASIMAC] sec. 3.2).

    Examples
    --------
    >>> round(weighted_f1([0, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]), 4)
    0.6667
    """
    return float(prepare_weighted_f1(y, p).value())
