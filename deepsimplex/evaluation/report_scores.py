"""The scores of a report: their names by group, and their values on all samples and on resamples of them."""

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.evaluation import calibration_errors, classification_scores, proper_scores, uncertainty
from deepsimplex.evaluation.bootstrap import SCORES, ResampledScore, resample

PARTS = ("brier_reliability", "brier_resolution", "brier_uncertainty", "brier_remainder")
"""The parts of the Brier score, in the order of ``BrierDecomposition``."""
SCORE_GROUPS: dict[str, tuple[str, ...]] = {
    "Decisions": ("accuracy", "top_k_accuracy", "weighted_precision", "weighted_recall", "weighted_f1"),
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
_MODULES = {
    "Decisions": classification_scores,
    "Probabilities": proper_scores,
    "Calibration": calibration_errors,
    "Selective prediction": uncertainty,
}
_PREPARE = {
    name: SCORES[getattr(module, name)].prepare
    for group, module in _MODULES.items()
    for name in SCORE_GROUPS[group]
    if name not in PARTS
}


def resampled_scores(
    y: NDArray[np.int64],
    p: NDArray[np.floating],
    bins: int,
    k: int,
    coverage: float,
    outside: NDArray[np.floating] | None,
    stratified: bool,
    resamples: int,
    seed: int,
) -> dict[str, ResampledScore]:
    """Compute every score by its name, on all samples and on the same resamples of them; arguments as ``report``."""
    options: dict[str, dict[str, Any]] = {"top_k_accuracy": {"k": k}, "accuracy_at_coverage": {"coverage": coverage}}
    options |= {name: {"bins": bins} for name in SCORE_GROUPS["Calibration"] if name != "area_deviation"}
    prepared = [prepare(y, p, **options.get(name, {})) for name, prepare in _PREPARE.items()]
    prepared.append(proper_scores.prepare_brier_decomposition(y, p, bins))
    numbers = resample(prepared, y if stratified else None, resamples, seed)
    scores = dict(zip([*_PREPARE, *PARTS], chain(*numbers), strict=True))
    if outside is not None:
        prepare = SCORES[uncertainty.out_of_distribution_auroc].prepare
        auroc = prepare(1 - p.max(axis=1), 1 - outside.max(axis=1))
        ((scores["out_of_distribution_auroc"],),) = resample([auroc], auroc.strata, resamples, seed)
    return scores
