"""Memberships of classifiers that are not probabilistic, brought into the simplex [SPS] sec. 2."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.validation import check_number
from deepsimplex.evaluation.inputs import real_numbers

KINDS = ("ranks", "shift", "softmax")


def standardized_memberships(
    scores: ArrayLike, kind: Literal["ranks", "shift", "softmax"], *, zero: float | None = None
) -> NDArray[np.float64]:
    """Memberships in the simplex from the scores of any argmax rule, each row's order of classes kept [SPS] sec. 2.

    Parameters
    ----------
    scores : array_like, shape [N, n]
        Finite numbers of any size and sign, higher for classes held likelier: margins of a support vector machine,
        outputs of a network, negative distances, votes.
    kind : {"ranks", "shift", "softmax"}
        "shift": "subtraction of the absolute zero-point or an estimator thereof and division by the sum", for scores
        on a metric scale. "ranks": for scores whose distances mean nothing; the lowest class of a row gets 1, the
        highest n, equal ones their mean rank. "softmax": exponentials divided by their sum, for scores that are
        logarithms.
    zero : float, optional
        The zero-point of "shift", no higher than any score. Default: the smallest score given.

    Returns
    -------
    ndarray, shape [N, n]
        Not negative, rows summing to 1. A row that lies at the zero-point altogether becomes 1/n each.

    Raises
    ------
    TypeError
        When ``scores`` holds no real numbers.
    ValueError
        When ``scores`` is not such a table, ``kind`` is not known, or a score lies below ``zero``.

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
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; found {kind!r}{did_you_mean(kind, KINDS)}")
    table = real_numbers(scores, "scores").astype(np.float64)
    if table.ndim != 2 or table.shape[1] < 2 or len(table) == 0:
        raise ValueError(
            f"scores must have shape [N, n] with N >= 1 samples and n >= 2 classes; found shape {table.shape}. "
            "Scores s for class 1 against class 0 become np.column_stack([-s, s])"
        )
    finite = np.isfinite(table).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"scores must be finite; found NaN or infinity in {np.sum(~finite)} rows, the first is row "
            f"{int(np.argmin(finite))}"
        )
    if zero is not None and kind != "shift":
        raise ValueError(f"zero belongs to kind='shift' only; found zero={zero!r} with kind={kind!r}")
    n = table.shape[1]
    if kind == "ranks":
        return stats.rankdata(table, axis=1) / (n * (n + 1) / 2)
    if kind == "softmax":
        return special.softmax(table, axis=1)
    if zero is None:
        zero = float(table.min())
    check_number(zero, "zero")
    if table.min() < zero:
        row = int(np.argmin(table.min(axis=1)))
        raise ValueError(
            f"zero must be no higher than any score; found {zero!r} and a score of {table.min():.6g} in row {row}. "
            "Leave it out to take the smallest score"
        )
    # Halves, and rows relative to their largest: neither the shift nor the sum overflows.
    shifted = table / 2 - zero / 2
    largest = shifted.max(axis=1, keepdims=True)
    shares = np.divide(shifted, largest, out=np.ones_like(shifted), where=largest > 0)
    return shares / shares.sum(axis=1, keepdims=True)
