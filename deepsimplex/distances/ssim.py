"""The structural dissimilarity of images."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import parts
from deepsimplex.distances.accelerator import has_accelerator, ssim_blocks
from deepsimplex.distances.base import Distance, check_real
from deepsimplex.distances.blockwise import search_blockwise
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.search import BlockFunction, Neighbors, PairFunction, Search

if TYPE_CHECKING:  # compiled kernels come in when there is something to compare
    from deepsimplex.distances.ssim_screen import Comparison

K1, K2 = 0.01, 0.03
# Float32 is good to about 1e-5 here; below this, where that begins to show, pairs are evaluated again in float64.
NEAR = 1e-3
# Brightness in units of the data range beyond which products of means overflow float32.
BRIGHTEST = 1e8
# Rows of windows are evaluated in so many bands, each of which may decide that a pair is too far apart. More bands
# decide sooner, and want more coordinates for bounds as good.
BANDS = 4
# Images prepared at a time where all pairs are evaluated.
PACKED_BYTES = 2**24
# Memory of the images of single pairs that are prepared at a time.
PAIRED_BYTES = 2**28
DTYPES = ("float32", "float64")


class SSIM(Distance):
    """d(a, b) = 1 - SSIM(a, b), the mean over all windows inside the images [CASIMAC sec. 3.4].

    The same as 1 - ``skimage.metrics.structural_similarity(a, b, win_size=window, data_range=data_range)`` (uniform
    window, sample covariance, K1 = 0.01, K2 = 0.03; with ``channel_axis=-1`` for color: the mean over channels) to
    about 1e-5 (2e-4 at worst: large windows across a bright and a dark, flat part). Equal images have distance exactly
    0, and nearly equal ones are compared in float64. It is no metric in the strict sense: the triangle inequality holds
    for its square root, not for itself (``deepsimplex.distances.landmarks`` has the proof). Values lie in [0, 2].

    Neighbors are exact, and most pairs of images need no full evaluation for them. Where TensorFlow has a GPU, all
    pairs are evaluated there instead.

    Parameters
    ----------
    window : int
        Side of the square window in pixels: odd, at least 3, at most the images' height and width.
    data_range : float
        Largest possible pixel value less the smallest. The default 1.0 is for images in [0, 1]; [CASIMAC] does not
        state its own.
    dtype : {"float32", "float64"}
        Precision of the comparison. The default "float32" is about twice as fast; "float64" is good to 1e-12.

    Raises
    ------
    ValueError
        When the window is even or below 3, the data range is not positive and finite, or there is no such precision.

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

    def __init__(self, window: int, data_range: float = 1.0, dtype: str = "float32") -> None:
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 3 or window % 2 == 0:
            raise ValueError(f"window must be an odd whole number of pixels, at least 3; found {window!r}")
        if not np.isfinite(data_range) or data_range <= 0:
            raise ValueError(f"data_range must be finite and positive; found {data_range!r}")
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}; found {dtype!r}")
        self.window = int(window)
        self.data_range = float(data_range)
        self.dtype = dtype

    def get_config(self) -> dict[str, Any]:
        config = {"name": self.name, "window": self.window, "data_range": self.data_range}
        return config if self.dtype == "float32" else {**config, "dtype": self.dtype}

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
        brightest = float(np.abs(images).max(initial=0.0))
        if brightest > BRIGHTEST * self.data_range:
            raise ValueError(
                f"{name} must lie within {BRIGHTEST:g} times data_range={self.data_range:g} of zero; found "
                f"{brightest:g}. Subtract what all pixels have in common"
            )
        return images

    def blocks(self, x: NDArray[Any], queries: NDArray[Any] | None, order: NDArray[np.int64]) -> BlockFunction:
        comparison = self._comparison(x, queries)
        at_once = max(1, PACKED_BYTES // comparison.packed_bytes)

        def block(rows: slice, columns: slice) -> NDArray[np.float64]:
            out = np.empty((rows.stop - rows.start, columns.stop - columns.start))
            for beside in parts(columns, at_once):
                packed = comparison.pack_images(order[beside])
                across = slice(beside.start - columns.start, beside.stop - columns.start)
                for some in parts(rows, at_once):
                    indices = np.arange(some.start, some.stop)
                    similarities = comparison.similarities(comparison.pack_queries(indices), packed)
                    down = slice(some.start - rows.start, some.stop - rows.start)
                    out[down, across] = comparison.distances(similarities, indices, order[beside])
            return out

        return block

    def paired(self, x: NDArray[Any], queries: NDArray[Any] | None) -> PairFunction:
        comparison = self._comparison(x, queries)

        def distances(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
            values = np.empty(len(rows))
            for part in parts(slice(0, len(rows)), max(1, PAIRED_BYTES // (2 * comparison.packed_bytes))):
                values[part] = comparison.pair_distances(rows[part], columns[part])
            return values

        return distances

    def neighbors(self, search: Search) -> Neighbors:
        """Every pair on an accelerator, where TensorFlow has one; else few pairs are left to evaluate on the CPU.

        ``deepsimplex.distances.landmarks`` has the proof that these are enough.
        """
        if self.dtype == "float32" and has_accelerator():
            return search_blockwise(
                self._accelerated(search), search, self.name, Checkpoint.of(search, self.cache_key())
            )
        from deepsimplex.distances.screening import search_screened, sides
        from deepsimplex.distances.ssim_screen import StructuralScreen

        rows, columns = sides(search)
        comparison = self._comparison(search.x, search.queries)
        checkpoint = Checkpoint.of(search, self.cache_key())
        screen = StructuralScreen(comparison, search, rows, columns, self.name, checkpoint)
        return search_screened(screen, search, rows, columns, self.name, checkpoint)

    def _accelerated(self, search: Search) -> BlockFunction:
        """Blocks by TensorFlow, with nearly equal images compared again in float64."""
        comparison = self._comparison(search.x, search.queries)
        images, queries = comparison.images, None if search.queries is None else comparison.queries
        block = ssim_blocks(images, queries, search.order, self.window, comparison.plan.channels, self.data_range)

        def accurate(rows: slice, columns: slice) -> NDArray[np.float64]:
            similarities = (1.0 - block(rows, columns))[None]
            return comparison.distances(similarities, np.arange(rows.start, rows.stop), search.order[columns])

        return accurate

    def _comparison(self, x: NDArray[Any], queries: NDArray[Any] | None) -> "Comparison":
        from deepsimplex.distances import _ssim_kernels as kernels
        from deepsimplex.distances.ssim_screen import Comparison

        height, width, channels = (*x.shape[1:], 1)[:3]
        # Channels beside one another: a window is then every C-th column.
        images, others = (
            np.ascontiguousarray(part).reshape(len(part), height, width * channels)
            for part in (x, x if queries is None else queries)
        )
        return Comparison(
            images=images,
            queries=images if queries is None else others,
            plan=kernels.layout(height, width * channels, self.window, channels, BANDS, self.dtype),
            data_range=self.data_range,
            c1=(K1 * self.data_range) ** 2,
            c2=(K2 * self.data_range) ** 2,
            near=NEAR,
        )
