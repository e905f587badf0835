"""ROC and precision-recall curves of one class against the rest, and their means over all classes."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import (
    check_class_names,
    check_labels_and_probabilities,
    class_number,
)
from deepsimplex.evaluation.bootstrap import weighted_rows
from deepsimplex.evaluation.one_versus_rest import average_precision, roc_auc


@dataclass(frozen=True, eq=False)
class ROCCurve:
    """True positive rate against false positive rate, over all thresholds of a probability.

    Attributes
    ----------
    false_positive_rate, true_positive_rate : ndarray, shape [T]
        Ascending: 1 - specificity, and sensitivity. NaN where no sample is of the class, or all are.
    thresholds : ndarray, shape [T], or None
        The class is assigned where its probability is at least this; descending, the first infinite. None for the mean
        over all classes.
    area : float
        Area under the curve, ``roc_auc``.

    Examples
    --------
    >>> curve = roc_curve([0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> curve.area, curve.true_positive_rate
    (1.0, array([0. , 0.5, 1. , 1. ]))
    """

    false_positive_rate: NDArray[np.float64]
    true_positive_rate: NDArray[np.float64]
    thresholds: NDArray[np.float64] | None
    area: float


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """Precision against recall, over all thresholds of a probability.

    Attributes
    ----------
    precision, recall : ndarray, shape [T + 1]
        Recall descends; the last point is precision 1 at recall 0. NaN where no sample is of the class.
    thresholds : ndarray, shape [T], or None
        The class is assigned where its probability is at least this; ascending. None for the mean over all classes.
    average_precision : float
        Area under the steps of the curve: each precision by the recall that it adds.
    area : float
        Area under straight lines between the points of the curve, ``sklearn.metrics.auc(recall, precision)``: larger,
        since precision does not fall on a line between two thresholds. Of the mean curve the mean over the classes.

    Examples
    --------
    >>> curve = precision_recall_curve([0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> curve.average_precision, curve.recall
    (1.0, array([1. , 1. , 0.5, 0. ]))
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    thresholds: NDArray[np.float64] | None
    average_precision: float
    area: float


def _checked(
    y: ArrayLike, p: ArrayLike, positive: Any, sample_weight: Any, classes: Sequence[Any] | None
) -> tuple[NDArray[np.int64], NDArray[np.floating], NDArray[Any], int | None]:
    """Return labels, probabilities, weights and the number of the class; None for the mean over several."""
    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    n = probabilities.shape[1]
    default = 1 if n == 2 else None
    k = default if positive is None else class_number(positive, check_class_names(classes, n))
    weights, labels, probabilities = weighted_rows(sample_weight, labels, probabilities)
    return labels, probabilities, weights, k


def roc_curve(
    y: ArrayLike,
    p: ArrayLike,
    positive: Any = None,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> ROCCurve:
    """ROC curve of one class against the rest, or the mean of the curves of all classes.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    positive : label, optional
        The class, named as in ``y``. Default None: of two classes the second; of more the mean, at every false positive
        rate, over the classes that some but not all samples have, whose area is ``roc_auc(y, p)``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    ROCCurve
        That of one class as ``sklearn.metrics.roc_curve`` computes it.

    Examples
    --------
    >>> y, p = ["sick", "well", "sick"], [[0.9, 0.1], [0.5, 0.5], [0.4, 0.6]]
    >>> curve = roc_curve(y, p, positive="sick", classes=["sick", "well"])
    >>> curve.thresholds, curve.area
    (array([inf, 0.9, 0.5, 0.4]), 0.5)
    """
    labels, probabilities, weights, k = _checked(y, p, positive, sample_weight, classes)
    area = roc_auc(labels, probabilities, k, sample_weight=weights)
    if k is not None:
        false, true, thresholds = _roc(labels == k, probabilities[:, k], weights)
        return ROCCurve(false, true, thresholds, area)
    curves = [_roc(labels == k, column, weights)[:2] for k, column in enumerate(probabilities.T)]
    curves = [curve for curve in curves if not np.isnan(curve).any()]
    if not curves:
        nothing = np.full(2, np.nan)
        return ROCCurve(nothing, nothing, None, area)
    rates = np.unique(np.concatenate([false for false, _ in curves]))
    heights = np.zeros((len(rates), 2))  # where the vertical piece of a curve at a rate begins, and where it ends
    for false, true in curves:
        ends = (np.searchsorted(false, rates, "left"), np.searchsorted(false, rates, "right") - 1)
        between = np.interp(rates, false, true)
        for side, points in enumerate(ends):
            heights[:, side] += np.where(false[points] == rates, true[points], between) / len(curves)
    return ROCCurve(np.repeat(rates, 2), heights.ravel(), None, area)


def _roc(is_class: NDArray[np.bool_], q: NDArray[np.floating], weights: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    from sklearn.exceptions import UndefinedMetricWarning  # imported here: takes longer than all else
    from sklearn.metrics import roc_curve

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # rates are NaN
        return roc_curve(is_class, q.astype(np.float64), sample_weight=weights)


def precision_recall_curve(
    y: ArrayLike,
    p: ArrayLike,
    positive: Any = None,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> PrecisionRecallCurve:
    """Precision-recall curve of one class against the rest, or the mean of the curves of all classes.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    positive : label, optional
        The class, named as in ``y``. Default None: of two classes the second; of more the mean, at every recall, over
        the classes that have samples, whose average precision is ``average_precision(y, p)``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    PrecisionRecallCurve
        That of one class as ``sklearn.metrics.precision_recall_curve`` computes it.

    Examples
    --------
    >>> y, p = ["sick", "well", "sick"], [[0.9, 0.1], [0.5, 0.5], [0.4, 0.6]]
    >>> curve = precision_recall_curve(y, p, positive="sick", classes=["sick", "well"])
    >>> curve.precision.round(2), round(curve.average_precision, 3)
    (array([0.67, 0.5 , 1.  , 1.  ]), 0.833)
    """
    labels, probabilities, weights, k = _checked(y, p, positive, sample_weight, classes)
    area = average_precision(labels, probabilities, k, sample_weight=weights)
    if k is not None:
        precision, recall, thresholds = _precision_recall(labels == k, probabilities[:, k], weights)
        return PrecisionRecallCurve(precision, recall, thresholds, area, _trapezoids(recall, precision))
    curves = [_precision_recall(labels == k, column, weights)[:2] for k, column in enumerate(probabilities.T)]
    curves = [curve for curve in curves if not np.isnan(curve[1]).any()]
    recalls = np.unique(np.concatenate([recall for _, recall in curves]))[::-1]
    mean = np.zeros(len(recalls))
    for precision, recall in curves:  # the highest threshold that reaches a recall
        mean += precision[len(recall) - 1 - np.searchsorted(recall[::-1], recalls)] / len(curves)
    trapezoids = [_trapezoids(recall, precision) for precision, recall in curves]
    return PrecisionRecallCurve(mean, recalls, None, area, float(np.mean(trapezoids)))


def _trapezoids(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> float:
    return -float(np.trapezoid(precision, recall))


def _precision_recall(
    is_class: NDArray[np.bool_], q: NDArray[np.floating], weights: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    from sklearn.metrics import precision_recall_curve  # imported here: takes longer than all else

    if not weights[is_class].any():
        return np.full(2, np.nan), np.full(2, np.nan), np.full(1, np.nan)
    return precision_recall_curve(is_class, q.astype(np.float64), sample_weight=weights)
