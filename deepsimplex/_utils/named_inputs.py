"""Inputs of Keras models by name: keys of a dict of inputs, else names of the ``keras.Input``."""

from collections.abc import Mapping, Sequence
from typing import Any

from deepsimplex._utils.array_operations import keras


def stated_inputs(model: Any) -> Any:
    """Return the symbolic inputs of a functional or sequential model, in their structure; None for other models."""
    inputs = getattr(model, "inputs", None)
    return inputs and (inputs[0] if isinstance(model, keras.Sequential) else model.input)


def input_shapes(model: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the shape of one sample by input name, in order; an empty dict if inputs are unknown or nested.

    Examples
    --------
    >>> input_shapes(keras.Sequential([keras.Input((4,), name="table"), keras.layers.Dense(2)]))
    {'table': (4,)}
    """
    inputs = stated_inputs(model)
    inputs = () if inputs is None else inputs
    if not isinstance(inputs, Mapping):
        inputs = {tensor.name: tensor for tensor in (inputs if isinstance(inputs, list | tuple) else [inputs])}
    flat = all(isinstance(tensor, keras.KerasTensor) for tensor in inputs.values())
    return {name: tuple(tensor.shape[1:]) for name, tensor in inputs.items()} if flat else {}


def by_name(names: Sequence[str], inputs: Any) -> dict[str, Any]:
    """Return a structure of values, one for each input, by name; in the order of the names unless it is a dict.

    Examples
    --------
    >>> by_name(["image", "table"], ["uint8", "float32"])
    {'image': 'uint8', 'table': 'float32'}
    """
    if isinstance(inputs, Mapping) and len(names) > 1:
        return {name: inputs.get(name) for name in names}
    return {} if inputs is None else dict(zip(names, keras.tree.flatten(inputs), strict=False))


def as_inputs(model: Any, samples: Mapping[str, Any]) -> Any:
    """Return samples, given by input name, in the structure that a functional or sequential model is called with.

    Examples
    --------
    >>> as_inputs(keras.Sequential([keras.Input((4,), name="table"), keras.layers.Dense(2)]), {"table": 1})
    1
    """
    inputs = {name: samples[name] for name in input_shapes(model)}
    if isinstance(structure := stated_inputs(model), Mapping):
        return inputs
    return [*inputs.values()] if isinstance(structure, list | tuple) else inputs.popitem()[1]
