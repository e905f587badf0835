"""All scores of one set of predictions, as one table."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.bootstrap import PREPARED, Interval, bootstrap_values, check_drawing, interval_of
from deepsimplex.evaluation.brier import prepare_brier_decomposition
from deepsimplex.evaluation.calibration_errors import (
    adaptive_calibration_error,
    area_deviation,
    classwise_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from deepsimplex.evaluation.detection import prepare_out_of_distribution_auroc
from deepsimplex.evaluation.inputs import check_probabilities
from deepsimplex.evaluation.named_labels import check_named_labels
from deepsimplex.evaluation.plain import as_json
from deepsimplex.evaluation.prepared import Limits, Prepared
from deepsimplex.evaluation.scores import (
    accuracy,
    brier_score,
    negative_log_likelihood,
    proba_loss,
    top_k_accuracy,
)
from deepsimplex.evaluation.selective import accuracy_at_coverage, area_under_risk_coverage
from deepsimplex.evaluation.weighted import prepare_weighted

INTERVALS_NOTE = (
    "Intervals of calibration errors, area deviation and parts of the Brier score have the bias\n"
    "of few samples taken off: such a score may lie outside its own."
)


@dataclass(frozen=True)
class Report:
    """Scores of class probabilities; ``str`` gives a table, ``as_dict`` plain numbers and ``to_json`` text.

    Attributes
    ----------
    samples, classes : int
        N and n.
    accuracy, top_k_accuracy, weighted_precision, weighted_recall, weighted_f1 : float
        As the functions of the same names, as are all scores but the parts of the Brier score.
    negative_log_likelihood, brier_score, proba_loss : float
    brier_reliability, brier_resolution, brier_uncertainty, brier_remainder : float
        The parts, of ``brier_decomposition``.
    expected_calibration_error, adaptive_calibration_error : float
    classwise_calibration_error, maximum_calibration_error : float
    area_deviation : float
        Over ten bins, as the paper has it.
    area_under_risk_coverage, accuracy_at_coverage : float
    out_of_distribution_auroc : float or None
        Of one minus the largest probability; None where no other samples were given.
    bins : int
        Bins of the calibration errors and of the parts of the Brier score.
    k : int
        Of the top-k accuracy.
    coverage : float
        Of the accuracy at coverage.
    level : float or None
        Of the intervals.
    intervals : dict of str to Interval, or None
        Bootstrap interval of each score, by its name; None where not asked for. As ``bootstrap_interval`` has them:
        those of the calibration errors, of the area deviation and of the Brier score's reliability, resolution and
        uncertainty have the bias of few samples taken off and need not hold the score itself.

    Examples
    --------
    >>> scores = report([0, 1], [[0.9, 0.1], [0.2, 0.8]])
    >>> scores.accuracy, scores.as_dict()["samples"]
    (1.0, 2)
    """

    samples: int
    classes: int
    accuracy: float
    top_k_accuracy: float
    weighted_precision: float
    weighted_recall: float
    weighted_f1: float
    negative_log_likelihood: float
    brier_score: float
    brier_reliability: float
    brier_resolution: float
    brier_uncertainty: float
    brier_remainder: float
    proba_loss: float
    expected_calibration_error: float
    adaptive_calibration_error: float
    classwise_calibration_error: float
    maximum_calibration_error: float
    area_deviation: float
    area_under_risk_coverage: float
    accuracy_at_coverage: float
    out_of_distribution_auroc: float | None
    bins: int
    k: int
    coverage: float
    level: float | None = None
    intervals: Mapping[str, Interval] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, in order, without those that are None; ``intervals`` as lists [lower, upper]."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.intervals is not None:
            fields["intervals"] = {name: list(interval) for name, interval in self.intervals.items()}
        return {name: value for name, value in fields.items() if value is not None}

    def to_json(self, indent: int | None = 2) -> str:
        """``as_dict`` as JSON that any reader takes: infinity, which JSON has no number for, is the text "Infinity"."""
        return as_json(self.as_dict(), indent)

    def __str__(self) -> str:
        fields = self.as_dict()
        intervals, level = fields.pop("intervals", {}), fields.pop("level", None)
        labels = {name: name.replace("_", " ") for name in fields}
        labels["top_k_accuracy"] = f"top {self.k} accuracy"
        labels["accuracy_at_coverage"] = f"accuracy at coverage {self.coverage:g}"
        del fields["k"], fields["coverage"]  # their names say them
        rows = [(labels[name], _number(value), intervals.get(name)) for name, value in fields.items()]
        width = max(len(label) for label, _, _ in rows)
        lines = [f"{label:<{width}}  {number:>10}" for label, number, _ in rows]
        if level is None:
            return "\n".join(lines)
        texts = ["" if bounds is None else f"{bounds[0]:z.4f} to {bounds[1]:z.4f}" for *_, bounds in rows]
        title = f"{100 * level:g}% interval"
        across = max(map(len, [title, *texts]))
        lines = [f"{line}  {text:>{across}}" for line, text in zip(lines, texts, strict=True)]
        return "\n".join([f"{'':<{width + 12}}  {title:>{across}}", *lines, INTERVALS_NOTE])


def _number(value: float) -> str:
    return f"{value:z.4f}" if isinstance(value, float) else f"{value:d}"


def report(
    y: ArrayLike,
    p: ArrayLike,
    bins: int = 15,
    *,
    k: int | None = None,
    coverage: float = 0.8,
    outside: ArrayLike | None = None,
    intervals: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
    stratified: bool = False,
    classes: Sequence[Any] | None = None,
) -> Report:
    """Score class probabilities against labels.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int
        Bins of the calibration errors and of the parts of the Brier score, 15 by default; the area deviation has the
        ten of its paper.
    k : int, optional
        Of the top-k accuracy. Default: 5, or n - 1 where that is less.
    coverage : float
        Of the accuracy at coverage, 0.8 by default.
    outside : array_like, shape [M, n], optional
        Class probabilities of samples from outside the training distribution, for ``out_of_distribution_auroc``.
    intervals : float, optional
        Level of bootstrap intervals, such as 0.95. Default None: no intervals.
    resamples, seed, stratified
        Of the intervals, as in ``bootstrap_interval``; 10 000 samples of 10 classes take about ten seconds.
    classes : sequence of length n, optional
        The name of each column of ``p``, for labels that are not 0..n-1: ``model.classes_``.

    Returns
    -------
    Report

    Examples
    --------
    >>> print(report([0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]))
    samples                               4
    classes                               2
    accuracy                         0.7500
    top 1 accuracy                   0.7500
    weighted precision               0.8333
    weighted recall                  0.7500
    weighted f1                      0.7333
    negative log likelihood          0.5108
    brier score                      0.1750
    brier reliability                0.1750
    brier resolution                 0.2500
    brier uncertainty                0.2500
    brier remainder                  0.0000
    proba loss                       0.3500
    expected calibration error       0.3500
    adaptive calibration error       0.3500
    classwise calibration error      0.3500
    maximum calibration error        0.7000
    area deviation                   0.1690
    area under risk coverage         0.1458
    accuracy at coverage 0.8         0.7500
    bins                                 15
    """
    # Checked whether or not intervals are asked for.
    drawing = (0.95 if intervals is None else intervals, resamples, seed, stratified)
    level, resamples, seed, stratified = check_drawing(*drawing, name="intervals")
    probabilities = check_probabilities(p)
    labels = check_named_labels(y, "y", classes, probabilities.shape, "p")
    samples, n = probabilities.shape
    k = min(5, n - 1) if k is None else k
    prepared = prepare_scores(labels, probabilities, bins, k, coverage)
    apart: dict[tuple[str, ...], Prepared] = {}
    if outside is not None:
        strange = check_probabilities(outside, "outside")
        if strange.shape[1] != n:
            raise ValueError(
                f"outside must hold probabilities of the {n} classes of p; found {strange.shape[1]} columns"
            )
        scores = (1 - probabilities.max(axis=1), 1 - strange.max(axis=1))
        apart["out_of_distribution_auroc",] = prepare_out_of_distribution_auroc(*scores)

    values: dict[str, float] = {}
    for names, score in {**prepared, **apart}.items():
        values |= zip(names, map(float, np.atleast_1d(score.value())), strict=True)
    bounds: dict[str, Interval] | None = None
    if intervals is not None:
        resampled = resampled_scores(prepared, labels if stratified else None, resamples, seed)
        for names, score in apart.items():
            resampled |= resampled_scores({names: score}, score.strata, resamples, seed)
        limits = limits_of({**prepared, **apart})
        bounds = {name: interval_of(values[name], resampled[name], level, limits[name]) for name in resampled}
        bounds = {field.name: bounds[field.name] for field in dataclasses.fields(Report) if field.name in bounds}
    auroc = values.pop("out_of_distribution_auroc", None)
    return Report(
        samples=samples,
        classes=n,
        out_of_distribution_auroc=auroc,
        **values,
        bins=int(bins),
        k=int(k),
        coverage=float(coverage),
        level=None if intervals is None else float(intervals),
        intervals=bounds,
    )


def prepare_scores(
    labels: NDArray[Any], probabilities: NDArray[Any], bins: int, k: int, coverage: float
) -> dict[tuple[str, ...], Prepared]:
    """The scores of a report by name, those found together under several; arguments of the probabilities checked."""
    options: dict[Any, dict[str, Any]] = {
        accuracy: {},
        top_k_accuracy: {"k": k},
        negative_log_likelihood: {},
        brier_score: {},
        proba_loss: {},
        expected_calibration_error: {"bins": bins},
        adaptive_calibration_error: {"bins": bins},
        classwise_calibration_error: {"bins": bins},
        maximum_calibration_error: {"bins": bins},
        area_deviation: {},
        area_under_risk_coverage: {},
        accuracy_at_coverage: {"coverage": coverage},
    }
    # What is found together has several names.
    prepared: dict[tuple[str, ...], Prepared] = {
        (metric.__name__,): PREPARED[metric](labels, probabilities, **given) for metric, given in options.items()
    }
    prepared["weighted_precision", "weighted_recall", "weighted_f1"] = prepare_weighted(labels, probabilities)
    parts = ("brier_reliability", "brier_resolution", "brier_uncertainty", "brier_remainder")
    prepared[parts] = prepare_brier_decomposition(labels, probabilities, bins)
    return prepared


def resampled_scores(
    prepared: Mapping[tuple[str, ...], Prepared], strata: NDArray[Any] | None, resamples: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    """The values [resamples] of every score by its name, all on the same resamples."""
    drawn = bootstrap_values(list(prepared.values()), strata, resamples, seed)
    return {
        name: column
        for names, columns in zip(prepared, drawn, strict=True)
        for name, column in zip(names, columns.reshape(resamples, -1).T, strict=True)
    }


def limits_of(prepared: Mapping[tuple[str, ...], Prepared]) -> dict[str, Limits | None]:
    """The range of every score that few samples bias, by its name; None for the others."""
    return {
        name: limits
        for names, score in prepared.items()
        for name, limits in zip(names, score.limits or (None,) * len(names), strict=True)
    }
