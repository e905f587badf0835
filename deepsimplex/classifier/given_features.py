"""Features of a network with nothing to train: computed once, in blocks, in memory or in a memory map."""

import tempfile
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex.samples.samples import as_tensor

MEMORY = 2**29
"""Bytes of features that are held in memory; more are written to a temporary file, which is memory-mapped."""
BATCH_SIZE = 256


def has_nothing_to_train(backbone: keras.layers.Layer) -> bool:
    """Return whether a network has no trainable weights, and will have none once it is built.

    Examples
    --------
    >>> dense = keras.layers.Dense(3)
    >>> has_nothing_to_train(dense), has_nothing_to_train(keras.Sequential([keras.Input((4,)), dense]))
    (False, False)
    >>> dense.trainable = False
    >>> has_nothing_to_train(dense)
    True
    """
    is_empty = isinstance(backbone, keras.Sequential) and not backbone.layers  # an input alone, which is never built
    return not backbone.trainable or is_empty or (backbone.built and not backbone.trainable_weights)


def random_layers(layer: Any) -> list[str]:
    """Return the names of the layers that draw random numbers in training, such as dropout and augmentation.

    Examples
    --------
    >>> random_layers(keras.Sequential([keras.layers.Rescaling(2.0), keras.layers.Dropout(0.5, name="dropout")]))
    ['dropout']
    """
    if getattr(layer, "layers", None):
        return [name for inner in layer.layers for name in random_layers(inner)]
    return [layer.name] if any(variable.name == "seed_generator_state" for variable in layer.variables) else []


def compute_given_features(
    model: keras.Model, blocks: Iterable[tuple[Any, ...]], precision: str | None = None, memory: int = MEMORY
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute the features [N, d] of samples by a model, and return them with the labels.

    Parameters
    ----------
    model : keras.Model
        From samples to features [N, d].
    blocks : iterable of tuple
        Blocks of samples and labels, each read once.
    precision : str, optional
        Dtype of floats among the samples. Default None: float32.
    memory : int
        Bytes of features that are held in memory. More are written to a temporary file, and returned as a memory map.

    Raises
    ------
    ValueError
        For no samples, and features that are not finite.
    """
    model.make_predict_function()
    labels = []

    def computed() -> Iterable[NDArray[Any]]:
        for x, y, *_ in blocks:
            tensors = keras.tree.map_structure(lambda leaf: as_tensor(leaf, precision), x)
            features = np.asarray(model.predict_function([(tensors,)]))
            if rows := int(np.sum(~np.isfinite(features).all(axis=1))):
                raise ValueError(
                    f"backbone must give finite features; found NaN or infinity for {rows} of {len(features)} samples"
                )
            labels.append(np.asarray(y))
            yield features

    features = _joined(computed(), memory)
    return features, np.concatenate(labels)


def _joined(parts: Iterable[NDArray[Any]], memory: int) -> NDArray[Any]:
    """Join arrays in memory or, if they are larger, in a temporary file, which the system deletes with the array."""
    held: list[NDArray[Any]] = []
    file: Any = None
    size = rows = 0
    for part in parts:
        size, rows = size + part.nbytes, rows + len(part)
        held.append(np.ascontiguousarray(part))
        if size > memory:
            file = tempfile.TemporaryFile() if file is None else file  # noqa: SIM115
            for array in held:
                file.write(array.data)
            width, dtype, held = part.shape[1], part.dtype, []
    if not rows:
        raise ValueError("x must hold at least one sample; found none")
    if file is None:
        return np.concatenate(held)
    with file:  # the map keeps it
        file.flush()
        return np.memmap(file, dtype, "r", shape=(rows, width))
