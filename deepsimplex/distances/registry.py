"""Distances by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from deepsimplex._utils.names import did_you_mean
from deepsimplex.distances.base import Distance
from deepsimplex.distances.cityblock import Cityblock
from deepsimplex.distances.embedding import Embedding
from deepsimplex.distances.euclidean import Euclidean
from deepsimplex.distances.function import CallableDistance
from deepsimplex.distances.precomputed import Precomputed
from deepsimplex.distances.ssim import SSIM

# Distances that a configuration can name.
DISTANCES: dict[str, type[Distance]] = {distance.name: distance for distance in (Cityblock, Euclidean, SSIM)}
# Those that hold a function, a matrix or a model, and so must be given as objects.
OBJECTS: dict[str, type[Distance]] = {
    distance.name: distance for distance in (CallableDistance, Embedding, Precomputed)
}


def get_distance(spec: Any) -> Distance:
    """Make a distance of whatever says which one is meant.

    Parameters
    ----------
    spec : str, mapping, callable, ndarray or Distance
        A name ("euclidean", "cityblock"); a mapping of a name and arguments, {"name": "ssim", "window": 5}; a function
        of two samples; a precomputed matrix [N, N]; or a distance, which is returned as it is.

    Returns
    -------
    Distance

    Raises
    ------
    TypeError
        When ``spec`` is none of these.
    ValueError
        When the name is unknown or the arguments do not suit it.

    Examples
    --------
    >>> get_distance({"name": "ssim", "window": 5})
    SSIM(window=5, data_range=1.0)
    """
    if isinstance(spec, Distance):
        return spec
    if isinstance(spec, str):
        return _named(spec, {})
    if isinstance(spec, Mapping):
        if not isinstance(spec.get("name"), str):
            raise ValueError(f"distance needs a 'name', one of {', '.join(DISTANCES)}; found keys {list(spec)}")
        return _named(spec["name"], {key: value for key, value in spec.items() if key != "name"})
    if isinstance(spec, np.ndarray):
        return Precomputed(spec)
    if isinstance(spec, type) and issubclass(spec, Distance):
        raise TypeError(f"distance must be an object, not a class; found {spec.__name__}: give {spec.__name__}(...)")
    if callable(spec):
        return CallableDistance(spec)
    raise TypeError(
        "distance must be a name, a mapping with a name, a function of two samples, a precomputed matrix or a "
        f"Distance; found {type(spec).__name__}"
    )


def _named(name: str, arguments: dict[str, Any]) -> Distance:
    if name in OBJECTS:
        raise ValueError(
            f"distance {name!r} cannot be made from its name alone; give the object, {OBJECTS[name].__name__}(...)"
        )
    if name not in DISTANCES:
        raise ValueError(
            f"distance must be one of {', '.join(DISTANCES)}, or a function of two samples; found {name!r}"
            f"{did_you_mean(name, DISTANCES)}"
        )
    try:
        return DISTANCES[name](**arguments)
    except TypeError as error:
        raise ValueError(f"distance {name!r} cannot be made with arguments {arguments}: {error}") from error
