"""A small residual network for images."""

from collections.abc import Sequence
from typing import Any

import keras

from deepsimplex._utils.validation import check_number, check_whole
from deepsimplex.backbones.networks import EnsureChannels, check_sizes, convolution, normalization


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
    counts = check_sizes(filters, "filters")
    if not counts:
        raise ValueError("filters must hold a number for at least one stage; found none")
    first, *others = counts
    rest = check_whole(blocks, "blocks", 1) - 1
    layers: list[Any] = [
        EnsureChannels(),
        convolution(first, spectral_bound),
        normalization(),
        keras.layers.Activation("relu"),
    ]
    for count, stride in [(first, 1), *[(count, 2) for count in others]]:
        layers += [ResidualBlock(count, stride, dropout, spectral_bound)]
        layers += [ResidualBlock(count, 1, dropout, spectral_bound) for _ in range(rest)]
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D()], name="resnet")


@keras.saving.register_keras_serializable(package="deepsimplex")
class ResidualBlock(keras.layers.Layer):
    """relu(x + g(x)), g two convolutions with batch normalization; x goes through one of size 1 where shapes differ.

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
        self.first = convolution(self.filters, spectral_bound, strides=self.strides, **shared)
        self.second = convolution(self.filters, spectral_bound, **shared)
        self.first_norm, self.second_norm = (normalization(**shared) for _ in range(2))
        self.drop = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
        self.shortcut: Any = None

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        inner = (*self.first.compute_output_shape(input_shape)[:-1], self.filters)
        for layer, shape in [
            (self.first, input_shape),
            (self.first_norm, inner),
            (self.second, inner),
            (self.second_norm, inner),
        ]:
            layer.build(shape)
        if input_shape[-1] != self.filters or self.strides > 1:
            shared: dict[str, Any] = {"dtype": self.dtype_policy, "trainable": self.trainable}
            self.shortcut = convolution(self.filters, self.spectral_bound, size=1, strides=self.strides, **shared)
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
        own = {name: getattr(self, name) for name in ("filters", "strides", "dropout", "spectral_bound")}
        return {**super().get_config(), **own}
