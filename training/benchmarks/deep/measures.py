"""Scores of a trained classifier, from its predictions for test images, corrupted ones and other kinds of images."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

import deepsimplex as ds
from training.benchmarks.deep.corruptions import CORRUPTIONS
from training.benchmarks.deep.images import CORRUPTED, SEVERITIES, Data, Images, corrupted
from training.benchmarks.deep.methods import Trained

Predictions = dict[str, NDArray[Any]]
SPLITS, COVERAGE = 20, 0.9


def predictions(trained: Trained, data: Data) -> Predictions:
    """Class probabilities by set of images, and familiarities under the names "familiarity of ..."."""
    sets = {"test": data.x_test, **data.others, **(dict(corrupted(data)) if data.corrupt else {})}
    values = {name: trained.probabilities(x).astype(np.float32) for name, x in sets.items()}
    familiarity = _familiarity(trained, data)
    if familiarity is not None:
        values |= {f"familiarity of {name}": familiarity(sets[name]) for name in ("test", *data.others)}
    return values


def _familiarity(trained: Trained, data: Data) -> Callable[[Images], NDArray[Any]] | None:
    """Familiarity of images by the classifier's density or one fitted to its features; None without features."""
    features = trained.features
    if trained.familiarity is not None or features is None:
        return trained.familiarity
    density = ds.calibration.NeighborDistance().fit(
        features(data.x), data.y, ds.calibration.feature_density.VARIANCE_SHARE
    )
    return lambda x: density.familiarity(features(x))


def measures(predicted: Mapping[str, NDArray[Any]], data: Data) -> dict[str, float]:
    """The table's numbers by name."""
    y, p = data.y_test, predicted["test"]
    row = _scores(y, p) | {
        "area under risk-coverage": float(ds.evaluation.area_under_risk_coverage(y, p)),
        **_sets(y, p),
    }
    if data.people is not None:
        log_p = np.log(np.maximum(p, np.finfo(np.float32).tiny))
        row["cross-entropy to people"] = float(-np.mean(np.sum(data.people * log_p, axis=1)))
    by_corruption: dict[str, list[dict[str, float]]] = {}
    for name in (f"{name}-{severity}" for name in CORRUPTIONS for severity in SEVERITIES):
        if name in predicted:
            by_corruption.setdefault(name.rpartition("-")[0], []).append(_scores(y[:CORRUPTED], predicted[name]))
    for score in ("accuracy", "NLL", "Brier", "ECE") if by_corruption else ():
        means = {name: float(np.mean([one[score] for one in rows])) for name, rows in by_corruption.items()}
        row[f"corrupted {score}"] = float(np.mean(list(means.values())))
        row |= {f"{score}, {name}": mean for name, mean in means.items() if score == "NLL"}
    for name in data.others:
        row |= _detection(1 - p.max(axis=1), 1 - predicted[name].max(axis=1), name, "probability")
        if "familiarity of test" in predicted:
            inside, outside = (-predicted[f"familiarity of {which}"] for which in ("test", name))
            row |= _detection(inside, outside, name, "density")
    return row


def _scores(y: NDArray[Any], p: NDArray[Any]) -> dict[str, float]:
    return {
        "accuracy": float(ds.evaluation.accuracy(y, p)),
        "NLL": float(ds.evaluation.negative_log_likelihood(y, p)),
        "Brier": float(ds.evaluation.brier_score(y, p)),
        "ECE": float(ds.evaluation.expected_calibration_error(y, p)),
    }


def _detection(inside: NDArray[Any], outside: NDArray[Any], name: str, by: str) -> dict[str, float]:
    """AUROC, and the share of test images flagged by the threshold that flags 95% of the others."""
    flagged, detected, _ = roc_curve(
        np.repeat([0, 1], [len(inside), len(outside)]), np.concatenate([inside, outside]), drop_intermediate=False
    )
    return {
        f"AUROC, {name}, by {by}": float(ds.evaluation.out_of_distribution_auroc(inside, outside)),
        f"flagged at 95%, {name}, by {by}": float(flagged[np.searchsorted(detected, 0.95)]),
    }


def _sets(y: NDArray[Any], p: NDArray[Any]) -> dict[str, float]:
    """Mean coverage and size of the sets of one half of the test images, thresholds from the other."""
    coverages, sizes = [], []
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(y))
        half, rest = np.array_split(order, 2)
        sets = ds.calibration.ConformalSets(COVERAGE).fit(p[half], y[half]).predict(p[rest])
        coverages.append(ds.evaluation.coverage(y[rest], sets))
        sizes.append(ds.evaluation.set_size(y[rest], sets))
    return {"coverage of sets": float(np.mean(coverages)), "size of sets": float(np.mean(sizes))}
