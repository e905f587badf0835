"""Reports of several classifiers on one test set, and which of their differences are more than chance."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.bootstrap import Interval, check_drawing, interval_of
from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.prepared import Limits
from deepsimplex.evaluation.report import Report, limits_of, prepare_scores, report, resampled_scores

HIGHER_IS_BETTER: dict[str, bool] = {
    "accuracy": True,
    "top_k_accuracy": True,
    "weighted_precision": True,
    "weighted_recall": True,
    "weighted_f1": True,
    "negative_log_likelihood": False,
    "brier_score": False,
    "brier_reliability": False,
    "brier_resolution": True,
    "proba_loss": False,
    "expected_calibration_error": False,
    "adaptive_calibration_error": False,
    "classwise_calibration_error": False,
    "maximum_calibration_error": False,
    "area_deviation": False,
    "area_under_risk_coverage": False,
    "accuracy_at_coverage": True,
}
"""What is better of each score that can be better; the others of a report describe the test set or the binning."""


@dataclass(frozen=True, eq=False)
class ReportComparison:
    """Reports of several classifiers on the same test set, and how far each is from the best.

    Attributes
    ----------
    reports : dict of str to Report
        With intervals, in the order given.
    best : dict of str to str
        The best classifier by each score; the first among equals.
    differences : dict of str to dict of str to Interval
        Of each classifier, by each score: the interval of its score minus the best one's, both on the same resamples.
        Where 0 lies outside, the difference is more than the choice of test samples explains at that level, one
        score and one pair of classifiers at a time.

    Examples
    --------
    >>> y = [0, 1] * 50
    >>> sure, unsure = [[0.9, 0.1], [0.1, 0.9]] * 50, [[0.6, 0.4], [0.4, 0.6]] * 50
    >>> comparison = compare_reports(y, {"unsure": unsure, "sure": sure})
    >>> comparison.best["brier_score"], comparison.differs("unsure", "brier_score")
    ('sure', True)
    >>> comparison.best["accuracy"], comparison.differs("sure", "accuracy")
    ('unsure', False)
    """

    reports: dict[str, Report]
    best: dict[str, str]
    differences: dict[str, dict[str, Interval]]

    def differs(self, name: str, score: str) -> bool:
        """Whether a classifier's score is farther from the best one than resampling explains."""
        lower, upper = self.differences[name][score]
        return lower > 0 or upper < 0


def compare_reports(
    y: ArrayLike,
    probabilities: Mapping[str, ArrayLike],
    bins: int = 15,
    *,
    k: int | None = None,
    coverage: float = 0.8,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    announce: Callable[[str], object] | None = None,
) -> ReportComparison:
    """Score several classifiers on one test set, and compare each with the best one by a paired bootstrap.

    Scores on the same samples rise and fall together, so that the interval of their difference is narrower than their
    own intervals suggest: two classifiers may differ although these overlap.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    probabilities : mapping of str to array_like, shape [N, n]
        Each classifier's class probabilities of these samples, in the same order.
    bins, k, coverage
        As in ``report``.
    level : float
        Of all intervals, 0.95 by default.
    resamples, seed
        As in ``bootstrap_interval``.
    announce : callable, optional
        Is told each classifier's name before it is scored: 10 000 samples of 10 classes take about ten seconds.

    Returns
    -------
    ReportComparison

    Raises
    ------
    ValueError
        When an argument breaks the above, naming the classifier.

    Examples
    --------
    >>> comparison = compare_reports([0, 1], {"one": [[0.9, 0.1], [0.4, 0.6]], "two": [[0.7, 0.3], [0.7, 0.3]]})
    >>> comparison.reports["two"].accuracy, comparison.best["accuracy"]
    (0.5, 'one')
    """
    if not isinstance(probabilities, Mapping) or not probabilities:
        found = "an empty mapping" if isinstance(probabilities, Mapping) else type(probabilities).__name__
        raise ValueError(f"probabilities must map classifiers' names to their probabilities [N, n]; found {found}")
    level, resamples, seed, _ = check_drawing(level, resamples, seed, False)
    reports: dict[str, Report] = {}
    resampled: dict[str, dict[str, NDArray[np.float64]]] = {}
    limits: dict[str, Limits | None] = {}
    for name, p in probabilities.items():
        if announce is not None:
            announce(name)
        try:
            labels, checked = check_labels_and_probabilities(y, p)
            scores = report(labels, checked, bins, k=k, coverage=coverage)
        except (TypeError, ValueError) as error:
            raise type(error)(f"classifier {name!r}: {error}") from error
        prepared = prepare_scores(labels, checked, bins, scores.k, coverage)
        drawn, limits = resampled_scores(prepared, None, resamples, seed), limits_of(prepared)
        names = [field.name for field in dataclasses.fields(Report) if field.name in drawn]
        intervals = {key: interval_of(getattr(scores, key), drawn[key], level, limits[key]) for key in names}
        reports[name] = dataclasses.replace(scores, level=level, intervals=intervals)
        resampled[name] = drawn
    if len({scores.classes for scores in reports.values()}) > 1:
        columns = {name: scores.classes for name, scores in reports.items()}
        raise ValueError(f"probabilities must have the same classes for every classifier; found columns {columns}")

    best = {score: _best(reports, score, higher) for score, higher in HIGHER_IS_BETTER.items()}
    differences = {
        name: {
            score: _difference(
                (getattr(reports[name], score), resampled[name][score]),
                (getattr(reports[first], score), resampled[first][score]),
                level,
                limits[score] is not None,
            )
            for score, first in best.items()
        }
        for name in reports
    }
    return ReportComparison(reports, best, differences)


def _best(reports: Mapping[str, Report], score: str, higher: bool) -> str:
    return (max if higher else min)(reports, key=lambda name: getattr(reports[name], score))


def _difference(
    other: tuple[float, NDArray[np.float64]], best: tuple[float, NDArray[np.float64]], level: float, biased: bool
) -> Interval:
    """The interval of one score minus another, of all samples and on the same resamples; biased ones as reports do."""
    value, values = _minus(other[0], best[0]), _minus(other[1], best[1])
    return interval_of(float(value), values, level, (-np.inf, np.inf) if biased else None)


def _minus(left: ArrayLike, right: ArrayLike) -> NDArray[np.float64]:
    """left - right, and 0 where they are equal: two infinite scores do not differ."""
    one, other = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return np.subtract(one, other, out=np.zeros_like(one), where=one != other)
