"""Compare deep classifiers, on Fashion-MNIST unless another data set is named.

    python -m training.benchmarks.deep --size small --backbone cnn --seeds 3 --data FOLDER --runs FOLDER \
        --output FILE.json

trains every method that has no run in the folder yet, and prints the table: accuracy, NLL, Brier score and ECE of the
test images, clean and under ten corruptions at three severities; how well the largest probability, and the density of
the features, detect MNIST, KMNIST and noise; sets. With --near the unknown images are of two classes that were held
out, and nothing is corrupted or drawn. A method that follows another ("deepsimplex, density"; "dropout" of the cnn) is
measured when that one is trained. FOLDER of the data holds images/mnist.npz and images/kmnist_test.npz, and
images/cifar10.npz or images/cifar100.npz for --dataset cifar10 or cifar100, with what people see in the test images, if
that is known. --picture FILE.png draws the means. "small" is 20 000 images and 6 epochs, about a minute a run on two
cores; "few" 10 000 and 12; "full" all and 15. --augment mirrors and shifts the training images, for every method alike.
A data set that is not found is skipped.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf
import typer

import deepsimplex as ds
from training.benchmarks.deep import table
from training.benchmarks.deep.figure import draw
from training.benchmarks.deep.images import HELD_OUT_CLASSES, SIZES, Data, Size, load
from training.benchmarks.deep.measures import measures, predictions
from training.benchmarks.deep.methods import BOUNDED, FOLLOWING, METHODS, run_path, train
from training.results import Output, write_json

MEMBERS = 3  # of the ensemble


def main(
    dataset: Annotated[str, typer.Option(help=", ".join(HELD_OUT_CLASSES))] = "fashion_mnist",
    size: Annotated[str, typer.Option(help=", ".join(SIZES))] = "small",
    backbone: Annotated[str, typer.Option(help="mlp, cnn, cnn3 (three blocks, no dropout) or resnet")] = "cnn",
    method: Annotated[list[str] | None, typer.Option(help="some of the methods; default all")] = None,
    seeds: int = 3,
    rate: Annotated[float | None, typer.Option(help="of cross-entropy and temperature; default the selected")] = None,
    augment: Annotated[bool, typer.Option(help="mirror and shift the training images; of color images")] = False,
    near: Annotated[bool, typer.Option(help="hold two classes out of training")] = False,
    corrupt: Annotated[bool, typer.Option(help="predict corrupted test images too, six times as many")] = True,
    data: Annotated[Path, typer.Option(help="folder with images/mnist.npz and images/kmnist_test.npz")] = Path(),
    runs: Annotated[Path, typer.Option(help="where the runs are kept")] = Path("runs/deep"),
    output: Output = None,
    picture: Annotated[Path | None, typer.Option(help="a PNG for the figure")] = None,
) -> None:
    """Train what is missing, print the tables and draw the figure."""
    names = list(method or (name for name in METHODS if backbone != "mlp" or name not in BOUNDED))
    if dataset not in HELD_OUT_CLASSES:
        raise typer.BadParameter(f"dataset must be one of {', '.join(HELD_OUT_CLASSES)}; found {dataset}")
    if unknown := set(names) - METHODS.keys():
        raise typer.BadParameter(f"method must be one of {', '.join(METHODS)}; found {', '.join(unknown)}")
    trained_size = SIZES[size]._replace(augmented=augment)
    try:
        images = load(dataset, trained_size, data, near, corrupt)
    except OSError as error:
        print(f"skipped: {error}")
        return
    if augment and images.x.ndim != 4:
        raise typer.BadParameter(f"augment is for color images, such as cifar10; found {dataset}")
    prefix = "" if dataset == "fashion_mnist" else f"{dataset}-"
    folder = runs / f"{prefix}{size}-{backbone}{'-augmented' if augment else ''}{'-near' if near else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for name in names:
            if not run_path(folder, name, seed).exists():
                options = {"rate": rate} if rate is not None and name in (table.PLAIN, table.PEER) else {}
                _run(name, seed, images, trained_size, backbone, folder, options)
    _ensemble(folder, images)
    known = [*METHODS, *(other for following in FOLLOWING.values() for other in following), table.ENSEMBLE]
    rows_by_method = {name: [row for seed in range(seeds) if (row := read_run(folder, name, seed))] for name in known}
    rows_by_method = {name: rows for name, rows in rows_by_method.items() if rows}
    table.write(rows_by_method, output)
    if picture is not None and not near:
        draw(rows_by_method, picture)


def read_run(folder: Path, name: str, seed: int) -> dict[str, float] | None:
    """Read the measures of a run, None if it has no file yet."""
    path = run_path(folder, name, seed)
    return json.loads(path.read_text()) if path.exists() else None


def _run(name: str, seed: int, data: Data, size: Size, backbone: str, folder: Path, options: dict[str, float]) -> None:
    """Train and measure one classifier, and the methods of ``FOLLOWING`` that are made from it."""
    trained = train(METHODS[name], data, size, backbone, seed, **options)
    versions = {"deepsimplex": ds.__version__, "keras": keras.__version__, "tensorflow": tf.__version__}
    facts = {"seconds of an epoch": trained.seconds, "weights": trained.weights, **versions}
    predicted = predictions(trained, data)
    if name == table.PLAIN:
        path = folder / f"{name}-{seed}.npz"
        np.savez_compressed(fresh := path.with_name(f".{path.name}"), **predicted)  # type: ignore[arg-type]
        fresh.replace(path)
    for other, follow in FOLLOWING.get(name, {}).items():
        known = run_path(folder, other, seed).exists()
        if not known and (other != "dropout" or backbone == "cnn"):
            _write(run_path(folder, other, seed), measures(predictions(follow(trained, data), data), data) | facts)
    _write(run_path(folder, name, seed), measures(predicted, data) | facts)


def _ensemble(folder: Path, data: Data) -> None:
    """Measure the mean of the plain networks of the first seeds, once all are trained."""
    members = [folder / f"{table.PLAIN}-{seed}.npz" for seed in range(MEMBERS)]
    if not all(path.exists() for path in members):
        return
    parts = []
    for path in members:
        with np.load(path, allow_pickle=False) as archive:
            parts.append({name: archive[name] for name in archive.files if not name.startswith("familiarity")})
    means = {name: np.mean([part[name] for part in parts], axis=0) for name in parts[0]}
    _write(run_path(folder, table.ENSEMBLE, 0), measures(means, data))


def _write(path: Path, row: dict[str, Any]) -> None:
    write_json(path, row)
    print(f"{path.stem}: accuracy {row['accuracy']:.4f}, NLL {row['NLL']:.4f}, ECE {row['ECE']:.4f}", flush=True)


if __name__ == "__main__":
    typer.run(main)
