"""What decisions are worth: net benefit, decision curves, and the mean cost of decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import (
    check_array,
    check_class_names,
    check_labels_and_probabilities,
    check_labels_beside,
    check_number,
    check_sample_weight,
    class_number,
)
from deepsimplex.evaluation.bootstrap import weighted_rows


def net_benefit(
    y: ArrayLike,
    p: ArrayLike,
    threshold: float,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    positive: Any = 1,
) -> float:
    """Net benefit of treating the samples whose probability of the positive class reaches a threshold.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    threshold : float
        Above 0 and below 1. It says how many false positives t a true one is worth: (1 - t) / t.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.
    positive : int or label
        The class of the samples that should be treated, by name or number. Default 1.

    Returns
    -------
    float
        The share of true positives minus that of false positives times t / (1 - t), both among all samples. Nothing
        treated is 0; at most it is the frequency of the positive class.

    Notes
    -----
    Vickers, Elkin: *Decision Curve Analysis: A Novel Method for Evaluating Prediction Models*, 2006.

    Examples
    --------
    >>> net_benefit([0, 0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.3, 0.7]], 0.2)
    0.4375
    """
    t = check_number(threshold, "threshold", 0, below=1)
    options: dict[str, Any] = {"sample_weight": sample_weight, "classes": classes, "positive": positive}
    return float(decision_curve(y, p, [t], **options).net_benefit[0])


@dataclass(frozen=True, eq=False)
class DecisionCurve:
    """Net benefit over thresholds, as ``decision_curve`` returns it.

    Attributes
    ----------
    thresholds : ndarray, shape [T]
    net_benefit : ndarray, shape [T]
        Of treating the samples whose probability reaches the threshold.
    treat_all : ndarray, shape [T]
        Of treating all samples. Treating none is 0.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.3, 0.7]]
    >>> decision_curve([0, 0, 1, 1], p, thresholds=[0.2, 0.5]).treat_all
    array([0.375, 0.   ])
    """

    thresholds: NDArray[np.float64]
    net_benefit: NDArray[np.float64]
    treat_all: NDArray[np.float64]


def decision_curve(
    y: ArrayLike,
    p: ArrayLike,
    thresholds: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    positive: Any = 1,
) -> DecisionCurve:
    """Net benefit of treating by a probability, and of treating all, for many thresholds.

    Parameters
    ----------
    y, p, sample_weight, classes, positive
        As for ``net_benefit``.
    thresholds : array_like, shape [T], optional
        Above 0 and below 1. Default None: 0.01 to 0.99; choose those that somebody would decide by.

    Returns
    -------
    DecisionCurve
        For ``plots.decision_curve``. Where it is highest depends on the samples' class frequencies, which must be those
        of the application.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.3, 0.7]]
    >>> decision_curve([0, 0, 1, 1], p, thresholds=[0.2, 0.5]).net_benefit
    array([0.4375, 0.    ])
    """
    weights, labels, probabilities = weighted_rows(sample_weight, *check_labels_and_probabilities(y, p, classes))
    k = class_number(positive, check_class_names(classes, probabilities.shape[1]))
    is_positive, probability = labels == k, probabilities[:, k]
    t = np.arange(1, 100) / 100 if thresholds is None else check_array(thresholds, "thresholds", "[T]", least=1)
    if not np.all((t > 0) & (t < 1)):
        raise ValueError(f"thresholds must be above 0 and below 1; found {t.min():g} to {t.max():g}")
    order = np.argsort(probability)
    treated = np.searchsorted(probability[order], t.astype(probability.dtype))  # from this position on
    ones, others = (
        np.append(np.cumsum((weights * rows)[order][::-1])[::-1], 0.0) / weights.sum()
        for rows in (is_positive, ~is_positive)
    )
    odds = t / (1.0 - t)
    return DecisionCurve(t, ones[treated] - odds * others[treated], ones[0] - odds * others[0])


def mean_cost(
    y: ArrayLike,
    decisions: ArrayLike,
    costs: ArrayLike,
    abstention: float | ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> float:
    """Mean cost of decisions.

    Parameters
    ----------
    y : array_like, shape [N]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    decisions : array_like of int, shape [N]
        Class numbers, and -1 for abstentions, as ``decide`` of a rule returns them.
    costs, abstention
        As in ``calibration.ExpectedCost``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        Names of the classes, if y holds names.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For labels that are no classes of ``costs``, and decisions without a cost.

    Examples
    --------
    >>> mean_cost([0, 0, 1, 1], [0, 1, -1, 0], [[0, 1], [20, 0]], abstention=0.5)
    5.375
    """
    table = check_array(costs, "costs", "[n, n]", least=2)
    n = len(table)
    if table.shape != (n, n):
        raise ValueError(f"costs must have shape [n, n]; found {table.shape}")
    decided = check_array(decisions, "decisions", "[N]", least=1)
    labels = check_labels_beside(y, "decisions", (len(decided), n), classes)
    if (unknown := (decided != np.rint(decided)) | (decided < -1) | (decided >= n)).any():
        raise ValueError(
            f"decisions must be class numbers below {n}, or -1 for abstentions; found {decided[unknown][0]:g}"
        )
    if abstention is not None:
        table = np.column_stack([table, np.broadcast_to(check_array(abstention, "abstention"), n)])
    elif (decided == -1).any():
        raise ValueError("abstention must be given: decisions hold -1, which has no cost otherwise")
    weights = check_sample_weight(sample_weight, len(labels))
    return float(np.average(table[labels, decided.astype(np.int64)], weights=weights))
