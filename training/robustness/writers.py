"""Writers and readers for the tests of kills: small files of every kind, in one of two states."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import deepsimplex as ds
from deepsimplex import experiments
from deepsimplex.experiments.backup import WEIGHTS, Backup, repair_backup
from deepsimplex.export import load_served
from deepsimplex.targets.neighbor_cache import cached_search

X, Y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2


@dataclass
class Writer:
    """Functions that write state 0 or 1 of a file and read it; None is read if it does not exist."""

    write: Callable[[Path, int], Any]
    read: Callable[[Path], Any]
    replaces: bool = True  # whether state 1 replaces state 0, or an existing file stays


def network(state: int) -> ds.SimplexClassifier:
    """An untrained network whose weights are all the same."""
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), "vertices", num_classes=2)
    model.build((None, 3))
    model.compile("sgd")
    model.set_weights([np.full(weight.shape, 0.1 * (1 + state)) for weight in model.get_weights()])
    return model


def back_up(folder: Path, state: int) -> None:
    """Resume from the backup, if it exists, and write the one of a state's epoch."""
    repair_backup(folder)
    backup = Backup(folder)
    backup.set_model(network(state))
    backup.on_epoch_end(state)


def read_backup(folder: Path) -> Any:
    """Return the epochs and weights that a training resumes from."""
    epochs, model = repair_backup(folder), network(7)
    if epochs:
        model.load_weights(folder / WEIGHTS)
    return [epochs, *model.get_weights()] if epochs else None


def _cache(folder: Path, distances: Any) -> Any:
    """Return the distances in the cache of targets, or write these into it and return them."""
    indices = np.zeros(distances.shape, np.int64)
    return cached_search(folder, "key", X.shape, lambda: ds.distances.Neighbors(distances, indices)).distances


def _when_there(name: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    return lambda folder: read(folder / name) if (folder / name).exists() else None


WRITERS = {
    "predictions": Writer(
        lambda folder, state: experiments.save_predictions(folder / "p.npz", Y, np.eye(2)[(Y + state) % 2]),
        _when_there("p.npz", lambda path: experiments.load_predictions(path).p),
    ),
    "estimator (.npz)": Writer(
        lambda folder, state: ds.GLVQ(max_iter=1).fit(X + state, Y).save(folder / "glvq.npz"),
        _when_there("glvq.npz", lambda path: ds.load(path).prototypes_),
    ),
    "cache of targets": Writer(
        lambda folder, state: _cache(folder, X + state),
        _when_there("neighbors-key.npz", lambda path: _cache(path.parent, X + 7)),
        replaces=False,
    ),
    "backup of a training": Writer(back_up, read_backup),
    "model (.keras)": Writer(
        lambda folder, state: network(state).save(folder / "model.keras"),
        _when_there("model.keras", lambda path: ds.load(path).get_weights()),
    ),
    "SavedModel": Writer(
        lambda folder, state: network(state).export(folder / "served"),
        _when_there("served", lambda path: load_served(path).predict(X.astype("float32"))["latent_mean"]),
    ),
}
