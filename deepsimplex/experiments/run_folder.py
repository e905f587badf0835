"""The folder of a run: its files, its log and its lock."""

import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from deepsimplex._utils.atomic_files import check_writable, disk_full_at, locked, replacing
from deepsimplex.evaluation.json_values import json_value
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig, load_config

PACKAGES = ("deepsimplex", "tensorflow", "keras", "tensorflow-probability", "numpy", "scipy", "scikit-learn")
Verbosity = str | int  # as ``verbose`` of Keras' fit


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
    samples : pathlib.Path
        Numbers of training and validation samples, a digest of their labels, and means of some samples, JSON.
    metrics : pathlib.Path
        Test metrics, training time and what is missing, JSON. Written last: a run that has it and lacks nothing is
        finished.
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
    explained_images : pathlib.Path
        The least certain and the least familiar test images with their saliency, .npz (images only).
    test_predictions : pathlib.Path
        Predictions of the test set, as ``save_predictions`` writes them.
    drift : pathlib.Path
        State of ``monitor`` with these predictions as the reference, .npz.
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
        self.samples = self.path / "samples.json"
        self.metrics = self.path / "metrics.json"
        self.history = self.path / "history.csv"
        self.model = self.path / "model.keras"
        self.served = self.path / "served"
        self.events = self.path / "events"
        self.backup = self.path / "backup"
        self.reliability = self.path / "reliability.png"
        self.uncertain_images = self.path / "predictions.png"
        self.explained_images = self.path / "explained.npz"
        self.test_predictions = self.path / "predictions.npz"
        self.log = self.path / "log.txt"

    @classmethod
    def create(cls, config: RunConfig) -> "RunFolder":
        """Make a new folder, with the resolved configuration and the versions in it."""
        parent = check_writable(Path(config.output) / config.name, "output")
        while True:
            number = 1 + max((int(run.path.name) for run in cls.below(parent)), default=0)
            folder = cls(parent / f"{number:03d}")
            with suppress(FileExistsError):  # another process has just made it
                folder.path.mkdir()
                break
        folder.describe(config)
        return folder

    def describe(self, config: RunConfig) -> None:
        """Write the versions and, last, the resolved configuration, unless the latter is there."""
        if self.config.exists():
            return
        packages = {name: version(name) for name in PACKAGES}
        self.write_json(self.versions, {"python": platform.python_version(), **packages})
        self.write_text(self.config, config.as_yaml())

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
        """Raise a ConfigurationError if sections of a configuration differ from those of the run.

        Parameters
        ----------
        config : RunConfig
        sections : sequence of str
            Keys of the configuration that must be the same.
        what_to_do : str
            End of the message.
        """
        if differences := self._changes(config, sections):
            raise ConfigurationError(
                f"{self.path} was begun with another configuration: {'; '.join(differences)}. Use the one in "
                f"{self.config}, or {what_to_do}"
            )

    def _changes(self, config: RunConfig, sections: Sequence[str]) -> list[str]:
        begun, given = (
            each.model_dump(mode="json", include={*sections}) for each in (load_config(self.config), config)
        )
        return list(_differences(begun, given))

    @classmethod
    def newest(cls, runs: "Sequence[RunFolder]", config: RunConfig, sections: Sequence[str]) -> "RunFolder":
        """Return the newest of the runs that was begun with these sections of a configuration, or else the newest."""
        for run in reversed(runs):
            with suppress(ConfigurationError):  # of another version, or damaged
                if not run.config.exists() or not run._changes(config, sections):
                    return run
        return runs[-1]

    def check_samples(self, facts: dict[str, Any]) -> None:
        """Write facts about the samples of this run; raise a ConfigurationError if others are written already."""
        if not self.samples.exists():
            self.write_json(self.samples, facts)
            return
        begun = json.loads(self.samples.read_text(encoding="utf-8"))
        are_counted_alike = all(begun[name] == facts[name] for name in ("training", "validation", "labels"))
        if not (are_counted_alike and np.allclose(begun["means"], facts["means"], rtol=0.02, atol=1e-3)):
            raise ConfigurationError(
                f"{self.path} was begun with other samples: {_counts(begun)} then, {_counts(facts)} now, and others "
                "among them. Some that it was trained with may be test samples now: restore the data, train anew, or "
                f"evaluate new samples by 'deepsimplex evaluate {self.path} --data FOLDER'"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock this folder against training by other processes; raise a ConfigurationError if it is locked.

        Errors of a full disk inside the block name the file, or this folder, whatever writes there.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path))
            except BlockingIOError as error:
                raise ConfigurationError(
                    f"run {self.path} is being trained by another process: wait for it, stop it, or leave --resume out "
                    "to begin another run"
                ) from error
            stack.enter_context(disk_full_at(self.path))
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

    def read_missing(self) -> dict[str, str]:
        """Return what a run lacks and why, by the key of the configuration or the step after training."""
        missing = self.read_metrics().get("missing")
        return {str(name): str(why) for name, why in missing.items()} if isinstance(missing, dict) else {}

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
        """Write a JSON file of this run atomically; NaN becomes null."""
        self.write_text(path, json.dumps(json_value(content), indent=2, allow_nan=False) + "\n")


def _differences(begun: Any, given: Any, path: str = "") -> Iterator[str]:
    """Yield the keys of two nested dicts whose values differ, joined by dots, with both values."""
    if isinstance(begun, dict) and isinstance(given, dict):
        for key in {**begun, **given}:
            yield from _differences(begun.get(key), given.get(key), f"{path}.{key}" if path else key)
    elif begun != given:
        yield f"{path} is {begun!r} there and {given!r} here"


@contextmanager
def recording_failure(missing: dict[str, str], name: str) -> Iterator[None]:
    """Note an error of a step after training under its name instead of raising it, so that the next ones are made.

    Errors of files, such as a full disk, are raised: the next steps would have them, too.
    """
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or "no message"
        missing[name] = text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def printer(verbose: Verbosity) -> Callable[[str], None]:
    """Return a function that prints a line, or nothing for ``verbose=0``."""
    return (lambda text: print(text, flush=True)) if verbose else (lambda text: None)


def into(folder: RunFolder, log: Callable[[str], None]) -> Callable[[str], None]:
    """Return a printer that writes to the log of a run as well."""

    def both(text: str) -> None:
        log(text)
        folder.append_to_log(text)

    both(f"in {folder.path}")
    return both


def _counts(facts: dict[str, Any]) -> str:
    return f"{facts['training']} training and {facts['validation']} validation samples"
