"""Features of a network with nothing to train: computed once, in blocks, in memory or in a memory map."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import fingerprint
from deepsimplex._utils.batching import num_rows
from deepsimplex.samples.columns import Columns, as_tensor, has_ragged, row_keys
from deepsimplex.samples.reservoir import joined

MEMORY = 2**29
"""Bytes of features that are held in memory; more are written to a temporary file, which is memory-mapped."""
BATCH_SIZE = 256
# Sets of samples whose features are kept: those of training, of validation, of a calibration, of prediction sets.
_SETS = 4
_ZEROS = keras.initializers.Zeros


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


def check_frozen(backbone: keras.layers.Layer) -> None:
    """Raise ValueError for a frozen network some of whose layers were unfrozen: it stays frozen as a whole.

    Examples
    --------
    >>> network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2, name="last")])
    >>> network.trainable = False
    >>> check_frozen(network)
    >>> network.layers[-1].trainable = True
    >>> check_frozen(network)
    Traceback (most recent call last):
    ValueError: backbone.trainable must be True for layers that are trained; found False, and layer 'last' unfrozen. \
Set backbone.trainable = True, then trainable = False of the others
    """
    with_weights = [layer for layer in inner_layers(backbone) if layer.weights]
    unfrozen = [layer.name for layer in with_weights if layer.trainable]
    if 0 < len(unfrozen) < len(with_weights):  # all of them: frozen by its constructor, which layers do not know
        raise ValueError(
            "backbone.trainable must be True for layers that are trained; found False, and layer "
            f"{unfrozen[0]!r} unfrozen. Set backbone.trainable = True, then trainable = False of the others"
        )


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


def augments(network: Any) -> bool:
    """Return whether random layers change the samples before the first layer with weights, normalization aside.

    Examples
    --------
    >>> flip, convolution = keras.layers.RandomFlip(), keras.layers.Conv2D(3, 2)
    >>> augments(keras.Sequential([keras.Input((8, 8, 1)), flip, convolution]))
    True
    >>> augments(keras.Sequential([keras.Input((8, 8, 1)), convolution, keras.layers.Dropout(0.5)]))
    False
    """
    for layer in inner_layers(network) or [network]:
        if random_layers(layer):
            return not layer.weights
        if layer.weights and not isinstance(layer, keras.layers.Normalization):
            return False
    return False


def inner_layers(network: Any) -> list[keras.layers.Layer]:
    """Return the layers of a network or layer in their order, those of networks inside it in place of these.

    Layers that hold others, such as wrappers, are followed by these.

    Examples
    --------
    >>> inside = keras.Sequential([keras.layers.Rescaling(2.0, name="twice")])
    >>> [layer.name for layer in inner_layers(keras.Sequential([inside, keras.layers.Flatten(name="flat")]))]
    ['twice', 'flat']
    """
    if not isinstance(network, keras.layers.Layer):
        return []
    layers: list[keras.layers.Layer] = []
    # What Keras tracks as the layers of a model it tracks in every layer.
    for each in network.layers if isinstance(network, keras.Model) else keras.Model.layers.fget(network):
        inside = inner_layers(each)
        layers += inside if inside and isinstance(each, keras.Model) else [each, *inside]
    return list(dict.fromkeys(layers))  # some are shared


@contextmanager
def fixed_statistics(network: Any) -> Iterator[None]:
    """Inside the block, batch normalization layers of a network take, and keep, their moving statistics in training.

    Examples
    --------
    >>> network = keras.Sequential([keras.Input((1,)), keras.layers.BatchNormalization(epsilon=0.0)])
    >>> with fixed_statistics(network):
    ...     network(np.ones((2, 1)), training=True).numpy().tolist()
    [[1.0], [1.0]]
    """
    layers = [network, *inner_layers(network)]
    trained = [each for each in layers if isinstance(each, keras.layers.BatchNormalization) and each.trainable]
    flags = [(part, part.trainable) for layer in trained for part in (layer, *layer.weights)]
    for layer in trained:
        layer.trainable = False  # read when the layer is called; its scale and shift are trained nevertheless
    try:
        yield
    finally:
        for part, flag in flags:  # a layer's is set before those of its weights, which it changes
            part.trainable = flag


def rescales_bytes(network: Any) -> bool:
    """Return whether the first layer of a network that rescales its inputs expects pixels 0..255.

    Examples
    --------
    >>> rescales_bytes(keras.Sequential([keras.layers.Rescaling(1 / 127.5, offset=-1)]))
    True
    """
    scales = [layer.scale for layer in inner_layers(network) if isinstance(layer, keras.layers.Rescaling)]
    return bool(scales) and bool(np.max(np.abs(scales[0])) < 0.02)


def gives_probabilities(network: Any) -> bool:
    """Return whether the last layer of a network is a softmax, or a sigmoid of one unit.

    Examples
    --------
    >>> gives_probabilities(keras.Sequential([keras.layers.Dense(9), keras.layers.Dense(3, activation="softmax")]))
    True
    """
    inner = getattr(network, "operations", None) or getattr(network, "layers", None)
    if inner:
        return gives_probabilities(inner[-1])
    activation, is_single = getattr(network, "activation", None), getattr(network, "units", None) == 1
    is_sigmoid = is_single and activation is keras.activations.sigmoid
    return is_sigmoid or activation is keras.activations.softmax or type(network).__name__ == "Softmax"


def trains_pretrained(network: Any) -> bool:
    """Return whether a network has weights that were trained before, and all of them are trained on.

    Fresh biases, offsets and moving means are zero. Where some layers are frozen, somebody has chosen.

    Examples
    --------
    >>> trains_pretrained(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    False
    """
    layers = [network, *inner_layers(network)]
    if not all(layer.trainable for layer in layers if layer.weights):
        return False
    zeros = [
        getattr(layer, name, None)
        for layer in layers
        for name in ("bias", "beta", "moving_mean")
        if isinstance(getattr(layer, f"{name}_initializer", None), _ZEROS)
        and not getattr(layer, "unit_forget_bias", False)  # ones in a part of the bias
    ]
    return any(np.any(weight) for weight in zeros if weight is not None)


class GivenFeatures:
    """Features of a network with nothing to train, which are computed once for the same samples.

    Samples are recognized by their values, one by one, as long as the network's weights stay as they are. The features
    of the latest sets of samples are kept, in memory up to a size, beyond it in temporary files.

    Parameters
    ----------
    backbone : keras.layers.Layer
    model : keras.Model
        From samples to the backbone's features [N, d].
    memory : int
        Bytes of features that are held in memory. Default 512 MiB.
    """

    def __init__(self, backbone: keras.layers.Layer, model: keras.Model, memory: int = MEMORY) -> None:
        self._backbone, self._model, self._memory = backbone, model, memory
        self.digest = ""  # of the network's weights when features were computed last
        self._sets: list[tuple[dict[bytes, int], NDArray[Any]]] = []

    def compute(self, blocks: Iterable[Columns], precision: str | None = None) -> tuple[NDArray[Any], Columns]:
        """Return the features [N, d] of samples, and the other columns of the blocks.

        Parameters
        ----------
        blocks : iterable of tuple
            Blocks of samples, with or without labels and weights, each read once.
        precision : str, optional
            Dtype of floats among the samples. Default None: float32.

        Returns
        -------
        features : ndarray, shape [N, d]
            A memory map if it is large.
        columns : tuple
            Labels and weights, as far as the blocks hold them.

        Raises
        ------
        ValueError
            For no samples, and features that are not finite.
        """
        self._forget_changed()
        self._model.make_predict_function()
        others: list[Columns] = []
        numbers: dict[bytes, int] = {}
        keeps = bool(self._backbone.weights)  # without weights features cost as little as their digests

        def computed() -> Iterator[NDArray[Any]]:
            row = 0
            for x, *columns in blocks:
                others.append(tuple(columns))
                keys = row_keys(x) if keeps and not has_ragged(x) else []
                features = self._known(keys)
                yield self._computed(x, precision) if features is None else features
                numbers.update(zip(keys, range(row, row + len(keys)), strict=True))
                row += num_rows(x)

        features = _joined(computed(), self._memory)
        if numbers and not any(numbers.keys() <= rows.keys() for rows, _ in self._sets):
            self._sets = [*self._sets[-_SETS + 1 :], (numbers, features)]
            while len(self._sets) > 1 and self._held_bytes() > self._memory:
                del self._sets[0]
        return features, joined(others)

    def clear(self) -> None:
        """Drop all features."""
        self._sets = []

    def _forget_changed(self) -> None:
        digest = fingerprint(*map(np.asarray, self._backbone.weights))
        if digest != self.digest:
            self.clear()
            self.digest = digest

    def _held_bytes(self) -> int:
        return sum(features.nbytes for _, features in self._sets if not isinstance(features, np.memmap))

    def _known(self, keys: list[bytes]) -> NDArray[Any] | None:
        for numbers, features in self._sets:
            if keys and all(key in numbers for key in keys):
                return np.asarray(features[[numbers[key] for key in keys]])
        return None

    def _computed(self, x: Any, precision: str | None) -> NDArray[Any]:
        tensors = keras.tree.map_structure(lambda leaf: as_tensor(leaf, precision), x)
        features = np.asarray(self._model.predict_function([(tensors,)]))
        if rows := int(np.sum(~np.isfinite(features).all(axis=1))):
            raise ValueError(
                f"backbone must give finite features; found NaN or infinity for {rows} of {len(features)} samples"
            )
        return features


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
