"""Scores of every class against the rest: sensitivity, specificity, predictive values, likelihood ratios, areas."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.messages import listed
from deepsimplex._utils.validation import (
    check_array,
    check_class_names,
    check_labels_and_probabilities,
    class_number,
)
from deepsimplex.evaluation.bootstrap import (
    Interval,
    PreparedScore,
    ResampledScore,
    check_resampling,
    checked_groups,
    resample,
    score,
    weighted_rows,
)
from deepsimplex.evaluation.json_values import JSONResult, text_table

CLASS_SCORES = {
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "positive_predictive_value": "PPV",
    "negative_predictive_value": "NPV",
    "positive_likelihood_ratio": "LR+",
    "negative_likelihood_ratio": "LR-",
    "roc_auc": "ROC area",
    "average_precision": "avg. precision",
}
"""Scores of a class, with their heads in tables."""
CLASS_MEANS = ("balanced_accuracy", "roc_auc", "average_precision")
"""Scores of all classes together that are made of those of each."""


@dataclass(frozen=True, eq=False)
class ClassScores(JSONResult):
    """Scores of every class against the rest; ``str`` gives a table, ``as_dict`` plain numbers and ``to_json`` text.

    Attributes
    ----------
    classes : tuple
        Names of the n classes, in the order of the columns of the probabilities.
    samples : ndarray, shape [n]
        Number of samples of each class, whatever their weights above 0.
    sensitivity, specificity : ndarray, shape [n]
        Share of the samples of a class that are assigned to it, and of the others that are not. The sensitivity is also
        called recall.
    positive_predictive_value, negative_predictive_value : ndarray, shape [n]
        Share of the samples assigned to a class that are of it (precision), and of those not assigned to it that are
        not, at the frequencies of the classes among these samples.
    positive_likelihood_ratio, negative_likelihood_ratio : ndarray, shape [n]
        Factor by which the odds of a class grow if it is assigned, sensitivity / (1 - specificity), and if it is not,
        (1 - sensitivity) / specificity. Infinite where the denominator alone is 0.
    roc_auc, average_precision : ndarray, shape [n]
        As the functions of these names, for the class against the rest.
    level : float or None
        Level of the intervals.
    intervals : dict of str to list of Interval, or None
        For each score the interval of each class, over the resamples on which it is defined. None if not requested.

    Notes
    -----
    A score without samples to compute it from, such as the sensitivity for a class that no sample has, is NaN, and
    ``note`` says why.

    Examples
    --------
    >>> scores = class_scores(["sick", "well"], [[0.9, 0.1], [0.3, 0.7]], classes=["sick", "well"])
    >>> scores["sick"]["sensitivity"], scores["sick"]["positive_likelihood_ratio"]
    (1.0, inf)
    """

    classes: tuple[Any, ...]
    samples: NDArray[np.int64]
    sensitivity: NDArray[np.float64]
    specificity: NDArray[np.float64]
    positive_predictive_value: NDArray[np.float64]
    negative_predictive_value: NDArray[np.float64]
    positive_likelihood_ratio: NDArray[np.float64]
    negative_likelihood_ratio: NDArray[np.float64]
    roc_auc: NDArray[np.float64]
    average_precision: NDArray[np.float64]
    level: float | None = None
    intervals: Mapping[str, list[Interval]] | None = None

    def __getitem__(self, name: Any) -> dict[str, Any]:
        """Return the number of samples, the scores and, if requested, the intervals of the class of a name."""
        k = class_number(name, self.classes, "the class")
        scores = {"samples": int(self.samples[k])} | {each: float(getattr(self, each)[k]) for each in CLASS_SCORES}
        if self.intervals is None:
            return scores
        return scores | {"intervals": {each: self.intervals[each][k] for each in CLASS_SCORES}}

    def as_dict(self) -> dict[str, Any]:
        """Return the scores of each class, by its name as text."""
        return {str(name): self[name] for name in self.classes}

    @property
    def note(self) -> str:
        """What is not defined, in a sentence; empty if every class has samples, and is assigned to some but not all."""
        absent = [name for name, count in zip(self.classes, self.samples, strict=True) if count == 0]
        never = [
            name
            for name, value in zip(self.classes, self.positive_predictive_value, strict=True)
            if np.isnan(value) and name not in absent
        ]
        parts = []
        if absent:
            parts.append(f"No sample is of {_classes(absent)}: without sensitivity, likelihood ratios and areas.")
        if len(absent) == len(self.classes) - 1:
            parts.append("All samples are of one class: without specificity and area under the ROC curve.")
        if never:
            parts.append(f"No sample is assigned to {_classes(never)}: without PPV and LR+.")
        return " ".join(parts)

    def rows(self) -> Iterator[tuple[str, int, list[tuple[float, Interval | None]]]]:
        """Yield the name, the number of samples, and every score with its interval, class by class, for tables."""
        for k, name in enumerate(self.classes):
            intervals = [None if self.intervals is None else self.intervals[each][k] for each in CLASS_SCORES]
            values = [float(getattr(self, each)[k]) for each in CLASS_SCORES]
            yield str(name), int(self.samples[k]), list(zip(values, intervals, strict=True))

    def __str__(self) -> str:
        table = [["", "samples", *CLASS_SCORES.values()]]
        for name, samples, cells in self.rows():
            table.append([name, str(samples), *(_number(value) for value, _ in cells)])
            if self.level is not None:
                bounds = [f"{_number(one[0])} to {_number(one[1])}" for _, one in cells if one is not None]
                table.append([f"  {100 * self.level:g}% interval", "", *bounds])
        return "\n".join([text_table(table), *filter(None, [self.note])])


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"


def _classes(names: Sequence[Any]) -> str:
    return f"class {names[0]!r}" if len(names) == 1 else f"the classes {listed(names)}"


def class_scores(
    y: ArrayLike,
    p: ArrayLike,
    *,
    threshold: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    intervals: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
    stratified: bool = False,
    groups: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> ClassScores:
    """Score every class against the rest.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    threshold : float or array_like, shape [n], optional
        A class is assigned where its probability is at least this, so that a sample may have several classes or none.
        Default None: the most probable class.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    intervals : float, optional
        Level of bootstrap intervals, such as 0.95. The default is None: no intervals.
    resamples, seed, stratified, groups
        Resampling for the intervals, as in ``bootstrap_interval``: with ``groups`` whole patients, for example.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    ClassScores

    Examples
    --------
    >>> y, p = ["cat", "dog", "dog", "dog"], [[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8]]
    >>> scores = class_scores(y, p, classes=["cat", "dog"])
    >>> scores["dog"]["specificity"], round(scores["dog"]["sensitivity"], 3)
    (1.0, 0.667)
    >>> class_scores(y, p, classes=["cat", "dog"], threshold=[0.5, 0.3])["dog"]["sensitivity"]
    1.0
    """
    check_resampling(0.95 if intervals is None else intervals, resamples, seed, stratified, groups, name="intervals")
    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    n, whole_groups = probabilities.shape[1], checked_groups(groups, len(labels))
    weights, labels, probabilities, whole_groups = weighted_rows(sample_weight, labels, probabilities, whole_groups)
    prepared = prepare_class_scores(labels, probabilities, threshold)
    strata = labels if stratified else None
    count = 0 if intervals is None else resamples
    (scores,) = resample([prepared], strata, count, seed, weights, whole_groups)
    return resampled_class_scores(labels, scores, check_class_names(classes, n), intervals)


def resampled_class_scores(
    labels: NDArray[np.int64], scores: Sequence[ResampledScore], classes: tuple[Any, ...], level: float | None
) -> ClassScores:
    """Sort the numbers of ``prepare_class_scores`` by score and class."""
    n = len(classes)
    starts = {name: len(CLASS_MEANS) + position * n for position, name in enumerate(CLASS_SCORES)}
    by_name = {name: scores[start : start + n] for name, start in starts.items()}
    return ClassScores(
        classes,
        np.bincount(labels, minlength=n),
        **{name: np.array([each.value for each in numbers]) for name, numbers in by_name.items()},
        level=None if level is None else float(level),
        intervals=None
        if level is None
        else {name: [each.interval(level) for each in numbers] for name, numbers in by_name.items()},
    )


def prepare_class_scores(
    y: NDArray[np.int64], p: NDArray[np.floating], threshold: ArrayLike | None = None
) -> PreparedScore:
    """Prepare ``CLASS_MEANS``, then ``CLASS_SCORES`` of every class, all in one array [3 + 8 n]."""

    def finish(
        y: NDArray[Any], hit: NDArray[Any], others: NDArray[Any], ranks: NDArray[Any], weights: NDArray[Any]
    ) -> NDArray[np.float64]:
        rates, areas = _rates(y, hit, others, weights), _areas(y, ranks, weights)
        means = [_mean(rates[0]), _mean(areas[0]), _mean_precision(areas[1])]
        return np.concatenate([means, *rates, *areas])

    return PreparedScore(finish, (*_assignment_terms(y, p, threshold), _ranks(p)))


def _assignment_terms(
    y: NDArray[np.int64], p: NDArray[np.floating], threshold: ArrayLike | None = None
) -> tuple[NDArray[Any], ...]:
    """Return labels [N], whether the true class is assigned [N], and which others are [N, n]."""
    n = p.shape[1]
    if threshold is None:
        assigned = p.argmax(axis=1)[:, None] == np.arange(n)
    else:
        limits = check_array(threshold, "threshold")
        if limits.shape not in ((), (n,)):
            raise ValueError(f"threshold must be a number, or one for each of {n} classes; found shape {limits.shape}")
        assigned = p >= limits
    hit = assigned[np.arange(len(y)), y]
    return y, hit, assigned & (y[:, None] != np.arange(n))


def _rates(
    y: NDArray[np.int64], hit: NDArray[np.bool_], false_alarm: NDArray[np.bool_], weights: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """Return sensitivity, specificity, predictive values and likelihood ratios, each [n]."""
    n = false_alarm.shape[1]
    true_positive, false_negative = (np.bincount(y, weights * kept, n) for kept in (hit, ~hit))
    rejected = ~false_alarm
    rejected[np.arange(len(y)), y] = False
    false_positive, true_negative = weights @ false_alarm, weights @ rejected
    sensitivity = _ratio(true_positive, true_positive + false_negative)
    specificity = _ratio(true_negative, true_negative + false_positive)
    return [
        sensitivity,
        specificity,
        _ratio(true_positive, true_positive + false_positive),
        _ratio(true_negative, true_negative + false_negative),
        _ratio(sensitivity, _ratio(false_positive, true_negative + false_positive)),
        _ratio(_ratio(false_negative, true_positive + false_negative), specificity),
    ]


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Divide: x / 0 is infinite, 0 / 0 is NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(part / whole)


def _mean(values: NDArray[np.float64]) -> float:
    """The mean over the classes for which a score is defined; NaN if there are none."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _mean_precision(values: NDArray[np.float64]) -> float:
    """The average precision of all classes: of two, that of the second."""
    return float(values[1]) if len(values) == 2 else _mean(values)


def _ranks(p: NDArray[np.floating]) -> NDArray[np.int32]:
    """Rank the samples by the probability of each class, [N, n], from 0; equal probabilities have equal ranks.

    The first of two classes has the ranks of the second, in reverse: where 1 - p is rounded to 1, p has not lost them.
    """
    if p.shape[1] == 2:
        ranks = np.unique(p[:, 1], return_inverse=True)[1]
        columns = [ranks.max(initial=0) - ranks, ranks]
    else:
        columns = [np.unique(column, return_inverse=True)[1] for column in p.T]
    return np.stack(columns, axis=1).astype(np.int32)


def _areas(
    y: NDArray[np.int64], ranks: NDArray[np.int32], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the area under the ROC curve and the average precision of each class, [n], from weights at each rank.

    As ``roc_auc_score`` and ``average_precision_score``, without sorting every resample anew.
    """
    n = ranks.shape[1]
    areas, precisions = np.empty(n), np.empty(n)
    for k in range(n):
        rank, is_class = ranks[:, k], y == k
        levels = int(rank.max()) + 1
        positive, negative = (np.bincount(rank, weights * kept, levels)[::-1] for kept in (is_class, ~is_class))
        above, others_above = positive.cumsum(), negative.cumsum()
        all_above = above + others_above
        precision = np.divide(above, all_above, out=np.zeros(levels), where=all_above > 0)
        with np.errstate(invalid="ignore"):  # 0 / 0
            areas[k] = ((above - positive / 2) @ negative) / (above[-1] * others_above[-1])
            precisions[k] = (positive @ precision) / above[-1]
    return np.minimum(areas, 1.0), np.minimum(precisions, 1.0)  # rounding of fractional weights


def _one_class(values: NDArray[np.float64], positive: Any, classes: Sequence[Any] | None, mean: Any = _mean) -> float:
    if positive is None:
        return float(mean(values))
    return float(values[class_number(positive, check_class_names(classes, len(values)))])


@score
def balanced_accuracy(y: Any, p: Any) -> PreparedScore:
    """Mean over the classes of the share of their samples that are classified correctly.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities; the most probable class is assigned.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``balanced_accuracy_score``: classes without samples are left out.

    Examples
    --------
    >>> balanced_accuracy([0, 0, 0, 1], [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    0.5
    """
    return PreparedScore(lambda *terms: _mean(_rates(*terms)[0]), _assignment_terms(y, p))


@score
def roc_auc(y: Any, p: Any, positive: Any = None, *, classes: Sequence[Any] | None = None) -> PreparedScore:
    """Area under the ROC curve of one class against the rest, or the mean over all classes.

    The area of a class is the probability that a sample of it has a larger probability of it than a sample of another;
    a tie counts half.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    positive : label, optional
        The class, named as in ``y``. Default None: the mean over the classes that some but not all samples have.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``roc_auc_score``, with ``multi_class="ovr"`` of more than two classes; 1/2 is
        chance. NaN if all samples are of one class, or none is of ``positive``.

    Examples
    --------
    >>> y, p = ["sick", "well", "sick"], [[0.9, 0.1], [0.5, 0.5], [0.4, 0.6]]
    >>> roc_auc(y, p, positive="sick", classes=["sick", "well"])
    0.5
    """
    return PreparedScore(lambda *terms: _one_class(_areas(*terms)[0], positive, classes), (y, _ranks(p)))


@score
def average_precision(y: Any, p: Any, positive: Any = None, *, classes: Sequence[Any] | None = None) -> PreparedScore:
    """Average precision of one class against the rest, or of all classes: the area under steps of precision and recall.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    positive : label, optional
        The class, named as in ``y``. Default None: for two classes the second, as in scikit-learn; for more the mean
        over the classes that have samples.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn. Default None: all 1.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``.

    Returns
    -------
    float
        In [0, 1], as scikit-learn's ``average_precision_score``. Chance is the frequency of the class. NaN if no sample
        is of the class, where scikit-learn returns 0.

    Examples
    --------
    >>> round(average_precision([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.95, 0.05]]), 4)
    0.8333
    """
    return PreparedScore(
        lambda *terms: _one_class(_areas(*terms)[1], positive, classes, _mean_precision), (y, _ranks(p))
    )
