"""Configuration of a run: a YAML file, validated by a schema that rejects unknown keys."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from deepsimplex._utils.atomic_files import check_path
from deepsimplex._utils.messages import did_you_mean
from deepsimplex._utils.parameters import check_arguments
from deepsimplex._utils.registry import Registry
from deepsimplex.calibration import CALIBRATIONS, DENSITIES, DecisionRule, ExpectedCost, RiskControl
from deepsimplex.calibration.conformal_sets import ConformalMethod
from deepsimplex.targets import TARGETS

LARGEST_BYTES, MOST_LEVELS = 2**16, 50  # limits of a configuration file


class ConfigurationError(ValueError):
    """Raised for an invalid configuration; names the key, the value found and valid ones."""


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


# Context of the first validation, which imports neither Keras nor modules of the user.
_STRUCTURE = "structure"
# Names and configurations whose classes are elsewhere: "module:Class", "package>Class", serialized objects, files.
_ELSEWHERE = re.compile(r"\w:\w|>|class_name|\.keras\b")
# Members that need Keras; None for those that Keras has more of.
KERAS_MEMBERS: dict[str, tuple[str, ...] | None] = {
    "backbone": ("mlp", "cnn", "resnet"),
    "head": ("closed_form", "gaussian", "variational", "prototypes"),
    "readout": ("argmax", "softmax", "left_out"),
    "loss": None,
    "optimizer": None,
}


def _make(make: Callable[[Any], Any]) -> Callable[[Any, ValidationInfo], Any]:
    """Return a validator that constructs a member once, to check its arguments."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if info.context == _STRUCTURE and _ELSEWHERE.search(repr(value)):
            return value
        try:
            make(value)
        except (TypeError, KeyError) as error:  # pydantic reports ValueErrors only
            raise ValueError(str(error)) from error
        return value

    return validate


def _make_with_keras(kind: str) -> Callable[[Any, ValidationInfo], Any]:
    """Return such a validator of a member that needs Keras; the first validation checks its name alone."""

    def make(value: Any) -> Any:
        import keras

        from deepsimplex.backbones import backbone
        from deepsimplex.heads import HEADS
        from deepsimplex.losses import get_loss
        from deepsimplex.readout import READOUTS

        makers: dict[str, Callable[[Any], Any]] = {
            "backbone": lambda value: backbone(**{"name": None, **value}),
            "head": partial(HEADS.get, num_classes=3, latent_dim=2),
            "readout": READOUTS.get,
            "loss": get_loss,
            "optimizer": keras.optimizers.get,
        }
        return makers[kind](value)

    def validate(value: Any, info: ValidationInfo) -> Any:
        names = KERAS_MEMBERS[kind]
        if info.context != _STRUCTURE:
            return _make(make)(value, info)
        if kind == "backbone" and str(file := value.get("name")).endswith(".keras") and not Path(file).is_file():
            raise ValueError(f"{kind} must be a file that exists; found {file!r}")
        if names and value.get("name") not in names and not _ELSEWHERE.search(repr(value)):
            name = value.get("name", value)
            files = "'keras_hub:PRESET', a .keras file, " if kind == "backbone" else ""
            raise ValueError(
                f"{kind} must be one of {', '.join(names)}, {files}or 'module:Class'; found {name!r}"
                f"{did_you_mean(name, names)}"
            )
        return value

    return validate


def _if_empty(default: Any) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value is None else value)


# Defaults of SimplexClassifier and its methods, so that configurations have those of Python.
TARGET = "vertices"
SETS: ConformalMethod = "lac"

DECISIONS: Registry[DecisionRule] = Registry(
    "decision", DecisionRule, {"expected_cost": ExpectedCost, "risk_control": RiskControl}
)
Options = Annotated[dict[str, Any], _if_empty({})]
# Members by name: "ilr", "module:Class", or a dict of "name" and the arguments of the constructor.
Named = Annotated[dict[str, Any], BeforeValidator(_named)]
Target = Annotated[Named, _if_empty(TARGET), AfterValidator(_make(TARGETS.get))]
Backbone = Annotated[Named, _if_empty("mlp"), AfterValidator(_make_with_keras("backbone"))]
Head = Annotated[Named, AfterValidator(_make_with_keras("head"))]
Readout = Annotated[Named, AfterValidator(_make_with_keras("readout"))]
Loss = Annotated[Named, AfterValidator(_make_with_keras("loss"))]
Method = Annotated[Named, AfterValidator(_make(CALIBRATIONS.get))]
Density = Annotated[Named, AfterValidator(_make(DENSITIES.get))]
Decision = Annotated[Named, AfterValidator(_make(DECISIONS.get))]
Optimizer = Annotated[str, AfterValidator(_make_with_keras("optimizer"))]
MEMBERS = (
    "target",
    "backbone",
    "head",
    "readout",
    "loss",
    "method",
    "density",
    "decision",
)  # overrides may set their arguments


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_default(cls, content: Any) -> Any:
        """Accept a section with nothing under it, such as "training:" alone."""
        return {} if content is None else content


class DataConfig(_Section):
    """The data: arguments of ``datasets.load``."""

    name: str = Field(description="a data set's name, an .npz file, a folder of images by class, or a CSV file")
    options: Options = Field(default={}, description="further arguments of datasets.load")
    limit: int | None = Field(default=None, ge=2, description="use at most that many training samples")
    validation_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="share held out of training")

    @field_validator("options")
    @classmethod
    def _known_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        from deepsimplex import datasets

        known = inspect.signature(partial(datasets.load, "")).parameters
        check_arguments(value, known, "datasets.load")
        return value


class ModelConfig(_Section):
    """The network: arguments of ``SimplexClassifier``."""

    backbone: Backbone = Field(default={"name": "mlp"}, description="name of a backbone and its arguments")
    head: Head | None = Field(default=None, description="name of a head and its arguments; default variational")
    covariance: Literal["isotropic", "diagonal", "full"] | None = Field(
        default=None, description="of the Gaussian head; default isotropic"
    )
    readout: Readout | None = Field(default=None, description="default: that of the target")


class TrainingConfig(_Section):
    """Training: optimizer, loss and duration."""

    # Epochs and size of batches: the defaults of SimplexNetworkClassifier.
    epochs: int = Field(default=50, ge=1)
    batch_size: int = Field(default=32, ge=1)
    optimizer: Optimizer = "adam"
    learning_rate: float | None = Field(default=None, gt=0, description="default: that of the optimizer")
    schedule: Literal["constant", "cosine"] = "constant"
    loss: Loss | None = Field(default=None, description="name of a loss and its arguments; default: that of the target")
    mixed_precision: bool = False


class CalibrationConfig(_Section):
    """Fits after training: a density of the training samples' features, and calibration on the validation samples.

    With ``method`` beside ``coverage`` or ``decision``, each is fitted to one half of the validation samples.
    """

    density: Density | None = Field(default=None, description="of SimplexClassifier.fit_density; null for none")
    method: Method | None = Field(default=None, description="of SimplexClassifier.calibrate; null for none")
    coverage: float | None = Field(
        default=None, gt=0, lt=1, description="of SimplexClassifier.conformalize; null for no sets of classes"
    )
    sets: Annotated[ConformalMethod, _if_empty(SETS)] = Field(default=SETS, description="the method of conformalize")
    allow_empty: Annotated[bool, _if_empty(True)] = Field(
        default=True, description="of conformalize; false adds the most probable class to empty sets"
    )
    unknown: Annotated[bool, _if_empty(False)] = Field(
        default=False, description="fit the score of unknown samples, SimplexClassifier.fit_unknown"
    )
    decision: Decision | None = Field(
        default=None, description="a rule of SimplexClassifier.set_decision and its arguments; null for none"
    )


class DistancesConfig(_Section):
    """Where the neighbors of distance targets are searched."""

    executor: Literal["ray"] | None = Field(default=None, description="a Ray cluster; null for this machine")


class ExportConfig(_Section):
    """Input dtype of the SavedModel; None is that of the samples, floats in single precision."""

    input_dtype: Literal["float32", "float64", "uint8"] | None = None


class RunConfig(_Section):
    """Configuration of one run, from data to served model; ``load_config`` reads it from a YAML file.

    Examples
    --------
    >>> config = RunConfig(name="demo", data={"name": "digits"}, target="ilr")
    >>> config.target, config.training.epochs
    ({'name': 'ilr'}, 50)
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0, lt=2**32)
    output: str = Field(default="runs", description="folder that holds the folders of runs")
    cache_dir: str | None = Field(
        default="~/.cache/deepsimplex", validate_default=True, description="folder of cached targets; null for none"
    )
    data: DataConfig
    target: Target = Field(
        default=TARGET, validate_default=True, description="name of a target and its arguments; default as in Python"
    )
    distances: DistancesConfig = DistancesConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    export: ExportConfig = ExportConfig()

    @field_validator("output", "cache_dir")
    @classmethod
    def _without_tilde(cls, value: str | None) -> str | None:
        try:
            return None if value is None else str(Path(value).expanduser())
        except RuntimeError as error:  # no such user
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _calibration_has_samples(self, info: ValidationInfo) -> Self:
        is_closed_form = (self.model.head or {}).get("name") == "closed_form"  # which has left-out samples
        rule = self.calibration.decision
        if info.context == _STRUCTURE and _ELSEWHERE.search(repr(rule)):
            rule = None
        is_fitted = rule is not None and DECISIONS.get(rule).fitted_attributes
        further = {"unknown": not is_closed_form, "decision": is_fitted}
        for name in ("method", "coverage", *(key for key, needed in further.items() if needed)):
            value = getattr(self.calibration, name)
            if value not in (None, False) and self.data.validation_fraction == 0:
                shown = value["name"] if isinstance(value, dict) else value
                raise ValueError(
                    f"calibration.{name} {shown} is fitted to validation samples: data.validation_fraction must be "
                    "above 0; found 0"
                )
        return self

    def as_yaml(self) -> str:
        """The resolved configuration as YAML text."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """Read and validate a configuration file.

    Modules of "module:Class" names are imported from the folder of the file or from the working folder, which are
    appended to ``sys.path``.

    Parameters
    ----------
    path : path-like
        A YAML file.
    overrides : sequence of str
        Each "key=value", with dots between nested keys and a YAML value: "training.epochs=3".

    Returns
    -------
    RunConfig

    Raises
    ------
    FileNotFoundError
        When the file does not exist; the configurations beside it are listed.
    ConfigurationError
        For an unknown key (with the nearest known one), a value out of range, or invalid YAML.

    Examples
    --------
    >>> load_config("configs/digits.yaml", ["training.epochs=3"]).training.epochs
    3
    """
    return check_members(read_config(path, overrides), str(path))


def read_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file as ``load_config``, but for what needs Keras or modules of the user.

    Examples
    --------
    >>> read_config("configs/digits.yaml", ["training.epochs=3"]).training.epochs
    3
    """
    file = check_path(path, "path")
    overrides = list(overrides) if np.iterable(overrides) else [overrides]
    if wrong := [override for override in overrides if not isinstance(override, str)]:
        raise TypeError(f"overrides must hold texts key=value, such as training.epochs=3; found {wrong[0]!r}")
    if not file.is_file():
        near = sorted(str(other) for other in file.parent.glob("*.yaml")) if file.parent.is_dir() else []
        hint = f"; there are {', '.join(near)}" if near else ""
        raise FileNotFoundError(f"config: there is no file {str(file)!r}{hint}")
    if file.stat().st_size > LARGEST_BYTES:
        raise ConfigurationError(f"{file} must have at most {LARGEST_BYTES} bytes; found {file.stat().st_size}")
    content = read_yaml(file.read_bytes(), str(file))
    if not isinstance(content, dict):
        raise ConfigurationError(f"{file} must hold keys and values; found {type(content).__name__}")
    return checked_config(content, overrides, str(file), file.resolve().parent)


def checked_config(content: dict[str, Any], overrides: Sequence[str], name: str, *folders: Path) -> RunConfig:
    """Apply overrides and validate all that ``read_config`` does; modules of members may be in ``folders``."""
    for override in overrides:
        _apply(content, override)
    for folder in (*map(str, folders), os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)
    return _validated(content, name, _STRUCTURE)


def check_members(config: RunConfig, name: str) -> RunConfig:
    """Make every member of a configuration once, to check its arguments; ``name`` begins errors."""
    return _validated(config.model_dump(), name, None)


def _validated(content: dict[str, Any], name: str, context: str | None) -> RunConfig:
    try:
        return RunConfig.model_validate(content, context=context)
    except ValidationError as error:
        raise ConfigurationError(f"{name}: " + "; ".join(_explain(problem) for problem in error.errors())) from error


class _PlainLoader(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys, and aliases, which can expand to billions of values or a cycle."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if self.check_event(yaml.AliasEvent):
            problem = f"found the alias *{event.anchor}: write the values out"
            raise yaml.MarkedYAMLError(None, None, problem, event.start_mark)
        self.depth += 1
        if self.depth > MOST_LEVELS:
            raise yaml.MarkedYAMLError(None, None, "it is nested too deep", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = {"<<": "of a merge: write the keys out"}
        for key, _ in node.value:
            if problem := seen.get(str(key.value)):
                raise yaml.MarkedYAMLError(None, None, f"found the key {key.value!r} {problem}", key.start_mark)
            seen[str(key.value)] = "twice"
        return super().construct_mapping(node, deep)


def read_yaml(text: str | bytes, name: str) -> Any:
    """Parse a YAML text; raise a ConfigurationError with its name if it is invalid or has duplicate keys or aliases."""
    try:
        return yaml.load(text, _PlainLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        raise ConfigurationError(f"{name} is not readable as YAML: {' '.join(str(error).split())}") from error


def read_options(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the values of "key=value" texts by key, read as YAML; dots nest keys.

    Examples
    --------
    >>> read_options(["image_size=[32, 32]", "color=rgb"])
    {'image_size': [32, 32], 'color': 'rgb'}
    """
    content: dict[str, Any] = {}
    for override in overrides:
        _apply(content, override)
    return content


def _apply(content: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not key:
        raise ConfigurationError(f"an override must read key=value, such as training.epochs=3; found {override!r}")
    *path, last = key.split(".")
    place: Any = content
    for step in path:
        if isinstance(place.get(step), str) and step in MEMBERS:
            place[step] = {"name": place[step]}
        if place.get(step) is None:  # missing, or an empty section
            place[step] = {}
        place = place[step]
        if not isinstance(place, dict):
            raise ConfigurationError(f"override {override!r}: {step!r} holds a value, not further keys")
    place[last] = read_yaml(value, f"override {override!r}: {value!r}")


def _explain(problem: Any) -> str:
    """Describe a pydantic error, with the nearest known key, of any section, for an unknown one."""
    path = [str(step) for step in problem["loc"]]
    where = ".".join(path)
    if problem["type"] != "extra_forbidden":
        message = " ".join(problem["msg"].removeprefix("Value error, ").split())
        if not path:  # about several sections
            return message
        has_value = problem["type"] == "missing" or "; found " in message
        return f"{where}: {message}" + ("" if has_value else f"; found {problem['input']!r}")
    section: Any = RunConfig
    for step in path[:-1]:
        section = section.model_fields[step].annotation
    known = list(section.model_fields)
    from deepsimplex.datasets.loading import KNOWN

    sections = {name: field.annotation for name, field in RunConfig.model_fields.items()}
    places = {key: f"data.options.{key}" for key in KNOWN} | {
        key: f"{name}.{key}"
        for name, kind in sections.items()
        if inspect.isclass(kind) and issubclass(kind, _Section)
        for key in kind.model_fields
    }
    places |= {key: key for key in (*sections, *known)}
    hint = did_you_mean(path[-1], places, likeness=0.8, places=places) or did_you_mean(path[-1], known)
    return f"unknown key {where!r}" + (hint or f"; known keys are {', '.join(known)}")
