"""How far a score would move on another test set: percentile bootstrap intervals."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.checks import check_flag, check_whole
from deepsimplex.evaluation import calibration_errors, detection, scores, selective, weighted
from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.prepared import Prepared

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


def bootstrap_interval(
    metric: Callable[..., float],
    y: ArrayLike,
    p: ArrayLike,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    *,
    stratified: bool = False,
    **options: Any,
) -> Interval:
    """Percentile bootstrap interval of a score over resampled test samples (Efron, 1979).

    It tells what another test set of this size would change; the classifier stays as it is. Calibration errors and the
    parts of the Brier score are biased upwards on few samples, and more so on resamples: their intervals lie too high,
    and may lie above the score itself.

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
    **options
        Passed to the metric: ``bins=10``.

    Returns
    -------
    Interval
        (lower, upper), each a value that occurred: infinite where enough resamples are. For a test set of one, and for
        a score equal on all samples, both are the score: resampling knows of no other samples.

    Raises
    ------
    ValueError
        When an argument is out of range, or the metric is NaN on a resample.

    Examples
    --------
    >>> from deepsimplex import evaluation
    >>> y, p = [0, 1, 1, 0] * 25, [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]] * 25
    >>> bootstrap_interval(evaluation.accuracy, y, p)
    Interval(lower=0.67, upper=0.84)
    """
    level, resamples = check_level(level), check_whole(resamples, "resamples", 1)
    seed = check_whole(seed, "seed", 0)
    stratified = check_flag(stratified, "stratified")
    if not callable(metric):
        raise TypeError(f"metric must be a function of labels and probabilities; found {metric!r}")
    # By identity: what a caller brings need not be hashable.
    prepare = next((prepare for known, prepare in PREPARED.items() if known is metric), None)
    if prepare is not None:
        prepared = prepare(y, p, **options)
        labels = np.asarray(y).reshape(-1)
    else:
        labels, probabilities = check_labels_and_probabilities(y, p)
        prepared = Prepared(lambda y, p: metric(y, p, **options), (labels, probabilities))
    strata = labels if stratified and prepared.strata is None else prepared.strata
    (values,) = bootstrap_values([prepared], strata, resamples, seed)
    if values.ndim != 1:
        raise ValueError(f"metric must give one number; found an array of shape {values.shape[1:]}")
    return percentiles(values, level)
