"""The structural dissimilarity on an accelerator, through TensorFlow."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import parts
from deepsimplex.distances.search import BlockFunction

# No tensor on the device is larger. Some eight are alive at a time, so a card of 4 GiB will do, while the work on one
# is long beside the start of a kernel. On the CPU small tensors stay nearer its caches (measured).
ACCELERATOR_BYTES = 2**27
CPU_BYTES = 2**24
# Images at a time on either side. Preparing columns costs the less the more rows then use them.
ACCELERATOR_TILE = (1024, 256)
CPU_TILE = (256, 256)
# Tiles of columns that share the preparation of their rows: enough for it to cost next to nothing.
TILES_BESIDE = 16
# Images standardized at a time, in float64.
_AT_ONCE = 256


def has_accelerator() -> bool:
    """Whether TensorFlow sees a GPU.

    Returns
    -------
    bool

    Examples
    --------
    >>> device = "/GPU:0" if has_accelerator() else "/CPU:0"
    """
    import tensorflow as tf

    return bool(tf.config.get_visible_devices("GPU"))


def ssim_blocks(
    images: NDArray[Any],
    queries: NDArray[Any] | None,
    order: NDArray[np.int64],
    window: int,
    channels: int,
    data_range: float,
    device: str | None = None,
) -> BlockFunction:
    """Prepare both sides once, and return the function that fills one block of structural dissimilarities.

    What ``SSIM.blocks`` does, in float32 on the device, for arrays whose channels lie beside one another. Accurate to
    1e-5, in fact to some 1e-6, but in the absolute: equal images have a distance within that of zero, of either
    sign.

    Parameters
    ----------
    images : ndarray, shape [N, H, P]
        The images searched; P is width times channels, channels last.
    queries : ndarray, shape [M, H, P], or None
        The rows of the matrix; None: ``images`` itself, in its own order.
    order : ndarray of int64, shape [K]
        The columns of the matrix: ``images[order]``.
    window : int
        Side of the square window in pixels, odd.
    channels : int
        C.
    data_range : float
        Largest possible pixel value less the smallest.
    device : str or None
        TensorFlow's name of a device, such as ``"/CPU:0"``; None: the first GPU, or the CPU where there is none.

    Returns
    -------
    callable
        Of a slice of rows and a slice of columns, both with bounds and without steps: float64 [rows, columns].

    Raises
    ------
    ValueError
        When TensorFlow has no such device.

    Notes
    -----
    Windows are cut out of the images, and their covariances are one batched product of matrices [W, F, A] and
    [W, F, B]: the sums over all pairs of images are then written once, where box filters of the A B products of
    images read and write each pixel of each pair several times. A window's mean leaves the pixels beforehand, so that
    nothing cancels afterwards.

    Examples
    --------
    >>> images = np.stack([np.eye(5), 0.5 * np.eye(5)])
    >>> block = ssim_blocks(images, None, np.array([1, 0]), window=3, channels=1, data_range=1.0, device="/CPU:0")
    >>> abs(block(slice(0, 2), slice(0, 2))).round(2)
    array([[0.36, 0.  ],
           [0.  , 0.36]])
    """
    device = _device(device)
    columns = _standardize(images, data_range)
    rows = columns if queries is None else _standardize(queries, data_range)
    return _Blocks(
        rows=rows,
        columns=columns,
        order=order,
        shape=(images.shape[1], images.shape[2]),
        window=window,
        channels=channels,
        device=device,
        split=_rounds_factors(device),
    )


class _Images(NamedTuple):
    """Images in units of the data range.

    Attributes
    ----------
    pixels : ndarray, shape [N, H P], or tensor, shape [H P, N], float32
        Less the image's brightness: covariances do not depend on it, and smaller numbers lose less to rounding.
    brightness : ndarray or tensor, shape [N], float32
        The mean over the image.
    """

    pixels: Any
    brightness: Any


class _Windows(NamedTuple):
    """Some windows of some images, on the device.

    Attributes
    ----------
    factors : tensor, shape [W, F, A]
        Of images among the rows and among the columns: their products, summed over F, are the numerators of the
        structure, 2 covariance + c2.
    means, variances : tensor, shape [W, A]
    """

    factors: Any
    means: Any
    variances: Any


class _Programme(NamedTuple):
    """What runs on the device; each function is traced once, for all shapes."""

    rows: Callable[..., _Windows]
    columns: Callable[..., _Windows]
    accumulate: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The function that ``ssim_blocks`` returns.

    Attributes
    ----------
    rows, columns : _Images
    order : ndarray of int64
    shape : (int, int)
        H and P.
    window, channels : int
    device : str
    split : bool
        Whether the device may round the factors of a product.
    """

    rows: _Images
    columns: _Images
    order: NDArray[np.int64]
    shape: tuple[int, int]
    window: int
    channels: int
    device: str
    split: bool

    def __call__(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        import tensorflow as tf

        tiles = self._tiles
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start))
        with tf.device(self.device):
            for some_columns in parts(columns, tiles.uploaded):
                others = [self._upload(self.columns, self.order[part]) for part in parts(some_columns, tiles.columns)]
                across = slice(some_columns.start - columns.start, some_columns.stop - columns.start)
                for some_rows in parts(rows, tiles.rows):
                    similarities = self._similarities(self._upload(self.rows, some_rows), others)
                    down = slice(some_rows.start - rows.start, some_rows.stop - rows.start)
                    np.subtract(1.0, similarities, out=out[down, across])
        return out

    def _similarities(self, images: _Images, others: list[_Images]) -> NDArray[np.float64]:
        """Mean SSIM [A, B] of some rows and several tiles of columns, all of them on the device."""
        import tensorflow as tf

        programme, (corners, offsets) = _programme(self.device, self.split, self.window**2), self._places
        totals = [tf.zeros((len(images.brightness), len(tile.brightness)), tf.float64) for tile in others]
        within = tf.constant(offsets)
        for strip in parts(slice(0, len(corners)), self._tiles.windows):
            where = tf.constant(corners[strip])
            rows = programme.rows(*images, where, within)
            for number, tile in enumerate(others):
                totals[number] = programme.accumulate(totals[number], rows, programme.columns(*tile, where, within))
        return np.concatenate([total.numpy() for total in totals], axis=1) / len(corners)

    @staticmethod
    def _upload(images: _Images, which: slice | NDArray[np.int64]) -> _Images:
        """Some images on the device, their pixels as [H P, A]: the images beside one another, as windows have them."""
        import tensorflow as tf

        return _Images(tf.transpose(tf.constant(images.pixels[which])), tf.constant(images.brightness[which]))

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the windows begin in an image's flat pixels, and where a window's pixels lie from there."""
        height, width = self.shape
        corners = np.add.outer(
            np.arange(height - self.window + 1) * width, np.arange(width - (self.window - 1) * self.channels)
        )
        offsets = np.add.outer(np.arange(self.window) * width, np.arange(self.window) * self.channels)
        return corners.ravel(), offsets.ravel()

    @cached_property
    def _tiles(self) -> "_Tiles":
        on_cpu = "CPU" in self.device
        numbers = (CPU_BYTES if on_cpu else ACCELERATOR_BYTES) // 4
        most_rows, most_columns = CPU_TILE if on_cpu else ACCELERATOR_TILE
        pixels = self.shape[0] * self.shape[1]
        factors = (self.window**2 + 1) * (3 if self.split else 1)
        most = max(1, numbers // max(pixels, factors))
        rows = max(1, min(most_rows, most, len(self.rows.pixels)))
        columns = max(1, min(most_columns, most, len(self.order)))
        # Factors of rows, factors of columns, and products.
        largest = max(rows * factors, columns * factors, rows * columns)
        beside = min(TILES_BESIDE, max(1, numbers // (columns * pixels)))
        return _Tiles(rows, columns, beside * columns, max(1, numbers // largest))


class _Tiles(NamedTuple):
    """How much is worked on at a time.

    Attributes
    ----------
    rows, columns : int
        Images on either side.
    uploaded : int
        Columns that are on the device.
    windows : int
        Windows of every image.
    """

    rows: int
    columns: int
    uploaded: int
    windows: int


def _device(device: str | None) -> str:
    """The full name of a device, or say that there is none of this name."""
    import tensorflow as tf

    if device is None:
        device = "/GPU:0" if has_accelerator() else "/CPU:0"
    try:
        found = tf.DeviceSpec.from_string(device)
    except (ValueError, TypeError, AttributeError):
        found = tf.DeviceSpec()
    name = f"/device:{found.device_type}:{found.device_index or 0}"
    known = [logical.name for logical in tf.config.list_logical_devices()]
    if name not in known:
        raise ValueError(f"device must be one of {', '.join(known)}; found {device!r}")
    return name


def _rounds_factors(device: str) -> bool:
    """Whether the device may round the factors of a matrix product to TensorFloat-32.

    TensorFlow lets GPUs do so unless told otherwise, for the whole process: that is not ours to change.
    """
    import tensorflow as tf

    return "GPU" in device and tf.config.experimental.tensor_float_32_execution_enabled()


def _standardize(images: NDArray[Any], data_range: float) -> _Images:
    """Images [N, H, P] as the device takes them."""
    pixels = np.empty((len(images), images.shape[1] * images.shape[2]), np.float32)
    brightness = np.empty(len(images), np.float32)
    for some in parts(slice(0, len(images)), _AT_ONCE):
        exact = images[some].reshape(-1, pixels.shape[1]).astype(np.float64) / data_range
        brightness[some] = exact.mean(axis=1)
        pixels[some] = exact - brightness[some, None].astype(np.float64)
    return _Images(pixels, brightness)


@lru_cache
def _programme(device: str, split: bool, area: int) -> _Programme:
    """The functions that run on a device.

    Parameters
    ----------
    device : str
    split : bool
        Whether the factors of products are split, since the device may round them.
    area : int
        Number of a window's pixels.
    """
    import tensorflow as tf

    # Not above: the module of the metric may import this one.
    from deepsimplex.distances.ssim import K1, K2

    # Pixels come in units of the data range.
    c1, c2 = K1**2, K2**2
    matrix, batch = tf.TensorSpec((None, None), tf.float32), tf.TensorSpec((None, None, None), tf.float32)
    of_images = (
        matrix,
        tf.TensorSpec((None,), tf.float32),
        tf.TensorSpec((None,), tf.int64),
        tf.TensorSpec((area,), tf.int64),
    )
    of_windows = _Windows(batch, matrix, matrix)

    def prepare(scale: float, constant: float, halves: tuple[int, int, int]) -> Callable[..., _Windows]:
        """The function that cuts windows at ``corners`` [W] out of images [H P, A].

        Their centered pixels are scaled, and a constant is one pixel more. Where factors are split, those of rows and
        columns hold their halves in such an order that the products are all those which float32 can tell.
        """

        @tf.function(input_signature=of_images, autograph=False)
        def windows(pixels: Any, brightness: Any, corners: Any, offsets: Any) -> _Windows:
            with tf.device(device):
                values = tf.gather(pixels, corners[:, tf.newaxis] + offsets)
                means = tf.reduce_mean(values, axis=1, keepdims=True)
                values -= means
                variances = tf.reduce_sum(tf.square(values), axis=1) / (area - 1)
                factors = tf.pad(values * scale, [[0, 0], [0, 1], [0, 0]], constant_values=constant)
                if split:
                    both = _halves(factors)
                    factors = tf.concat([both[half] for half in halves], axis=1)
                return _Windows(factors, means[:, 0] + brightness, variances)

        return windows

    @tf.function(input_signature=(tf.TensorSpec((None, None), tf.float64), of_windows, of_windows), autograph=False)
    def accumulate(total: Any, a: _Windows, b: _Windows) -> Any:
        """Add the similarities in some windows to ``total`` [A, B]; every operation is a pass over [W, A, B]."""
        with tf.device(device):
            a_means, a_variances = a.means[:, :, tf.newaxis], a.variances[:, :, tf.newaxis]
            b_means, b_variances = b.means[:, tf.newaxis, :], b.variances[:, tf.newaxis, :]
            structure = tf.matmul(a.factors, b.factors, transpose_a=True)
            luminance = (2.0 * a_means) * b_means + c1
            squares = tf.square(a_means) + (tf.square(b_means) + c1)
            similarities = structure * luminance / (squares * (a_variances + (b_variances + c2)))
            return total + tf.cast(tf.reduce_sum(similarities, axis=0), tf.float64)

    return _Programme(
        rows=prepare(2.0 / (area - 1), 1.0, (0, 0, 1)),
        columns=prepare(1.0, c2, (0, 1, 0)),
        accumulate=accumulate,
    )


def _halves(values: Any) -> tuple[Any, Any]:
    """Float32 as high + low, exactly, where high has no more than the 11 significant bits that TensorFloat-32 keeps.

    Veltkamp's splitting: T. J. Dekker, "A floating-point technique for extending the available precision", Numerische
    Mathematik 18 (1971).
    """
    swollen = values * (2.0**13 + 1)
    high = swollen - (swollen - values)
    return high, values - high
