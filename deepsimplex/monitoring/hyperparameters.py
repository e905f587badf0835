"""The hyperparameters of a Keras classifier, as TensorBoard's HParams tables them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from deepsimplex.classifier import SimplexClassifier
from deepsimplex.targets import TARGETS

Value = str | bool | int | float
_LONGEST = 200  # characters of a value that is written as JSON


def check_hyperparameters(given: Mapping[str, Any] | None) -> dict[str, Value]:
    """What the user gives, as plain values, or an error.

    Examples
    --------
    >>> check_hyperparameters({"augmentation": ["flip"]})
    Traceback (most recent call last):
    TypeError: hparams must map names to text, numbers, True or False; found ['flip'] for 'augmentation'
    """
    values: dict[str, Value] = {}
    for name, value in (given or {}).items():
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(name, str) or not isinstance(plain, str | bool | int | float):
            raise TypeError(f"hparams must map names to text, numbers, True or False; found {value!r} for {name!r}")
        values[name] = plain
    return values


def hyperparameters_of(model: keras.Model, params: Mapping[str, Any]) -> dict[str, Value]:
    """What a compiled model and its fit tell of themselves.

    Parameters
    ----------
    model : keras.Model
    params : mapping
        A Keras callback's ``params``: epochs and steps.

    Returns
    -------
    dict of str to str, bool, int or float
        "optimizer", its "learning_rate" (of a schedule its first, with the schedule's name and settings), "loss",
        "epochs", "steps_per_epoch", "precision" and "weights". Of a SimplexClassifier also "target" with its settings,
        "head", "covariance", "readout", "objective" with its settings, "num_classes" and "seed". What is None is left
        out.
    """
    found = {
        **_optimizer(model),
        "loss": _name(getattr(model, "loss", None)),
        "epochs": params.get("epochs"),
        "steps_per_epoch": params.get("steps"),
        "precision": model.dtype_policy.name,
        "weights": int(model.count_params()),
    }
    if isinstance(model, SimplexClassifier):
        found |= _classifier(model)
    return {name: _shortest(value) for name, value in found.items() if value is not None}


def _shortest(value: Value) -> Value:
    """A number as it was written before it became single precision."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _name(thing: Any) -> str | None:
    """How a loss or an optimizer is called."""
    if thing is None or isinstance(thing, str):
        return thing
    return getattr(thing, "__name__", None) or type(thing).__name__


def _optimizer(model: keras.Model) -> dict[str, Any]:
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of mixed precision's loss scaling
    if optimizer is None:
        return {}
    config = optimizer.get_config()
    found: dict[str, Any] = {"optimizer": type(optimizer).__name__}
    rate = config.get("learning_rate")
    if isinstance(rate, dict):  # a schedule
        settings = dict(_flat("schedule", rate["config"]))
        found |= {"schedule": rate["class_name"], **settings}
        rate = rate["config"].get("initial_learning_rate")
    return found | {"learning_rate": rate, "weight_decay": config.get("weight_decay")}


def _classifier(model: SimplexClassifier) -> dict[str, Any]:
    loss = getattr(model, "loss", None)
    return {
        "target": TARGETS.name_of(model.target),
        **dict(_flat("target", _short(model.target.get_config()))),
        "head": type(model.head).__name__,
        "covariance": getattr(model.head, "covariance", None),
        "readout": type(model.readout).__name__,
        **dict(_flat("", model.objective.get_config())),
        "loss.beta": getattr(loss, "beta", None),
        "num_classes": model.num_classes,
        "seed": model.seed,
    }


def _short(config: Any) -> Any:
    """Objects that Keras serialized as {"name": class, and its arguments}."""
    if isinstance(config, list):
        return [_short(value) for value in config]
    if not isinstance(config, Mapping):
        return config
    if "class_name" in config:
        config = {"name": config["class_name"], **config["config"]}
    return {key: _short(value) for key, value in config.items()}


def _flat(prefix: str, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings by dotted names; what is neither number nor text is written as JSON."""
    for key, value in config.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping):
            yield from _flat(name, value)
        elif value is not None and key != "name":
            plain = value if isinstance(value, str | bool | int | float) else json.dumps(value, default=str)
            yield name, plain[:_LONGEST] if isinstance(plain, str) else plain
