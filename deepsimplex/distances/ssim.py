"""The structural dissimilarity of images."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import parts
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_choice, check_number
from deepsimplex.distances.distance import BlockFunction, Distance, PairFunction

if TYPE_CHECKING:  # numba is imported when there is something to compare
    from deepsimplex.distances.ssim_windows import Layout, Packed

K1, K2 = 0.01, 0.03
# Float32 is accurate to about 1e-5; pairs below this distance, where that matters, are evaluated again in float64.
NEAR = 1e-3
# Image means in units of the data range beyond which products of means overflow float32.
BRIGHTEST = 1e8
# Memory of the images that are prepared at a time.
PACKED_BYTES = 2**24
# Images whose pairs are evaluated together, so that they stay in a core's cache.
CACHED = 64
DTYPES = ("float32", "float64")


@registered
class SSIM(Distance):
    """d(a, b) = 1 - SSIM(a, b), the mean over all windows inside the images [CASIMAC sec. 3.4].

    For two images this is scikit-image's ``structural_similarity(a, b, win_size=window, data_range=data_range)`` in
    float64 (uniform window, sample covariance, K1 = 0.01, K2 = 0.03; with ``channel_axis=-1`` for color: the mean over
    channels). Many pairs are compared by compiled loops that agree with it to about 1e-5 (2e-4 at worst: large windows
    across a bright and a dark, flat part). Equal images have distance exactly 0, and nearly equal ones are compared in
    float64. Values lie in [0, 2]; the triangle inequality holds for the square root, not for the distance itself.

    Neighbors are found by evaluating every pair once, on all cores.

    Parameters
    ----------
    window : int
        Side of the square window in pixels: odd, at least 3, at most the images' height and width.
    data_range : float, optional
        Largest possible pixel value less the smallest. None (default) follows the dtype, as scikit-image does for
        integers: 255 for uint8, 65535 for uint16, and 1 for floats. [CASIMAC] does not state its own.
    dtype : {"float32", "float64"}
        Precision of the comparison. The default "float32" is about twice as fast; "float64" is accurate to 1e-12.

    Raises
    ------
    ValueError
        If the window is even or below 3, the data range is not positive and finite, or the dtype is unknown.

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

    symmetric: ClassVar[bool] = True

    def __init__(self, window: int, data_range: float | None = None, dtype: str = "float32") -> None:
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 3 or window % 2 == 0:
            raise ValueError(f"window must be an odd whole number of pixels, at least 3; found {window!r}")
        self.window = int(window)
        self.data_range = None if data_range is None else check_number(data_range, "data_range", 0, 1e100)
        self.dtype = check_choice(dtype, "dtype", DTYPES)

    def get_config(self) -> dict[str, Any]:
        config = {"window": self.window, "data_range": self.data_range, "dtype": self.dtype}
        defaults = {"data_range": None, "dtype": "float32"}
        return {key: value for key, value in config.items() if key not in defaults or value != defaults[key]}

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        images = super().check(x, name)
        if images.ndim not in (3, 4):
            raise ValueError(f"{name} must hold images, [N, H, W] or [N, H, W, C]; found shape {list(images.shape)}")
        height, width = images.shape[1:3]
        if self.window > min(height, width):
            largest = min(height, width) - (min(height, width) + 1) % 2
            raise ValueError(f"window must be at most {largest} for {height} x {width} pixels; found {self.window}")
        images = self._as_floats(images, name)
        data_range = self._range_of(images)
        if images.size and float(images.max()) - float(images.min()) > data_range * (1 + 1e-6):
            raise ValueError(
                f"{name} must span no more than data_range={data_range:g}; found values from {images.min():g} to "
                f"{images.max():g}. Set data_range, e.g. SSIM(window={self.window}, data_range=255) for pixels 0 to 255"
            )
        brightest = max(float(images.max(initial=0)), -float(images.min(initial=0)))
        if brightest > BRIGHTEST * data_range:
            raise ValueError(
                f"{name} must lie within {BRIGHTEST:g} times data_range={data_range:g} of zero; found "
                f"{brightest:g}. Subtract what all pixels have in common"
            )
        return images

    def _as_floats(self, images: NDArray[Any], name: str) -> NDArray[Any]:
        """Images as floats, in units of their dtype's range if no other was given; bytes as they are."""
        if images.dtype.kind == "f" or images.dtype == np.uint8:
            return images
        floats = images.astype(np.float32 if images.dtype.itemsize <= 2 else np.float64)
        if self.data_range is not None:
            return floats
        if images.dtype != np.uint16:
            raise ValueError(
                f"data_range must be given for images of dtype {images.dtype}, which have no range of their own; found "
                f"None for {name}. Set it, e.g. SSIM(window={self.window}, data_range=255) for pixels 0 to 255"
            )
        return np.divide(floats, np.iinfo(images.dtype).max, dtype=floats.dtype)

    def _range_of(self, images: NDArray[Any]) -> float:
        """Data range of images that ``check`` returned."""
        return self.data_range or (255.0 if images.dtype == np.uint8 else 1.0)

    def __call__(self, a: ArrayLike, b: ArrayLike) -> float:
        from skimage.metrics import structural_similarity

        image, other = (self.check(np.asarray(part)[None], name)[0] for part, name in ((a, "a"), (b, "b")))
        if np.array_equal(image, other):
            return 0.0
        similarity = structural_similarity(
            image.astype(np.float64),
            other.astype(np.float64),
            win_size=self.window,
            data_range=self._range_of(image),
            channel_axis=-1 if image.ndim == 3 else None,
        )
        return max(1.0 - float(similarity), 0.0)

    def _in_one_unit(self, queries: NDArray[Any], x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bytes beside floats become floats in units of their range, if no other was given."""
        if self.data_range is not None or queries.dtype == x.dtype:
            return queries, x
        queries, x = (np.divide(p, 255, dtype=np.float32) if p.dtype == np.uint8 else p for p in (queries, x))
        return queries, x

    def blocks(self, queries: NDArray[Any], x: NDArray[Any]) -> BlockFunction:
        queries, x = self._in_one_unit(queries, x)
        plan = self._layout(x, self.dtype)
        at_once = max(1, PACKED_BYTES // plan.packed_bytes)

        def block(rows: slice, columns: slice) -> NDArray[np.float64]:
            out = np.empty((rows.stop - rows.start, columns.stop - columns.start))
            for across in parts(slice(0, out.shape[1]), at_once):
                packed = self._pack(x[columns][across], plan)
                for down in parts(slice(0, len(out)), at_once):
                    out[down, across] = _all_pairs(self._pack(queries[rows][down], plan), packed, plan)
            near = np.nonzero(out < NEAR)
            out[near] = self._exact(queries, near[0] + rows.start, x, near[1] + columns.start)
            return out

        return block

    def paired(self, queries: NDArray[Any], x: NDArray[Any]) -> PairFunction:
        queries, x = self._in_one_unit(queries, x)

        def distances(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
            out = self._single_pairs(queries, rows, x, columns, self.dtype)
            (near,) = np.nonzero(out < NEAR)
            out[near] = self._exact(queries, rows[near], x, columns[near])
            return out

        return distances

    def _single_pairs(
        self, queries: NDArray[Any], rows: NDArray[np.int64], x: NDArray[Any], columns: NDArray[np.int64], dtype: str
    ) -> NDArray[np.float64]:
        """Compute the distances [S] of single pairs."""
        from deepsimplex.distances.ssim_windows import pair_distances

        plan, out = self._layout(x, dtype), np.empty(len(rows))
        for part in parts(slice(0, len(rows)), max(1, 8 * PACKED_BYTES // plan.packed_bytes)):
            first, row_places = np.unique(rows[part], return_inverse=True)
            second, column_places = np.unique(columns[part], return_inverse=True)
            packed = self._pack(queries[first], plan), self._pack(x[second], plan)
            out[part] = pair_distances(row_places, column_places, *packed, plan)
        return out

    def _exact(
        self, queries: NDArray[Any], rows: NDArray[np.int64], x: NDArray[Any], columns: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Compute the distances [S] of single pairs in float64; exactly 0 for equal images."""
        equal = [np.array_equal(queries[row], x[column]) for row, column in zip(rows, columns, strict=True)]
        return np.where(equal, 0.0, np.maximum(self._single_pairs(queries, rows, x, columns, "float64"), 0.0))

    def _layout(self, x: NDArray[Any], dtype: str) -> "Layout":
        from deepsimplex.distances.ssim_windows import layout

        height, width, channels = (*x.shape[1:], 1)[:3]
        return layout(height, width * channels, self.window, channels, (K1**2, K2**2), dtype)

    def _pack(self, images: NDArray[Any], plan: "Layout") -> "Packed":
        from deepsimplex.distances.ssim_windows import pack

        # Channels beside one another: a window is then every C-th column.
        beside = images.reshape(*images.shape[:2], int(np.prod(images.shape[2:])))
        return pack(np.ascontiguousarray(beside, np.float64), self._range_of(images), plan)


def _all_pairs(images: "Packed", others: "Packed", plan: "Layout") -> NDArray[np.float64]:
    """Distances [A, B] of packed images."""
    from deepsimplex.distances.ssim_windows import pair_distances

    count = len(images.shifts)
    strips = []
    for strip in parts(slice(0, len(others.shifts)), CACHED):
        columns = np.arange(strip.start, strip.stop)
        rows, columns = np.repeat(np.arange(count), len(columns)), np.tile(columns, count)
        strips.append(pair_distances(rows, columns, images, others, plan).reshape(count, -1))
    return np.concatenate(strips, axis=1)
