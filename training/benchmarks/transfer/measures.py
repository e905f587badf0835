"""Scores of a fitted classifier of features."""

import numpy as np

import deepsimplex as ds
from training.benchmarks.transfer.features import Array, Data
from training.benchmarks.transfer.methods import Classifier, best_temperature

REJECTED = 0.05
HUMAN = "cross-entropy to people"
SCORES = ("probability", "GEN", "unknown_score")


def generalized_entropy(p: Array) -> Array:
    """GEN [N] of class probabilities, larger for unknown samples. Liu, Lochman, Zach: *GEN*, 2023."""
    return np.sum(np.power(p * (1.0 - p), 0.1), axis=1)


def measures(classifier: Classifier, data: Data) -> dict[str, float]:
    """The numbers of the table by name."""
    y, p = data.y_test, np.asarray(classifier.probabilities(data.x_test), np.float64)
    row = {
        "accuracy": float(ds.evaluation.accuracy(y, p)),
        "NLL": float(ds.evaluation.negative_log_likelihood(y, p)),
        "NLL, best temperature": best_temperature(y, p)[0],
        "ECE": float(ds.evaluation.expected_calibration_error(y, p)),
    }
    if data.human is not None:
        shares = data.human / data.human.sum(axis=1, keepdims=True)
        log_p = np.log(np.maximum(p, np.finfo(np.float64).tiny))
        row[HUMAN] = float(-np.mean(np.sum(shares * log_p, axis=1)))
    known = _unknown_scores(classifier, data.x_test, p)
    for name, x in data.unknown.items():
        for by, scores in _unknown_scores(classifier, x, np.asarray(classifier.probabilities(x), np.float64)).items():
            row[f"AUROC, {name}, by {by}"] = float(ds.evaluation.out_of_distribution_auroc(known[by], scores))
    if classifier.model is not None:
        for name, x in {"known": data.x_test, **data.unknown}.items():
            decided = classifier.model.predict_or_unknown(x, REJECTED, batch_size=500)
            row[f"rejected, {name}"] = float(np.mean(decided == -1))
    return row


def _unknown_scores(classifier: Classifier, x: Array, p: Array) -> dict[str, Array]:
    """Scores that are larger for unknown samples, by name."""
    scores = {"probability": 1.0 - p.max(axis=1), "GEN": generalized_entropy(p)}
    if classifier.model is not None:
        scores["unknown_score"] = classifier.model.unknown_score(x, batch_size=500)
    return scores
