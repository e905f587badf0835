"""Small backbones to begin with. Any keras.Model whose output has shape [N, d] is one too."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import keras
import tensorflow as tf

from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.backbones.spectral_convolution import SpectralConv2D


def check_sizes(sizes: Sequence[int], name: str) -> list[int]:
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, str | bytes)
    if not listed or any(not isinstance(s, Real) or not 1 <= s < 2**31 or s % 1 for s in sizes):
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
        Rate of dropout after each hidden layer. Default 0.

    Returns
    -------
    keras.Sequential
        Unbuilt: the first batch determines its input shape.

    Examples
    --------
    >>> mlp([100, 50])(keras.Input((28, 28))).shape
    (None, 50)
    """
    check_number(dropout, "dropout", least=0, below=1)
    try:
        keras.activations.get(activation)
    except (TypeError, ValueError):
        raise ValueError(f"activation must be a Keras activation, such as 'relu'; found {activation!r}") from None
    layers: list[Any] = [keras.layers.Flatten()]
    for units in check_sizes(hidden, "hidden"):
        layers.append(keras.layers.Dense(units, activation=activation))
        if dropout:
            layers.append(keras.layers.Dropout(dropout))
    return keras.Sequential(layers, name="mlp")


def convolution(
    filters: int, spectral_bound: float | None, size: int = 3, strides: int = 1, **kwargs: Any
) -> keras.layers.Layer:
    """Convolution without bias that keeps the images' size (divided by the strides), with or without spectral bound."""
    options: dict[str, Any] = {"strides": strides, "padding": "same", "use_bias": False, **kwargs}
    if spectral_bound is None:
        return keras.layers.Conv2D(filters, size, **options)
    return SpectralConv2D(filters, size, bound=check_number(spectral_bound, "spectral_bound", above=0), **options)


def normalization(**kwargs: Any) -> keras.layers.Layer:
    """Batch normalization; in the scope of a ``tf.distribute`` strategy, over the samples of all replicas."""
    return keras.layers.BatchNormalization(momentum=0.9, synchronized=tf.distribute.has_strategy(), **kwargs)


def cnn(
    filters: Sequence[int] = (32, 64), units: int = 128, dropout: float = 0.0, spectral_bound: float | None = None
) -> keras.Sequential:
    """Small convolutional network for images, gray [N, H, W] or with channels [N, H, W, C].

    Parameters
    ----------
    filters : list of int
        Filters of each block of 3 x 3 convolution, batch normalization, relu and 2 x 2 max pooling.
    units : int
        Units of the dense layer at the end: the number of features d.
    dropout : float
        Rate of dropout before and after that layer. Default 0.
    spectral_bound : float, optional
        Largest gain of every convolution, ``SpectralConv2D(bound=...)``. Default None: no bound.

    Returns
    -------
    keras.Sequential
        Unbuilt: the first batch determines its input shape.

    Examples
    --------
    >>> cnn([8], units=16)(keras.Input((28, 28))).shape
    (None, 16)

    Notes
    -----
    The moving averages of batch normalization have momentum 0.9 instead of Keras' 0.99, with which they take hundreds
    of steps to converge: more than a short training on few images has. In the scope of a ``tf.distribute`` strategy
    the moments are computed over the samples of all replicas.
    """
    check_number(dropout, "dropout", least=0, below=1)
    check_whole(units, "units", 1)
    layers: list[Any] = [EnsureChannels()]
    for count in check_sizes(filters, "filters"):
        layers += [
            convolution(count, spectral_bound),
            normalization(),
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
