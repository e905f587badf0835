"""Tune a pretrained backbone: this package's default head, solved and kept, beside a softmax layer.

    python -m training.benchmarks.transfer.tuning --data FILE.npz --backbone FILE.keras [--size 128] --rows 2000 \
        [--test-rows 3000] --seeds 3 --runs FOLDER --output FILE.json

fits both heads to the features of the frozen backbone, the softmax layer after dropout, then trains everything for
three epochs at a small rate, but for batch normalization, which in training mode would take the statistics of a few
images. Optimizer and batches are the same, and the data those of ``training.benchmarks.transfer``. Nothing is held out;
the temperature of the column "NLL, best temperature" is that of the test labels. What the folder has is not measured
again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import typer

import deepsimplex as ds
from training.benchmarks.deep.__main__ import read_run
from training.benchmarks.deep.methods import run_path
from training.benchmarks.deep.table import with_error
from training.benchmarks.transfer.features import Array, Backbone, Data, load
from training.benchmarks.transfer.measures import measures
from training.benchmarks.transfer.methods import Classifier, Seconds, Training, clocks, softmax_layer
from training.benchmarks.transfer.table import COLUMNS
from training.results import Output, ResultTable, write_json

BATCH, DROPOUT = 32, 0.3
Predict = Callable[[Array], Array]


def softmax_network(images: Training, body: keras.Model) -> tuple[keras.Model, Predict]:
    """A softmax layer after dropout, trained on the features."""
    features = body.predict(images.x, batch_size=100, verbose=0)
    layer = softmax_layer(images._replace(x=features), dropout=DROPOUT)
    dense = keras.layers.Dense(images.num_classes, "softmax")
    network = keras.Sequential([body, keras.layers.Dropout(DROPOUT, seed=images.seed), dense])
    network.build((None, *images.x.shape[1:]))
    dense.set_weights([layer.kernel, layer.bias])
    return network, lambda x: network.predict(x, batch_size=100, verbose=0)


def simplex_classifier(images: Training, body: keras.Model) -> tuple[keras.Model, Predict]:
    """The default head, solved."""
    model = ds.SimplexClassifier(body, num_classes=images.num_classes, seed=images.seed)
    model.compile()
    model.fit(images.x, images.y, verbose=0)
    return model, lambda x: model.predict_proba(x, batch_size=100)


METHODS = {"softmax": softmax_network, "deepsimplex": simplex_classifier}


def run(
    name: str, images: Data, backbone: Backbone, number: int, seed: int, epochs: int, rate: float
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the scores of a classifier before and after its backbone is trained, by stage."""
    chosen = np.random.default_rng(seed).permutation(len(images.x))[:number]
    training = Training(images.x[chosen], images.y[chosen], images.num_classes, seed)
    keras.utils.set_random_seed(seed)
    body = backbone.load(images.x.shape[1:])
    begun = clocks()
    model, predict = METHODS[name](training, body)
    yield "frozen", _scores(predict, Seconds.since(begun), images)
    _train_all_but_normalization(body)
    steps = keras.optimizers.schedules.CosineDecay(rate, -(-number // BATCH) * epochs)
    model.compile(keras.optimizers.Adam(steps), "sparse_categorical_crossentropy")
    begun = clocks()
    model.fit(training.x, training.y, batch_size=BATCH, epochs=epochs, verbose=0)
    yield "tuned", _scores(predict, Seconds.since(begun), images)


def _train_all_but_normalization(network: Any) -> None:
    for layer in getattr(network, "layers", ()):
        layer.trainable = not isinstance(layer, keras.layers.BatchNormalization)
        _train_all_but_normalization(layer)


def _scores(predict: Predict, spent: Seconds, images: Data) -> dict[str, float]:
    return {**measures(Classifier(predict, spent), images), "seconds": spent.wall}


def main(
    data: Annotated[str, typer.Option(help="a .npz file, or the name of a data set")],
    backbone: Annotated[Path, typer.Option(help="a .keras file")],
    size: Annotated[int | None, typer.Option(help="images are resized to this height and width")] = None,
    scale: Annotated[float, typer.Option(help="factor of pixels before the backbone")] = 1.0,
    rows: Annotated[int, typer.Option(help="number of training rows")] = 2000,
    test_rows: Annotated[int | None, typer.Option(help="test rows, from the start; default all")] = None,
    seeds: int = 3,
    epochs: int = 3,
    rate: Annotated[float, typer.Option(help="of Adam at the start; it falls by a cosine to zero")] = 1e-4,
    runs: Annotated[Path, typer.Option(help="where runs are kept")] = Path("runs/transfer"),
    output: Output = None,
) -> None:
    """Train what is missing, and print the table."""
    network, images = Backbone(backbone, size, scale), load(data, ())
    images.unknown.clear()
    images = images._replace(
        x_test=images.x_test[:test_rows],
        y_test=images.y_test[:test_rows],
        human=None if images.human is None else images.human[:test_rows],
    )
    if rows > len(images.x):
        raise typer.BadParameter(f"--rows must be at most {len(images.x)}, the rows of --data; found {rows}")
    folder = runs / f"{Path(data).stem}-{backbone.stem}-{rows}-{test_rows or 'all'}-tuned-{epochs}-{rate:g}"
    folder.mkdir(parents=True, exist_ok=True)
    table = ResultTable("training.benchmarks.transfer.tuning")
    for name in METHODS:
        stages = {stage: f"{name}, {stage}" for stage in ("frozen", "tuned")}
        for seed in range(seeds):
            if not all(run_path(folder, stage, seed).exists() for stage in stages.values()):
                for stage, scores in run(name, images, network, rows, seed, epochs, rate):
                    write_json(run_path(folder, stages[stage], seed), scores)
        for stage in stages.values():
            measured = [row for seed in range(seeds) if (row := read_run(folder, stage, seed))]
            columns = [column for column in (*COLUMNS, "seconds") if column in measured[0]]
            means = {column: with_error([row[column] for row in measured], ".4f") for column in columns}
            table.add(method=stage, seeds=seeds, **means)
    table.write(output, training_rows=rows, epochs=epochs, rate=rate)


if __name__ == "__main__":
    typer.run(main)
