"""Hyperparameters of a classifier, for TensorBoard's HParams page."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from deepsimplex.classifier import SimplexClassifier
from deepsimplex.targets import TARGETS

Value = str | bool | int | float
LONGEST = 200  # characters of a value


def check_hyperparameters(given: Mapping[str, Any] | None) -> dict[str, Value]:
    """Return the user's hyperparameters as plain values, or raise TypeError.

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


def model_hyperparameters(model: keras.Model, params: Mapping[str, Any]) -> dict[str, Value]:
    """Return the hyperparameters of a compiled Keras model.

    Parameters
    ----------
    model : keras.Model
    params : mapping
        ``params`` of a Keras callback: epochs and steps.

    Returns
    -------
    dict of str to str, bool, int or float
        "optimizer", its "learning_rate" (for a schedule the first, with the schedule's name and settings), "loss" with
        its settings, "epochs", "steps_per_epoch", "precision" and "weights". For a SimplexClassifier also "target"
        with its settings, "head", "covariance", "readout", "num_classes" and "seed". None is left out.
    """
    values = {
        **_optimizer(model),
        **_loss(model),
        "epochs": params.get("epochs"),
        "steps_per_epoch": params.get("steps"),
        "precision": model.dtype_policy.name,
        "weights": int(model.count_params()),
    }
    if isinstance(model, SimplexClassifier):
        values |= {
            "target": TARGETS.name_of(model.target),
            **dict(_flat("target", model.target.get_config())),
            "head": type(model.head).__name__,
            "covariance": model.head.covariance,
            "readout": type(model.readout).__name__,
            "num_classes": model.num_classes,
            "seed": model.seed,
        }
    # Learning rates are single precision: seven digits are what the user wrote.
    return {
        name: float(f"{value:.7g}") if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None
    }


def estimator_hyperparameters(classifier: Any) -> dict[str, Value]:
    """Return the hyperparameters of a scikit-learn classifier: its class and parameters."""
    return {"classifier": type(classifier).__name__, **dict(_flat("", classifier.get_params(deep=False)))}


def _loss(model: keras.Model) -> dict[str, Any]:
    loss = model.loss
    if loss is None and isinstance(model, SimplexClassifier):
        loss = model.target.default_loss()
    if loss is None or isinstance(loss, str):
        return {"loss": loss}
    name = getattr(loss, "__name__", None) or type(loss).__name__
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    return {"loss": name, **dict(_flat("loss", config))}


def _optimizer(model: keras.Model) -> dict[str, Any]:
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):  # of mixed precision
        optimizer = optimizer.inner_optimizer
    config = optimizer.get_config()
    values: dict[str, Any] = {"optimizer": type(optimizer).__name__}
    rate = config.get("learning_rate")
    if isinstance(rate, dict):  # a schedule
        values |= {"schedule": rate["class_name"], **dict(_flat("schedule", rate["config"]))}
        rate = rate["config"].get("initial_learning_rate")
    return values | {"learning_rate": rate, "weight_decay": config.get("weight_decay")}


def _short(config: Any) -> Any:
    """Return objects that Keras serialized as {"name": class, and its arguments}."""
    if isinstance(config, list):
        return [_short(value) for value in config]
    if not isinstance(config, Mapping):
        return config
    if "class_name" in config:
        config = {"name": config["class_name"], **config["config"]}
    return {key: _short(value) for key, value in config.items()}


def _flat(prefix: str, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings by dotted names; other values than numbers and text are written as JSON."""
    for key, item in config.items():
        name = f"{prefix}.{key}" if prefix else key
        value = _short(item)
        if isinstance(value, Mapping):
            if isinstance(value.get("name"), str):
                yield name, value["name"]
            yield from _flat(name, value)
        elif value is not None and key != "name":
            plain = value if isinstance(value, str | bool | int | float) else json.dumps(value, default=str)
            yield name, plain[:LONGEST] if isinstance(plain, str) else plain
