"""Compare the reports of several classifiers on one test set by a paired bootstrap."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_class_names, check_labels_and_probabilities
from deepsimplex.evaluation.bootstrap import Interval, ResampledScore, check_resampling, checked_groups
from deepsimplex.evaluation.report import SCORE_GROUPS, Report, scored_report

_HIGHER = (*SCORE_GROUPS["Decisions"], *SCORE_GROUPS["Ranking"], "brier_resolution", "accuracy_at_coverage")
_NEITHER = ("brier_uncertainty", "brier_remainder")
HIGHER_IS_BETTER: dict[str, bool] = {
    score: score in _HIGHER for scores in SCORE_GROUPS.values() for score in scores if score not in _NEITHER
}
"""Whether a larger value of a score is better; the other fields of a report describe the test set or the settings."""


@dataclass(frozen=True, eq=False)
class ReportComparison:
    """Reports of several classifiers on the same test set, and the differences of each from the best.

    Attributes
    ----------
    reports : dict of str to Report
        With intervals, in the order given.
    best : dict of str to str
        For each score the best classifier, the first among equals. Scores that are not defined are left out: the area
        under the ROC curve if all samples are of one class.
    differences : dict of str to dict of str to Interval
        For each classifier and score the interval of its score minus the best one's, both on the same resamples. If 0
        lies outside, the difference is significant at that level, for one score and one pair of classifiers at a time.

    Examples
    --------
    >>> y = [0, 1] * 10
    >>> sure, unsure = [[0.9, 0.1], [0.1, 0.9]] * 10, [[0.6, 0.4], [0.4, 0.6]] * 10
    >>> comparison = compare_reports(y, {"unsure": unsure, "sure": sure}, resamples=20)
    >>> comparison.best["brier_score"], comparison.differs("unsure", "brier_score")
    ('sure', True)
    >>> comparison.best["accuracy"], comparison.differs("sure", "accuracy")
    ('unsure', False)
    """

    reports: dict[str, Report]
    best: dict[str, str]
    differences: dict[str, dict[str, Interval]]

    def differs(self, name: str, score: str) -> bool:
        """Return whether the interval of the difference of a classifier from the best one excludes 0."""
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
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    announce: Callable[[str], object] | None = None,
    classes: Sequence[Any] | None = None,
) -> ReportComparison:
    """Score several classifiers on one test set, and compare each with the best one by a paired bootstrap.

    Scores on the same samples are correlated, so that the interval of their difference is narrower than their own
    intervals suggest: two classifiers may differ although these overlap.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    probabilities : mapping of str to array_like, shape [N, n]
        Each classifier's class probabilities of these samples, in the same order.
    bins, k, coverage
        As in ``report``.
    level : float
        Level of all intervals, 0.95 by default.
    resamples, seed, groups
        As in ``bootstrap_interval``.
    sample_weight : array_like, shape [N], optional
        Weights, as in ``report``. Default None: all 1.
    announce : callable, optional
        Called with each classifier's name before it is scored, such as ``print`` to show progress.
    classes : sequence of length n, optional
        The name of each column of the probabilities: ``model.classes_``.

    Returns
    -------
    ReportComparison

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above; the message names the classifier.

    Examples
    --------
    >>> p = {"one": [[0.9, 0.1], [0.4, 0.6]], "two": [[0.7, 0.3], [0.7, 0.3]]}
    >>> comparison = compare_reports([0, 1], p, resamples=10)
    >>> comparison.reports["two"].accuracy, comparison.best["accuracy"]
    (0.5, 'one')
    """
    if not isinstance(probabilities, Mapping) or not probabilities:
        raise ValueError(f"probabilities must map names to probabilities [N, n]; found {probabilities!r:.60}")
    check_resampling(level, resamples, seed)
    reports: dict[str, Report] = {}
    scores: dict[str, dict[str, ResampledScore]] = {}
    for name, p in probabilities.items():
        if announce is not None:
            announce(name)
        try:
            labels, table = check_labels_and_probabilities(y, p, classes)
            names, whole_groups = check_class_names(classes, table.shape[1]), checked_groups(groups, len(labels))
            settings = (bins, k, coverage, level, resamples, seed, names)
            reports[name], scores[name] = scored_report(
                labels, table, *settings, groups=whole_groups, sample_weight=sample_weight
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"classifier {name!r}: {error}") from error
    if len({report.classes for report in reports.values()}) > 1:
        columns = {name: report.classes for name, report in reports.items()}
        raise ValueError(f"probabilities must have the same classes for every classifier; found columns {columns}")
    best = {
        score: (max if higher else min)(reports, key=lambda name: scores[name][score].value)
        for score, higher in HIGHER_IS_BETTER.items()
        if not any(score not in one or np.isnan(one[score].value) for one in scores.values())
    }
    differences = {
        name: {score: _difference(values[score], scores[first][score], level) for score, first in best.items()}
        for name, values in scores.items()
    }
    return ReportComparison(reports, best, differences)


def _difference(one: ResampledScore, best: ResampledScore, level: float) -> Interval:
    """The interval of one score minus another, on the same resamples; biased scores take the basic bootstrap."""
    limits = None if one.limits is None else (-np.inf, np.inf)
    value, values = _minus(one.value, best.value), _minus(one.values, best.values)
    return ResampledScore(float(value), values, limits).interval(level)


def _minus(left: ArrayLike, right: ArrayLike) -> NDArray[np.float64]:
    """left - right, and 0 for equal values, even infinite ones."""
    one, other = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return np.subtract(one, other, out=np.zeros_like(one), where=one != other)
