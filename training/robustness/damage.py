"""Damaged files: each raises an error that names it, or gives exactly the same answers.

    python -m training.robustness.damage [--files 400] [--seed 0] [--output FILE.json]

Files of every kind that deepsimplex writes are cut short, have bits flipped, blocks zeroed and parts exchanged, or lie
about their size; then they are read as a user reads them. A refusal counts if deepsimplex raised it and it names the
file. Caches may warn and compute again; an unfinished training may go on from its earlier state.
"""

import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import h5py
import keras
import numpy as np
import typer

import deepsimplex as ds
from deepsimplex import experiments
from deepsimplex._utils.progress import progress
from deepsimplex.experiments.backup import WEIGHTS, Backup, repair_backup
from deepsimplex.experiments.run_folder import RunFolder
from deepsimplex.export import load_served
from deepsimplex.targets import TargetCacheWarning
from training.results import Output, ResultTable
from training.robustness.damaged_bytes import DAMAGES

PACKAGE = Path(ds.__file__).parent
ROOT = PACKAGE.parent
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(60, 4)).astype("float32"), np.arange(60) % 3
EPOCHS = 3


@dataclass
class Kind:
    """A kind of file: functions that write it into a folder and read it."""

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    earlier: Callable[[Path], Any] | None = None  # makes a copy an earlier state, whose answers are right too


def _network() -> ds.SimplexClassifier:
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), "vertices", num_classes=3)
    model.compile("adam", run_eagerly=True)
    model.fit(X, Y, epochs=1, verbose=0)
    return model


def _train_with_backup(folder: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(500), keras.layers.Dense(3)])
    model.compile("adam", "mse", run_eagerly=True)

    def stop(epoch: int, logs: Any = None) -> None:
        if epoch == EPOCHS - 1:
            raise KeyboardInterrupt

    callbacks = [Backup(folder), keras.callbacks.LambdaCallback(on_epoch_end=stop)]
    with suppress(KeyboardInterrupt):
        model.fit(X, X[:, :3], epochs=10, verbose=0, callbacks=callbacks)


def _resume(folder: Path) -> list[Any]:
    epochs = repair_backup(folder)
    values: list[Any] = [epochs]
    with h5py.File(folder / WEIGHTS) as file:
        file.visititems(lambda name, item: values.append(item[()]) if isinstance(item, h5py.Dataset) else None)
    return values


def _configuration() -> experiments.RunConfig:
    return experiments.load_config(ROOT / "configs" / "digits.yaml", ["cache_dir=null"])


def _check_configuration(folder: Path) -> None:
    RunFolder(folder).check_same(_configuration(), list(experiments.RunConfig.model_fields), "begin anew")


def _estimator(make: Callable[[], Any]) -> Kind:
    return Kind(
        lambda folder: make().fit(X.astype(float), Y).save(folder / "saved.npz"),
        lambda folder: ds.load(folder / "saved.npz").predict_proba(X),
    )


KINDS = {
    "model (.keras)": Kind(
        lambda folder: _network().save(folder / "model.keras"),
        lambda folder: ds.load(folder / "model.keras").predict_proba(X),
    ),
    "SavedModel": Kind(
        lambda folder: _network().export(folder / "served"),
        lambda folder: load_served(folder / "served").predict(X)["class_probabilities"],
    ),
    "Gaussian process (.npz)": _estimator(lambda: ds.SimplexGaussianProcess("ilr", max_iter=2)),
    "prototypes (.npz)": _estimator(lambda: ds.GMLVQ(max_iter=2)),
    "predictions": Kind(
        lambda folder: experiments.save_predictions(
            folder / "test.npz", Y, np.full((60, 3), 1 / 3), class_names=list("abc")
        ),
        lambda folder: [(read := experiments.load_predictions(folder / "test.npz")).y, read.p, read.class_names],
    ),
    "cache of targets": Kind(
        lambda folder: ds.targets.CASIMAC("euclidean", cache_dir=folder).fit_transform(X, Y),
        lambda folder: ds.targets.CASIMAC("euclidean", cache_dir=folder).fit_transform(X, Y).loc,
    ),
    "backup of a training": Kind(_train_with_backup, _resume, lambda folder: (folder / WEIGHTS).unlink()),
    "configuration of a run": Kind(
        lambda folder: (folder / "config.yaml").write_text(_configuration().as_yaml()), _check_configuration
    ),
}


OUTCOMES = ("refused by name", "same answers", "other error", "silent change")


def answers(kind: Kind, folder: Path) -> list[Any]:
    """Return the content of the files as a list of arrays and numbers."""
    return keras.tree.flatten(kind.read(folder))


def outcome(kind: Kind, folder: Path, expected: list[list[Any]]) -> tuple[str, str]:
    """Read a damaged file; return the outcome and the error's text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", TargetCacheWarning)
            values = answers(kind, folder)
    except Exception as error:
        raised = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        clear = isinstance(error, ValueError | OSError) and PACKAGE in raised.parents and str(folder) in str(error)
        return OUTCOMES[0 if clear else 2], f"{type(error).__name__} from {raised}: {error}"
    equal = [len(values) == len(one) and all(map(np.array_equal, values, one)) for one in expected]
    return OUTCOMES[1 if any(equal) else 3], ""


def damaged(kind: Kind, files: int, seed: int, place: Path, advance: Callable[[float], None]) -> Counter[str]:
    """Damage files of a kind, read each and count the outcomes; failures are printed."""
    whole, copy = place / "whole", place / "copy"
    whole.mkdir()
    kind.write(whole)
    expected = []
    for state in (None, kind.earlier) if kind.earlier else (None,):
        shutil.copytree(whole, copy)
        if state:
            state(copy)
        expected.append(answers(kind, copy))
        shutil.rmtree(copy, ignore_errors=True)
    counts: Counter[str] = Counter()
    for number in range(files):
        rng = np.random.default_rng([seed, number])
        damage = DAMAGES[number % len(DAMAGES)]
        shutil.copytree(whole, copy)
        path = rng.choice(sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size))
        path.write_bytes(damage(bytearray(path.read_bytes()), rng))
        result, text = outcome(kind, copy, expected)
        counts[result] += 1
        if result in OUTCOMES[2:]:
            print(
                f"{result}: {path.relative_to(copy)}, {damage.__name__}, number {number}: {text[:500]}", file=sys.stderr
            )
        shutil.rmtree(copy, ignore_errors=True)
        advance(1)
    return counts


def main(
    files: Annotated[int, typer.Option(help="damaged files, at least; as many of every kind")] = 400,
    seed: Annotated[int, typer.Option(help="of the damages")] = 0,
    only: Annotated[str, typer.Option(help="kinds whose name holds this text")] = "",
    output: Output = None,
) -> None:
    """Damage and read files of all kinds, and print the counts of the outcomes."""
    kinds = {name: kind for name, kind in KINDS.items() if only in name}
    each = -(-files // len(kinds))
    table = ResultTable("training.robustness.damage")
    with progress("damaged files", each * len(kinds), True, unit="files") as advance:
        for name, kind in kinds.items():
            with tempfile.TemporaryDirectory() as place:
                counts = damaged(kind, each, seed, Path(place), advance)
            table.add(file=name, damaged=each, **{what: counts[what] for what in OUTCOMES})
            table.write(output)  # after every kind: an interrupted run keeps its rows


if __name__ == "__main__":
    typer.run(main)
