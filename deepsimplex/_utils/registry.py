"""Look up classes of one kind (targets, readouts, ...) by name, on top of Keras' serialization."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from wrapt import register_post_import_hook

from deepsimplex._utils.array_operations import keras
from deepsimplex._utils.messages import did_you_mean, guided, listed
from deepsimplex._utils.parameters import check_arguments, constructor_parameters

Member = TypeVar("Member")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Registry(dict[str, type[Member]]):
    """Short names for the classes of one kind; classes from elsewhere are reached as "module:Class".

    Parameters
    ----------
    kind : str
        The argument that error messages name: "target", "readout", ...
    base : type
        Base class of every member.
    members : dict
        Classes by short name.

    Examples
    --------
    >>> activations = Registry("layer", keras.layers.Layer, {"relu": keras.layers.ReLU})
    >>> activations.get({"name": "relu", "max_value": 6.0}).max_value
    6.0
    >>> type(activations.get("keras.layers:Flatten")).__name__
    'Flatten'
    >>> activations.name_of(keras.layers.ReLU())
    'relu'
    """

    def __init__(self, kind: str, base: type[Any], members: dict[str, type[Member]]) -> None:
        super().__init__(members)
        self.kind = kind
        self.base = base

    def get(self, identifier: Any, **defaults: Any) -> Any:  # type: ignore[override]
        """Make a member from its name, its configuration, or return an instance as it is.

        Parameters
        ----------
        identifier : member, str or dict
            An instance; a short name, "module:Class" or a name registered with Keras; a dict of "name" and arguments,
            as in configurations; or a dict as ``keras.saving.serialize_keras_object`` writes it.
        **defaults
            Arguments for a class that is named without them; those that its constructor lacks are left out.

        Raises
        ------
        TypeError, ValueError
            For anything else, with the nearest known name.
        """
        if isinstance(identifier, self.base):
            return identifier
        if isinstance(identifier, str):
            return self._make(self.find(identifier), {}, defaults)
        if isinstance(identifier, Mapping) and "class_name" in identifier:
            member = keras.saving.deserialize_keras_object(dict(identifier))
            if not isinstance(member, self.base):
                raise TypeError(f"{self.kind} must be a {self.base.__name__}; found {type(member).__name__}")
            return member
        if isinstance(identifier, Mapping) and isinstance(identifier.get("name"), str):
            arguments = {key: value for key, value in identifier.items() if key != "name"}
            return self._make(self.find(identifier["name"]), arguments, defaults)
        raise TypeError(
            f"{self.kind} must be one of {', '.join(self)}, 'module:Class', a dict with a 'name', or a "
            f"{self.base.__name__}; found {identifier!r}"
        )

    def find(self, name: str) -> type[Member]:
        """Return the class of a short name, of "module:Class", or of a name registered with Keras."""
        if name in self:
            return self[name]
        member = imported(name, self.kind) if ":" in name else _registered_object(name)
        if member is None:
            raise ValueError(
                f"{self.kind} must be one of {', '.join(self)}, or 'module:Class'; found {name!r}"
                f"{did_you_mean(name, self)}"
            )
        if not (inspect.isclass(member) and issubclass(member, self.base)):
            raise TypeError(f"{self.kind} {name!r} must be a subclass of {self.base.__name__}; found {member!r}")
        return cast(type[Member], member)

    def name_of(self, member: Member) -> str:
        """Return the name by which ``find`` finds the class of a member."""
        kind = type(member)
        return next((name for name, known in self.items() if known is kind), f"{kind.__module__}:{kind.__qualname__}")

    def _make(self, kind: type[Member], arguments: dict[str, Any], defaults: dict[str, Any]) -> Member:
        known = constructor_parameters(kind)
        check_arguments(arguments, known, kind.__name__)
        given = {key: value for key, value in defaults.items() if key in known} | arguments
        required = [key for key, each in known.items() if each.default is each.empty and each.kind not in _VARIADIC]
        if missing := [key for key in required if key not in given]:
            found = listed(given) or "its name alone"
            raise TypeError(
                f"{self.kind} {kind.__name__} needs {listed(missing)}; found {found}. Give "
                f"{kind.__name__}({missing[0]}=...), or a dict of 'name' and its arguments"
            )
        return kind(**given)


def registered(kind: type[Member]) -> type[Member]:
    """Register a class with Keras, which finds it in saved files, as soon as Keras is imported."""
    register_post_import_hook(
        lambda module: module.saving.register_keras_serializable(package="deepsimplex")(kind), "keras"
    )
    return kind


def imported(name: str, kind: str) -> Any:
    """Return the object of "module:attribute"; raise a ValueError that names ``kind`` if it cannot be imported."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{kind} {name!r} cannot be imported: {error}") from error


def _registered_object(name: str) -> Any:
    """Return what is registered with Keras under a name, or None; before Keras is imported, "package>name" alone is."""
    return keras.saving.get_registered_object(name) if ">" in name or "keras" in sys.modules else None


def registered_function(value: Any, name: str) -> Callable[..., Any] | None:
    """Return a callable as it is, and the function registered with Keras under a name; None as None."""
    function = _registered_object(value) if isinstance(value, str) else value
    if function is None and value is not None:
        raise ValueError(
            f"{name} must be a callable, None or a name registered with Keras; found {value!r}. Import the module "
            "that registers it with keras.saving.register_keras_serializable"
        )
    if not (function is None or callable(function)):
        raise TypeError(f"{name} must be a callable, None or a name registered with Keras; found {value!r}")
    return function


def registered_name(function: Callable[..., Any] | None, name: str) -> str | None:
    """Return the name under which a function is registered with Keras; None as None."""
    if function is None:
        return None
    registered = keras.saving.get_registered_name(function) if hasattr(function, "__name__") else ""
    if keras.saving.get_registered_object(registered) is not function:
        raise guided(
            "extending.md",
            f"{name} must be registered with Keras to be saved; found {function!r}. Write "
            "@keras.saving.register_keras_serializable(package='...') above its definition",
        )
    return registered
