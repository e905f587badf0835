"""Structural dissimilarities of all pairs of two sets of images, by TensorFlow on a GPU."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import parts

# Memory of one tensor of pairs; about eight are alive at a time.
TENSOR_BYTES = 2**27


def has_accelerator() -> bool:
    """Return whether TensorFlow has a GPU.

    Examples
    --------
    >>> device = "/GPU:0" if has_accelerator() else "/CPU:0"
    """
    import tensorflow as tf

    return bool(tf.config.get_visible_devices("GPU"))


def ssim_block(
    images: NDArray[Any],
    others: NDArray[Any],
    window: int,
    data_range: float = 1.0,
    constants: tuple[float, float] = (0.01, 0.03),
) -> NDArray[np.float64]:
    """Compute 1 - SSIM of all pairs, in float32 on TensorFlow's default device.

    Parameters
    ----------
    images : ndarray, shape [A, H, W] or [A, H, W, C]
    others : ndarray, shape [B, H, W] or [B, H, W, C]
    window : int
        Side of the square window in pixels, odd.
    data_range : float
        Largest possible pixel value less the smallest. The default is 1.
    constants : (float, float)
        K1 and K2.

    Returns
    -------
    ndarray, shape [A, B], float64
        Accurate to about 1e-5: equal images have a distance within that of zero, of either sign.

    Examples
    --------
    >>> images = np.stack([np.eye(5), 0.5 * np.eye(5)])
    >>> abs(ssim_block(images, images, window=3)).round(2)
    array([[0.  , 0.36],
           [0.36, 0.  ]])
    """
    compare = _comparison(window, *constants)
    out = np.empty((len(images), len(others)))
    length = max(1, int((TENSOR_BYTES / (4 * np.prod(images.shape[1:]))) ** 0.5))
    for across in parts(slice(0, len(others)), length):
        columns = _centered(others[across], data_range)
        for down in parts(slice(0, len(images)), length):
            out[down, across] = 1.0 - compare(*_centered(images[down], data_range), *columns).numpy()
    return out


def _centered(images: NDArray[Any], data_range: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Pixels [N, H, W, C] less the image's mean, and the means [N], in units of the data range.

    Covariances do not depend on the mean, and smaller numbers lose less to rounding.
    """
    pixels = images.reshape(*images.shape[:3], -1).astype(np.float64) / data_range
    means = pixels.mean(axis=(1, 2, 3)).astype(np.float32)
    return (pixels - means[:, None, None, None]).astype(np.float32), means


@lru_cache
def _comparison(window: int, k1: float, k2: float) -> Callable[..., Any]:
    """Return the function that maps two sets of images to their similarities [A, B], traced once for all shapes."""
    import tensorflow as tf

    pixels, means = tf.TensorSpec((None, None, None, None), tf.float32), tf.TensorSpec((None,), tf.float32)
    sample = window**2 / (window**2 - 1)

    def box(values: Any) -> Any:
        """Means over the windows of [N, H, W, C]."""
        return tf.nn.avg_pool2d(tf.nn.avg_pool2d(values, (window, 1), 1, "VALID"), (1, window), 1, "VALID")

    @tf.function(input_signature=(pixels, means, pixels, means), autograph=False)
    def similarities(a: Any, a_mean: Any, b: Any, b_mean: Any) -> Any:
        m, o = box(a)[:, None], box(b)[None]
        a_variance = sample * (box(a * a)[:, None] - m * m)
        b_variance = sample * (box(b * b)[None] - o * o)
        products = tf.reshape(a[:, None] * b[None], tf.concat([[-1], tf.shape(a)[1:]], 0))
        covariance = sample * (tf.reshape(box(products), tf.shape(m * o)) - m * o)
        m += a_mean[:, None, None, None, None]
        o += b_mean[None, :, None, None, None]
        luminance = (2.0 * m * o + k1**2) / (m * m + o * o + k1**2)
        structure = (2.0 * covariance + k2**2) / (a_variance + b_variance + k2**2)
        return tf.reduce_mean(luminance * structure, axis=(2, 3, 4))

    return similarities
