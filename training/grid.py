"""The grid of targets, heads and readouts on real images, compared with softmax cross-entropy on the same backbone.

    python -m training.grid [--data digits] [--seeds 3] [--epochs 40] [--limit 5000] [--output grid.json]

Prints a Markdown table: medians over the seeds of accuracy, NLL and ECE on the test samples, and seconds of one fit.
"""

import statistics
import time
from typing import Annotated, Any

import keras
import numpy as np
import typer

import deepsimplex as ds
from training.results import Output, ResultTable

DEFAULT, PROTOTYPES = "isotropic, variational, compositions: the default", "isotropic, of prototypes"

GRID: list[tuple[str, Any, Any]] = [
    ("CASIMAC, euclidean", lambda: ds.targets.CASIMAC("euclidean"), DEFAULT),
    ("CASIMAC, euclidean", lambda: ds.targets.CASIMAC("euclidean"), "isotropic"),
    ("CASIMAC, euclidean", lambda: ds.targets.CASIMAC("euclidean"), "diagonal"),
    ("CASIMAC, euclidean", lambda: ds.targets.CASIMAC("euclidean"), "full"),
    ("CASIMAC, SSIM 5", lambda: ds.targets.CASIMAC(ds.distances.SSIM(5)), "isotropic"),
    (
        "mean of both",
        lambda: ds.targets.Mean([ds.targets.CASIMAC("euclidean"), ds.targets.CASIMAC(ds.distances.SSIM(5))]),
        "isotropic",
    ),
    ("ILR 0.99", lambda: ds.targets.ILR(0.99), "isotropic"),
    ("Dirichlet 0.01", lambda: ds.targets.Dirichlet(0.01), "diagonal"),
    ("one-hot", lambda: ds.targets.OneHot(), "isotropic"),
    ("vertices", lambda: ds.targets.Vertices(), PROTOTYPES),
]


def backbone() -> keras.Model:
    """The demo's network."""
    return ds.backbones.cnn([32, 64], units=128, dropout=0.2)


def optimizer(samples: int, epochs: int, batch_size: int) -> keras.optimizers.Optimizer:
    """Adam with cosine decay, the same for all."""
    steps = -(-samples // batch_size) * epochs
    return keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-3, steps))


def classifier(target: ds.targets.Target, covariance: Any, n: int, seed: int) -> ds.SimplexClassifier:
    """The demo's network on a target: by default, with a Gaussian head or with four prototypes of every class."""
    features = backbone()
    if covariance == DEFAULT:
        return ds.SimplexClassifier(features, target, n, seed=seed)
    if covariance != PROTOTYPES:
        return ds.SimplexClassifier(features, target, n, covariance=covariance, seed=seed)
    return ds.SimplexClassifier(features, target, n, head={"name": "prototypes", "prototypes_per_class": 4}, seed=seed)


def cross_entropy(n: int) -> keras.Model:
    """What one would do without this package."""
    return keras.Sequential([backbone(), keras.layers.Dense(n, activation="softmax")])


def main(
    data: Annotated[str, typer.Option(help="a data set of deepsimplex.datasets.load")] = "digits",
    seeds: Annotated[int, typer.Option(help="runs to take medians of")] = 3,
    epochs: Annotated[int, typer.Option(help="epochs of each run")] = 40,
    batch_size: Annotated[int, typer.Option(help="samples per step")] = 32,
    limit: Annotated[int | None, typer.Option(help="training samples to use")] = None,
    output: Output = None,
) -> None:
    """Train every row with every seed and print the table."""
    (x, y), (x_test, y_test) = ds.datasets.load(data)
    x, y, n = x[:limit], y[:limit], int(y.max()) + 1
    table = ResultTable("training.grid")

    def measure(label: str, covariance: Any, target: Any) -> None:
        results = []
        for seed in range(seeds):
            keras.utils.set_random_seed(seed)
            optimizer_of_run = optimizer(len(x), epochs, batch_size)
            if target is None:
                model = cross_entropy(n)
                model.compile(optimizer_of_run, loss="sparse_categorical_crossentropy")
                readout = "softmax layer"
            else:
                model = classifier(target(), covariance, n, seed)
                beta = 0.0 if covariance == "full" else 0.5
                losses = {DEFAULT: None, PROTOTYPES: "sparse_categorical_crossentropy"}
                model.compile(optimizer_of_run, loss=losses.get(covariance, ds.losses.LatentNLL(beta=beta)))
                readout = model.target.default_readout
            begun = time.perf_counter()
            model.fit(x, y, epochs=epochs, batch_size=batch_size, verbose=0)
            seconds = time.perf_counter() - begun
            report = ds.evaluation.report(y_test, np.asarray(model.predict(x_test, batch_size=1000, verbose=0), float))
            results.append(
                (report.accuracy, report.negative_log_likelihood, report.expected_calibration_error, seconds)
            )
        accuracy, nll, ece, seconds = (statistics.median(column) for column in zip(*results, strict=True))
        scores = {"accuracy": accuracy, "NLL": nll, "ECE": ece, "seconds": round(seconds)}
        table.add(target=label, covariance=covariance, readout=readout, **scores)

    for label, target, covariance in GRID:
        measure(label, covariance, target)
    measure("cross-entropy, for comparison", "-", None)
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
