"""Look up distances by name, function or matrix."""

from typing import Any

import numpy as np

from deepsimplex._utils.registry import Registry
from deepsimplex.distances.distance import CallableDistance, Distance
from deepsimplex.distances.precomputed import Precomputed
from deepsimplex.distances.ssim import SSIM
from deepsimplex.distances.vector_distances import Cityblock, Euclidean

DISTANCES: Registry[Distance] = Registry(
    "distance",
    Distance,
    {"cityblock": Cityblock, "euclidean": Euclidean, "ssim": SSIM},
)


def get_distance(identifier: Any) -> Distance:
    """Make a distance from its name, its configuration, a function or a matrix; return a distance as it is.

    Parameters
    ----------
    identifier : str, dict, callable, ndarray or Distance
        A name ("euclidean", "cityblock") or "module:Class"; a dict of a name and arguments,
        {"name": "ssim", "window": 5}, or one that Keras serialized; a function of two samples; a precomputed matrix
        [N, N]; or a distance.

    Returns
    -------
    Distance

    Raises
    ------
    TypeError
        If ``identifier`` is none of these.
    ValueError
        If the name is unknown or the arguments do not suit it.

    Examples
    --------
    >>> get_distance({"name": "ssim", "window": 5})
    SSIM(window=5)
    """
    if isinstance(identifier, np.ndarray):
        return Precomputed(identifier)
    if isinstance(identifier, type):
        raise TypeError(f"distance must be an object, not a class; found {identifier.__name__}: make an instance")
    if callable(identifier) and not isinstance(identifier, Distance):
        return CallableDistance(identifier)
    return DISTANCES.get(identifier)
