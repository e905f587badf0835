"""All scores of one set of predictions, with bootstrap intervals, as a table, a dictionary and JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import (
    check_class_names,
    check_labels_and_probabilities,
    check_probabilities,
    check_sample_weight,
)
from deepsimplex.evaluation import (
    calibration_errors,
    classification_scores,
    prediction_sets,
    proper_scores,
    uncertainty,
)
from deepsimplex.evaluation.bootstrap import (
    SCORES,
    Interval,
    ResampledScore,
    check_resampling,
    checked_groups,
    resample,
    weighted_rows,
)
from deepsimplex.evaluation.json_values import JSONResult, text_table
from deepsimplex.evaluation.labeled_predictions import labeled_predictions, predicts
from deepsimplex.evaluation.one_versus_rest import (
    CLASS_MEANS,
    ClassScores,
    prepare_class_scores,
    resampled_class_scores,
)

PARTS = ("brier_reliability", "brier_resolution", "brier_uncertainty", "brier_remainder")
"""The parts of the Brier score, in the order of ``BrierDecomposition``."""
SCORE_GROUPS: dict[str, tuple[str, ...]] = {
    "Decisions": (
        "accuracy",
        "balanced_accuracy",
        "top_k_accuracy",
        "weighted_precision",
        "weighted_recall",
        "weighted_f1",
    ),
    "Ranking": ("roc_auc", "average_precision"),
    "Probabilities": ("negative_log_likelihood", "brier_score", *PARTS, "proba_loss"),
    "Calibration": (
        "expected_calibration_error",
        "adaptive_calibration_error",
        "classwise_calibration_error",
        "maximum_calibration_error",
        "area_deviation",
    ),
    "Selective prediction": ("area_under_risk_coverage", "accuracy_at_coverage"),
}
"""Scores of a report that need no out-of-distribution samples or prediction sets, by group."""
_MODULES = (classification_scores, proper_scores, calibration_errors, uncertainty)
_SCORES = {
    name: SCORES[vars(module)[name]]
    for module in _MODULES
    for names in SCORE_GROUPS.values()
    for name in names
    if name in vars(module)
}
MOST_CLASSES = 20
"""Largest number of classes that the text of a report lists one by one."""
INTERVALS_NOTE = (
    "Intervals of calibration errors, area deviation and parts of the Brier score are corrected for\n"
    "the bias of small samples: such a score may lie outside its own interval."
)
SCORES_NOTE = "What each score means: docs/guides/scores.md"


@dataclass(frozen=True, kw_only=True)
class Report(JSONResult):
    """Scores of class probabilities; ``str`` gives a table, ``as_dict`` plain numbers and ``to_json`` text.

    Attributes
    ----------
    samples, classes : int
        Number of samples N, whatever their weights but for 0, and of classes n.
    accuracy, balanced_accuracy, top_k_accuracy, weighted_precision, weighted_recall, weighted_f1 : float
        As the functions of the same names, as are all scores but the parts of the Brier score.
    roc_auc, average_precision : float
        Means over the classes; for two classes those of the second. NaN if all samples are of one class.
    negative_log_likelihood, brier_score, proba_loss : float
    brier_reliability, brier_resolution, brier_uncertainty, brier_remainder : float
        The parts of ``brier_decomposition``.
    expected_calibration_error, adaptive_calibration_error : float
    classwise_calibration_error, maximum_calibration_error : float
    area_deviation : float
        With ten bins, as in the paper.
    area_under_risk_coverage, accuracy_at_coverage : float or None
        None with ``sample_weight``: they depend on how many samples are accepted, and have no weighted form.
    out_of_distribution_auroc : float or None
        Of one minus the largest probability; None without ``outside``.
    set_coverage, set_size, empty_sets : float or None
        Share of the sets that hold the true class, mean number of classes in a set, and share of empty sets; None
        without ``sets``.
    bins : int
        Number of bins of the calibration errors and of the parts of the Brier score.
    k : int
        Number of classes of the top-k accuracy.
    coverage : float
        Fraction of samples accepted for the accuracy at coverage.
    level : float or None
        Level of the intervals.
    intervals : dict of str to Interval, or None
        Bootstrap interval of each score, by its name, as ``bootstrap_interval`` returns it; None if not requested.
        Those of the calibration errors, of the area deviation and of the Brier score's reliability, resolution and
        uncertainty are corrected for the bias of small samples and need not contain the score itself.
    by_class : ClassScores
        Sensitivity, specificity, predictive values, likelihood ratios and areas of every class, with intervals if they
        were requested. It has ``as_dict`` and ``to_json`` of its own.

    Examples
    --------
    >>> scores = report([0, 1], [[0.9, 0.1], [0.2, 0.8]])
    >>> scores.accuracy, scores.as_dict()["samples"]
    (1.0, 2)
    """

    samples: int
    classes: int
    accuracy: float
    balanced_accuracy: float
    top_k_accuracy: float
    weighted_precision: float
    weighted_recall: float
    weighted_f1: float
    roc_auc: float
    average_precision: float
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
    area_under_risk_coverage: float | None = None
    accuracy_at_coverage: float | None = None
    out_of_distribution_auroc: float | None = None
    set_coverage: float | None = None
    set_size: float | None = None
    empty_sets: float | None = None
    bins: int
    k: int
    coverage: float
    level: float | None = None
    intervals: Mapping[str, Interval] | None = None
    by_class: ClassScores = field(compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, in order, but ``by_class``, without None; ``intervals`` as [lower, upper]."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.compare}
        if self.intervals is not None:
            fields["intervals"] = {name: list(interval) for name, interval in self.intervals.items()}
        return {name: value for name, value in fields.items() if value is not None}

    def label(self, name: str) -> str:
        """Return the label of a field in tables.

        Examples
        --------
        >>> report([0], [[0.9, 0.1]]).label("top_k_accuracy")
        'top 1 accuracy'
        """
        labels = {
            "top_k_accuracy": f"top {self.k} accuracy",
            "roc_auc": "area under ROC curve",
            "accuracy_at_coverage": f"accuracy at coverage {self.coverage:g}",
        }
        return labels.get(
            name, name.replace("_", " ").replace("brier", "Brier").replace("roc auc", "area under ROC curve")
        )

    def __str__(self) -> str:
        fields = self.as_dict()
        intervals, level = fields.pop("intervals", {}), fields.pop("level", None)
        del fields["k"], fields["coverage"]  # shown in the labels
        rows = [
            [self.label(name), f"{value:>z10.4f}" if isinstance(value, float) else f"{value:>10d}"]
            for name, value in fields.items()
        ]
        by_class = dataclasses.replace(self.by_class, level=None)  # intervals make it wider than a terminal
        classes = str(by_class) if self.classes <= MOST_CLASSES else by_class.note
        classes = f"\n\n{classes}" if classes else ""
        classes += f"\n\n{SCORES_NOTE}"
        if level is None:
            return text_table(rows) + classes
        bounds = [intervals.get(name) for name in fields]
        texts = ["" if bound is None else f"{bound[0]:z.4f} to {bound[1]:z.4f}" for bound in bounds]
        rows = [["", "", f"{100 * level:g}% interval"], *([*row, text] for row, text in zip(rows, texts, strict=True))]
        return f"{text_table(rows)}\n{INTERVALS_NOTE}{classes}"


def report(
    y: Any,
    p: Any,
    bins: int = 15,
    *,
    k: int | None = None,
    coverage: float = 0.8,
    outside: ArrayLike | None = None,
    sets: ArrayLike | None = None,
    intervals: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
    stratified: bool = False,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> Report:
    """Score class probabilities against labels: ``report(y, p)``, or ``report(model, data)``.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or one-hot [N, n]; or a classifier
        True classes: numbers 0..n-1, or names that ``classes`` holds. Or a fitted classifier with ``predict_proba``, or
        a Keras model of class probabilities.
    p : array_like, shape [N, n]; or labeled samples
        Class probabilities. For a classifier its test data: (x, y), or a tf.data.Dataset, PyDataset or generator of
        batches (x, y), or (x, y, sample_weight), whose weights are used. Labels, weights and probabilities come from
        one pass over it, so that it may be shuffled: see ``labeled_predictions``.
    bins : int
        Number of bins of the calibration errors and of the parts of the Brier score, 15 by default; the area deviation
        has ten, as in its paper.
    k : int, optional
        Number of classes of the top-k accuracy. Default: 5, or n - 1 if that is less.
    coverage : float
        Fraction of samples accepted for the accuracy at coverage, 0.8 by default.
    outside : array_like, shape [M, n], optional
        Class probabilities of samples from outside the training distribution, for ``out_of_distribution_auroc``.
    sets : array_like of bool, shape [N, n], optional
        The samples' sets of classes, ``model.predict_set(x)``, for ``set_coverage``, ``set_size`` and
        ``empty_sets``.
    intervals : float, optional
        Level of bootstrap intervals, such as 0.95. The default is None: no intervals.
    resamples, seed, stratified, groups
        Resampling for the intervals, as in ``bootstrap_interval``.
    sample_weight : array_like, shape [N], optional
        Weights, as in scikit-learn: a sample of weight 2 counts as two, one of weight 0 is left out, and samples keep
        their weights in resamples. Those from ``outside`` have weight 1. Default None: all 1, or those of the data.
    classes : sequence of length n, optional
        The name of each column of ``p``, for labels that are not 0..n-1: ``model.classes_``. A classifier's are known.

    Returns
    -------
    Report

    Examples
    --------
    >>> print(report([0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]))
    samples                               4
    classes                               2
    accuracy                         0.7500
    balanced accuracy                0.7500
    top 1 accuracy                   0.7500
    weighted precision               0.8333
    weighted recall                  0.7500
    weighted f1                      0.7333
    area under ROC curve             0.7500
    average precision                0.8333
    negative log likelihood          0.5108
    Brier score                      0.1750
    Brier reliability                0.1750
    Brier resolution                 0.2500
    Brier uncertainty                0.2500
    Brier remainder                  0.0000
    proba loss                       0.3500
    expected calibration error       0.3500
    adaptive calibration error       0.3500
    classwise calibration error      0.3500
    maximum calibration error        0.7000
    area deviation                   0.1690
    area under risk coverage         0.1458
    accuracy at coverage 0.8         0.7500
    bins                                 15
    <BLANKLINE>
       samples  sensitivity  specificity    PPV    NPV    LR+    LR-  ROC area  avg. precision
    0        2        0.500        1.000  1.000  0.667    inf  0.500     0.750           0.833
    1        2        1.000        0.500  0.667  1.000  2.000  0.000     0.750           0.833
    <BLANKLINE>
    What each score means: docs/guides/scores.md
    """
    # Checked whether or not intervals are requested.
    check_resampling(0.95 if intervals is None else intervals, resamples, seed, stratified, groups, name="intervals")
    if predicts(y):
        for name, beside in (("groups", groups), ("sample_weight", sample_weight)):
            if beside is not None and not isinstance(p, tuple | list):
                raise ValueError(
                    f"{name} must not be given beside batches, which may be shuffled: give (x, y) as arrays"
                )
        y, p, known, weights = labeled_predictions(y, p, classes=classes)
        if weights is not None and sample_weight is not None:
            raise ValueError("sample_weight must not be given beside data that hold weights, (x, y, sample_weight)")
        classes, sample_weight = known.tolist(), weights if sample_weight is None else sample_weight
    labels, probabilities = check_labels_and_probabilities(y, p, classes)
    names = check_class_names(classes, probabilities.shape[1])
    if sets is not None and np.shape(sets) != probabilities.shape:
        raise ValueError(f"sets must have the shape of p, {list(probabilities.shape)}; found {list(np.shape(sets))}")
    settings = (bins, k, coverage, intervals, resamples, seed)
    whole_groups = checked_groups(groups, len(labels))
    further = (outside, stratified, whole_groups, sample_weight)
    scores = scored_report(labels, probabilities, *settings, names, *further)[0]
    if sets is None:
        return scores
    weights = check_sample_weight(sample_weight, len(labels))
    return dataclasses.replace(
        scores,
        set_coverage=prediction_sets.coverage(labels, sets, sample_weight=sample_weight),
        set_size=prediction_sets.set_size(labels, sets, sample_weight=sample_weight),
        empty_sets=float(np.average(~np.any(sets, axis=1), weights=weights)),
    )


def scored_report(
    y: NDArray[np.int64],
    p: NDArray[np.floating],
    bins: int,
    k: int | None,
    coverage: float,
    level: float | None,
    resamples: int,
    seed: int,
    classes: tuple[Any, ...],
    outside: ArrayLike | None = None,
    stratified: bool = False,
    groups: NDArray[Any] | None = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Report, dict[str, ResampledScore]]:
    """Make a report of checked labels and probabilities; return every score on all resamples too."""
    weights, y, p, groups = weighted_rows(sample_weight, y, p, groups)
    samples, n = p.shape
    k = min(5, n - 1) if k is None else k
    resamples = 0 if level is None else resamples
    options: dict[str, dict[str, Any]] = {"top_k_accuracy": {"k": k}, "accuracy_at_coverage": {"coverage": coverage}}
    options |= {name: {"bins": bins} for name in SCORE_GROUPS["Calibration"] if name != "area_deviation"}
    simple = [name for name, functions in _SCORES.items() if functions.weighted or sample_weight is None]
    prepared = [_SCORES[name].prepare(y, p, **options.get(name, {})) for name in simple]
    prepared += [proper_scores.prepare_brier_decomposition(y, p, bins), prepare_class_scores(y, p)]
    *numbers, by_class = resample(prepared, y if stratified else None, resamples, seed, weights, groups)
    scores = dict(zip([*simple, *PARTS], chain(*numbers), strict=True))
    scores |= zip(CLASS_MEANS, by_class[: len(CLASS_MEANS)], strict=True)
    if outside is not None:
        others = check_probabilities(outside, "outside", num_classes=n)
        prepare = SCORES[uncertainty.out_of_distribution_auroc].prepare
        auroc = prepare(1 - p.max(axis=1), 1 - others.max(axis=1))
        apart = None if groups is None else _with_single_samples(groups, len(others))
        both = np.append(weights, np.ones(len(others)))
        ((scores["out_of_distribution_auroc"],),) = resample([auroc], auroc.strata, resamples, seed, both, apart)
    names = [field.name for field in dataclasses.fields(Report) if field.name in scores]
    report = Report(
        samples=samples,
        classes=n,
        **{name: scores[name].value for name in names},
        bins=int(bins),
        k=int(k),
        coverage=float(coverage),
        level=None if level is None else float(level),
        intervals=None if level is None else {name: scores[name].interval(level) for name in names},
        by_class=resampled_class_scores(y, by_class, classes, level),
    )
    return report, scores


def _with_single_samples(groups: NDArray[Any], further: int) -> NDArray[np.int64]:
    """Return the numbers of the groups, and of further samples each a group of its own."""
    numbers = np.unique(groups, return_inverse=True)[1]
    return np.concatenate([numbers, numbers.max() + 1 + np.arange(further)])
