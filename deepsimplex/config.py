"""Configuration of a run: a YAML file, checked against a schema that rejects unknown keys."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator


class ConfigurationError(ValueError):
    """A configuration that cannot be used; the message names the key, what was found and what would do."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(_Section):
    """What to learn from: the arguments of ``datasets.load``."""

    name: str = Field(description="a data set's name, an .npz file, a folder of images by class, or a CSV file")
    options: dict[str, Any] = Field(default_factory=dict, description="further arguments of datasets.load")
    limit: int | None = Field(default=None, ge=2, description="learn from that many training samples only")
    validation_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="share held out of training")


class ModelConfig(_Section):
    """The network: arguments of ``SimplexClassifier``."""

    backbone: dict[str, Any] = Field(default={"name": "mlp"}, description="name of a backbone and its arguments")
    covariance: Literal["isotropic", "diagonal", "full"] = "isotropic"
    readout: Literal["argmax", "softmax"] | None = Field(default=None, description="default: the target's own")


class TrainingConfig(_Section):
    """How to train."""

    epochs: int = Field(default=20, ge=1)
    batch_size: int = Field(default=128, ge=1)
    optimizer: str = "adam"
    learning_rate: float = Field(default=1e-3, gt=0)
    schedule: Literal["constant", "cosine"] = "constant"
    beta: float = Field(default=0.0, ge=0, le=1, description="of losses.LatentNLL")
    mixed_precision: bool = False


class ExportConfig(_Section):
    """What the SavedModel takes."""

    input_dtype: Literal["float32", "uint8"] = "float32"


class RunConfig(_Section):
    """One run, from data to served model."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0)
    output: str = Field(default="runs", description="folder that holds the folders of runs")
    cache_dir: str | None = Field(default="~/.cache/deepsimplex", description="folder of cached targets; null for none")
    data: DataConfig
    target: dict[str, Any] = Field(description="name of a target and its arguments")
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    export: ExportConfig = ExportConfig()

    @field_validator("target", mode="before")
    @classmethod
    def _target_by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("target")
    @classmethod
    def _known_target(cls, value: dict[str, Any]) -> dict[str, Any]:
        from deepsimplex.targets import get_target

        get_target(value)
        return value

    @field_validator("model")
    @classmethod
    def _known_backbone(cls, value: ModelConfig) -> ModelConfig:
        from deepsimplex.heads import backbone

        try:
            backbone(**value.backbone)
        except TypeError as error:  # an argument that this backbone does not have
            raise ValueError(f"backbone: {error}") from error
        return value

    def as_yaml(self) -> str:
        """The resolved configuration as YAML text."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """Read and check a configuration file.

    Parameters
    ----------
    path : path-like
        A YAML file.
    overrides : sequence of str
        Each "key=value", with dots for nested keys and YAML for values: "training.epochs=3".

    Returns
    -------
    RunConfig

    Raises
    ------
    FileNotFoundError
        When there is no such file; the configurations beside it are listed.
    ConfigurationError
        For an unknown key (the nearest known one is named), a value out of range, or YAML that cannot be read.

    Examples
    --------
    >>> load_config("configs/digits.yaml", ["training.epochs=3"]).training.epochs
    3
    """
    file = Path(path)
    if not file.is_file():
        near = sorted(str(other) for other in file.parent.glob("*.yaml")) if file.parent.is_dir() else []
        hint = f"; there are {', '.join(near)}" if near else ""
        raise FileNotFoundError(f"config: there is no file {str(file)!r}{hint}")
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not readable as YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{file} must hold keys and values; found {type(content).__name__}")
    for override in overrides:
        _apply(content, override)
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(f"{file}: " + "; ".join(_explain(problem) for problem in error.errors())) from error


def _apply(content: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not key:
        raise ConfigurationError(f"an override must read key=value, such as training.epochs=3; found {override!r}")
    *path, last = key.split(".")
    place: Any = content
    for step in path:
        if isinstance(place.get(step), str) and step == "target":
            place[step] = {"name": place[step]}
        place = place.setdefault(step, {})
        if not isinstance(place, dict):
            raise ConfigurationError(f"override {override!r}: {step!r} holds a value, not further keys")
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"override {override!r}: {value!r} is not readable as YAML") from error


def _explain(problem: Any) -> str:
    """One pydantic error in words, with the nearest known key for an unknown one."""
    path = [str(step) for step in problem["loc"]]
    where = ".".join(path)
    if problem["type"] != "extra_forbidden":
        found = f"; found {problem['input']!r}" if problem["type"] != "missing" else ""
        return f"{where}: {problem['msg']}{found}"
    section: Any = RunConfig
    for step in path[:-1]:
        section = section.model_fields[step].annotation
    known = list(section.model_fields)
    near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
    return f"unknown key {where!r}; {hint}"
