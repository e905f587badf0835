"""Bootstrap intervals of scores, and scores prepared for fast resampling."""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import (
    check_flag,
    check_groups,
    check_labels_and_probabilities,
    check_number,
    check_sample_weight,
    check_whole,
)

Limits = tuple[float, float]


class Interval(NamedTuple):
    """Lower and upper bound of a score.

    Examples
    --------
    >>> lower, upper = Interval(0.9, 0.95)
    >>> lower
    0.9
    """

    lower: float
    upper: float


class PreparedScore(NamedTuple):
    """A score of given labels and probabilities, split into terms of single samples and a function of these terms.

    Arguments are checked and the terms computed once; the bootstrap repeats ``finish`` only.

    Attributes
    ----------
    finish : callable
        (terms..., weights) -> number, or an array of numbers that are computed together; weights [N] are above 0.
    terms : tuple of ndarray, each of shape [N, ...]
        One row for each sample.
    strata : ndarray, shape [N], optional
        Groups that are always resampled separately.
    limits : tuple of (lowest, highest) or None, one for each number
        The range of a number that is biased in small samples; None, or an empty tuple, for unbiased numbers.
    """

    finish: Callable[..., Any]
    terms: tuple[NDArray[Any], ...]
    strata: NDArray[Any] | None = None
    limits: tuple[Limits | None, ...] = ()

    def value(self, weights: NDArray[np.float64], index: NDArray[Any] | None = None) -> Any:
        """Compute the score of samples with weights [N], of all, or of the resample with indices ``index`` [N]."""
        columns = (*self.terms, weights)
        return self.finish(*(columns if index is None else (column.take(index, axis=0) for column in columns)))


class ResampledScore(NamedTuple):
    """A score of all samples, ``value``, and of every resample, ``values`` [resamples]."""

    value: float
    values: NDArray[np.float64]
    limits: Limits | None

    def interval(self, level: float) -> Interval:
        """The percentile interval or, given ``limits``, that of the basic bootstrap.

        Percentiles leave (1 - level) / 2 of the resamples on either side, rounded outwards to values that occurred.
        Resamples without a value, such as the sensitivity for a class that was not drawn, are left out; the bounds are
        NaN if none is left.
        """
        ordered = np.sort(self.values[~np.isnan(self.values)])
        if not len(ordered):
            return Interval(math.nan, math.nan)
        # No interpolation: there is nothing between finite and infinite values.
        outside = math.floor((1 - level) / 2 * (len(ordered) - 1) + 1e-9)
        bounds = ordered[[outside, len(ordered) - 1 - outside]]
        if self.limits is not None:
            # The bias of a resample against all samples estimates the bias of all samples against the truth.
            bounds = np.clip(2 * self.value - bounds[::-1], *self.limits)
        return Interval(*map(float, bounds))


class ScoreFunctions(NamedTuple):
    """The functions that a score of this package is made of.

    Attributes
    ----------
    check : callable
        Checks the score's first two arguments, labels and class probabilities for most.
    prepare : callable
        (checked arguments, options...) -> PreparedScore.
    weighted : bool
        Whether it takes ``sample_weight``.
    """

    check: Callable[..., tuple[NDArray[Any], NDArray[Any]]]
    prepare: Callable[..., PreparedScore]
    weighted: bool


SCORES: dict[Callable[..., float], ScoreFunctions] = {}
"""The scores of this package."""
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def score(
    prepare: Callable[..., PreparedScore],
    check: Callable[..., Any] = check_labels_and_probabilities,
    weighted: bool = True,
) -> Callable[..., float]:
    """Decorate a function from checked labels [N] and probabilities [N, n] to a ``PreparedScore``.

    Called, it checks its first two arguments, and returns the score of all samples as a float. Further arguments of
    ``check``, the names ``classes`` of the columns, become keyword arguments of the score; it gets them too if they are
    among its parameters. So does ``sample_weight``, unless the score is not ``weighted``.
    """
    signature = inspect.signature(prepare)
    names = list(signature.parameters)[:2]
    further = list(inspect.signature(check).parameters.values())[2:]
    named = [option for option in further if option.name not in signature.parameters]
    if weighted:
        named.insert(0, inspect.Parameter("sample_weight", _KEYWORD, default=None, annotation=ArrayLike | None))

    @functools.wraps(prepare)
    def value(*args: Any, **kwargs: Any) -> float:
        sample_weight = kwargs.pop("sample_weight", None) if weighted else None
        options = {option.name: kwargs.get(option.name) for option in further if option.name in kwargs}
        kwargs = {name: given for name, given in kwargs.items() if name not in options or name in signature.parameters}
        given = signature.bind(*args, **kwargs)
        checked = check(*(given.arguments[name] for name in names), **options)
        if not weighted:
            given.arguments.update(zip(names, checked, strict=True))
            prepared = prepare(*given.args, **given.kwargs)
            return float(prepared.value(np.ones(len(prepared.terms[0]))))
        weights, *rows = weighted_rows(sample_weight, *checked)
        given.arguments.update(zip(names, rows, strict=True))
        return float(prepare(*given.args, **given.kwargs).value(weights))

    value.__annotations__ = {**prepare.__annotations__, **dict.fromkeys(names, ArrayLike), "return": float}
    parameters = [part.replace(annotation=value.__annotations__[name]) for name, part in signature.parameters.items()]
    parameters += [option.replace(kind=_KEYWORD) for option in named]
    vars(value)["__signature__"] = inspect.Signature(parameters, return_annotation=float)
    SCORES[value] = ScoreFunctions(check, prepare, weighted)
    return value


def mean_score(terms: NDArray[Any]) -> PreparedScore:
    """A score that is the mean of ``terms`` [N]."""
    return PreparedScore(lambda terms, weights: float(np.average(terms, weights=weights)), (terms,))


def weighted_rows(sample_weight: Any, *arrays: Any) -> tuple[Any, ...]:
    """Return weights [N] above 0, and the rows of arrays that they belong to, without those of weight 0; None as None.

    Examples
    --------
    >>> weighted_rows([2, 0, 1], np.array([5, 6, 7]), None)
    (array([2., 1.]), array([5, 7]), None)
    """
    weights = check_sample_weight(sample_weight, len(arrays[0]))
    counted = weights > 0
    return tuple(array if array is None or counted.all() else array[counted] for array in (weights, *arrays))


def check_resampling(
    level: float, resamples: int, seed: int, stratified: bool = False, groups: Any = None, name: str = "level"
) -> tuple[float, int, int, bool]:
    """Check the arguments of a bootstrap interval; ``name`` is the name of the level in messages."""
    if check_flag(stratified, "stratified") and groups is not None:
        raise ValueError("stratified must be False with groups, which may hold samples of several classes; found True")
    return (
        check_number(level, name, 0, below=1),
        check_whole(resamples, "resamples", 1, 1_000_000),
        check_whole(seed, "seed", 0),
        bool(stratified),
    )


def draws(
    samples: int, strata: NDArray[Any] | None, resamples: int, seed: int, groups: NDArray[Any] | None = None
) -> Iterator[NDArray[np.intp]]:
    """Indices of every resample: samples, or whole groups, drawn with replacement from all or within every stratum."""
    rng = np.random.default_rng(seed)
    members = None if groups is None else _rows_of_each(groups)
    units = np.arange(samples if members is None else len(members))
    pools = [units]
    if strata is not None:
        of_units = strata if members is None else strata[[rows[0] for rows in members]]
        pools = [units[of_units == stratum] for stratum in np.unique(of_units)]
    for _ in range(resamples):
        drawn = np.concatenate([pool[rng.integers(len(pool), size=len(pool))] for pool in pools])
        yield drawn if members is None else np.concatenate([members[unit] for unit in drawn])


def _rows_of_each(groups: NDArray[Any]) -> list[NDArray[np.intp]]:
    _, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(sizes)[:-1])


def checked_groups(groups: ArrayLike | None, samples: int) -> NDArray[Any] | None:
    """Return the groups [N] of samples that are resampled together, at least two; None without."""
    if groups is None:
        return None
    checked = check_groups(groups, samples, "row of p")
    if len(np.unique(checked)) < 2:
        raise ValueError(
            f"groups must hold at least two different ones, which are resampled; found {checked[0]!r} only"
        )
    return checked


def resample(
    prepared: Sequence[PreparedScore],
    strata: NDArray[Any] | None,
    resamples: int,
    seed: int,
    weights: NDArray[np.float64],
    groups: NDArray[Any] | None = None,
) -> list[list[ResampledScore]]:
    """Compute every number of every score on all samples and on the same resamples of them, or of their groups.

    Samples keep their weights [N], above 0, in resamples.
    """
    indices = draws(len(weights), strata, resamples, seed, groups)
    drawn = [[one.value(weights, index) for one in prepared] for index in indices]
    scores = []
    for position, one in enumerate(prepared):
        numbers = np.atleast_1d(one.value(weights))
        values = np.array([row[position] for row in drawn], np.float64).reshape(resamples, len(numbers)).T
        limits = one.limits or (None,) * len(numbers)
        each = zip(numbers, values, limits, strict=True)
        scores.append([ResampledScore(float(number), resampled, limit) for number, resampled, limit in each])
    return scores


def bootstrap_interval(
    metric: Callable[..., float],
    y: ArrayLike,
    p: ArrayLike,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    *,
    stratified: bool = False,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    limits: Limits | None = None,
    classes: Sequence[Any] | None = None,
    **options: Any,
) -> Interval:
    """Bootstrap interval of a score over resampled test samples (Efron, 1979; Davison and Hinkley, 1997, sec. 5.2).

    The interval shows how much the score varies between test sets of this size, for a fixed classifier. Its bounds
    are percentiles of the score on resamples. Scores that are biased in small samples take the basic bootstrap
    instead: percentiles mirrored at the score, [2 score - upper, 2 score - lower], which removes the bias, clipped to
    the range of the score. These are the four calibration errors, ``area_deviation`` and metrics with ``limits``. The
    score itself, being biased, may lie outside this interval.

    Parameters
    ----------
    metric : callable
        (y, p, **options) -> number: a score of this package, or any function, which is called for every resample.
    y : array_like, shape [N], [N, 1] or one-hot [N, n]
        True classes: numbers 0..n-1, or names that ``classes`` holds; for ``out_of_distribution_auroc`` its ``inside``.
    p : array_like, shape [N, n]
        Class probabilities; for ``out_of_distribution_auroc`` its ``outside``. The two are resampled separately.
    level : float
        Coverage of the interval, between 0 and 1. The default is 0.95.
    resamples : int
        Number of resamples. The default is 1000.
    seed : int
        Seed of the resamples, which are the same for every metric. The default is 0.
    stratified : bool
        Resample within every class: for test sets with a fixed number of samples of each class, and for metrics that
        need samples of every class. The default is False.
    groups : array_like, shape [N], optional
        Group of each sample, such as its patient: whole groups are resampled, since samples of one patient are alike,
        and intervals from single samples too narrow. Not with ``out_of_distribution_auroc``. Default None.
    sample_weight : array_like, shape [N], optional
        Weights, which samples keep when they are drawn; samples of weight 0 are left out. A user's metric gets those of
        the resample as its ``sample_weight``. Default None: all 1.
    limits : (float, float), optional
        Range of a user's metric that is biased in small samples; requests the basic bootstrap. The default is None.
    classes : sequence of length n, optional
        The name of each column of ``p``: ``model.classes_``. A user's metric gets class numbers in any case.
    **options
        Passed to the metric, such as ``bins=10``.

    Returns
    -------
    Interval
        (lower, upper). Percentiles are values that occurred; they are infinite if enough resamples are. If all samples
        have the same score, both bounds are equal to it. Resamples on which a score of this package is not defined,
        such as those without samples of a rare class, are left out.

    Raises
    ------
    TypeError
        If ``metric`` is not a function of ``y``, ``p`` and the options, or does not return a number.
    ValueError
        If an argument is out of range, or a user's metric is NaN on a resample.

    Notes
    -----
    Resamples show only a part of the bias if the true value lies at the end of the range, such as the calibration
    errors of a calibrated classifier, or if bins hold few samples, as in ``maximum_calibration_error``. The basic
    bootstrap then covers the true value less often than ``level``.

    Examples
    --------
    >>> from deepsimplex import evaluation
    >>> y, p = [0, 1, 1, 0] * 25, [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]] * 25
    >>> bootstrap_interval(evaluation.accuracy, y, p, resamples=100)
    Interval(lower=0.67, upper=0.84)
    """
    level, resamples, seed, stratified = check_resampling(level, resamples, seed, stratified, groups)
    if not callable(metric):
        raise TypeError(f"metric must be a function of labels and probabilities; found {metric!r}")
    known = isinstance(metric, FunctionType) and metric in SCORES
    if known:
        functions = SCORES[metric]
        if not functions.weighted and sample_weight is not None:
            raise ValueError(f"sample_weight must not be given for {metric.__name__}, which has no weighted form")
        named = {} if classes is None else {"classes": classes}
        labels, probabilities = functions.check(y, p, **named)
        if "classes" in inspect.signature(functions.prepare).parameters:
            options |= named
    else:
        labels, probabilities = check_labels_and_probabilities(y, p, classes)
    whole_groups = checked_groups(groups, len(labels))
    if not known or functions.weighted:
        weights, labels, probabilities, whole_groups = weighted_rows(sample_weight, labels, probabilities, whole_groups)
    if known:
        prepared = functions.prepare(labels, probabilities, **options)
        weights = weights if functions.weighted else np.ones(len(prepared.terms[0]))
    else:

        def finish(y: NDArray[Any], p: NDArray[Any], weights: NDArray[Any]) -> Any:
            return metric(y, p, **options, **({} if sample_weight is None else {"sample_weight": weights}))

        prepared = PreparedScore(finish, (labels, probabilities))
        _check_value(prepared.value(weights), metric)
    if limits is not None:
        prepared = prepared._replace(limits=(_check_limits(limits),))
    if groups is not None and prepared.strata is not None:
        raise ValueError(f"groups must not be given for {metric.__name__}, whose two arguments are resampled apart")
    strata = labels if stratified and prepared.strata is None else prepared.strata
    ((resampled,),) = resample([prepared], strata, resamples, seed, weights, whole_groups)
    missing = 0 if known else int(np.isnan(resampled.values).sum())
    if missing:
        raise ValueError(
            f"metric must be a number on every resample; found NaN on {missing} of {resamples}. If it needs samples of "
            "every class, use stratified=True"
        )
    return resampled.interval(level)


def _check_value(value: Any, metric: Callable[..., float]) -> None:
    if np.ndim(value) != 0:
        raise ValueError(f"metric must return one number; found an array of shape {np.shape(value)}")
    if np.asarray(value).dtype.kind not in "biuf":
        name = getattr(metric, "__name__", "metric")
        raise TypeError(
            f"metric must return one number; found {type(value).__name__}. Choose one of several numbers: "
            f"lambda y, p: {name}(y, p).NAME"
        )


def _check_limits(limits: Limits) -> Limits:
    bounds = np.asarray(limits)
    if bounds.shape != (2,) or bounds.dtype.kind not in "iuf" or not bounds[0] < bounds[1]:
        raise ValueError(f"limits must be a lowest and a highest value, such as (0, 1); found {limits!r}")
    return float(bounds[0]), float(bounds[1])
