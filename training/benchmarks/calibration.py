"""Calibration after training, on the digits: 1100 training, 337 calibration and 360 test images.

    python -m training.benchmarks.calibration [--epochs 40] [--seeds 5] [--output calibration.json]

Prints a Markdown table: accuracy, NLL and ECE on the test images before and after every calibration, means of the
seeds.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated

import keras
import numpy as np
import typer
from rich.progress import track

import deepsimplex as ds
from training.results import Output, ResultTable

LEARNED_FROM = 1100
TARGETS = {"CASIMAC, argmax": "casimac", "ILR 0.99, softmax": "ilr"}


def network(x: np.ndarray, y: np.ndarray, epochs: int) -> keras.Model:
    """Create a network with a softmax layer, trained by cross-entropy."""
    model = keras.Sequential([ds.backbones.mlp([64]), keras.layers.Dense(10, activation="softmax")])
    model.compile(keras.optimizers.Adam(0.003), loss="sparse_categorical_crossentropy")
    model.fit(x, y, epochs=epochs, batch_size=32, verbose=0)
    return model


def scores(y: np.ndarray, p: np.ndarray) -> tuple[float, float, float]:
    """Accuracy, NLL and ECE."""
    report = ds.evaluation.report(y, np.asarray(p, float))
    return report.accuracy, report.negative_log_likelihood, report.expected_calibration_error


def measure(seed: int, epochs: int) -> Iterator[tuple[str, str, tuple[float, float, float]]]:
    """Yield classifier, calibration and scores of every row, trained with one seed."""
    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    (x, x_held), (y, y_held) = np.split(x, [LEARNED_FROM]), np.split(y, [LEARNED_FROM])
    for name, target in TARGETS.items():
        keras.utils.set_random_seed(seed)
        model = ds.SimplexClassifier(ds.backbones.mlp([64]), target, 10, seed=seed)
        model.compile(keras.optimizers.Adam(0.003))
        model.fit(x, y, epochs=epochs, batch_size=32, verbose=0)
        yield name, "none", scores(y_test, model.predict_proba(x_test))
        for method in ds.calibration.CALIBRATIONS:
            yield name, method, scores(y_test, model.calibrate(x_held, y_held, method).predict_proba(x_test))
    keras.utils.set_random_seed(seed)
    plain = network(x, y, epochs)
    p_held, p = (plain.predict(part, verbose=0) for part in (x_held, x_test))
    yield "cross-entropy", "none", scores(y_test, p)
    for method in ("temperature", "platt"):
        calibration = ds.calibration.CALIBRATIONS.get(method).fit_outputs(y_held, probabilities=p_held)
        yield "cross-entropy", method, scores(y_test, calibration.apply_probabilities(p))


def main(
    epochs: int = 40,
    seeds: Annotated[int, typer.Option(min=1, help="trainings to take means of")] = 5,
    output: Output = None,
) -> None:
    """Train, calibrate, and print."""
    scores = defaultdict[tuple[str, str], list[tuple[float, float, float]]](list)
    for seed in track(range(seeds), "seeds"):
        for classifier, calibration, row in measure(seed, epochs):
            scores[classifier, calibration].append(row)
    table = ResultTable("training.benchmarks.calibration")
    for (classifier, calibration), rows in scores.items():
        accuracy, nll, ece = map(float, np.mean(rows, axis=0))
        table.add(classifier=classifier, calibration=calibration, accuracy=accuracy, NLL=nll, ECE=ece)
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
