"""How far a score would move on another test set: bootstrap intervals."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_flag, check_whole
from deepsimplex.evaluation import calibration_errors, detection, scores, selective, weighted
from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.prepared import Limits, Prepared

# Scores of this room whose share of single samples is found once, not once for every resample. Any other works too.
PREPARED: dict[Callable[..., float], Callable[..., Prepared]] = {
    scores.accuracy: scores.prepare_accuracy,
    scores.top_k_accuracy: scores.prepare_top_k_accuracy,
    scores.negative_log_likelihood: scores.prepare_negative_log_likelihood,
    scores.proba_loss: scores.prepare_proba_loss,
    scores.brier_score: scores.prepare_brier_score,
    calibration_errors.expected_calibration_error: calibration_errors.prepare_expected,
    calibration_errors.adaptive_calibration_error: calibration_errors.prepare_adaptive,
    calibration_errors.classwise_calibration_error: calibration_errors.prepare_classwise,
    calibration_errors.maximum_calibration_error: calibration_errors.prepare_maximum,
    calibration_errors.area_deviation: calibration_errors.prepare_area_deviation,
    weighted.weighted_precision: weighted.prepare_weighted_precision,
    weighted.weighted_recall: weighted.prepare_weighted_recall,
    weighted.weighted_f1: weighted.prepare_weighted_f1,
    selective.area_under_risk_coverage: selective.prepare_area_under_risk_coverage,
    selective.accuracy_at_coverage: selective.prepare_accuracy_at_coverage,
    detection.out_of_distribution_auroc: detection.prepare_out_of_distribution_auroc,
}


class Interval(NamedTuple):
    """Bounds of a score.

    Examples
    --------
    >>> lower, upper = Interval(0.9, 0.95)
    """

    lower: float
    upper: float


def check_level(level: float, name: str = "level") -> float:
    """Return ``level`` as a float, or say why it cannot be the chance of an interval."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise ValueError(f"{name} must be a number between 0 and 1, such as 0.95; found {level!r}")
    return float(level)


def check_drawing(
    level: float, resamples: int, seed: int, stratified: bool, name: str = "level"
) -> tuple[float, int, int, bool]:
    """The arguments of an interval, or an error that names one; ``name`` is that of the level."""
    return (
        check_level(level, name),
        check_whole(resamples, "resamples", 1),
        check_whole(seed, "seed", 0),
        check_flag(stratified, "stratified"),
    )


def draws(samples: int, strata: NDArray[Any] | None, resamples: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Indices [samples] of as many resamples, drawn with replacement: of all samples, or within every stratum."""
    rng = np.random.default_rng(seed)
    groups = [np.arange(samples)]
    if strata is not None:
        groups = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    for _ in range(resamples):
        yield np.concatenate([group[rng.integers(len(group), size=len(group))] for group in groups])


def bootstrap_values(
    prepared: Sequence[Prepared], strata: NDArray[Any] | None, resamples: int, seed: int
) -> list[NDArray[np.float64]]:
    """Every score, each [resamples] or [resamples, several], on the same resamples of the same N samples."""
    samples = len(prepared[0].rows[0])
    values = [[score.value(index) for score in prepared] for index in draws(samples, strata, resamples, seed)]
    return [np.asarray(column, np.float64) for column in zip(*values, strict=True)]


def percentiles(values: NDArray[np.float64], level: float) -> Interval:
    """The values [resamples] that leave (1 - level) / 2 on either side, rounded outwards to values that occurred."""
    missing = int(np.isnan(values).sum())
    if missing:
        raise ValueError(
            f"metric must be a number on every resample; found NaN on {missing} of {len(values)}. Where it needs "
            "samples of every class, stratified=True keeps them"
        )
    # No interpolation: between finite values and infinite ones there is nothing.
    ordered, tail = np.sort(values), (1 - level) / 2 * (len(values) - 1)
    outside = math.floor(tail + 1e-9)
    return Interval(float(ordered[outside]), float(ordered[len(values) - 1 - outside]))


def interval_of(value: float, values: NDArray[np.float64], level: float, limits: Limits | None) -> Interval:
    """The interval of a score of all samples from its values on resamples, as ``bootstrap_interval`` has it."""
    bounds = percentiles(values, level)
    if limits is None:
        return bounds
    # As far as resamples lie above the score of all samples, that score is taken to lie above the true one.
    lower, upper = np.clip([2 * value - bounds.upper, 2 * value - bounds.lower], *limits)
    return Interval(float(lower), float(upper))


def bootstrap_interval(
    metric: Callable[..., float],
    y: ArrayLike,
    p: ArrayLike,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    *,
    stratified: bool = False,
    limits: Limits | None = None,
    **options: Any,
) -> Interval:
    """Bootstrap interval of a score over resampled test samples (Efron, 1979; Davison and Hinkley, 1997, sec. 5.2).

    It tells what another test set of this size would change; the classifier stays as it is. The bounds are percentiles
    of the score on resamples. Of scores that few samples bias, upwards as a rule, they are the basic bootstrap's: the
    percentiles mirrored at the score, [2 score - upper, 2 score - lower], which takes the bias off, clipped to the
    score's range. Those are the four calibration errors, ``area_deviation`` and what ``limits`` is given for: their
    percentiles would lie too high twice over. The score itself, biased as it is, may lie outside its interval.

    Parameters
    ----------
    metric : callable
        (y, p, **options) -> number: one of this room's, or any other, which is called once for every resample.
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1; of ``out_of_distribution_auroc`` its ``inside``.
    p : array_like, shape [N, n]
        Class probabilities; of ``out_of_distribution_auroc`` its ``outside``. Both are resampled, each on its own.
    level : float
        Share of resamples inside, 0.95 by default.
    resamples : int
        1000 by default.
    seed : int
        The same seed draws the same resamples, for every metric.
    stratified : bool
        True resamples within every class, for test sets made with so many samples of each, and for metrics that need
        samples of every class. Default False: their numbers vary as in a random sample.
    limits : (float, float), optional
        Lowest and highest value of a metric of one's own that few samples bias: takes the basic bootstrap. Default
        None: percentiles, but for the scores of this room named above.
    **options
        Passed to the metric: ``bins=10``.

    Returns
    -------
    Interval
        (lower, upper). Percentiles are values that occurred: infinite where enough resamples are. For a test set of
        one, and for a score equal on all samples, both are the score: resampling knows of no other samples.

    Raises
    ------
    TypeError
        When ``metric`` is no function that takes ``y``, ``p`` and the options, or gives no number.
    ValueError
        When an argument is out of range, or the metric is NaN on a resample.

    Notes
    -----
    Resamples show the bias in part only where the true value lies at the end of the range, as the calibration errors of
    a calibrated classifier do, and where bins hold a few samples each, as ``maximum_calibration_error`` has them. There
    the basic bootstrap lies nearer to the true value than percentiles, but holds it less often than ``level`` says.

    Examples
    --------
    >>> from deepsimplex import evaluation
    >>> y, p = [0, 1, 1, 0] * 25, [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]] * 25
    >>> bootstrap_interval(evaluation.accuracy, y, p)
    Interval(lower=0.67, upper=0.84)
    """
    level, resamples, seed, stratified = check_drawing(level, resamples, seed, stratified)
    prepared, labels = _prepare(metric, y, p, options)
    if limits is None:
        (limits,) = prepared.limits or (None,)
    else:
        limits = _check_limits(limits)
    value = _check_number(prepared.value(), metric)
    strata = labels if stratified and prepared.strata is None else prepared.strata
    (values,) = bootstrap_values([prepared], strata, resamples, seed)
    return interval_of(value, values, level, limits)


def _prepare(
    metric: Callable[..., float], y: ArrayLike, p: ArrayLike, options: dict[str, Any]
) -> tuple[Prepared, NDArray[Any]]:
    """The metric of these samples, and their labels."""
    if not callable(metric):
        raise TypeError(f"metric must be a function of labels and probabilities; found {metric!r}")
    # By identity: what a caller brings need not be hashable.
    prepare = next((prepare for known, prepare in PREPARED.items() if known is metric), None)
    if prepare is None:
        labels, probabilities = check_labels_and_probabilities(y, p)
        return Prepared(lambda y, p: metric(y, p, **options), (labels, probabilities)), labels
    try:
        inspect.signature(metric).bind(y, p, **options)
    except TypeError as error:
        raise TypeError(f"{metric.__name__}: {error}") from None
    return prepare(y, p, **options), np.asarray(y).reshape(-1)


def _check_number(value: Any, metric: Callable[..., float]) -> float:
    if np.ndim(value) != 0:
        raise ValueError(f"metric must give one number; found an array of shape {np.shape(value)}")
    if np.asarray(value).dtype.kind not in "biuf":
        name = getattr(metric, "__name__", "metric")
        raise TypeError(
            f"metric must give one number; found {type(value).__name__}. Of several numbers take one: "
            f"lambda y, p: {name}(y, p).NAME"
        )
    return float(value)


def _check_limits(limits: Limits) -> Limits:
    bounds = np.asarray(limits)
    if bounds.shape != (2,) or bounds.dtype.kind not in "iuf" or not bounds[0] < bounds[1]:
        raise ValueError(f"limits must be a score's lowest and highest value, such as (0, 1); found {limits!r}")
    return float(bounds[0]), float(bounds[1])
