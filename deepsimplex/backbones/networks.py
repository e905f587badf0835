"""Small backbones to begin with. Any keras.Model whose output has shape [N, d] is one too."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.registry import imported


def _check_sizes(sizes: Sequence[int], name: str) -> list[int]:
    if isinstance(sizes, str) or not isinstance(sizes, Sequence) or any(int(s) != s or s < 1 for s in sizes):
        raise ValueError(f"{name} must be a list of positive whole numbers; found {sizes!r}")
    return [int(s) for s in sizes]


def mlp(hidden: Sequence[int] = (100,), activation: str = "relu", dropout: float = 0.0) -> keras.Sequential:
    """Multi-layer perceptron over flattened samples.

    Parameters
    ----------
    hidden : list of int
        Units of each hidden layer. ``mlp([100], activation="sigmoid")`` is the network of [CASIMAC] sec. 3.4.
    activation : str
        Any Keras activation. Default "relu".
    dropout : float
        Rate of dropout after each hidden layer. Default none.

    Returns
    -------
    keras.Sequential
        Unbuilt: it takes the shape of the first samples it sees.

    Examples
    --------
    >>> mlp([100, 50])(keras.Input((28, 28))).shape
    (None, 50)
    """
    layers: list[Any] = [keras.layers.Flatten()]
    for units in _check_sizes(hidden, "hidden"):
        layers.append(keras.layers.Dense(units, activation=activation))
        if dropout:
            layers.append(keras.layers.Dropout(dropout))
    return keras.Sequential(layers, name="mlp")


def cnn(filters: Sequence[int] = (32, 64), units: int = 128, dropout: float = 0.0) -> keras.Sequential:
    """Small convolutional network for images, gray [N, H, W] or with channels [N, H, W, C].

    Parameters
    ----------
    filters : list of int
        Filters of each block of 3 x 3 convolution, batch normalization, relu and 2 x 2 max pooling.
    units : int
        Units of the dense layer at the end: the number of features d.
    dropout : float
        Rate of dropout before and after that layer. Default none.

    Returns
    -------
    keras.Sequential
        Unbuilt: it takes the shape of the first images it sees.

    Examples
    --------
    >>> cnn([8], units=16)(keras.Input((28, 28))).shape
    (None, 16)

    Notes
    -----
    Batch normalization keeps its averages with momentum 0.9, not Keras' 0.99, which takes hundreds of steps to forget
    its start: a hundred images and 20 epochs would be predicted with averages that fit none of them.
    """
    layers: list[Any] = [EnsureChannels()]
    for count in _check_sizes(filters, "filters"):
        layers += [
            keras.layers.Conv2D(count, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.Activation("relu"),
            keras.layers.MaxPooling2D(padding="same"),
        ]
    layers.append(keras.layers.Flatten())
    if dropout:
        layers.append(keras.layers.Dropout(dropout))
    layers.append(keras.layers.Dense(units, activation="relu"))
    if dropout:
        layers.append(keras.layers.Dropout(dropout))
    return keras.Sequential(layers, name="cnn")


@keras.saving.register_keras_serializable(package="deepsimplex")
class EnsureChannels(keras.layers.Layer):
    """Give gray images [N, H, W] a channel axis; leave images [N, H, W, C] as they are.

    Raises
    ------
    ValueError
        For samples that are not images.

    Examples
    --------
    >>> EnsureChannels()(keras.Input((28, 28))).shape
    (None, 28, 28, 1)
    """

    def call(self, images: Any) -> Any:
        # images: [N, H, W] or [N, H, W, C]
        return images if len(images.shape) == 4 else keras.ops.expand_dims(images, -1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        if len(input_shape) not in (3, 4):
            raise ValueError(f"images must have shape [N, H, W] or [N, H, W, C]; found {tuple(input_shape)}")
        return tuple(input_shape) if len(input_shape) == 4 else (*input_shape, 1)

    def compute_output_spec(self, images: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(images.shape), dtype=self.compute_dtype)


BACKBONES: dict[str, Callable[..., keras.Model]] = {"mlp": mlp, "cnn": cnn}


def backbone(name: str, **options: Any) -> keras.Model:
    """Make a backbone by name, as configuration files do.

    Parameters
    ----------
    name : str
        "mlp", "cnn", or "module:function" for any function or class that returns a keras.Model, such as
        "keras.applications:MobileNetV3Small".
    **options
        Its arguments.

    Raises
    ------
    ValueError
        When there is no such backbone, or it has no such argument.

    Examples
    --------
    >>> backbone("mlp", hidden=[10]).name
    'mlp'
    """
    make: Any = BACKBONES.get(name)
    if make is None:
        if ":" not in name:
            raise ValueError(
                f"backbone must be one of {', '.join(BACKBONES)}, or 'module:function'; found {name!r}"
                f"{did_you_mean(name, BACKBONES)}"
            )
        make = imported(name, "backbone")
    known = inspect.signature(make).parameters
    unknown = next((key for key in options if key not in known), None)
    if unknown is not None and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        raise ValueError(
            f"backbone {name!r} has no argument {unknown!r}{did_you_mean(unknown, known)}; it takes {', '.join(known)}"
        )
    return make(**options)
