"""Selective classification: the error among the samples one is surest of, for every share of them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.inputs import check_labels_and_probabilities, unmasked
from deepsimplex.evaluation.prepared import Prepared


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Risk against coverage, where the surest samples are accepted first (Geifman and El-Yaniv, 2017).

    Attributes
    ----------
    coverage : ndarray, shape [N]
        1/N, 2/N, ..., 1: the share of samples accepted.
    risk : ndarray, shape [N]
        Share of wrong ones among those, expected over the orders of samples equally sure.
    confidence : ndarray, shape [N]
        The least sure of those accepted.

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
        """Accuracy among the surest share of samples; the number of them is rounded up, at least one."""
        return float(1 - self.risk[_accepted(coverage, len(self.risk)) - 1])


def _accepted(coverage: float, samples: int) -> int:
    if isinstance(coverage, bool) or not isinstance(coverage, int | float | np.floating) or not 0 < coverage <= 1:
        raise ValueError(f"coverage must be a share of the samples, above 0 and at most 1; found {coverage!r}")
    return max(1, math.ceil(round(coverage * samples, 6)))  # 0.7 * 10 is 7 samples, not 8


def _rows(y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Confidences [N] and which samples are wrong [N]."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    wrong = probabilities.argmax(axis=1) != labels
    if confidence is None:
        return probabilities.max(axis=1), wrong
    sure = unmasked(confidence, "confidence")
    if sure.shape != labels.shape or sure.dtype.kind not in "biuf":
        raise ValueError(
            f"confidence must hold one number for each of the {len(labels)} rows of p; found shape {sure.shape} and "
            f"dtype {sure.dtype}. Leave it out to take the largest probability"
        )
    missing = np.isnan(sure.astype(np.float64))
    if missing.any():
        raise ValueError(f"confidence must not hold NaN; found {missing.sum()}, the first in row {np.argmax(missing)}")
    return sure, wrong


def _curve(confidences: NDArray[Any], wrong: NDArray[np.bool_]) -> RiskCoverageCurve:
    samples = len(wrong)
    order = np.argsort(confidences)[::-1]
    ordered, accepted = confidences[order], np.arange(1, samples + 1)
    # The errors are known where a group of equal confidences ends; within it they grow evenly on average.
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), samples - 1)
    errors = np.interp(accepted, np.append(0, ends + 1), np.append(0, np.cumsum(wrong[order])[ends]))
    return RiskCoverageCurve(accepted / samples, errors / accepted, ordered)


def risk_coverage_curve(y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None = None) -> RiskCoverageCurve:
    """The error among the samples one is surest of, for every number of them.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned.
    confidence : array_like, shape [N], optional
        Any numbers that are larger for surer samples. Default: the largest probability.

    Returns
    -------
    RiskCoverageCurve

    Examples
    --------
    >>> risk_coverage_curve([0, 1], [[0.6, 0.4], [0.9, 0.1]], confidence=[2.0, 1.0]).risk
    array([0. , 0.5])
    """
    return _curve(*_rows(y, p, confidence))


def prepare_area_under_risk_coverage(y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None = None) -> Prepared:
    """See ``area_under_risk_coverage``."""
    return Prepared(lambda sure, wrong: _curve(sure, wrong).area, _rows(y, p, confidence))


def prepare_accuracy_at_coverage(
    y: ArrayLike, p: ArrayLike, coverage: float = 0.8, confidence: ArrayLike | None = None
) -> Prepared:
    """See ``accuracy_at_coverage``."""
    rows = _rows(y, p, confidence)
    _accepted(coverage, len(rows[0]))
    return Prepared(lambda sure, wrong: _curve(sure, wrong).accuracy_at(coverage), rows)


def area_under_risk_coverage(y: ArrayLike, p: ArrayLike, confidence: ArrayLike | None = None) -> float:
    """Area under the risk-coverage curve (AURC): small where errors are few and the unsure samples hold them.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    confidence : array_like, shape [N], optional
        As in ``risk_coverage_curve``.

    Returns
    -------
    float
        In [0, 1]; 0 is perfect. Where all samples are equally sure, it is the error rate.

    Examples
    --------
    >>> round(area_under_risk_coverage([0, 1, 0], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]]), 4)
    0.1111
    """
    return float(prepare_area_under_risk_coverage(y, p, confidence).value())


def accuracy_at_coverage(
    y: ArrayLike, p: ArrayLike, coverage: float = 0.8, confidence: ArrayLike | None = None
) -> float:
    """Accuracy among the surest share of the samples, the others left to someone else.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    coverage : float
        Share of samples kept, above 0 and at most 1, 0.8 by default; rounded up to a number of samples. 1 gives
        ``accuracy``.
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
    return float(prepare_accuracy_at_coverage(y, p, coverage, confidence).value())
