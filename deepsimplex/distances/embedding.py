"""Distances between a network's features."""

import hashlib
import json
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.distances.base import Distance, check_real
from deepsimplex.distances.search import BlockFunction, Search


class Embedding(Distance):
    """d(a, b) = distance(model(a), model(b)): distances between what a Keras model makes of the samples.

    For photographs and other data where pixels say little. Every sample passes through the model once.

    Parameters
    ----------
    model : keras.Model
        Maps samples [N, ...] to one array of features [N, ...].
    distance : str, mapping or Distance
        Distance between the features, as ``get_distance`` takes it. The default is "euclidean".
    batch_size : int
        Samples that pass through the model at a time. The default is 256.

    Raises
    ------
    TypeError
        When ``model`` has no ``predict``, or, in use, when it returns anything else than one array.
    ValueError
        When ``batch_size`` is below 1, or, in use, when features are NaN or infinite.

    Examples
    --------
    >>> import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(10.0)])
    >>> Embedding(model).pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[50.]])
    """

    name: ClassVar[str] = "embedding"

    def __init__(self, model: Any, distance: Any = "euclidean", batch_size: int = 256) -> None:
        # The registry has a row for this class.
        from deepsimplex.distances.registry import get_distance

        if not callable(getattr(model, "predict", None)):
            raise TypeError(f"model must be a Keras model, with a predict method; found {type(model).__name__}")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number, at least 1; found {batch_size!r}")
        self.model = model
        self.distance = get_distance(distance)
        self.batch_size = int(batch_size)

    def features(self, x: NDArray[Any], name: str = "x") -> NDArray[Any]:
        """What the model makes of samples, checked by the distance between them."""
        outputs = self.model.predict(x, batch_size=self.batch_size, verbose=0)
        if isinstance(outputs, dict | list | tuple):
            raise TypeError(
                f"model must return one array of features; found a {type(outputs).__name__}. "
                "Give keras.Model(model.inputs, one_output)"
            )
        return self.distance.check(outputs, f"the model's features of {name}")

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        return check_real(x, name)

    def blocks(self, x: NDArray[Any], queries: NDArray[Any] | None, order: NDArray[np.int64]) -> BlockFunction:
        features = None if queries is None else self.features(queries, "queries")
        return self.distance.blocks(self.features(x), features, order)

    def resolve(self, search: Search) -> tuple[Distance, Search]:
        """The distance between features, and the search among them: every sample passes the model once."""
        queries = None if search.queries is None else self.features(search.queries, "queries")
        return self.distance.resolve(replace(search, x=self.features(search.x), queries=queries))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "distance": self.distance.get_config()}

    def cache_key(self) -> str | None:
        """A digest of architecture, weights and distance; None where the model or the distance has none."""
        inner = self.distance.cache_key()
        try:
            architecture = self.model.to_json()
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            # A model that Keras cannot write down has no key, and its distances are not kept.
            return None
        if inner is None:
            return None
        digest = hashlib.sha256(json.dumps([architecture, inner]).encode())
        for weight in self.model.get_weights():
            digest.update(np.ascontiguousarray(weight).tobytes())
        return f"{self.name} {digest.hexdigest()}"
