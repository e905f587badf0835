"""Every calibration on few held-out rows of tables, and of networks that were trained with class weights.

    python -m training.benchmarks.calibration_methods [--seeds 3] [--output FOLDER]

``--output`` writes calibration_methods.json, the mean NLL of new samples by the number of held-out ones, where a
probability of zero counts as 1e-38, and calibration_class_weights.json, the mean probability of a rare class and
the ECE.
"""

from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import deepsimplex as ds
from training.results import ResultTable

SETS = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
METHODS = ("none", *(name for name in ds.calibration.CALIBRATIONS if name != "latent"))
HELD_OUT = {50: ("wine", "breast cancer", "digits"), 100: ("wine", "breast cancer", "digits"), 500: ("digits",)}
TRAINED = 50
"""Rows that the classifiers are trained on: few, so that there is something to calibrate."""


def classifiers(seed: int) -> list[Any]:
    """A forest, whose probabilities may be zero, a logistic regression and ours."""
    return [
        RandomForestClassifier(random_state=seed),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        ds.SimplexGaussianProcess(random_state=seed),
    ]


def nll(p: NDArray[Any], y: NDArray[np.int64]) -> float:
    """Mean negative log-likelihood, a probability of zero as 1e-38."""
    return float(-np.mean(np.log(np.maximum(p[np.arange(len(y)), y], 1e-38))))


def few_rows(seeds: int) -> ResultTable:
    """The NLL of every method by the number of held-out rows: geometric means over sets, classifiers and seeds."""
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    for seed in track(range(seeds), "seeds"):
        for held_out, names in HELD_OUT.items():
            for name in names:
                X, y = SETS[name](return_X_y=True)
                X, X_new, y, y_new = train_test_split(
                    X, y, train_size=TRAINED + held_out, random_state=seed, stratify=y
                )
                X, X_held, y, y_held = train_test_split(X, y, train_size=TRAINED, random_state=seed, stratify=y)
                for classifier in classifiers(seed):
                    after = ds.AfterTraining(classifier.fit(X, y))
                    scores[held_out, "none"].append(nll(after.predict_proba(X_new), y_new))
                    for method in METHODS[1:]:
                        calibrated = after.calibrate(X_held, y_held, method).predict_proba(X_new)
                        scores[held_out, method].append(nll(calibrated, y_new))
                        after = ds.AfterTraining(classifier)
    table = ResultTable("training.benchmarks.calibration_methods")
    for held_out in HELD_OUT:
        means = {method: float(np.exp(np.mean(np.log(scores[held_out, method])))) for method in METHODS}
        table.add(**{"held-out rows": held_out, "sets": ", ".join(HELD_OUT[held_out])} | means)
    return table


def class_weights(seeds: int) -> ResultTable:
    """Two classes at a rate of 0.26, trained with a weight of 3 on the rare one."""
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for seed in range(seeds):
        X, y = make_classification(6000, 20, weights=[0.74], class_sep=0.7, flip_y=0.02, random_state=seed)
        x = X.astype("float32")
        train, held, new = slice(2000), slice(2000, 3000), slice(3000, None)
        weighted: dict[str, dict[str, Any]] = {
            "as trained": {"sample_weight": np.where(y[train] == 1, 3.0, 1.0)},
            "class weights divided out, as `predict` has them": {"class_weight": {0: 1.0, 1: 3.0}},
        }
        for name, weights in weighted.items():
            keras.utils.set_random_seed(seed)
            model = ds.SimplexClassifier(ds.backbones.mlp([32]), num_classes=2)
            model.compile("adam")
            model.fit(x[train], y[train], epochs=10, verbose=0, **weights)
            outputs = {name: model.predict_proba(x[new])}
            if name == "as trained":
                p = model.predict_proba(x[held])
                for method in ("temperature", "bias_corrected_temperature"):
                    calibration = ds.calibration.CALIBRATIONS.get(method).fit(p, y[held])
                    outputs[f"as trained, {method}"] = calibration.transform(outputs["as trained"])
            for label, q in outputs.items():
                error = ds.evaluation.expected_calibration_error(y[new], q)
                scores[label].append((float(q[:, 1].mean()), float(error)))
    table = ResultTable("training.benchmarks.calibration_methods")
    for label, values in scores.items():
        mean, error = np.mean(values, axis=0)
        table.add(**{"probabilities": label, "mean of the rare class": float(mean), "ECE": float(error)})
    return table


def main(
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    output: Annotated[Path | None, typer.Option(help="folder of the tables")] = None,
) -> None:
    """Measure and print."""
    tables = {"calibration_methods": few_rows(seeds), "calibration_class_weights": class_weights(seeds)}
    if output is not None:
        for name, table in tables.items():
            table.write(output / f"{name}.json")


if __name__ == "__main__":
    typer.run(main)
