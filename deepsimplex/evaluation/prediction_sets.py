"""Sets of classes: how often they hold the true one, and how large they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_labels_beside, check_sample_weight, unmasked


def _checked(
    y: ArrayLike, sets: ArrayLike, sample_weight: Any, classes: Sequence[Any] | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Labels [N], sets [N, n], whether each set holds its label [N], and weights [N]."""
    table: NDArray[Any] = unmasked(sets, "sets")
    if table.dtype != bool or table.ndim != 2 or not len(table) or table.shape[1] < 2:
        raise ValueError(f"sets must be bool [N, n] with n >= 2; found {table.dtype} of shape {list(table.shape)}")
    labels = check_labels_beside(y, "sets", table.shape, classes)
    return labels, table, table[np.arange(len(labels)), labels], check_sample_weight(sample_weight, len(labels))


def coverage(
    y: ArrayLike, sets: ArrayLike, *, sample_weight: ArrayLike | None = None, classes: Sequence[Any] | None = None
) -> float:
    """Share of samples whose set of classes holds the true one.

    Parameters
    ----------
    y : array_like, shape [N]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    sets : array_like of bool, shape [N, n]
        As ``predict_set`` returns them.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``sets``: ``model.classes_``.

    Returns
    -------
    float
        Between 0 and 1. Over draws of m held-out and N test samples, conformal sets of nominal coverage c have a
        mean between c and c + 1 / (m + 1) (more where scores are tied), and a standard deviation near
        sqrt(c (1 - c) (1 / m + 1 / N)).

    Examples
    --------
    >>> sets = [[True, False, False], [True, True, False], [False, True, True]]
    >>> round(coverage([0, 2, 2], sets), 4), round(set_size([0, 2, 2], sets), 4)
    (0.6667, 1.6667)
    """
    *_, held, weights = _checked(y, sets, sample_weight, classes)
    return float(np.average(held, weights=weights))


def set_size(
    y: ArrayLike, sets: ArrayLike, *, sample_weight: ArrayLike | None = None, classes: Sequence[Any] | None = None
) -> float:
    """Mean number of classes in a set; arguments as ``coverage``. At equal coverage, smaller is better.

    Examples
    --------
    >>> set_size([0, 1], [[True, False, True], [True, True, True]])
    2.5
    """
    _, table, _, weights = _checked(y, sets, sample_weight, classes)
    return float(np.average(table.sum(axis=1), weights=weights))


def coverage_by_class(
    y: ArrayLike, sets: ArrayLike, *, sample_weight: ArrayLike | None = None, classes: Sequence[Any] | None = None
) -> NDArray[np.float64]:
    """Coverage among the samples of every class, shape [n]; NaN for a class without samples; arguments as ``coverage``.

    Examples
    --------
    >>> coverage_by_class([0, 1, 1], [[True, False], [True, True], [True, False]])
    array([1. , 0.5])
    """
    labels, table, held, weights = _checked(y, sets, sample_weight, classes)
    return _means(held, weights, labels, table.shape[1])


def coverage_by_size(
    y: ArrayLike, sets: ArrayLike, *, sample_weight: ArrayLike | None = None, classes: Sequence[Any] | None = None
) -> NDArray[np.float64]:
    """Coverage among the sets of 0, 1, ..., n classes, shape [n + 1]; NaN for a size without sets.

    Sets that adapt to how hard a sample is have nearly the same coverage at every size; arguments as ``coverage``.

    Examples
    --------
    >>> coverage_by_size([0, 1, 1], [[True, False], [True, True], [True, False]])
    array([nan, 0.5, 1. ])
    """
    _, table, held, weights = _checked(y, sets, sample_weight, classes)
    return _means(held, weights, table.sum(axis=1), table.shape[1] + 1)


def _means(
    held: NDArray[np.bool_], weights: NDArray[np.float64], group: NDArray[np.integer], groups: int
) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.bincount(group, weights * held, groups) / np.bincount(group, weights, groups)
