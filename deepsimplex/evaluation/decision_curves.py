"""What decisions are worth: net benefit, decision curves, and the mean cost of decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.messages import listed
from deepsimplex._utils.validation import (
    check_array,
    check_class_names,
    check_in_class_order,
    check_labels_and_probabilities,
    check_labels_beside,
    check_number,
    check_sample_weight,
    class_number,
    unmasked,
)
from deepsimplex.evaluation.bootstrap import weighted_rows


def net_benefit(
    y: ArrayLike,
    p: ArrayLike,
    threshold: float,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    positive: Any = None,
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
    positive : int or label, optional
        The class of the samples that should be treated, by name or number. Default None: class 1 of the classes 0 and
        1; others must be given.

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
    positive: Any = None,
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
    decisions : array_like, shape [N]
        As ``decide`` of the classifier returns them: class numbers and -1 for abstentions or, with ``classes``, names
        and one other value for abstentions. Beside names that are text, decisions may be numbers all the same.
    costs, abstention
        As in ``calibration.ExpectedCost``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        Names of the classes, in the order of ``costs``, if y holds names: ``model.classes_``.

    Returns
    -------
    float

    Raises
    ------
    TypeError
        For names without ``classes``.
    ValueError
        For labels that are no classes of ``costs``, decisions without a cost, and costs with names of rows or columns.

    Examples
    --------
    >>> mean_cost([0, 0, 1, 1], [0, 1, -1, 0], [[0, 1], [20, 0]], abstention=0.5)
    5.375
    >>> y, decisions = ["well", "well", "ill", "ill"], ["well", "ill", "unknown", "well"]
    >>> mean_cost(y, decisions, [[0, 1], [20, 0]], abstention=0.5, classes=["well", "ill"])
    5.375
    """
    check_in_class_order(costs, "costs")
    table = check_array(costs, "costs", "[n, n]", least=2)
    n = len(table)
    if table.shape != (n, n):
        raise ValueError(f"costs must have shape [n, n]; found {table.shape}")
    values = unmasked(decisions, "decisions")
    if values.ndim != 1 or not len(values):
        raise ValueError(f"decisions must have shape [N]; found shape {values.shape}")
    labels = check_labels_beside(y, "decisions", (len(values), n), classes)
    decided = _numbered(decisions, values, n, classes)
    if abstention is not None:
        table = np.column_stack([table, np.broadcast_to(check_array(abstention, "abstention"), n)])
    elif (decided == -1).any():
        value = values[decided == -1].tolist()[0]
        raise ValueError(f"abstention must be given: decisions hold {value!r}, which has no cost otherwise")
    weights = check_sample_weight(sample_weight, len(labels))
    return float(np.average(table[labels, decided], weights=weights))


def _numbered(decisions: Any, array: NDArray[Any], n: int, classes: Sequence[Any] | None) -> NDArray[np.int64]:
    """Return decisions [N], given as an array too, as numbers of the n classes, and -1 for abstentions."""
    names = check_class_names(classes, n, of="costs")
    if classes is None or (array.dtype.kind in "biuf" and all(isinstance(name, str) for name in names)):
        if array.dtype.kind in "US":
            raise TypeError(
                f"decisions must be class numbers without classes; found {array.tolist()[0]!r}. Pass the names of the "
                "classes, in the order of costs: classes=model.classes_"
            )
        numbers = check_array(array, "decisions", "[N]")
        if (unknown := (numbers != np.rint(numbers)) | (numbers < -1) | (numbers >= n)).any():
            raise ValueError(
                f"decisions must be class numbers below {n}, or -1 for abstentions; found {numbers[unknown][0]:g}"
            )
        return numbers.astype(np.int64)
    known = {name: k for k, name in enumerate(names)}
    # NumPy would turn the 7 of the list [7, "unknown"] into text.
    values = decisions if isinstance(decisions, list | tuple) else array.tolist()
    others = [*dict.fromkeys(value for value in values if value not in known)]
    if len(others) > 1:
        raise ValueError(
            f"decisions must hold the classes {listed(map(repr, names))}, and one other value for abstentions; found "
            f"{others[0]!r} and {others[1]!r}"
        )
    return np.array([known.get(value, -1) for value in values])
