"""The folder of a run, and what lies in it."""

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deepsimplex._utils.atomic_files import check_writable, replacing
from deepsimplex.experiments.configuration import ConfigurationError, RunConfig, load_config

PACKAGES = ("deepsimplex", "tensorflow", "keras", "tensorflow-probability", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class RunFolder:
    """Names of everything a run leaves behind.

    Runs of one configuration lie side by side as ``output/name/001``, ``002``, ...
    """

    path: Path

    @property
    def config(self) -> Path:
        """Resolved configuration, YAML."""
        return self.path / "config.yaml"

    @property
    def versions(self) -> Path:
        """Versions of Python and the packages, JSON."""
        return self.path / "versions.json"

    @property
    def metrics(self) -> Path:
        """Test metrics and training time, JSON: written last, so that it marks a finished run."""
        return self.path / "metrics.json"

    @property
    def history(self) -> Path:
        """Losses and metrics of each epoch, CSV."""
        return self.path / "history.csv"

    @property
    def model(self) -> Path:
        """The classifier, .keras."""
        return self.path / "model.keras"

    @property
    def served(self) -> Path:
        """The SavedModel."""
        return self.path / "served"

    @property
    def events(self) -> Path:
        """TensorBoard's event files."""
        return self.path / "events"

    @property
    def backup(self) -> Path:
        """State of an unfinished training, to resume from."""
        return self.path / "backup"

    @property
    def reliability(self) -> Path:
        """Reliability diagram of the test set, PNG."""
        return self.path / "reliability.png"

    @property
    def predictions(self) -> Path:
        """The least certain test images with their class probabilities, PNG (image data only)."""
        return self.path / "predictions.png"

    @property
    def test_predictions(self) -> Path:
        """Labels, class probabilities and latents of the test set and a few of its images, NPZ: what a report needs."""
        return self.path / "predictions.npz"

    @classmethod
    def create(cls, config: RunConfig) -> "RunFolder":
        """A new folder, with the resolved configuration and versions in it."""
        parent = check_writable(Path(config.output) / config.name, "output")
        number = 1 + max((int(path.name) for path in _numbered(parent)), default=0)
        folder = cls(parent / f"{number:03d}")
        folder.path.mkdir()
        folder.write_text(folder.config, config.as_yaml())
        packages = {name: version(name) for name in PACKAGES}
        folder.write_json(folder.versions, {"python": platform.python_version(), **packages})
        return folder

    @classmethod
    def all(cls, config: RunConfig) -> "list[RunFolder]":
        """The runs of this configuration's name, the oldest first."""
        return cls.below(Path(config.output) / config.name)

    @classmethod
    def below(cls, parent: Path) -> "list[RunFolder]":
        """The runs in the folder of a name, the oldest first."""
        return [cls(path) for path in _numbered(parent)]

    def check_same(self, config: RunConfig, sections: Sequence[str], what_to_do: str) -> None:
        """Refuse to go on with a run under another configuration than it was begun with.

        Parameters
        ----------
        config : RunConfig
        sections : sequence of str
            Keys of the configuration that must be the same.
        what_to_do : str
            End of the message, after the name of the run's own configuration.

        Raises
        ------
        ConfigurationError
            Naming the sections that differ.
        """
        begun = load_config(self.config)
        changed = [key for key in sections if getattr(begun, key) != getattr(config, key)]
        if changed:
            raise ConfigurationError(
                f"{self.path} was begun with another configuration: {', '.join(changed)} changed. Use the one in "
                f"{self.config}, or {what_to_do}"
            )

    def change_config(self, **sections: Any) -> None:
        """Write other values of some sections to the run's configuration."""
        self.write_text(self.config, load_config(self.config).model_copy(update=sections).as_yaml())

    def read_metrics(self) -> dict[str, Any]:
        """What the metrics file holds; nothing where there is none, or none that can be read."""
        try:
            content = json.loads(self.metrics.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def drop_history(self, epochs: int) -> None:
        """Keep the history of the first ``epochs`` epochs alone: training goes on after them, and writes the rest."""
        if not self.history.exists():
            return
        header, *rows = self.history.read_text(encoding="utf-8").splitlines(keepends=True) or [""]
        kept = [row for row in rows if row.split(",")[0].isdecimal() and int(row.split(",")[0]) < epochs]
        if kept:
            self.write_text(self.history, "".join([header, *kept]))
        else:
            self.history.unlink()

    def write_text(self, path: Path, text: str) -> None:
        """Write a text file of this run, whole or not at all."""
        with replacing(path) as fresh:
            fresh.write_text(text, encoding="utf-8")

    def write_json(self, path: Path, content: dict[str, Any]) -> None:
        """Write a JSON file of this run, whole or not at all."""
        self.write_text(path, json.dumps(content, indent=2) + "\n")


def _numbered(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted((path for path in parent.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
