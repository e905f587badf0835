"""Compare classifiers on the features of a frozen backbone, or on features that you have.

    python -m training.benchmarks.transfer --data FILE.npz --backbone FILE.keras [--size 128] \
        [--unknown NAME=FILE.npz ...] --rows 500 --rows 2000 --seeds 3 --runs FOLDER --output FILE.json

computes the features of all images once, fits every classifier that has no run in the folder yet to random training
rows, and prints the table: accuracy, NLL, ECE, cross-entropy to people's answers, how well other sets are detected as
unknown, and seconds. The file holds x_train, y_train, x_test, y_test and, if known, human_counts_test [N, n]; "digits",
"fashion_mnist" or "cifar10" is loaded by its name. Without --backbone the arrays are features [N, d]. Images are given
to the backbone as they are in files (pixels of data sets by name are 0 to 255), times --scale, and resized to --size;
gray ones are repeated where it has three channels. Noise is one more unknown set of images.

Penalties, weight decay, priors and temperatures of the other methods are chosen on a held-out tenth; then all rows are
fitted. Seconds "of one fit" are of that last fit, the others of everything. Features and runs are kept in the folder:
an interrupted command goes on, and one without anything missing prints the table.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import sklearn
import tensorflow as tf
import typer

import deepsimplex as ds
from training.benchmarks.deep.__main__ import read_run
from training.benchmarks.deep.methods import run_path
from training.benchmarks.transfer import figure, table
from training.benchmarks.transfer.features import Backbone, Data, load, with_features
from training.benchmarks.transfer.measures import measures
from training.benchmarks.transfer.methods import METHODS, Seconds, Training, clocks
from training.results import Output, write_json

VERSIONS = {module.__name__: module.__version__ for module in (ds, keras, sklearn, tf)}


def main(
    data: Annotated[str, typer.Option(help="a .npz file, or the name of a data set")],
    backbone: Annotated[Path | None, typer.Option(help="a .keras file; default: the data are features")] = None,
    size: Annotated[int | None, typer.Option(help="images are resized to this height and width")] = None,
    scale: Annotated[float, typer.Option(help="factor of pixels before the backbone")] = 1.0,
    unknown: Annotated[list[str] | None, typer.Option(help="NAME=FILE.npz, whose x_test is unknown")] = None,
    rows: Annotated[list[int] | None, typer.Option(help="numbers of training rows; default 500, 2000, 10 000")] = None,
    method: Annotated[list[str] | None, typer.Option(help="some of the methods; default all")] = None,
    seeds: int = 3,
    runs: Annotated[Path, typer.Option(help="where features and runs are kept")] = Path("runs/transfer"),
    output: Output = None,
    picture: Annotated[Path | None, typer.Option(help="a PNG for the figure")] = None,
) -> None:
    """Fit what is missing, print the table and draw the figure."""
    names = list(method or METHODS)
    if invalid := set(names) - METHODS.keys():
        raise typer.BadParameter(f"--method must be one of {', '.join(METHODS)}; found {', '.join(invalid)}")
    network = None if backbone is None else Backbone(backbone, size, scale)

    @cache
    def features() -> Data:
        return with_features(load(data, unknown or ()), network, runs / "features")

    stem = "-".join([Path(data).stem, *([] if backbone is None else [backbone.stem])])
    runs_by_number = {}
    for number in rows or [500, 2000, 10_000]:
        folder = runs / f"{stem}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        for seed in range(seeds):
            for name in names:
                if not (path := run_path(folder, name, seed)).exists():
                    write_json(path, scores := run(name, features(), number, seed))
                    print(f"{number} rows, {path.stem}: NLL {scores['NLL']:.4f}, {scores['seconds']:.1f} s", flush=True)
        runs_by_number[number] = {
            name: [row for seed in range(seeds) if (row := read_run(folder, name, seed))] for name in names
        }
    table.write(runs_by_number, output)
    if picture is not None:
        figure.draw(runs_by_number, picture)


def run(name: str, data: Data, number: int, seed: int) -> dict[str, Any]:
    """Fit a method to random training rows, and measure it."""
    if number > len(data.x):
        raise typer.BadParameter(f"--rows must be at most {len(data.x)}, the rows of --data; found {number}")
    chosen = np.random.default_rng(seed).permutation(len(data.x))[:number]
    training = Training(data.x[chosen], data.y[chosen], data.num_classes, seed)
    keras.backend.clear_session()
    begun = clocks()
    classifier = METHODS[name](training)
    spent = Seconds.since(begun)
    seconds = {
        "seconds": spent.wall,
        "CPU seconds": spent.cpu,
        "seconds of one fit": classifier.last_fit.wall,
        "CPU seconds of one fit": classifier.last_fit.cpu,
    }
    return {**measures(classifier, data), **seconds, "choice": classifier.choice, "versions": VERSIONS}


if __name__ == "__main__":
    typer.run(main)
