"""Targets by name: the one table to which a new target adds a row."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from deepsimplex._utils.names import did_you_mean
from deepsimplex.targets.base import Target, without_name

TARGETS: dict[str, tuple[str, str]] = {
    "casimac": ("deepsimplex.targets.casimac", "CASIMAC"),
    "dirichlet": ("deepsimplex.targets.dirichlet", "Dirichlet"),
    "ilr": ("deepsimplex.targets.ilr", "ILR"),
    "mean": ("deepsimplex.targets.mean", "Mean"),
    "one_hot": ("deepsimplex.targets.one_hot", "OneHot"),
    "vertices": ("deepsimplex.targets.vertices", "Vertices"),
}


def get_target(spec: Target | str | Mapping[str, Any]) -> Target:
    """Make a target of what names one.

    Parameters
    ----------
    spec : Target, str or mapping
        A target, which is returned as it is; a name, for its defaults; or a mapping with the key "name" and the
        target's arguments, as ``get_config`` writes it and YAML files hold it.

    Returns
    -------
    Target

    Raises
    ------
    TypeError
        When spec is none of these.
    ValueError
        When the name or an argument is unknown, or one is missing; the nearest known is named.

    Examples
    --------
    >>> get_target({"name": "ilr", "smoothing": 0.9})
    ILR(smoothing=0.9, overlap=0.01, noise=None)
    """
    if isinstance(spec, Target):
        return spec
    if isinstance(spec, str):
        return target_from_config({"name": spec})
    if isinstance(spec, Mapping):
        return target_from_config(spec)
    raise TypeError(f"target must be a Target, a name or a mapping with the key 'name'; found {type(spec).__name__}")


def target_from_config(config: Mapping[str, Any]) -> Target:
    """Make the target that ``Target.get_config`` wrote: {"name": ..., and its arguments}.

    Examples
    --------
    >>> target_from_config({"name": "dirichlet", "concentration": 0.1})
    Dirichlet(concentration=0.1)

    Raises
    ------
    ValueError
        When the name or an argument is unknown, or one is missing; the nearest known is named.
    """
    name = config.get("name")
    if not isinstance(name, str) or name not in TARGETS:
        raise ValueError(
            f"target name must be one of {', '.join(TARGETS)}; found {name!r}{did_you_mean(name, TARGETS)}"
        )
    module, attribute = TARGETS[name]
    target_class = getattr(importlib.import_module(module), attribute)
    arguments = without_name(config)
    parameters = inspect.signature(target_class).parameters
    for key in arguments:
        if key not in parameters:
            raise ValueError(
                f"target {name!r} has no argument {key!r}{did_you_mean(key, parameters)}; "
                f"it takes {', '.join(parameters) or 'none'}"
            )
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in arguments:
            raise ValueError(f"target {name!r} needs the argument {key!r}; found {sorted(arguments)}")
    return target_class(**arguments)
