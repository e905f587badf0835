"""The grid: every target with every regressor and readout, on images and on a table.

    python -m training.grid [--data digits|wine] [--seeds 3] [--only "Gaussian process"] [--output grid.json]

Prints a Markdown table: medians over the seeds of accuracy, NLL and ECE on the test samples, and seconds of one fit.
Classifiers that take no target and no readout come last, with softmax cross-entropy on the same backbone. Combinations
that make no sense are refused, when they are made or fitted; the notes of the table say why.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal

import keras
import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import deepsimplex as ds
from training.results import Output, ResultTable

Samples = tuple[NDArray[Any], NDArray[np.int64]]
Probabilities = Callable[[NDArray[Any]], NDArray[Any]]
BATCH, READOUTS, NONE = 32, ("argmax", "softmax"), "-"

TARGETS: dict[str, Callable[[], ds.targets.Target]] = {
    "CASIMAC, euclidean": lambda: ds.targets.CASIMAC("euclidean"),
    "CASIMAC, SSIM 5": lambda: ds.targets.CASIMAC(ds.distances.SSIM(5)),
    "mean of both": lambda: ds.targets.Mean([TARGETS["CASIMAC, euclidean"](), TARGETS["CASIMAC, SSIM 5"]()]),
    "ILR 0.99": lambda: ds.targets.ILR(0.99),
    "Dirichlet 0.01": lambda: ds.targets.Dirichlet(0.01),
    "one-hot": lambda: ds.targets.OneHot(),
    "vertices": lambda: ds.targets.Vertices(),
}
PROTOTYPES = "network, prototypes"
# Settings of SimplexClassifier, and the loss; None is the default of the target. Prototypes
# classify by their positions alone.
NETWORKS: dict[str, tuple[dict[str, Any], Any]] = {
    "network, variational head": ({}, None),
    "network, isotropic": ({"covariance": "isotropic"}, ds.losses.LatentNLL(beta=0.5)),
    "network, diagonal": ({"covariance": "diagonal"}, ds.losses.LatentNLL(beta=0.5)),
    "network, full": ({"covariance": "full"}, ds.losses.LatentNLL()),
    PROTOTYPES: (
        {"head": {"name": "prototypes", "prototypes_per_class": 4}},
        "sparse_categorical_crossentropy",
    ),
}
ESTIMATORS: dict[str, Callable[..., Any]] = {
    "Gaussian process, exact": partial(ds.SimplexGaussianProcess, inference="exact"),
    "Gaussian process, collapsed": partial(ds.SimplexGaussianProcess, inference="collapsed"),
    "Gaussian process, stochastic": partial(ds.SimplexGaussianProcess, inference="stochastic"),
    "Bayesian ridge": partial(ds.LatentRegressionClassifier, BayesianRidge()),
    "random forest": partial(ds.LatentRegressionClassifier, RandomForestRegressor(random_state=0)),
}
WITHOUT_TARGET: dict[str, Callable[[int], Any]] = {
    "categorical Gaussian process, ILR": lambda seed: ds.CategoricalGaussianProcess("ilr", random_state=seed),
    "categorical Gaussian process, softmax": lambda seed: ds.CategoricalGaussianProcess("softmax", random_state=seed),
    "GPLVQ": lambda seed: ds.GPLVQ(random_state=seed),
    "GMLVQ": lambda seed: ds.GMLVQ(random_state=seed),
    "GLVQ": lambda seed: ds.GLVQ(random_state=seed),
    "LVQ1": lambda seed: ds.LVQ1(random_state=seed),
    "LVQ2": lambda seed: ds.LVQ2(random_state=seed),
    "logistic regression": lambda seed: LogisticRegression(max_iter=1000, random_state=seed),
}
SOFTMAX_LAYER = "network, cross-entropy"


def samples(name: str, seed: int) -> tuple[Samples, Samples]:
    """Training and test samples: the digits, images in [0, 1], or the wines, standardized."""
    if name == "digits":
        digits: Any = ds.datasets.load("digits")
        return digits
    X, y = load_wine(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=50, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(X)
    return (scaler.transform(X).astype(np.float32), y), (scaler.transform(X_test).astype(np.float32), y_test)


def fitted_network(x: NDArray[Any], y: NDArray[np.int64], model: keras.Model, loss: Any) -> Probabilities:
    """Train a network with Adam and cosine decay, the same for all."""
    epochs = 40 if x.ndim > 2 else 200
    steps = -(-len(x) // BATCH) * epochs
    model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-3, steps)), loss=loss)
    model.fit(x, y, epochs=epochs, batch_size=BATCH, verbose=0)
    return lambda x: model.predict(x, batch_size=1000, verbose=0)


def fitted_estimator(x: NDArray[Any], y: NDArray[np.int64], estimator: Any) -> Probabilities:
    """Fit a classifier of rows; images are flattened."""
    fitted = estimator.fit(x.reshape(len(x), -1), y)
    return lambda x: fitted.predict_proba(x.reshape(len(x), -1))


def fit(x: NDArray[Any], y: NDArray[np.int64], regressor: str, target: str, readout: str, seed: int) -> Probabilities:
    """Train a combination; raise ValueError or TypeError for a combination that is refused."""
    keras.utils.set_random_seed(seed)
    n = int(y.max()) + 1
    # For images the demo's network.
    backbone = ds.backbones.cnn([32, 64], units=128, dropout=0.2) if x.ndim > 2 else ds.backbones.mlp([64])
    if regressor == SOFTMAX_LAYER:
        layers = [backbone, keras.layers.Dense(n, activation="softmax")]
        return fitted_network(x, y, keras.Sequential(layers), "sparse_categorical_crossentropy")
    if regressor in WITHOUT_TARGET:
        return fitted_estimator(x, y, WITHOUT_TARGET[regressor](seed))
    if regressor in ESTIMATORS:
        return fitted_estimator(
            x, y, ESTIMATORS[regressor](target=TARGETS[target](), readout=readout, random_state=seed)
        )
    settings, loss = NETWORKS[regressor]
    model = ds.SimplexClassifier(backbone, TARGETS[target](), n, readout=readout, seed=seed, **settings)
    return fitted_network(x, y, model, loss)


def measure(data: str, regressor: str, target: str, readout: str, seed: int) -> tuple[float, float, float, float]:
    """Accuracy, NLL and ECE on the test samples, and seconds of the fit."""
    (x, y), (x_test, y_test) = samples(data, seed)
    if regressor == PROTOTYPES:  # they never ask for latents, which the target may refuse to compute
        TARGETS[target]().fit_transform(x, y)
    begun = time.perf_counter()
    probabilities = fit(x, y, regressor, target, readout, seed)
    seconds = time.perf_counter() - begun
    report = ds.evaluation.report(y_test, np.asarray(probabilities(x_test), float))
    return report.accuracy, report.negative_log_likelihood, report.expected_calibration_error, seconds


def main(
    data: Annotated[Literal["digits", "wine"], typer.Option(help="images or a table")] = "digits",
    seeds: Annotated[int, typer.Option(help="runs to take medians of; of the wines each has its own test rows")] = 1,
    only: Annotated[str, typer.Option(help="the regressors whose names contain this")] = "",
    output: Output = None,
) -> None:
    """Train every combination and print the table."""
    table, refused = ResultTable("training.grid"), defaultdict[tuple[str, str], list[str]](list)
    combinations = [*product(TARGETS, (*NETWORKS, *ESTIMATORS), READOUTS)]
    combinations += [(NONE, regressor, NONE) for regressor in (*WITHOUT_TARGET, SOFTMAX_LAYER)]
    combinations = [combination for combination in combinations if only in combination[1]]
    if not combinations:
        raise typer.BadParameter(f"only must be part of the name of a regressor; found {only!r}")
    for target, regressor, readout in combinations:
        try:
            results = [measure(data, regressor, target, readout, seed) for seed in range(seeds)]
        except (TypeError, ValueError) as error:
            print(f"{target}, {regressor}, {readout}: refused: {error}", flush=True)
            refused[target, str(error)].append(regressor)
            continue
        accuracy, nll, ece, seconds = (statistics.median(column) for column in zip(*results, strict=True))
        scores = {"accuracy": accuracy, "NLL": nll, "ECE": ece, "seconds": round(seconds)}
        table.add(target=target, regressor=regressor, readout=readout, **scores)
    notes = [
        f"{target}, with {', '.join(dict.fromkeys(regressors))}: refused: {message.rstrip('.')}."
        for (target, message), regressors in refused.items()
    ]
    table.write(output, notes=notes)


if __name__ == "__main__":
    typer.run(main)
