"""Prototypes compared with established classifiers: on images as the head of a network, on tables as GMLVQ.

    python -m training.benchmarks.prototypes [--data FOLDER] [--part mnist|fashion|tables] [--seeds 3] [--epochs 6]
        [--output FOLDER]

mnist: digits 2 against 9 of FOLDER/images/mnist.npz, the data on which the thesis [GPLVQ] has 50% error: a
``PrototypeGaussianProcess`` on raw pixels with the median distance for its length, and on a small convolutional
network; ten-fold on 1000 images, and on all of them, tested on the test images.

fashion: the small convolutional network of configs/fashion_mnist_prototypes.yaml on Fashion-MNIST, ending in
``PrototypeGaussianProcess`` and in a softmax layer. Both learn by turns, epoch by epoch, so that their steps are timed
side by side.

tables: GMLVQ and scikit-learn's linear discriminant analysis on wine and iris, five times ten-fold, and on letter
(FOLDER/letter.npz), the first 15 000 rows of it against the rest; the time of a fit of all 20 000. GMLVQ's defaults
were chosen with wine and iris in view.
"""

import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold, cross_validate

import deepsimplex as ds
from training.results import ResultTable

Data = tuple[NDArray[Any], NDArray[np.int64]]
BATCH_SIZE = 128


class Part(StrEnum):
    """Parts of the measurements."""

    MNIST = "mnist"
    FASHION = "fashion"
    TABLES = "tables"


def backbone() -> keras.Model:
    """The small convolutional network."""
    return ds.backbones.cnn([16, 32], units=64, dropout=0.3)


def prototype_network(n: int, features: Any, rate: float, seed: int) -> Any:
    """Create a classifier with a head of eight prototypes of every class on a backbone."""
    head = ds.heads.PrototypeGaussianProcess(n, prototypes_per_class=8)
    model = ds.SimplexClassifier(features, "vertices", n, head=head, seed=seed)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def softmax_network(features: Any, n: int, rate: float) -> Any:
    """Create a classifier with a softmax layer on the same backbone."""
    model = keras.Sequential([features, keras.layers.Dense(n, activation="softmax")])
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


# Digits 2 against 9


def two_and_nine(x: NDArray[np.uint8], y: NDArray[Any]) -> Data:
    """Select the digits 2 and 9, in [0, 1], with label 1 for nine."""
    chosen = np.isin(y, (2, 9))
    return (x[chosen] / 255).astype(np.float32), (y[chosen] == 9).astype(np.int64)


def pixel_prototypes(x: NDArray[Any], y: NDArray[np.int64], epochs: int = 30) -> Any:
    """Train prototypes that are images."""
    keras.utils.set_random_seed(0)
    model = prototype_network(int(y.max()) + 1, keras.layers.Flatten(), rate=0.01, seed=0)
    model.fit(x, y, epochs=epochs, batch_size=32, verbose=0)
    return model


def feature_prototypes(x: NDArray[Any], y: NDArray[np.int64], epochs: int = 15) -> Any:
    """Train prototypes in the space of a network's features."""
    keras.utils.set_random_seed(0)
    model = prototype_network(int(y.max()) + 1, backbone(), rate=0.002, seed=0)
    model.fit(x, y, epochs=epochs, batch_size=32, verbose=0)
    return model


def mnist_table(folder: Path, number: int = 1000, folds: int = 10) -> ResultTable:
    """Errors on 2 against 9."""
    with np.load(folder / "images" / "mnist.npz") as data:
        x, y = two_and_nine(data["X_train"], data["y_train"])
        x_test, y_test = two_and_nine(data["X_test"], data["y_test"])
    chosen = np.random.default_rng(0).permutation(len(x))[:number]
    some, labels = x[chosen], y[chosen]
    table = ResultTable("training.benchmarks.prototypes")
    for name, learn in (("raw pixels", pixel_prototypes), ("on a network", feature_prototypes)):
        p = np.empty((len(some), 2))
        for learned, held in StratifiedKFold(folds, shuffle=True, random_state=0).split(some, labels):
            p[held] = learn(some[learned], labels[learned]).predict_proba(some[held])
        table.add(prototypes=name, images=f"{number}, {folds}-fold", **figures(labels, p))
    model = feature_prototypes(x, y, epochs=5)
    p = model.predict_proba(x_test)
    table.add(prototypes="on a network", images=f"all {len(x)}, tested on {len(x_test)}", **figures(y_test, p))
    return table


def figures(y: NDArray[np.int64], p: NDArray[Any]) -> dict[str, Any]:
    """Error in percent, and NLL."""
    error = f"{100 * np.mean(p.argmax(axis=1) != y):.2f}%"
    return {"error": error, "NLL": ds.evaluation.negative_log_likelihood(y, p)}


# Fashion-MNIST


class StepTimes(keras.callbacks.Callback):
    """Seconds of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self._begun)


def fashion_table(seeds: int, epochs: int, limit: int | None = None) -> ResultTable:
    """Accuracy, NLL and seconds of a step with either end, means of the seeds."""
    (x, y), (x_test, y_test) = ds.datasets.load("fashion_mnist")
    x, y = x[:limit], y[:limit]
    results: dict[str, list[tuple[float, ...]]] = {"softmax": [], "prototypes": []}
    for seed in range(seeds):
        models, times = {}, {name: StepTimes() for name in results}
        for name in results:
            keras.utils.set_random_seed(seed)
            features = backbone()
            if name == "prototypes":
                models[name] = prototype_network(10, features, 1e-3, seed)
            else:
                models[name] = softmax_network(features, 10, 1e-3)
        for epoch in range(epochs):
            for name, model in models.items():
                options = {"initial_epoch": epoch, "epochs": epoch + 1, "verbose": 0, "callbacks": [times[name]]}
                model.fit(x, y, batch_size=BATCH_SIZE, **options)
        for name, model in models.items():
            p = model.predict(x_test, batch_size=512, verbose=0)
            nll = ds.evaluation.negative_log_likelihood(y_test, p)
            results[name].append((np.mean(p.argmax(axis=1) == y_test), nll, float(np.median(times[name].seconds))))
    table = ResultTable("training.benchmarks.prototypes")
    for name, runs in results.items():
        accuracy, nll, _ = map(float, np.mean(runs, axis=0))
        seconds = np.array([run[2] for run in runs])
        ratio = float(np.median(seconds / [run[2] for run in results["softmax"]]))
        step = {"step": f"{1e3 * np.median(seconds):.1f} ms", "over softmax": ratio}
        table.add(**{"ends in": name, "epochs": epochs, "seeds": seeds, "accuracy": accuracy, "NLL": nll, **step})
    return table


# Tables of features


def compared(X: NDArray[Any], y: NDArray[np.int64], repeats: int) -> Iterator[tuple[str, float, float]]:
    """Yield name, accuracy and NLL of both methods, by ten-fold cross-validation."""
    folds = RepeatedStratifiedKFold(n_splits=10, n_repeats=repeats, random_state=0)
    for classifier in (ds.GMLVQ(), LinearDiscriminantAnalysis()):
        scores = cross_validate(classifier, X, y, cv=folds, scoring=["accuracy", "neg_log_loss"])
        yield type(classifier).__name__, scores["test_accuracy"].mean(), -scores["test_neg_log_loss"].mean()


def letter_rows(folder: Path) -> Iterable[tuple[str, str, Any, Any]]:
    """Yield the rows of letter, with the seconds of a fit."""
    with np.load(folder / "letter.npz") as data:
        X, y = data["X"].astype(np.float64), data["y"].astype(np.int64)
    for classifier in (ds.GMLVQ(prototypes_per_class=2), LinearDiscriminantAnalysis()):
        p = classifier.fit(X[:15_000], y[:15_000]).predict_proba(X[15_000:])
        nll = ds.evaluation.negative_log_likelihood(y[15_000:], p)
        yield "letter", type(classifier).__name__, float(np.mean(p.argmax(axis=1) == y[15_000:])), nll
    begun = time.perf_counter()
    classifier = ds.GMLVQ(prototypes_per_class=2).fit(X, y)
    yield "letter", "GMLVQ, a fit of 20 000", f"{time.perf_counter() - begun:.1f} s", f"{classifier.n_iter_} iterations"


def tables_table(folder: Path | None, repeats: int = 5) -> ResultTable:
    """GMLVQ beside linear discriminant analysis."""
    table = ResultTable("training.benchmarks.prototypes")
    for name, load in (("wine", load_wine), ("iris", load_iris)):
        X, y = load(return_X_y=True)
        for method, accuracy, nll in compared(X, y, repeats):
            table.add(data=name, method=method, accuracy=float(accuracy), NLL=float(nll))
    if folder is not None:
        for name, method, accuracy, nll in letter_rows(folder):
            table.add(data=name, method=method, accuracy=accuracy, NLL=nll)
    return table


def main(
    data: Annotated[Path | None, typer.Option(help="a folder of letter.npz and images/mnist.npz")] = None,
    part: Annotated[Part | None, typer.Option(help="part to measure; all by default")] = None,
    seeds: Annotated[int, typer.Option(help="of Fashion-MNIST")] = 3,
    epochs: Annotated[int, typer.Option(help="of Fashion-MNIST")] = 6,
    output: Annotated[Path | None, typer.Option(help="a folder for a JSON file per table")] = None,
) -> None:
    """Measure and print."""
    if output:
        output.mkdir(parents=True, exist_ok=True)
    for wanted in Part if part is None else [part]:
        if wanted is Part.TABLES:
            table = tables_table(data)
        elif wanted is Part.FASHION:
            table = fashion_table(seeds, epochs)
        elif data is None:
            print("MNIST: no --data, which holds images/mnist.npz")
            continue
        else:
            table = mnist_table(data)
        if output:
            table.write(output / f"prototypes_{wanted}.json")


if __name__ == "__main__":
    typer.run(main)
