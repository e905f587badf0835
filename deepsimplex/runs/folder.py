"""The folder of a run, and what lies in it."""

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from deepsimplex.config import ConfigurationError, RunConfig
from deepsimplex.files import check_writable, replacing

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
    def latest(cls, config: RunConfig) -> "RunFolder | None":
        """The newest run of this configuration's name, or None."""
        numbered = _numbered(Path(config.output) / config.name)
        return cls(numbered[-1]) if numbered else None

    def check_same(self, config: RunConfig) -> None:
        """Refuse to go on with a run under another configuration than it was begun with."""
        begun = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        wanted = yaml.safe_load(config.as_yaml())
        changed = sorted(key for key in begun.keys() | wanted.keys() if begun.get(key) != wanted.get(key))
        if changed:
            raise ConfigurationError(
                f"{self.path} was begun with another configuration: {', '.join(changed)} changed. Resume it with the "
                f"one in {self.config}, or leave --resume out to begin anew"
            )

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
