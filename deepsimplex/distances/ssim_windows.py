"""Compiled comparison of images by their structural similarity, window by window.

Images are prepared once (``pack``) and compared pair by pair, on SIMD vectors that run along a row of windows. Sums of
products over a window are computed in two steps: down the columns, as running sums over the whole image (``_columns``);
then along the rows, with the similarities (``_similarity``).
"""

from typing import NamedTuple

import numpy as np
from numba import get_num_threads, get_thread_id, njit, prange
from numpy.typing import DTypeLike, NDArray

from deepsimplex.distances.simd import aligned, exclusive, lanes_of, load, splat, store, total

# Running sums are started afresh after so many rows, so that rounding does not grow with the image.
RESTART = 32
# Pairs that a thread evaluates before it takes others.
CHUNK = 256


class Layout(NamedTuple):
    """Memory layout of packed images, and the constants of the formula.

    ``pixel_row`` and ``window_row`` are lengths of rows of pixels and of windows, filled up to whole vectors.
    ``inside`` is 1 for windows of a row and 0 for those that fill up a vector. ``windows`` counts those inside.
    """

    height: int
    width: int
    channels: int
    window: int
    rows: int
    pixel_row: int
    window_row: int
    lanes: int
    windows: int
    constants: NDArray
    inside: NDArray

    @property
    def dtype(self) -> np.dtype:
        """Precision of the comparison."""
        return self.constants.dtype

    @property
    def packed_bytes(self) -> int:
        """Memory of a packed image."""
        return (self.height * self.pixel_row + 2 * self.rows * self.window_row) * self.dtype.itemsize


def layout(
    height: int, width: int, window: int, channels: int, stabilizers: tuple[float, float], dtype: DTypeLike
) -> Layout:
    """Lay out images [height, width], channels beside one another, with (c1, c2) for a data range of 1."""
    lanes, area = lanes_of(dtype), window * window
    rows, row = height - window + 1, width - (window - 1) * channels
    window_row = -(-row // lanes) * lanes
    constants = [2 / (area - 1), 2 * area / (area - 1), *stabilizers, 2.0, 0.0]
    return Layout(
        height, width, channels, window, rows, -(-width // lanes) * lanes, window_row, lanes, rows * row,
        np.array(constants, dtype), (np.arange(window_row) < row).astype(dtype),
    )  # fmt: skip


class Packed(NamedTuple):
    """Prepared images, flat: pixels and window means less the image's mean, window variances, and image means."""

    pixels: NDArray
    means: NDArray
    variances: NDArray
    shifts: NDArray


def pack(images: NDArray, data_range: float, plan: Layout) -> Packed:
    """Prepare images [N, H, P], divided by their range."""
    count = len(images)
    pixels = aligned((count, plan.height, plan.pixel_row), plan.dtype)
    means = aligned((count, plan.rows, plan.window_row), plan.dtype)
    variances = aligned((count, plan.rows, plan.window_row), plan.dtype)
    shifts = np.empty(count, plan.dtype)
    scaled = images.astype(np.float64) / data_range
    row = plan.width - (plan.window - 1) * plan.channels
    _pack(scaled, plan.window, plan.channels, row, pixels, means, variances, shifts)
    return Packed(pixels.reshape(-1), means.reshape(-1), variances.reshape(-1), shifts)


@njit(cache=True, error_model="numpy")  # without threads, with which it took six seconds to compile instead of two
def _pack(images, window, channels, row, pixels, means, variances, shifts):
    count, height, width = images.shape
    area = window * window
    for n in range(count):
        image = images[n]
        shifts[n] = image.mean()
        # Covariances do not depend on the shift, and sums of products of smaller numbers lose less to rounding.
        image = image - np.float64(shifts[n])
        for i in range(height):
            for q in range(width):
                pixels[n, i, q] = image[i, q]
        sums = np.zeros(width)
        squares = np.zeros(width)
        for i in range(height - window + 1):
            fresh = i % RESTART == 0
            if fresh:
                sums[:] = 0.0
                squares[:] = 0.0
            for r in range(i if fresh else i + window - 1, i + window):
                for q in range(width):
                    entering, leaving = image[r, q], 0.0 if fresh else image[i - 1, q]
                    sums[q] += entering - leaving
                    squares[q] += entering * entering - leaving * leaving
            for q in range(row):
                mean, square = 0.0, 0.0
                for r in range(window):
                    mean += sums[q + r * channels]
                    square += squares[q + r * channels]
                mean /= area
                means[n, i, q] = mean
                variances[n, i, q] = max(square - area * mean * mean, 0.0) / (area - 1)


@njit(cache=True, error_model="numpy", inline="always")
def _columns(pixels, a, other_pixels, b, plan, scratch):
    """Sums of products down the columns of the images at places ``a`` and ``b``, for every row of windows."""
    length, window = plan.pixel_row, plan.window
    for begin in range(0, plan.rows, RESTART):
        end = min(plan.rows, begin + RESTART)
        for j in range(0, length, plan.lanes):
            place = begin * length + j
            column = load(pixels, a + place) * load(other_pixels, b + place)
            for r in range(1, window):
                column = column + load(pixels, a + place + r * length) * load(other_pixels, b + place + r * length)
            store(scratch, place, column)
            for i in range(begin + 1, end):
                leaving = (i - 1) * length + j
                entering = leaving + window * length
                column = column + (
                    load(pixels, a + entering) * load(other_pixels, b + entering)
                    - load(pixels, a + leaving) * load(other_pixels, b + leaving)
                )
                store(scratch, i * length + j, column)


@njit(cache=True, error_model="numpy", inline="always")
def _similarity(images, a, others, b, plan, scratch):
    """Mean similarity of the windows of images number ``a`` and ``b``, from the sums down their columns."""
    means, variances, shifts = images[1], images[2], images[3]
    other_means, other_variances, other_shifts = others[1], others[2], others[3]
    constants = plan.constants
    per_box, per_product = splat(constants[0]), splat(constants[1])
    c1, c2, two = splat(constants[2]), splat(constants[3]), splat(constants[4])
    shift, other_shift = splat(shifts[a]), splat(other_shifts[b])
    similarities = splat(constants[5])
    a_windows, b_windows = a * plan.rows * plan.window_row, b * plan.rows * plan.window_row
    for i in range(plan.rows):
        for q in range(0, plan.window_row, plan.lanes):
            place = i * plan.pixel_row + q
            box = load(scratch, place)
            for r in range(1, plan.window):
                box = box + load(scratch, place + r * plan.channels)
            place = i * plan.window_row + q
            mean, other_mean = load(means, a_windows + place), load(other_means, b_windows + place)
            spread = load(variances, a_windows + place) + load(other_variances, b_windows + place)
            structure = per_box * box - per_product * (mean * other_mean) + c2
            mean, other_mean = mean + shift, other_mean + other_shift
            gap = mean - other_mean
            luminance = two * (mean * other_mean) + c1
            similarity = luminance * structure / ((luminance + gap * gap) * (spread + c2))
            similarities = similarities + load(plan.inside, q) * similarity
    return total(similarities) / plan.windows


def pair_distances(
    rows: NDArray[np.int64], columns: NDArray[np.int64], images: Packed, others: Packed, plan: Layout
) -> NDArray[np.float64]:
    """Compute 1 - SSIM [S] of the pairs of ``images[rows]`` and ``others[columns]``."""
    # Finite numbers beyond the last row's sums: vectors reach into them.
    vectors = -(-(plan.rows * plan.pixel_row + plan.window * plan.channels) // plan.lanes) + 1
    memory = aligned((get_num_threads(), 2, vectors * plan.lanes), plan.dtype)
    out = np.empty(len(rows))
    _pair_distances(rows, columns, images, others, plan, memory, out)
    return out


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def _pair_distances(rows, columns, images, others, plan, memory, out):
    size = plan.height * plan.pixel_row
    for chunk in prange((len(out) + CHUNK - 1) // CHUNK):
        scratch, ahead = memory[get_thread_id(), 0], memory[get_thread_id(), 1]
        begin, end = chunk * CHUNK, min((chunk + 1) * CHUNK, len(out))
        # The first step is a pair ahead of the second: loads that straddle recent stores would wait for them.
        for s in range(begin, end + 1):
            if s < end:
                _columns(images[0], rows[s] * size, others[0], columns[s] * size, plan, ahead)
            if s > begin:
                similarity = _similarity(images, rows[s - 1], others, columns[s - 1], plan, scratch)
                out[s - 1] = 1.0 - np.float64(similarity)
            scratch, ahead = ahead, scratch
