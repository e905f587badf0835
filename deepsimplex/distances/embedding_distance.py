"""Distances between a network's features."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import keras
from deepsimplex._utils.named_inputs import as_inputs, input_shapes
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_whole
from deepsimplex.distances.distance import BlockFunction, Distance
from deepsimplex.distances.exact_search import Search
from deepsimplex.distances.named_distances import get_distance


@registered
class Embedding(Distance):
    """d(a, b) = distance(model(a), model(b)): distances between features that a Keras model computes.

    For photographs and other data where distances between pixels mean little. Every sample passes through the
    model once.

    Parameters
    ----------
    model : keras.Model
        Maps samples [N, ...] to one array of features [N, ...]. A model with several inputs, or with some of those of
        a classifier's backbone, takes them from a dict by their names, or all of them in order.
    distance : str, dict or Distance
        Distance between the features, as ``get_distance`` takes it. The default is "euclidean".
    batch_size : int
        Samples that pass through the model at a time. The default is 256.

    Raises
    ------
    TypeError
        If ``model`` has no ``predict``, or, in use, if it returns anything else than one array.
    ValueError
        If ``batch_size`` is below 1; in use, if features are NaN or infinite, or if the distance was made from a
        configuration, which does not hold the weights, and they were not set.

    Examples
    --------
    >>> import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(10.0)])
    >>> Embedding(model).pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[50.]])
    """

    def __init__(self, model: Any, distance: Any = "euclidean", batch_size: int = 256) -> None:
        if not callable(getattr(model, "predict", None)):
            raise TypeError(f"model must be a Keras model, with a predict method; found {type(model).__name__}")
        self.model = model
        self.distance = get_distance(distance)
        self.batch_size = check_whole(batch_size, "batch_size", 1)
        self._weights: str | None = None

    def features(self, x: NDArray[Any], name: str = "x") -> NDArray[Any]:
        """Compute the features of samples, validated by the distance between them."""
        if self._weights is not None and self._weights != _digest(self.model):
            raise ValueError(
                "the weights of this Embedding's model are not part of a configuration, and were not set; call "
                "distance.model.set_weights(...), or make a new Embedding"
            )
        outputs = self.model.predict(self._separate(x), batch_size=self.batch_size, verbose=0)
        if isinstance(outputs, dict | list | tuple):
            raise TypeError(f"model must return one array of features; found a {type(outputs).__name__}")
        return self.distance.check(outputs, f"the model's features of {name}")

    def join(self, x: Any) -> NDArray[Any]:
        """Concatenate the model's inputs to one array [N, d]; a single input is returned as it is.

        Raises
        ------
        ValueError
            If ``x`` lacks an input of the model, or the model has no inputs of known shapes.
        """
        names = list(shapes := input_shapes(self.model))
        arrays = x if isinstance(x, Mapping) else dict(zip(names, x, strict=False))
        known = bool(names) and (len(names) == 1 or all(None not in shape for shape in shapes.values()))
        if not known or not {*names} <= arrays.keys() or (isinstance(x, tuple) and len(x) != len(names)):
            given = list(x) if isinstance(x, Mapping) else f"{len(x)} arrays"
            raise ValueError(f"x must hold the model's inputs, of known shapes, {shapes}; found {given}")
        parts = [np.asarray(arrays[name]) for name in names]
        return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def _separate(self, x: NDArray[Any]) -> Any:
        """Split an array that ``join`` concatenated into the inputs of the model."""
        shapes: dict[str, Any] = input_shapes(self.model)
        if len(shapes) < 2:
            return x
        ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
        parts = zip(shapes.items(), np.split(x, ends[:-1], axis=1), strict=True)
        return as_inputs(self.model, {name: part.reshape(-1, *shape) for (name, shape), part in parts})

    def state(self) -> dict[str, Any]:
        """Return the weights of the model."""
        return {f"weight_{i}": weight for i, weight in enumerate(self.model.get_weights())} | super().state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Set the weights of the model."""
        super().load_state(state)
        if weights := [state[name] for name in (f"weight_{i}" for i in range(len(state))) if name in state]:
            self.model.set_weights(weights)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, the model as configuration and weights, which copies are made of."""
        model = {"model": keras.saving.serialize_keras_object(self.model), "values": self.model.get_weights()}
        return {**vars(self), **model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        values = state.pop("values")
        vars(self).update({**state, "model": keras.saving.deserialize_keras_object(state["model"])})
        self.model.set_weights(values)

    def blocks(self, queries: NDArray[Any], x: NDArray[Any]) -> BlockFunction:
        others = None if queries is x else self.features(queries, "queries")
        features = self.features(x)
        return self.distance.blocks(features if others is None else others, features)

    def resolve(self, search: Search) -> tuple[Distance, Search]:
        """Return the distance between features and the search among them."""
        queries = None if search.queries is None else self.features(search.queries, "queries")
        return self.distance.resolve(replace(search, x=self.features(search.x), queries=queries))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments: the model without its weights, of which only a digest is written."""
        return {
            "model": keras.saving.serialize_keras_object(self.model),
            "distance": keras.saving.serialize_keras_object(self.distance),
            "batch_size": self.batch_size,
            "weights": _digest(self.model),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Embedding":
        model, distance = (keras.saving.deserialize_keras_object(config[key]) for key in ("model", "distance"))
        embedding = cls(model, distance, config["batch_size"])
        embedding._weights = config["weights"]
        return embedding

    def cache_key(self) -> str | None:
        """Return a digest of architecture, weights and distance; None if the model or the distance has none."""
        inner = self.distance.cache_key()
        try:
            architecture = self.model.to_json()
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            return None
        return None if inner is None else f"embedding {json.dumps([architecture, inner])} {_digest(self.model)}"

    def __repr__(self) -> str:
        return f"Embedding({getattr(self.model, 'name', self.model)!r}, {self.distance!r})"


def _digest(model: Any) -> str:
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()
