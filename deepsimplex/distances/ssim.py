"""The structural dissimilarity of images."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.distances.base import Distance, check_real
from deepsimplex.distances.search import BlockFunction

K1, K2 = 0.01, 0.03
# Float32 is good to about 1e-5 here; below this, where that begins to show, pairs are evaluated again in float64.
NEAR = 1e-3


class SSIM(Distance):
    """d(a, b) = 1 - SSIM(a, b), the mean over all windows inside the images [CASIMAC sec. 3.4].

    The same as 1 - ``skimage.metrics.structural_similarity(a, b, win_size=window, data_range=data_range)`` (uniform
    window, sample covariance, K1 = 0.01, K2 = 0.03; with ``channel_axis=-1`` for colour: the mean over channels) to
    1e-4: computed in float32, and in float64 where images are nearly equal. Equal images have distance exactly 0.
    It is no metric in the strict sense: the triangle inequality does not hold. Values lie in [0, 2].

    Parameters
    ----------
    window : int
        Side of the square window in pixels: odd, at least 3, at most the images' height and width.
    data_range : float
        Largest possible pixel value less the smallest. The default 1.0 is for images in [0, 1]; [CASIMAC] does not
        state its own.

    Raises
    ------
    ValueError
        When the window is even or below 3, or the data range is not positive and finite.

    Notes
    -----
    Images are real arrays [N, H, W] or, with channels, [N, H, W, C]. Z. Wang et al., "Image quality assessment: from
    error visibility to structural similarity", IEEE Transactions on Image Processing 13 (2004).

    Examples
    --------
    >>> import numpy as np
    >>> images = np.stack([np.eye(5), 0.5 * np.eye(5)])
    >>> SSIM(3).pairwise(images, images).round(2)
    array([[0.  , 0.36],
           [0.36, 0.  ]])
    """

    name: ClassVar[str] = "ssim"

    def __init__(self, window: int, data_range: float = 1.0) -> None:
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 3 or window % 2 == 0:
            raise ValueError(f"window must be an odd whole number of pixels, at least 3; found {window!r}")
        if not np.isfinite(data_range) or data_range <= 0:
            raise ValueError(f"data_range must be finite and positive; found {data_range!r}")
        self.window = int(window)
        self.data_range = float(data_range)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "window": self.window, "data_range": self.data_range}

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        images = check_real(x, name)
        if images.ndim not in (3, 4):
            raise ValueError(
                f"{name} must hold images, [N, H, W] or [N, H, W, C], for the SSIM; found shape {list(images.shape)}"
            )
        height, width = images.shape[1:3]
        if self.window > min(height, width):
            largest = min(height, width) - (min(height, width) + 1) % 2
            raise ValueError(
                f"window={self.window} does not fit into images of {height} x {width} pixels in {name}; "
                f"the largest that does is {largest}"
            )
        if images.dtype.kind != "f":
            if self.data_range <= 1:
                raise ValueError(
                    f"{name} must hold floats in a range of {self.data_range:g} for {self!r}; found dtype "
                    f"{images.dtype}. Scale it, e.g. {name} / 255 for images in [0, 255], or set data_range=255"
                )
            images = images.astype(np.float32 if images.dtype.itemsize <= 2 else np.float64)
        if images.size and images.max() - images.min() > self.data_range * (1 + 1e-6):
            raise ValueError(
                f"{name} must span no more than data_range={self.data_range:g}; found values from {images.min():g} to "
                f"{images.max():g}. Scale it (e.g. {name} / 255 for images in [0, 255]) or set data_range"
            )
        return images

    def blocks(self, x: NDArray[Any], queries: NDArray[Any] | None, order: NDArray[np.int64]) -> BlockFunction:
        from deepsimplex.distances import _ssim_kernels as kernels

        channels = x.shape[3] if x.ndim == 4 else 1
        # Channels beside one another: a window is then every C-th column.
        images = np.ascontiguousarray(x).reshape(len(x), x.shape[1], x.shape[2] * channels)
        rows_of = images
        if queries is not None:
            rows_of = np.ascontiguousarray(queries).reshape(len(queries), *images.shape[1:])
        c1, c2 = (K1 * self.data_range) ** 2, (K2 * self.data_range) ** 2
        packed = kernels.pack(images, order, self.window, channels)

        def block(rows: slice, columns: slice) -> NDArray[np.float64]:
            indices = np.arange(rows.start, rows.stop)
            prepared = kernels.statistics(rows_of, indices, self.window, channels)
            distances = kernels.distance_block(
                prepared, packed, columns.start, columns.stop, self.window, channels, np.float32(c1), np.float32(c2)
            )
            kernels.evaluate_near(
                distances, NEAR, rows_of, indices, images, order[columns], self.window, channels, c1, c2
            )
            return distances

        return block
