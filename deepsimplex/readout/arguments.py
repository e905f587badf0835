"""What the readouts share: checks of their arguments, and NumPy in, NumPy out."""

from typing import Any

import tensorflow as tf

from deepsimplex.latent import LatentGaussian, is_tensor


def whole_number(value: Any, name: str, least: int) -> int:
    """Return ``value`` as an int, or say why it is no whole number of at least ``least``."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}; found {value!r}")
    return int(value)


def check_seed(seed: Any) -> int:
    """Return ``seed`` as an int, or say why it is none."""
    return whole_number(seed, "seed", least=0)


def latent_is_tensor(latent: LatentGaussian) -> bool:
    """Whether a readout of this latent is a tensor: one of its two parts is."""
    return is_tensor(latent.loc) or is_tensor(latent.scale)


def tensors(latent: LatentGaussian) -> tuple[Any, Any]:
    """``loc`` and ``scale`` as tensors of one dtype, float32 or float64; half precision is computed in float32."""
    loc = tf.convert_to_tensor(latent.loc)
    dtype = loc.dtype if loc.dtype in (tf.float32, tf.float64) else tf.float32
    return tf.cast(loc, dtype), tf.cast(tf.convert_to_tensor(latent.scale), dtype)


def with_values(latent: LatentGaussian | dict[str, Any]) -> LatentGaussian:
    """The latent in NumPy arrays of one dtype, as ``tensors`` makes it; for functions that look at the numbers."""
    latent = LatentGaussian.of(latent)
    if tf.is_symbolic_tensor(latent.loc) or tf.is_symbolic_tensor(latent.scale):
        raise TypeError("latent must hold values, outside tf.function; found a tensor of a graph")
    loc, scale = tensors(latent)
    return LatentGaussian(loc.numpy(), scale.numpy())
