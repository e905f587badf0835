"""Distances from a Python function."""

from collections.abc import Callable
from typing import Any

import keras
from numpy.typing import ArrayLike

from deepsimplex.distances.distance import Distance


@keras.saving.register_keras_serializable(package="deepsimplex")
class CallableDistance(Distance):
    """d(a, b) = function(a, b), called once for every pair: slow, microseconds a pair at best.

    Parameters
    ----------
    function : callable
        Takes two samples, arrays of shape x.shape[1:], and returns a finite number >= 0. It need not be symmetric: the
        query comes first. Only a function registered with ``keras.saving.register_keras_serializable`` can be saved.

    Raises
    ------
    TypeError
        If ``function`` is not callable.
    ValueError
        While distances are computed, if it returns anything else than a finite number >= 0; in ``get_config``, if it
        is not registered.

    Examples
    --------
    >>> import numpy as np
    >>> CallableDistance(lambda a, b: np.abs(a - b).max()).pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[4.]])
    """

    def __init__(self, function: Callable[[Any, Any], float]) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable on two samples; found {type(function).__name__}")
        self.function = function

    def __call__(self, a: ArrayLike, b: ArrayLike) -> float:
        return self.function(a, b)

    def get_config(self) -> dict[str, Any]:
        registered = keras.saving.get_registered_object(keras.saving.get_registered_name(self.function))
        if registered is not self.function:
            raise ValueError(
                f"distance cannot be saved: found the function {self.function!r}, which Keras does not know; register "
                "it with @keras.saving.register_keras_serializable(package=...)"
            )
        return {"function": keras.saving.serialize_keras_object(self.function)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "CallableDistance":
        return cls(keras.saving.deserialize_keras_object(config["function"]))

    def cache_key(self) -> None:
        """Return None: results are not cached, since the name of a function does not identify its code."""

    def __repr__(self) -> str:
        return f"CallableDistance({self.function!r})"
