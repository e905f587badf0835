"""The folder of a run: its files, and reading them for a report."""

import csv
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from deepsimplex._utils.atomic_files import check_writable, locked, replacing
from deepsimplex._utils.names import did_you_mean
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig, load_config
from deepsimplex.experiments.saved_predictions import Predictions, load_predictions

PACKAGES = ("deepsimplex", "tensorflow", "keras", "tensorflow-probability", "numpy", "scipy", "scikit-learn")
Source = str | os.PathLike[str] | Predictions
"""A run folder, the folder of a name (its newest finished run), an .npz file, or predictions themselves."""


@dataclass
class RunFolder:
    """Paths of the files of a run.

    Runs of one configuration lie side by side as ``output/name/001``, ``002``, ...

    Parameters
    ----------
    path : pathlib.Path
        The folder.

    Attributes
    ----------
    config : pathlib.Path
        Resolved configuration, YAML.
    versions : pathlib.Path
        Versions of Python and the packages, JSON.
    metrics : pathlib.Path
        Test metrics and training time, JSON. Written last: a run that has it is finished.
    history : pathlib.Path
        Losses and metrics of each epoch, CSV.
    model : pathlib.Path
        The classifier, .keras.
    served : pathlib.Path
        The SavedModel.
    events : pathlib.Path
        TensorBoard's event files.
    backup : pathlib.Path
        State of an unfinished training, to resume from.
    reliability : pathlib.Path
        Reliability diagram of the test set, PNG.
    uncertain_images : pathlib.Path
        The least certain test images with their class probabilities, PNG (images only).
    test_predictions : pathlib.Path
        Predictions of the test set, as ``save_predictions`` writes them.
    log : Path
        What was printed, and a line for every epoch, with the time.

    Examples
    --------
    >>> from pathlib import Path
    >>> RunFolder(Path("runs/digits/001")).model.name
    'model.keras'
    """

    path: Path

    def __post_init__(self) -> None:
        self.config = self.path / "config.yaml"
        self.versions = self.path / "versions.json"
        self.metrics = self.path / "metrics.json"
        self.history = self.path / "history.csv"
        self.model = self.path / "model.keras"
        self.served = self.path / "served"
        self.events = self.path / "events"
        self.backup = self.path / "backup"
        self.reliability = self.path / "reliability.png"
        self.uncertain_images = self.path / "predictions.png"
        self.test_predictions = self.path / "predictions.npz"
        self.log = self.path / "log.txt"

    @classmethod
    def create(cls, config: RunConfig) -> "RunFolder":
        """Make a new folder, with the resolved configuration and the versions in it."""
        parent = check_writable(Path(config.output) / config.name, "output")
        while True:
            number = 1 + max((int(run.path.name) for run in cls.below(parent)), default=0)
            folder = cls(parent / f"{number:03d}")
            try:
                folder.path.mkdir()
                break
            except FileExistsError:  # another process has just made it
                continue
        folder.write_text(folder.config, config.as_yaml())
        packages = {name: version(name) for name in PACKAGES}
        folder.write_json(folder.versions, {"python": platform.python_version(), **packages})
        return folder

    @classmethod
    def all(cls, config: RunConfig) -> "list[RunFolder]":
        """Return the runs of the configuration's name, the oldest first."""
        return cls.below(Path(config.output) / config.name)

    @classmethod
    def below(cls, parent: Path) -> "list[RunFolder]":
        """Return the runs in the folder of a name, the oldest first."""
        numbered = [path for path in parent.iterdir() if path.name.isdigit()] if parent.is_dir() else []
        return [cls(path) for path in sorted(numbered, key=lambda path: int(path.name))]

    def check_same(self, config: RunConfig, sections: Sequence[str], what_to_do: str) -> None:
        """Raise a ConfigurationError if sections of a configuration differ from the run's own.

        Parameters
        ----------
        config : RunConfig
        sections : sequence of str
            Keys of the configuration that must be the same.
        what_to_do : str
            End of the message.
        """
        begun = load_config(self.config)
        changed = [key for key in sections if getattr(begun, key) != getattr(config, key)]
        if changed:
            raise ConfigurationError(
                f"{self.path} was begun with another configuration: {', '.join(changed)} changed. Use the one in "
                f"{self.config}, or {what_to_do}"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from training in this folder; raise a ConfigurationError if one does."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path))
            except BlockingIOError as error:
                raise ConfigurationError(
                    f"run {self.path} is being trained by another process: wait for it, stop it, or leave --resume out "
                    "to begin another run"
                ) from error
            yield

    def append_to_log(self, line: str) -> None:
        """Add a line with the time to the log."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {line}\n")

    def change_config(self, **sections: Any) -> None:
        """Change sections of the run's configuration."""
        self.write_text(self.config, load_config(self.config).model_copy(update=sections).as_yaml())

    def read_metrics(self) -> dict[str, Any]:
        """Return the content of the metrics file; empty if it is missing or damaged."""
        try:
            content = json.loads(self.metrics.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def drop_history(self, epochs: int) -> None:
        """Keep the history of the first ``epochs`` epochs, those before the state that training resumes from."""
        if not self.history.exists():
            return
        header, *rows = self.history.read_text(encoding="utf-8").splitlines(keepends=True) or [""]
        kept = [row for row in rows if row.split(",")[0].isdecimal() and int(row.split(",")[0]) < epochs]
        if kept:
            self.write_text(self.history, "".join([header, *kept]))
        else:
            self.history.unlink()

    def write_text(self, path: Path, text: str) -> None:
        """Write a text file of this run atomically."""
        with replacing(path) as fresh:
            fresh.write_text(text, encoding="utf-8")

    def write_json(self, path: Path, content: dict[str, Any]) -> None:
        """Write a JSON file of this run atomically."""
        self.write_text(path, json.dumps(content, indent=2) + "\n")


@dataclass(frozen=True, eq=False)
class Run:
    """A run as a report reads it; for an .npz file, the predictions only.

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
    training_seconds : float, optional

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
    training_seconds: float | None = None

    @property
    def epochs(self) -> int | None:
        """Number of epochs trained, or None without a history."""
        return max(map(len, self.history.values())) if self.history else None


def read_runs(sources: Mapping[str, Source] | Sequence[Source]) -> list[Run]:
    """Read several runs, each under a name of its own.

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
            raise ValueError("predictions have no name of their own: give runs as a mapping {name: predictions}")
        return Run(name, source)
    path = Path(source).expanduser()
    if not path.exists():
        raise FileNotFoundError(_no_such_run(path))
    if path.is_file():
        return Run(name or path.stem, load_predictions(path), path.resolve())
    folder = _finished(path)
    seconds: Any = folder.read_metrics().get("training_seconds")
    return Run(
        name or "/".join(folder.path.resolve().parts[-2:]),
        load_predictions(folder.test_predictions),
        folder.path.resolve(),
        folder.config.read_text(encoding="utf-8"),
        _read_versions(folder.versions),
        _read_history(folder.history),
        float(seconds) if isinstance(seconds, int | float) else None,
    )


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
            found = f"{len(runs)} unfinished runs" if runs else "no run"
            raise ValueError(
                f"run {str(path)!r} is neither a run folder, such as runs/digits/001, nor one that holds a finished "
                f"run; found {found} in it{_there_are(_names_below(path))}"
            )
        folder = finished[-1]
    if not folder.test_predictions.is_file():
        trained = [run for run in RunFolder.below(folder.path.parent) if run.model.is_file()]
        newest = trained[-1].path if trained else folder.path
        raise ValueError(
            f"run {folder.path} has no predictions; 'deepsimplex evaluate --config {newest / 'config.yaml'}' writes "
            f"those of the newest run of a name, {newest}"
        )
    return folder


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
    try:
        content = yaml.safe_load(run.configuration)
    except yaml.YAMLError as error:
        raise ValueError(f"{run.path}/config.yaml is not readable as YAML: {' '.join(str(error).split())}") from error
    flat: dict[str, str] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else str(key))
        elif path:
            flat[path] = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()

    walk(content, "")
    return flat
