"""Selective classification: the error rate among the most confident samples, for every coverage."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_labels_and_probabilities, check_number
from deepsimplex.evaluation.bootstrap import PreparedScore, score
from deepsimplex.evaluation.uncertainty import check_scores


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


def _terms(y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Confidences [N], and which samples are misclassified [N]."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    wrong = probabilities.argmax(axis=1) != labels
    if confidence is None:
        return probabilities.max(axis=1), wrong
    return check_scores(confidence, "confidence", "Leave it out to use the largest probability", len(labels)), wrong


def _curve(confidences: NDArray[Any], wrong: NDArray[np.bool_]) -> RiskCoverageCurve:
    samples = len(wrong)
    order = np.argsort(confidences)[::-1]
    ordered, accepted = confidences[order], np.arange(1, samples + 1)
    # The number of errors is known where a group of equal confidences ends; within it it grows linearly on average.
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), samples - 1)
    errors = np.interp(accepted, np.append(0, ends + 1), np.append(0, np.cumsum(wrong[order])[ends]))
    return RiskCoverageCurve(accepted / samples, errors / accepted, ordered)


def risk_coverage_curve(y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None = None) -> RiskCoverageCurve:
    """Error rate of the most confident samples, for every number of them.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned.
    confidence : array_like, shape [N], optional
        Numbers that rank the samples, larger for more confident ones. Default: the largest probability.

    Returns
    -------
    RiskCoverageCurve

    Examples
    --------
    >>> risk_coverage_curve([0, 1], [[0.6, 0.4], [0.9, 0.1]], confidence=[2.0, 1.0]).risk
    array([0. , 0.5])
    """
    return _curve(*_terms(y, p, confidence))


@score
def area_under_risk_coverage(y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None = None) -> PreparedScore:
    """Area under the risk-coverage curve (AURC): small if errors are few and have low confidence.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    confidence : array_like, shape [N], optional
        As in ``risk_coverage_curve``.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect. It is the error rate if all samples have the same confidence.

    Examples
    --------
    >>> round(area_under_risk_coverage([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]]), 4)
    0.1111
    """
    return PreparedScore(lambda confidences, wrong: _curve(confidences, wrong).area, _terms(y, p, confidence))


@score
def accuracy_at_coverage(
    y: ArrayLike, p: ArrayLike, coverage: float = 0.8, confidence: ArrayLike | None = None
) -> PreparedScore:
    """Accuracy of the most confident fraction of the samples.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    coverage : float
        Fraction of samples accepted, above 0 and at most 1, rounded up to a number of samples. The default is 0.8; 1
        gives ``accuracy``.
    confidence : array_like, shape [N], optional
        As in ``risk_coverage_curve``.

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
    return PreparedScore(lambda confidences, wrong: _curve(confidences, wrong).accuracy_at(coverage), terms)
