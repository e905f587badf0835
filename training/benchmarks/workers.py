"""One, two and four worker processes of this machine that train the same model, and one of them killed.

    python -m training.benchmarks.workers [--runs FOLDER] [--output FILE.json]

trains an epoch of the digits and of 6000 Fashion-MNIST images by ``deepsimplex train --workers``, with the same batches
whatever the number of workers; then four epochs of the digits by two workers, one of which is killed (SIGKILL) in the
third, and goes on with --resume. Weights are compared with those of one process, or of no kill. Rounding grows in
training: the images are trained in double precision too (``floatx`` of Keras), and by one process with one thread.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import typer

import deepsimplex as ds
from deepsimplex.experiments import RunFolder
from training.results import Output, ResultTable

# Dropout draws other masks on every worker; batch normalization is synchronized.
NETWORK = "model.backbone={name: cnn, filters: [32, 64], units: 128}"
DIGITS = ["--config", "configs/digits.yaml", NETWORK]
# The default head's inducing points are chosen by k-means++, and rounding may choose others.
IMAGES = [
    *("--config", "configs/fashion_mnist_cnn.yaml", "data.limit=6000", "model.head=gaussian"),
    *("calibration.density=null", NETWORK),
]
ONE_THREAD = "1, one thread"
Variables = Mapping[str, str]


def start(
    runs: Path,
    name: str,
    workers: int,
    settings: list[str],
    resume: bool = False,
    variables: Variables = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """Start a training, with further variables of the environment."""
    options = ["--workers", str(workers), *(["--resume"] if resume else [])]
    overrides = [f"name={name}", f"output={runs}", f"cache_dir={runs / 'cache'}"]
    command = [sys.executable, "-m", "deepsimplex.cli", "train", *options, *settings, *overrides]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes], code: int = 0) -> str:
    """Wait for a training, and return what it printed as its error."""
    _, errors = process.communicate()
    text = errors.decode(errors="replace")
    if process.returncode != code:
        raise RuntimeError(f"a training ended with {process.returncode}: {text[-2000:]}")
    return text.strip().rpartition("\n")[2]


def trained(runs: Path, name: str) -> tuple[list[Any], dict[str, float], RunFolder]:
    """Weights, test metrics and folder of a run."""
    folder = RunFolder(runs / name / "001")
    return ds.load(folder.model).get_weights(), folder.read_metrics(), folder


def distance(one: list[Any], other: list[Any]) -> float:
    """Largest difference of two models' weights."""
    return max(float(np.abs(left - right).max()) for left, right in zip(one, other, strict=True))


def compare(runs: Path, table: ResultTable) -> None:
    """An epoch by one, two and four workers."""
    single, double = (_keras_home(runs, precision) for precision in ("float32", "float64"))
    one_thread = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    images = "6000 Fashion-MNIST images"
    _epoch_by_workers(runs, table, "digits", DIGITS, single)
    _epoch_by_workers(runs, table, images, IMAGES, single, one_thread)
    _epoch_by_workers(runs, table, f"{images}, double precision", IMAGES, double, one_thread)


def _keras_home(runs: Path, precision: str) -> dict[str, str]:
    """Write Keras' file of settings with a precision; return the variable that names its folder."""
    home = runs / f"keras-{precision}"
    home.mkdir(parents=True, exist_ok=True)
    (home / "keras.json").write_text(json.dumps({"floatx": precision, "backend": "tensorflow"}))
    return {"KERAS_HOME": str(home)}


def _epoch_by_workers(
    runs: Path,
    table: ResultTable,
    data: str,
    settings: list[str],
    precision: Variables,
    one_thread: Variables | None = None,
) -> None:
    ways: list[tuple[str, int, Variables]] = [(str(count), count, {}) for count in (1, 2, 4)]
    if one_thread is not None:
        ways.insert(1, (ONE_THREAD, 1, one_thread))
    alone: list[Any] = []
    for number, (workers, count, further) in enumerate(ways):
        name = f"{data.replace(',', '').replace(' ', '-')}-{number}"
        finish(start(runs, name, count, [*settings, "training.epochs=1"], variables={**precision, **further}))
        weights, metrics, _ = trained(runs, name)
        alone = alone or weights
        table.add(
            data=data,
            workers=workers,
            killed="",
            weights=f"{distance(weights, alone):.1e}" if number else "",
            NLL=f"{metrics['negative_log_likelihood']:.6f}",
            seconds=f"{metrics['training_seconds']:.0f}",
        )


def kill(runs: Path, table: ResultTable) -> None:
    """Two workers, one of them killed in the third of four epochs, and resumed."""
    settings = [*DIGITS, "training.epochs=4"]
    finish(start(runs, "whole", 2, settings))
    begun = start(runs, "cut", 2, settings)
    history = RunFolder(runs / "cut" / "001").history
    while not history.is_file() or len(list(csv.reader(history.open()))) < 3:
        if begun.poll() is not None:
            finish(begun)
        time.sleep(0.05)
    children = Path(f"/proc/{begun.pid}/task/{begun.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    print(finish(begun, code=2), file=sys.stderr)
    finish(start(runs, "cut", 2, settings, resume=True))
    (whole, metrics, _), (resumed, _, _) = trained(runs, "whole"), trained(runs, "cut")
    table.add(
        data="digits",
        workers=2,
        killed="one, in epoch 3",
        weights=f"{distance(resumed, whole):.1e}",
        NLL=f"{metrics['negative_log_likelihood']:.6f}",
        seconds=f"{metrics['training_seconds']:.0f}",
    )


def main(
    runs: Annotated[Path | None, typer.Option(help="folder of the runs; default a temporary one")] = None,
    output: Output = None,
) -> None:
    """Measure, print and write the table."""
    table = ResultTable("training.benchmarks.workers")
    with tempfile.TemporaryDirectory() as folder:
        place = (runs or Path(folder)).resolve()
        compare(place, table)
        kill(place, table)
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
