"""Calibration after training, on the digits: 1100 training, 337 calibration and 360 test images.

    python -m training.benchmarks.calibration [--epochs 40] [--output calibration.json]

Prints a Markdown table: accuracy, NLL and ECE on the test images before and after every calibration.
"""

import keras
import numpy as np
import typer

import deepsimplex as ds
from training.results import Output, ResultTable

LEARNED_FROM = 1100
TARGETS = {"CASIMAC, argmax": "casimac", "ILR 0.99, softmax": "ilr"}


def network(x: np.ndarray, y: np.ndarray, epochs: int) -> keras.Model:
    """Softmax and cross-entropy, to compare with."""
    model = keras.Sequential([ds.backbones.mlp([64]), keras.layers.Dense(10, activation="softmax")])
    model.compile(keras.optimizers.Adam(0.003), loss="sparse_categorical_crossentropy")
    model.fit(x, y, epochs=epochs, batch_size=32, verbose=0)
    return model


def main(epochs: int = 40, output: Output = None) -> None:
    """Train, calibrate, and print."""
    table = ResultTable("training.benchmarks.calibration")

    def row(name: str, method: str, y: np.ndarray, p: np.ndarray) -> None:
        report = ds.evaluation.report(y, np.asarray(p, float))
        nll, ece = report.negative_log_likelihood, report.expected_calibration_error
        table.add(classifier=name, calibration=method, accuracy=report.accuracy, NLL=nll, ECE=ece)

    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    (x, x_held), (y, y_held) = np.split(x, [LEARNED_FROM]), np.split(y, [LEARNED_FROM])
    for name, target in TARGETS.items():
        keras.utils.set_random_seed(0)
        model = ds.SimplexClassifier(ds.backbones.mlp([64]), target, 10)
        model.compile(keras.optimizers.Adam(0.003))
        model.fit(x, y, epochs=epochs, batch_size=32, verbose=0)
        row(name, "none", y_test, model.predict_proba(x_test))
        for method in ds.calibration.CALIBRATIONS:
            row(name, method, y_test, model.calibrate(x_held, y_held, method).predict_proba(x_test))
    keras.utils.set_random_seed(0)
    plain = network(x, y, epochs)
    p_held, p = (plain.predict(part, verbose=0) for part in (x_held, x_test))
    row("cross-entropy", "none", y_test, p)
    for method in ("temperature", "platt"):
        calibration = ds.calibration.CALIBRATIONS.get(method).fit_outputs(y_held, probabilities=p_held)
        row("cross-entropy", method, y_test, calibration.apply_probabilities(p))
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
