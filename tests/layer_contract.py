"""Contract test of every Keras layer of the package."""

from pathlib import Path
from typing import Any

import keras
import numpy as np


def assert_layer_contract(make: Any, inputs: Any, tmp_path: Path, rtol: float = 1e-5, half: str = "float32") -> None:
    """Config round trip, eager and symbolic calls, open batch size, half precision, and a .keras reload.

    Parameters
    ----------
    make : callable
        Makes a new layer.
    inputs : array or dict of arrays
        One batch, float32.
    tmp_path : Path
    rtol : float
    half : str
        Dtype of the outputs under mixed_float16.
    """
    layer = make()
    outputs = layer(inputs)
    shapes = keras.tree.map_structure(lambda value: tuple(value.shape), outputs)

    twin = type(layer).from_config(layer.get_config())
    assert twin.get_config() == layer.get_config()

    symbolic_inputs = keras.tree.map_structure(lambda value: keras.Input(value.shape[1:], dtype="float32"), inputs)
    symbolic_layer = make()
    symbolic = symbolic_layer(symbolic_inputs)
    assert keras.tree.map_structure(lambda value: tuple(value.shape), symbolic) == _open_batch(shapes)

    model = keras.Model(symbolic_inputs, symbolic)
    expected = model.predict(inputs, verbose=0)
    assert keras.tree.map_structure(lambda value: value.shape, expected) == shapes
    fewer = keras.tree.map_structure(lambda value: value[:2], inputs)
    _assert_close(model.predict(fewer, verbose=0), keras.tree.map_structure(lambda v: v[:2], expected), rtol)

    path = tmp_path / "layer.keras"
    model.save(path)
    _assert_close(keras.models.load_model(path)(inputs), expected, rtol)

    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        in_half_precision = make()(inputs)
    finally:
        keras.mixed_precision.set_global_policy(policy)
    for leaf in keras.tree.flatten(in_half_precision):
        assert keras.backend.standardize_dtype(leaf.dtype) == half
        assert np.isfinite(np.asarray(leaf)).all()


def _open_batch(shapes: Any) -> Any:
    if isinstance(shapes, dict):
        return {name: _open_batch(shape) for name, shape in shapes.items()}
    return (None, *shapes[1:])


def _assert_close(actual: Any, expected: Any, rtol: float) -> None:
    for one, other in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)
