"""Backbones by name, as configuration files give them."""

import inspect
from collections.abc import Callable
from typing import Any

import keras

from deepsimplex._utils.messages import did_you_mean
from deepsimplex._utils.registry import imported
from deepsimplex.backbones.networks import cnn, mlp
from deepsimplex.backbones.residual import resnet

BACKBONES: dict[str, Callable[..., keras.Model]] = {"mlp": mlp, "cnn": cnn, "resnet": resnet}


def backbone(name: str, **options: Any) -> keras.Model:
    """Make a backbone by name, as configuration files do.

    Parameters
    ----------
    name : str
        "mlp", "cnn", "resnet", or "module:function" for any function or class that returns a keras.Model, such as
        "keras.applications:MobileNetV3Small".
    **options
        Arguments of the backbone.

    Raises
    ------
    ValueError
        When there is no such backbone, or it has no such argument.

    Examples
    --------
    >>> backbone("mlp", hidden=[10]).name
    'mlp'
    """
    make: Any = BACKBONES.get(name) if isinstance(name, str) else None
    if make is None:
        if not isinstance(name, str) or ":" not in name:
            raise ValueError(
                f"backbone must be one of {', '.join(BACKBONES)}, or 'module:function'; found {name!r}"
                f"{did_you_mean(name, BACKBONES)}"
            )
        make = imported(name, "backbone")
    known = inspect.signature(make).parameters
    unknown = next((key for key in options if key not in known), None)
    if unknown is not None and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        raise ValueError(
            f"backbone {name!r} has no argument {unknown!r}{did_you_mean(unknown, known)}; it takes {', '.join(known)}"
        )
    return make(**options)
