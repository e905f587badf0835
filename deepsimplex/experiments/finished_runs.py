"""Read runs and saved predictions for a report."""

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from deepsimplex._utils.messages import did_you_mean
from deepsimplex.evaluation import DriftMonitor
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig, read_yaml
from deepsimplex.experiments.drift_state import drift_file, load_drift
from deepsimplex.experiments.explained_images import ExplainedImages, load_explained
from deepsimplex.experiments.run_folder import RunFolder
from deepsimplex.experiments.saved_predictions import Predictions, load_predictions

UNFAMILIAR = 0.01  # familiarity of fewer than one in a hundred samples like those of training
REJECTED = 0.05  # share of known samples that count as unknown
Source = str | os.PathLike[str] | Predictions
"""A run folder, the folder of a name (its newest finished run), an .npz file, or predictions themselves."""


@dataclass(frozen=True, eq=False)
class Run:
    """A run with the data that a report needs; for an .npz file, the predictions only.

    Attributes
    ----------
    name : str
        Its name in the report.
    predictions : Predictions
        For its test set.
    path : pathlib.Path, optional
        Where it was read from.
    configuration : str
        YAML text.
    versions : dict of str to str
        Of Python and the packages.
    history : dict of str to list of float
        Losses and metrics, each with one number per epoch.
    metrics : dict of str to float
        Numbers that the report does not compute from the predictions: "training_seconds", "unfamiliar_share",
        "unknown_share", "set_coverage", "set_size" and "empty_sets", if there are any.
    missing : dict of str to str
        What the run lacks, with the reason.
    explained : dict of str to ExplainedImages
        Test images with their saliency, by "uncertain" and "unfamiliar", if there are any.
    drift : DriftMonitor, optional
        Of the stream that ``monitor`` has watched against these predictions.

    Examples
    --------
    >>> run = Run("coin", Predictions.of([0, 1], [[0.5, 0.5], [0.5, 0.5]]))
    >>> run.epochs is None
    True
    """

    name: str
    predictions: Predictions
    path: Path | None = None
    configuration: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    explained: Mapping[str, ExplainedImages] = field(default_factory=dict)
    drift: DriftMonitor | None = None

    @property
    def epochs(self) -> int | None:
        """Number of epochs trained, or None without a history."""
        return max(map(len, self.history.values())) if self.history else None


def read_runs(sources: Mapping[str, Source] | Sequence[Source]) -> list[Run]:
    """Read several runs, each under a different name.

    Parameters
    ----------
    sources : sequence, or mapping of str to run
        Run folders (``runs/digits/001``), folders of a name (``runs/digits``: its newest finished run) and .npz files;
        in a mapping, ``Predictions`` too. The mapping's keys name the runs; otherwise their paths do.

    Returns
    -------
    list of Run

    Raises
    ------
    ValueError, OSError
        As ``read_run``; when there is no run, or one is given twice.

    Examples
    --------
    >>> coin = Predictions.of([0, 1], [[0.5, 0.5], [0.5, 0.5]])
    >>> [run.name for run in read_runs({"coin": coin})]
    ['coin']
    """
    if isinstance(sources, Mapping):
        runs = [read_run(source, str(name)) for name, source in sources.items()]
    elif isinstance(sources, str | os.PathLike | Predictions):
        raise TypeError(f"runs must be a sequence or a mapping of runs; found one {type(sources).__name__}: give [it]")
    else:
        runs = _with_different_names([read_run(source) for source in sources])
    if not runs:
        raise ValueError("runs must hold at least one run; found none")
    return runs


def _with_different_names(runs: list[Run]) -> list[Run]:
    """Give runs of the same name their paths as names."""
    paths = [run.path for run in runs]
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"runs must hold each run once; found {path} twice")
    names = [run.name for run in runs]
    return [run if names.count(run.name) == 1 else replace(run, name=str(run.path)) for run in runs]


def read_run(source: Source, name: str | None = None) -> Run:
    """Read one run.

    Parameters
    ----------
    source : path-like or Predictions
        As in ``read_runs``; ``Predictions`` need a name.
    name : str, optional
        Its name in a report. Default: the last two parts of a run folder's path, or an .npz file's name.

    Returns
    -------
    Run

    Raises
    ------
    FileNotFoundError
        When there is no such run; the message names the nearest ones.
    ValueError
        When the run is unfinished, has no predictions, or a file of it is damaged.

    Examples
    --------
    >>> from deepsimplex.experiments import save_predictions
    >>> save_predictions(folder / "coin.npz", [0, 1], [[0.5, 0.5], [0.5, 0.5]])
    >>> read_run(folder / "coin.npz").name
    'coin'
    """
    if isinstance(source, Predictions):
        if name is None:
            raise ValueError("predictions need a name: give runs as a mapping {name: predictions}")
        return Run(name, source)
    folder = find_run(source)
    if isinstance(folder, Path):
        predictions, missing = load_predictions(folder), dict[str, str]()
        drift = _read_drift(folder, predictions, missing)
        return Run(name or folder.stem, predictions, folder.resolve(), missing=missing, drift=drift)
    metrics, predictions, missing = (
        folder.read_metrics(),
        load_predictions(folder.test_predictions),
        folder.read_missing(),
    )
    drift = _read_drift(folder.test_predictions, predictions, missing)
    return Run(
        name or "/".join(folder.path.resolve().parts[-2:]),
        predictions,
        folder.path.resolve(),
        folder.config.read_text(encoding="utf-8"),
        _read_versions(folder.versions),
        _read_history(folder.history),
        {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)},
        missing,
        load_explained(folder.explained_images) if folder.explained_images.is_file() else {},
        drift,
    )


def _read_drift(path: Path, predictions: Predictions, missing: dict[str, str]) -> DriftMonitor | None:
    """Return the monitor whose state lies beside predictions; None without it, or with the reason among ``missing``."""
    place = drift_file(path)
    if not place.is_file():
        return None
    try:
        state, _ = load_drift(place)
    except ValueError as error:
        missing["drift"] = str(error)
        return None
    if not np.array_equal(state["reference_p"], predictions.p) or not len(state["stream_p"]):
        missing["drift"] = f"{place.name} has watched no stream against these predictions; give another --state"
        return None
    return DriftMonitor.from_state(state)


def find_run(path: str | os.PathLike[str]) -> Path | RunFolder:
    """Return the file of predictions at a path, or the run folder that ``read_run`` reads there, or raise an error.

    Examples
    --------
    >>> find_run("runs/digits")  # doctest: +SKIP
    RunFolder(path=PosixPath('runs/digits/001'))
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise FileNotFoundError(_no_such_run(place))
    return place if place.is_file() else _finished(place)


def _finished(path: Path) -> RunFolder:
    """Return the run folder at a path, or the newest finished one below it; raise if it has no predictions."""
    if (path / "config.yaml").is_file():
        folder = RunFolder(path)
        if not folder.metrics.is_file():
            raise ValueError(
                f"run {path} is unfinished; 'deepsimplex train --resume --config {folder.config}' continues it"
            )
    else:
        runs = RunFolder.below(path)
        finished = [run for run in runs if run.metrics.is_file()]
        if not finished:
            held = f"{len(runs)} unfinished runs" if runs else "no run"
            raise ValueError(
                f"run {str(path)!r} is neither a run folder, such as runs/digits/001, nor one that holds a finished "
                f"run; found {held} in it{_there_are(_names_below(path))}"
            )
        folder = finished[-1]
    if not folder.test_predictions.is_file():
        if why := folder.read_missing().get("evaluation"):
            raise ValueError(f"run {folder.path} has no predictions: {why}")
        trained = [run for run in RunFolder.below(folder.path.parent) if run.model.is_file()]
        newest = trained[-1].path if trained else folder.path
        raise ValueError(
            f"run {folder.path} has no predictions; 'deepsimplex evaluate --config {newest / 'config.yaml'}' writes "
            f"those of the newest run of a name, {newest}"
        )
    return folder


def trained_model(path: str | os.PathLike[str]) -> Path:
    """Return the .keras file at a path, of a run folder, or of the newest run of a name that has one.

    Raises
    ------
    FileNotFoundError
        When there is none; the message names the nearest runs.

    Examples
    --------
    >>> trained_model("runs/digits")  # doctest: +SKIP
    PosixPath('runs/digits/001/model.keras')
    """
    place = Path(path).expanduser()
    if place.is_file():
        return place
    if not place.exists():
        raise FileNotFoundError(_no_such_run(place))
    models = [run.model for run in (RunFolder(place), *reversed(RunFolder.below(place))) if run.model.is_file()]
    if not models:
        raise FileNotFoundError(
            f"model {str(place)!r} is neither a .keras file nor a run folder, such as runs/digits/001, with a trained "
            f"model{_there_are(_names_below(place))}"
        )
    return models[0]


def trained_runs(config: RunConfig) -> list[RunFolder]:
    """Return the runs of the configuration's name that have a model; raise ConfigurationError without one."""
    trained = [run for run in RunFolder.all(config) if run.model.exists()]
    if not trained:
        raise ConfigurationError(
            f"there is no trained model of {config.name!r} in {config.output!r}; run 'deepsimplex train' first"
        )
    return trained


def _names_below(parent: Path) -> list[str]:
    """Return the run folders, folders of names with runs in them, and .npz files in a folder."""
    return sorted(
        str(path)
        for path in (parent.iterdir() if parent.is_dir() else ())
        if path.suffix == ".npz" or (path / "config.yaml").is_file() or RunFolder.below(path)
    )


def _there_are(names: list[str]) -> str:
    return f"; there are {', '.join(names)}" if names else ""


def _no_such_run(asked: Path) -> str:
    path, parent = asked, asked.parent
    while not parent.is_dir():
        path, parent = parent, parent.parent
    near = [Path(name).name for name in _names_below(parent)]
    hint = did_you_mean(path.name, near) or _there_are(near)
    return f"there is no run {str(asked)!r}: no {path.name!r} in {str(parent)!r}{hint}"


def _read_versions(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(version) for name, version in content.items()}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} must hold names and versions as JSON; it is damaged ({error})") from error


def _read_history(path: Path) -> dict[str, list[float]]:
    """Read the columns of a history file except the epochs' numbers; Keras' NA is NaN."""
    if not path.is_file():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        names = [name for name in rows[0] if name != "epoch"] if rows else []
        return {name: [math.nan if row[name] == "NA" else float(row[name]) for row in rows] for name in names}
    except (csv.Error, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} must hold a row of numbers for each epoch; it is damaged ({error})") from error


def flat_configuration(run: Run) -> dict[str, str]:
    """Return the keys of a run's configuration, nested ones joined by dots, with their values as YAML.

    Examples
    --------
    >>> coin = Predictions.of([0, 1], [[0.5, 0.5], [0.5, 0.5]])
    >>> flat_configuration(Run("coin", coin, configuration="data: {name: digits, limit: null}\\nseed: 0"))
    {'data.name': 'digits', 'data.limit': 'null', 'seed': '0'}
    """
    content = read_yaml(run.configuration, f"{run.path}/config.yaml")
    flat: dict[str, str] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else str(key))
        elif path:
            flat[path] = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()

    walk(content, "")
    return flat
