"""Convolution with a bounded spectral norm, with which residual networks preserve distances between inputs."""

from typing import Any

import keras
import tensorflow as tf

from deepsimplex._utils.validation import check_number, check_whole


@keras.saving.register_keras_serializable(package="deepsimplex")
class SpectralConv2D(keras.layers.Conv2D):
    """Convolution W with ||W x|| <= bound ||x||, as a linear map of images of the size it is built for.

    The kernel is divided by max(1, sigma / bound), where sigma is the largest singular value of the convolution itself,
    not of the kernel as a matrix, as keras.layers.SpectralNormalization has it: a soft bound, smaller kernels are left
    as they are. sigma is estimated by power iterations through the convolution and its transpose in every
    training step.

    Parameters
    ----------
    filters, kernel_size, **kwargs
        As in keras.layers.Conv2D, without dilations and groups. A bias is outside of the bound.
    bound : float
        Largest gain. Default 0.95, below 1 as in SNGP: with residual blocks x + g(x) distances then change by at most
        a factor of 1 - 0.95^k to 1 + 0.95^k, k the number of convolutions of g.
    power_iterations : int
        Power iterations in a training step. Default 1: the kernel changes little between two of them. The bound holds
        once the iterations have converged, not yet in the first steps. A frozen layer makes none.

    Raises
    ------
    ValueError
        If the height or the width of the images is not known.

    Notes
    -----
    Gouk et al., *Regularisation of Neural Networks by Enforcing Lipschitz Continuity*, 2018; Liu et al., *Simple and
    Principled Uncertainty Estimation with Deterministic Deep Learning via Distance Awareness*, 2020 (SNGP).

    Examples
    --------
    >>> SpectralConv2D(4, 3, padding="same")(keras.Input((28, 28, 1))).shape
    (None, 28, 28, 4)
    """

    def __init__(
        self, filters: int, kernel_size: Any, *, bound: float = 0.95, power_iterations: int = 1, **kwargs: Any
    ):
        super().__init__(check_whole(filters, "filters", 1), kernel_size, **kwargs)
        if self.groups != 1 or set(self.dilation_rate) != {1} or self.data_format != "channels_last":
            options = {"groups": self.groups, "dilation_rate": self.dilation_rate, "data_format": self.data_format}
            raise ValueError(f"groups and dilation_rate must be 1 and data_format 'channels_last'; found {options}")
        self.bound = check_number(bound, "bound", above=0)
        self.power_iterations = check_whole(power_iterations, "power_iterations", 1)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        if None in input_shape[1:]:
            raise ValueError(f"SpectralConv2D needs images of a known size [N, H, W, C]; found {tuple(input_shape)}")
        self.direction = self.add_weight(
            (1, *input_shape[1:]),
            keras.initializers.RandomNormal(stddev=1.0, seed=0),
            trainable=False,
            name="direction",
            autocast=False,
        )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        # inputs: [N, H, W, C]
        kernel = tf.convert_to_tensor(self.kernel)
        outputs = self.convolution_op(inputs, kernel / tf.cast(self._excess(kernel, training), kernel.dtype))
        if self.use_bias:
            outputs += tf.cast(self.bias, outputs.dtype)
        return outputs if self.activation is None else self.activation(outputs)

    def _excess(self, kernel: Any, training: bool | None) -> Any:
        """Compute max(1, sigma / bound), in single precision at least."""
        direction = tf.convert_to_tensor(self.direction)
        kernel = tf.cast(kernel, direction.dtype)
        if training and self.trainable:
            fixed = tf.stop_gradient(kernel)
            for _ in range(self.power_iterations):
                gained = self.convolution_op(_normalized(direction), fixed)
                direction = tf.nn.conv2d_transpose(
                    gained, fixed, direction.shape, [1, *self.strides, 1], self.padding.upper()
                )
            # A kernel of zeros maps every direction to zero: keep the previous one for later kernels.
            direction = tf.where(tf.norm(direction) > 0, tf.stop_gradient(direction), self.direction)
            self.direction.assign(direction)
        sigma = tf.norm(self.convolution_op(_normalized(direction), kernel))
        return tf.maximum(1.0, sigma / self.bound)

    def save_own_variables(self, store: Any) -> None:
        """Save kernel, bias and direction; Keras saves the first two only."""
        super().save_own_variables(store)
        store["direction"] = self.direction

    def load_own_variables(self, store: Any) -> None:
        """Load kernel, bias and direction."""
        super().load_own_variables(store)
        self.direction.assign(store["direction"])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bound": self.bound, "power_iterations": self.power_iterations}


def _normalized(image: Any) -> Any:
    return image / tf.maximum(tf.norm(image), keras.config.epsilon())
