"""Uncertainty of each sample, and how well it detects samples from outside the training distribution."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_choice, check_labels, check_probabilities
from deepsimplex.evaluation.bootstrap import PreparedScore, score

Measure = Literal["entropy", "confidence", "margin", "likelihood"]


def uncertainty(p: ArrayLike, by: Measure = "entropy", y: ArrayLike | None = None) -> NDArray[np.float64]:
    """Uncertainty of each sample's class, large where the classifier is uncertain or wrong.

    Parameters
    ----------
    p : array_like, shape [N, n]
        Class probabilities.
    by : {"entropy", "confidence", "margin", "likelihood"}
        Entropy in nats (default, depends on every class); one minus the largest probability; one minus the difference
        of the two largest; or one minus the probability of the true class.
    y : array_like, shape [N], [N, 1] or one-hot [N, n], optional
        Class numbers 0..n-1, for "likelihood".

    Returns
    -------
    ndarray, shape [N]
        Not negative. ``np.argsort(-uncertainty(p), kind="stable")`` ranks samples, the most uncertain first.

    Raises
    ------
    ValueError
        For another ``by``, for "likelihood" without ``y``, and if ``p`` or ``y`` are not as above.

    Examples
    --------
    >>> p = [[0.5, 0.5], [0.9, 0.1]]
    >>> uncertainty(p).round(4), uncertainty(p, "likelihood", y=[0, 1])
    (array([0.6931, 0.3251]), array([0.5, 0.9]))
    """
    table = check_probabilities(p).astype(np.float64)
    samples, n = table.shape
    labels = None if y is None else check_labels(y, n, rows=samples, of="p")[0]
    check_choice(by, "by", ("entropy", "confidence", "margin", "likelihood"))
    if by == "entropy":
        values = -np.sum(table * np.log(np.where(table > 0, table, 1.0)), axis=1)
    elif by == "confidence":
        values = 1 - table.max(axis=1)
    elif by == "margin":
        second, first = np.sort(table, axis=1)[:, -2:].T
        values = 1 - (first - second)
    elif labels is None:
        raise ValueError("by='likelihood' needs the true classes: pass y")
    else:
        values = 1 - table[np.arange(samples), labels]
    return np.maximum(values, 0.0)


def check_scores(values: ArrayLike, name: str, hint: str, rows: int | None = None) -> NDArray[np.floating]:
    """Return one number for each sample, [N], maybe infinite but not NaN."""
    scores = check_array(values, name, finite=False, dtype="floating")
    if scores.ndim != 1 or len(scores) == 0 or rows not in (None, len(scores)):
        each = "sample, [N] with N >= 1" if rows is None else f"of the {rows} rows of p"
        raise ValueError(f"{name} must hold one number for each {each}; found shape {scores.shape}. {hint}")
    missing = np.isnan(scores)
    if missing.any():
        raise ValueError(f"{name} must not hold NaN; found {missing.sum()}, the first in row {int(np.argmax(missing))}")
    return scores


@score
def out_of_distribution_auroc(inside: ArrayLike, outside: ArrayLike) -> PreparedScore:
    """Area under the ROC curve of a score that should be larger for samples from outside the training distribution.

    It is the probability that a sample from outside scores above one from inside; a tie counts half.

    Parameters
    ----------
    inside, outside : array_like, shapes [N], [M]
        Scores of samples from the training distribution and of others, such as ``1 - p.max(axis=1)``; infinite ones
        rank first or last.

    Returns
    -------
    float
        In [0, 1]: 1 is perfect detection, 1/2 is chance.

    Raises
    ------
    ValueError
        If either is empty, holds NaN or is not a vector.

    Examples
    --------
    >>> out_of_distribution_auroc([0.1, 0.2, 0.3], [0.3, 0.9])
    0.9166666666666666
    """
    hint = "Probabilities p [N, n] become scores with 1 - p.max(axis=1)"
    within, beyond = (check_scores(s, name, hint) for s, name in ((inside, "inside"), (outside, "outside")))

    def finish(scores: NDArray[Any], is_outside: NDArray[np.bool_]) -> float:
        ordered, others = np.sort(scores[~is_outside]), np.sort(scores[is_outside])
        below, not_above = (int(np.searchsorted(ordered, others, side=side).sum()) for side in ("left", "right"))
        return (below + not_above) / (2 * len(ordered) * len(others))

    is_outside = np.arange(len(within) + len(beyond)) >= len(within)
    return PreparedScore(finish, (np.concatenate([within, beyond]), is_outside), strata=is_outside)
