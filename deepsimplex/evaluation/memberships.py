"""Memberships in the simplex from the scores of any classifier, and their distance from the corners [SPS]."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from deepsimplex._utils.validation import (
    check_array,
    check_choice,
    check_labels_beside,
    check_number,
    check_probabilities,
    check_sample_weight,
)


def standardized_memberships(
    scores: ArrayLike, kind: Literal["ranks", "shift", "softmax"], *, zero: float | None = None
) -> NDArray[np.float64]:
    """Memberships in the simplex from the scores of any argmax rule, keeping the order of classes [SPS] sec. 2.

    Parameters
    ----------
    scores : array_like, shape [N, n]
        Finite numbers, higher for more probable classes: margins of a support vector machine, outputs of a network,
        negative distances, votes.
    kind : {"ranks", "shift", "softmax"}
        "shift": subtract the absolute zero-point or an estimate of it and divide by the sum, for scores on a metric
        scale. "ranks": for ordinal scores; the lowest class of a row gets 1, the highest n, equal ones their mean rank.
        "softmax": exponentials divided by their sum, for log-probabilities.
    zero : float, optional
        The zero-point of "shift", at most the smallest score. Default: the smallest score.

    Returns
    -------
    ndarray, shape [N, n]
        Not negative, rows sum to 1. A row of scores equal to the zero-point becomes 1/n each.

    Raises
    ------
    TypeError
        If ``scores`` does not hold real numbers.
    ValueError
        If ``scores`` has another shape or is not finite, ``kind`` is unknown, or a score lies below ``zero``.

    Notes
    -----
    The paper divides ranks by n, which makes them sum to (n + 1) / 2; here they are divided by n (n + 1) / 2.

    Examples
    --------
    >>> standardized_memberships([[-1.0, 7.0, 0.5]], "ranks").round(4)
    array([[0.1667, 0.5   , 0.3333]])
    >>> standardized_memberships([[-1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], "shift", zero=-1.0)
    array([[0.        , 0.66666667, 0.33333333],
           [0.2       , 0.2       , 0.6       ]])
    """
    check_choice(kind, "kind", ("ranks", "shift", "softmax"))
    table = check_array(scores, "scores")
    if table.ndim != 2 or table.shape[1] < 2 or len(table) == 0:
        raise ValueError(
            f"scores must have shape [N, n] with N >= 1 samples and n >= 2 classes; found shape {table.shape}. "
            "Scores s for class 1 against class 0 become np.column_stack([-s, s])"
        )
    if zero is not None and kind != "shift":
        raise ValueError(f"zero belongs to kind='shift' only; found zero={zero!r} with kind={kind!r}")
    n = table.shape[1]
    if kind == "ranks":
        from scipy.stats import rankdata  # imported here: takes longer than all else

        return rankdata(table, axis=1) / (n * (n + 1) / 2)
    if kind == "softmax":
        return special.softmax(table, axis=1)
    zero = check_number(table.min() if zero is None else zero, "zero")
    if table.min() < zero:
        row = int(np.argmin(table.min(axis=1)))
        raise ValueError(
            f"zero must be at most the smallest score; found {zero!r} and a score of {table.min():.6g} in row {row}. "
            "Leave it out to use the smallest of scores"
        )
    # Halves, and rows relative to their largest value: neither the shift nor the sum overflows.
    shifted = table / 2 - zero / 2
    largest = shifted.max(axis=1, keepdims=True)
    shares = np.divide(shifted, largest, out=np.ones_like(shifted), where=largest > 0)
    return shares / shares.sum(axis=1, keepdims=True)


def check_membership(membership: ArrayLike, *, partial: bool = False) -> NDArray[np.floating]:
    """Return memberships [N, n] in the simplex; with ``partial`` their rows may sum to less than 1."""
    hint = "standardized_memberships makes memberships of scores"
    return check_probabilities(membership, "membership", hint, partial=partial)


def mean_closeness(membership: NDArray[np.floating], corners: NDArray[np.int64], sample_weight: Any = None) -> float:
    """1 if all memberships lie in the given corners, 0 if all lie in the centroid [SPS] sec. 5."""
    n = membership.shape[1]
    residuals = membership.astype(np.float64)
    residuals[np.arange(len(residuals)), corners] -= 1
    distances, weights = np.linalg.norm(residuals, axis=1), check_sample_weight(sample_weight, len(residuals))
    return float(1 - np.average(distances, weights=weights) / np.sqrt((n - 1) / n))


def partition_accuracy(
    y: ArrayLike, membership: ArrayLike, *, sample_weight: ArrayLike | None = None, classes: Sequence[Any] | None = None
) -> float:
    """Accuracy Ac: closeness of memberships, as they are, to the corners of the true classes [SPS] sec. 5.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    membership : array_like, shape [N, n]
        In the simplex; scaled (``standardized_partition(...).membership``, whose rows may sum to less than 1) or not.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``membership``.

    Returns
    -------
    float
        1 if every row lies in the true corner, 0 if all lie in the centroid, 1 - sqrt(2 n / (n - 1)) if every row lies
        in a wrong corner.

    Notes
    -----
    The paper prints (G - 1) / G for the distance from the centroid to a corner. It is sqrt((G - 1) / G), which gives
    the 1 and the 0 that the paper requires.

    Examples
    --------
    >>> partition_accuracy([0, 1], [[1, 0, 0], [0, 1, 0]])
    1.0
    >>> round(partition_accuracy([0, 1], [[0.6, 0.2, 0.2], [0.5, 0.5, 0.0]]), 4)
    0.267
    """
    table = check_membership(membership, partial=True)
    return mean_closeness(table, check_labels_beside(y, "membership", table.shape, classes), sample_weight)


def ability_to_separate(
    membership: ArrayLike,
    assigned: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> float:
    """Ability to separate AS: closeness of memberships, as they are, to the corners of the assigned classes [SPS].

    Parameters
    ----------
    membership : array_like, shape [N, n]
        In the simplex; scaled (rows may sum to less than 1) or not.
    assigned : array_like, shape [N], [N, 1] or one-hot [N, n], optional
        Assigned classes. Default: each row's largest membership, the lowest class among equals. For scaled
        memberships pass the classes assigned before scaling, as the paper does.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``membership``.

    Returns
    -------
    float
        1 if every row lies in the corner of its assigned class, 0 if all lie in the centroid. It may be negative with
        ``assigned``, as ``partition_accuracy``.

    Examples
    --------
    >>> round(ability_to_separate([[0.6, 0.2, 0.2], [0.5, 0.5, 0.0]]), 4)
    0.267
    """
    table = check_membership(membership, partial=True)
    if assigned is None:
        return mean_closeness(table, table.argmax(axis=1), sample_weight)
    corners = check_labels_beside(assigned, "membership", table.shape, classes, "assigned")
    return mean_closeness(table, corners, sample_weight)
