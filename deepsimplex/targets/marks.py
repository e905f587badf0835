"""What stands in a configuration for objects that JSON cannot hold: functions, matrices, models."""

from collections.abc import Mapping
from typing import Any

from deepsimplex.distances import DISTANCES, Distance, get_distance

KEY = "object"


class Unwritten:
    """What was read in the place of an object that could not be written.

    Parameters
    ----------
    mark : mapping
        As ``mark`` made it.
    """

    def __init__(self, mark: Mapping[str, Any]) -> None:
        self.mark = dict(mark)


def read_distance(spec: Any) -> Distance | Unwritten:
    """The metric that ``spec`` names, or what stands for one that could not be written."""
    return Unwritten(spec) if isinstance(spec, Mapping) and KEY in spec else get_distance(spec)


def write_distance(distance: Distance | Unwritten) -> dict[str, Any]:
    """The metric as a mapping: its configuration where a name tells it all, else a mark."""
    if isinstance(distance, Unwritten):
        return dict(distance.mark)
    if type(distance) in DISTANCES.values():
        return {"name": DISTANCES.name_of(distance), **distance.get_config()}
    return {"name": type(distance).__name__, KEY: _described(getattr(distance, "function", distance))}


def read_function(value: Any, argument: str) -> Any:
    """A callable, None, or what stands for a callable that could not be written."""
    if isinstance(value, Mapping) and set(value) == {KEY}:
        return Unwritten(value)
    if value is None or callable(value):
        return value
    raise TypeError(f"{argument} must be a callable or None; found {value!r}")


def write_function(value: Any) -> dict[str, Any] | None:
    """None, or the mark of a callable."""
    if value is None:
        return None
    return dict(value.mark) if isinstance(value, Unwritten) else {KEY: _described(value)}


def _described(value: Any) -> str:
    """Where the object, or else its class, is found: for people to read, never to be imported."""
    named = value if hasattr(value, "__name__") else type(value)
    return f"{getattr(named, '__module__', None) or 'unknown'}.{getattr(named, '__qualname__', named.__name__)}"
