"""Small backbones, by function and by name: a multi-layer perceptron, a convolutional and a residual network."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

import keras

from deepsimplex._utils.messages import did_you_mean
from deepsimplex._utils.parameters import check_arguments
from deepsimplex._utils.portable_operations import batch_normalization
from deepsimplex._utils.registry import imported
from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.backbones.pretrained import PREFIX, SUFFIX, pretrained, saved
from deepsimplex.backbones.spectral_convolution import SpectralConv2D


def _check_sizes(sizes: Sequence[int], name: str) -> list[int]:
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, str | bytes)
    if not listed or any(not isinstance(s, Real) or not 1 <= s < 2**31 or s % 1 for s in sizes):
        raise ValueError(f"{name} must be a list of positive whole numbers; found {sizes!r}")
    return [int(s) for s in sizes]


def mlp(
    hidden: Sequence[int] = (100,), activation: str = "relu", dropout: float = 0.0, normalize: bool = False
) -> keras.Sequential:
    """Multi-layer perceptron over flattened samples.

    Parameters
    ----------
    hidden : list of int
        Units of each hidden layer. ``mlp([100], activation="sigmoid")`` is the network of [CASIMAC] sec. 3.4.
    activation : str
        Any Keras activation. Default "relu".
    dropout : float
        Rate of dropout after each hidden layer. Default 0.
    normalize : bool
        Whether batch normalization of the inputs comes first, for columns in different units. Default False.

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
    if normalize:
        layers.append(batch_normalization(epsilon=1e-10))  # columns of small numbers are not drawn to 0
    for units in _check_sizes(hidden, "hidden"):
        layers += [keras.layers.Dense(units, activation=activation), keras.layers.Dropout(dropout)]
    return keras.Sequential(layers, name="mlp")


def _convolution(
    filters: int, spectral_bound: float | None, size: int = 3, strides: int = 1, **kwargs: Any
) -> keras.layers.Layer:
    """Convolution without bias that keeps the images' size (divided by the strides), with or without spectral bound."""
    options: dict[str, Any] = {"strides": strides, "padding": "same", "use_bias": False, **kwargs}
    if spectral_bound is None:
        return keras.layers.Conv2D(filters, size, **options)
    return SpectralConv2D(filters, size, bound=check_number(spectral_bound, "spectral_bound", above=0), **options)


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
    for count in _check_sizes(filters, "filters"):
        layers += [
            _convolution(count, spectral_bound),
            batch_normalization(),
            keras.layers.Activation("relu"),
            keras.layers.MaxPooling2D(padding="same"),
        ]
    layers += [keras.layers.Flatten(), keras.layers.Dropout(dropout)]
    layers += [keras.layers.Dense(units, activation="relu"), keras.layers.Dropout(dropout)]
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


def resnet(
    filters: Sequence[int] = (32, 64, 128),
    blocks: int = 1,
    dropout: float = 0.0,
    spectral_bound: float | None = None,
) -> keras.Sequential:
    """Residual network (He et al. 2016) for images, gray [N, H, W] or with channels [N, H, W, C].

    Parameters
    ----------
    filters : list of int
        Filters of each stage; every stage but the first halves the images. The last one is the number of features d.
    blocks : int
        Residual blocks of a stage. Default 1.
    dropout : float
        Rate of dropout between the two convolutions of each block, in [0, 1). Default 0.
    spectral_bound : float, optional
        Largest gain of every convolution, ``SpectralConv2D(bound=...)``. Below 1, residual blocks
        preserve distances: images unlike the training samples keep features unlike theirs. Default None: no bound.

    Returns
    -------
    keras.Sequential
        Unbuilt: the first batch determines its input shape. It ends in global average pooling.

    Raises
    ------
    ValueError
        For no filters, filters or blocks that are not positive whole numbers, a dropout outside of [0, 1), and a
        spectral_bound that is not positive.

    Examples
    --------
    >>> resnet([8, 16])(keras.Input((28, 28))).shape
    (None, 16)
    """
    counts = _check_sizes(filters, "filters")
    if not counts:
        raise ValueError("filters must hold a number for at least one stage; found none")
    first, *others = counts
    rest = check_whole(blocks, "blocks", 1) - 1
    layers: list[Any] = [
        EnsureChannels(),
        _convolution(first, spectral_bound),
        batch_normalization(),
        keras.layers.Activation("relu"),
    ]
    for count, stride in [(first, 1), *[(count, 2) for count in others]]:
        layers += [ResidualBlock(count, stride, dropout, spectral_bound)]
        layers += [ResidualBlock(count, 1, dropout, spectral_bound) for _ in range(rest)]
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D()], name="resnet")


@keras.saving.register_keras_serializable(package="deepsimplex")
class ResidualBlock(keras.layers.Layer):
    """Compute relu(x + g(x)), g two convolutions with batch normalization; x is projected if shapes differ.

    Parameters
    ----------
    filters : int
    strides : int
        Default 1.
    dropout : float
    spectral_bound : float, optional
        As in ``resnet``.
    **kwargs
        Passed to keras.layers.Layer.

    Examples
    --------
    >>> ResidualBlock(8, strides=2)(keras.Input((28, 28, 4))).shape
    (None, 14, 14, 8)
    """

    def __init__(
        self, filters: int, strides: int = 1, dropout: float = 0.0, spectral_bound: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.filters, self.strides = check_whole(filters, "filters", 1), check_whole(strides, "strides", 1)
        self.dropout, self.spectral_bound = check_number(dropout, "dropout", least=0, below=1), spectral_bound
        # Setting ``trainable`` reaches only sublayers that exist already: pass it to new ones.
        shared: dict[str, Any] = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.first = _convolution(self.filters, spectral_bound, strides=self.strides, **shared)
        self.second = _convolution(self.filters, spectral_bound, **shared)
        self.first_norm, self.second_norm = (batch_normalization(**shared) for _ in range(2))
        self.drop = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
        self.shortcut: Any = None

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        inner = (*self.first.compute_output_shape(input_shape)[:-1], self.filters)
        self.first.build(input_shape)
        for layer in (self.first_norm, self.second, self.second_norm):
            layer.build(inner)
        if input_shape[-1] != self.filters or self.strides > 1:
            shared: dict[str, Any] = {"dtype": self.dtype_policy, "trainable": self.trainable}
            self.shortcut = _convolution(self.filters, self.spectral_bound, size=1, strides=self.strides, **shared)
            self.shortcut.build(input_shape)
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        # inputs: [N, H, W, C]
        x = keras.ops.relu(self.first_norm(self.first(inputs), training=training))
        x = self.second_norm(self.second(self.drop(x, training=training)), training=training)
        return keras.ops.relu(x + (inputs if self.shortcut is None else self.shortcut(inputs)))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(self.first.compute_output_shape(input_shape))

    def get_config(self) -> dict[str, Any]:
        names = ("filters", "strides", "dropout", "spectral_bound")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


BACKBONES: dict[str, Callable[..., keras.Model]] = {"mlp": mlp, "cnn": cnn, "resnet": resnet}


def backbone(name: str, **options: Any) -> keras.Model:
    """Make a backbone by name, as configuration files do.

    Parameters
    ----------
    name : str
        "mlp", "cnn", "resnet"; "keras_hub:" and a preset, for ``pretrained``; the path of a .keras file; or
        "module:function" for any function or class that returns a keras.Model, such as
        "keras.applications:MobileNetV3Small".
    **options
        Arguments of the backbone. Of a file ``trainable``, by default False.

    Raises
    ------
    ValueError
        When there is no such backbone, or it has no such argument.

    Examples
    --------
    >>> backbone("mlp", hidden=[10]).name
    'mlp'
    """
    is_file = isinstance(name, str) and name.endswith(SUFFIX)
    if not isinstance(name, str) or not (name in BACKBONES or is_file or ":" in name):
        raise ValueError(
            f"backbone must be one of {', '.join(BACKBONES)}, 'keras_hub:PRESET', a .keras file, or 'module:function'; "
            f"found {name!r}{did_you_mean(name, BACKBONES)}"
        )
    if name.startswith(PREFIX):
        return pretrained(name, **options)
    make: Any = partial(saved, name) if is_file else BACKBONES.get(name) or imported(name, "backbone")
    check_arguments(options, inspect.signature(make).parameters, f"backbone {name!r}")
    return make(**options)
