"""Uncertainty of each sample, and how well it detects errors (selective risk) and out-of-distribution samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import (
    check_array,
    check_choice,
    check_labels_and_probabilities,
    check_labels_beside,
    check_number,
    check_probabilities,
)
from deepsimplex.evaluation.bootstrap import PreparedScore, score

Measure = Literal["entropy", "confidence", "margin", "likelihood"]


def uncertainty(
    p: ArrayLike, by: Measure = "entropy", y: ArrayLike | None = None, *, classes: Sequence[Any] | None = None
) -> NDArray[np.float64]:
    """Uncertainty of each sample's class, large where the classifier is uncertain or wrong.

    Parameters
    ----------
    p : array_like, shape [N, n]
        Class probabilities.
    by : {"entropy", "confidence", "margin", "likelihood"}
        Entropy in nats (default, depends on every class); one minus the largest probability; one minus the difference
        of the two largest; or one minus the probability of the true class.
    y : array_like, shape [N], [N, 1] or one-hot [N, n], optional
        True classes, for "likelihood": numbers 0..n-1, or names that ``classes`` holds.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

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
    labels = None if y is None else check_labels_beside(y, "p", table.shape, classes)
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
        values = 1 - table[np.arange(len(table)), labels]
    return np.maximum(values, 0.0)


def _check_scores(values: ArrayLike, name: str, hint: str, rows: int | None = None) -> NDArray[np.floating]:
    """Return one number for each sample, [N], maybe infinite but not NaN."""
    scores = check_array(values, name, finite=False, dtype="floating")
    if scores.ndim != 1 or len(scores) == 0 or rows not in (None, len(scores)):
        each = "sample, [N] with N >= 1" if rows is None else f"of the {rows} rows of p"
        raise ValueError(f"{name} must hold one number for each {each}; found shape {scores.shape}. {hint}")
    missing = np.isnan(scores)
    if missing.any():
        raise ValueError(f"{name} must not hold NaN; found {missing.sum()}, the first in row {int(np.argmax(missing))}")
    return scores


def _check_both(inside: ArrayLike, outside: ArrayLike) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    hint = "Probabilities p [N, n] become scores with 1 - p.max(axis=1)"
    return _check_scores(inside, "inside", hint), _check_scores(outside, "outside", hint)


@partial(score, check=_check_both, weighted=False)
def out_of_distribution_auroc(inside: Any, outside: Any) -> PreparedScore:
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

    def finish(scores: NDArray[Any], is_outside: NDArray[np.bool_], weights: NDArray[np.float64]) -> float:
        order = np.argsort(scores[~is_outside])
        ordered, up_to = scores[~is_outside][order], np.append(0.0, np.cumsum(weights[~is_outside][order]))
        others, shares = scores[is_outside], weights[is_outside] / weights[is_outside].sum()
        below, not_above = (up_to[np.searchsorted(ordered, others, side=side)] for side in ("left", "right"))
        return float(shares @ (below + not_above) / (2 * up_to[-1]))

    is_outside = np.arange(len(inside) + len(outside)) >= len(inside)
    return PreparedScore(finish, (np.concatenate([inside, outside]), is_outside), strata=is_outside)


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Risk against coverage, where the most confident samples are accepted first (Geifman and El-Yaniv, 2017).

    Attributes
    ----------
    coverage : ndarray, shape [N]
        1/N, 2/N, ..., 1: the fraction of samples accepted.
    risk : ndarray, shape [N]
        Error rate of the accepted samples, averaged over the orders of samples of equal confidence.
    confidence : ndarray, shape [N]
        Smallest confidence of the accepted samples.

    Examples
    --------
    >>> curve = risk_coverage_curve([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]])
    >>> curve.risk.round(4), round(curve.area, 4), curve.accuracy_at(2 / 3)
    (array([0.    , 0.    , 0.3333]), 0.1111, 1.0)
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    confidence: NDArray[Any]

    @property
    def area(self) -> float:
        """Area under the curve (AURC): the mean risk over the N coverages."""
        return float(np.mean(self.risk))

    def accuracy_at(self, coverage: float) -> float:
        """Accuracy of the most confident samples; their number is rounded up."""
        coverage = check_number(coverage, "coverage", 0, 1)
        accepted = max(1, math.ceil(round(coverage * len(self.risk), 6)))  # 0.7 * 10 is 7 samples, not 8
        return float(1 - self.risk[accepted - 1])


def _terms(
    y: NDArray[np.int64], p: NDArray[np.floating], confidence: ArrayLike | None
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Confidences [N], and which samples are misclassified [N]."""
    wrong = p.argmax(axis=1) != y
    if confidence is None:
        return p.max(axis=1), wrong
    return _check_scores(confidence, "confidence", "Leave it out to use the largest probability", len(y)), wrong


def _curve(confidences: NDArray[Any], wrong: NDArray[np.bool_]) -> RiskCoverageCurve:
    samples = len(wrong)
    order = np.argsort(confidences)[::-1]
    ordered, accepted = confidences[order], np.arange(1, samples + 1)
    # The number of errors is known where a group of equal confidences ends; within it it grows linearly on average.
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), samples - 1)
    errors = np.interp(accepted, np.append(0, ends + 1), np.append(0, np.cumsum(wrong[order])[ends]))
    return RiskCoverageCurve(accepted / samples, errors / accepted, ordered)


def risk_coverage_curve(
    y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None = None, *, classes: Sequence[Any] | None = None
) -> RiskCoverageCurve:
    """Error rate of the most confident samples, for every number of them.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned.
    confidence : array_like, shape [N], optional
        Numbers that rank the samples, larger for more confident ones. Default: the largest probability.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    RiskCoverageCurve

    Examples
    --------
    >>> risk_coverage_curve([0, 1], [[0.6, 0.4], [0.9, 0.1]], confidence=[2.0, 1.0]).risk
    array([0. , 0.5])
    """
    return _curve(*_terms(*check_labels_and_probabilities(y, p, classes), confidence))


@partial(score, weighted=False)
def area_under_risk_coverage(y: Any, p: Any, confidence: ArrayLike | None = None) -> PreparedScore:
    """Area under the risk-coverage curve (AURC): small if errors are few and have low confidence.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    confidence : array_like, shape [N], optional
        As in ``risk_coverage_curve``.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect. It is the error rate if all samples have the same confidence.

    Examples
    --------
    >>> round(area_under_risk_coverage([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]]), 4)
    0.1111
    """
    return PreparedScore(lambda confidences, wrong, _: _curve(confidences, wrong).area, _terms(y, p, confidence))


@partial(score, weighted=False)
def accuracy_at_coverage(y: Any, p: Any, coverage: float = 0.8, confidence: ArrayLike | None = None) -> PreparedScore:
    """Accuracy of the most confident fraction of the samples.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    coverage : float
        Fraction of samples accepted, above 0 and at most 1, rounded up to a number of samples. The default is 0.8; 1
        gives ``accuracy``.
    confidence : array_like, shape [N], optional
        As in ``risk_coverage_curve``.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> accuracy_at_coverage([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]], coverage=0.5)
    1.0
    """
    terms = _terms(y, p, confidence)
    return PreparedScore(lambda confidences, wrong, _: _curve(confidences, wrong).accuracy_at(coverage), terms)
