"""Compiled inner loops of the structural similarity.

Images are prepared once (``pack``) and compared pair by pair, a row of windows at a time, on vectors that run along the
row. Sums of products over a window are made in two steps: down the columns, as running sums, for a band of rows
(``_columns``); then along the rows (``_band``). The first step is always a band ahead of the second: a load that
straddles two stores of a moment ago would wait for both to reach the cache, which costs more than everything else here
(measured).
"""

from typing import NamedTuple

import numpy as np
from numba import get_num_threads, get_thread_id, njit, prange
from numpy.typing import DTypeLike, NDArray

from deepsimplex.distances._compiled import exclusive
from deepsimplex.distances._lanes import aligned, lanes_of, load, splat, store, total
from deepsimplex.distances.ssim import K1, K2

# Running sums are started afresh after so many rows: rounding then does not grow with the image.
RESTART = 32
# Blocks of so many images by so many stay in a core's cache while their pairs are evaluated.
CACHED = 64
# Pairs that a thread evaluates before it takes others.
CHUNK = 256
# A band of fewer vectors is over before the processor has got going: deciding then costs more than it saves (measured).
VECTORS_PER_BAND = 8


class Layout(NamedTuple):
    """How packed images lie in memory, and the constants of the formula.

    ``pixel_row`` and ``window_row`` are lengths of rows of pixels and of windows, filled up to whole vectors; ``edges``
    are the rows at which bands of windows begin, and their end; ``inside`` is 1 for windows of a row and 0 for those
    that only fill up a vector, whose sums reach into what lies behind.
    """

    height: int
    width: int
    channels: int
    window: int
    pixel_row: int
    window_row: int
    lanes: int
    edges: NDArray[np.int64]
    constants: NDArray
    inside: NDArray

    @property
    def rows(self) -> int:
        """Rows of windows."""
        return self.height - self.window + 1

    @property
    def row(self) -> int:
        """Windows in a row, over all channels."""
        return self.width - (self.window - 1) * self.channels

    @property
    def dtype(self) -> np.dtype:
        return self.constants.dtype


def layout(height: int, width: int, window: int, channels: int, bands: int, dtype: DTypeLike) -> Layout:
    """Lay out images [height, width], channels beside one another, for comparison in at most so many bands."""
    lanes = lanes_of(dtype)
    rows, row = height - window + 1, width - (window - 1) * channels
    window_row = -(-row // lanes) * lanes
    bands = max(1, min(bands, rows, rows * window_row // lanes // VECTORS_PER_BAND))
    pixels = window * window
    # Of images whose range is 1: the similarity does not depend on their unit.
    constants = [2 / (pixels - 1), 2 * pixels / (pixels - 1), K1**2, K2**2, 2.0, 0.0]
    return Layout(
        height, width, channels, window, -(-width // lanes) * lanes, window_row, lanes,
        np.linspace(0, rows, bands + 1).round().astype(np.int64), np.array(constants, dtype),
        (np.arange(window_row) < row).astype(dtype),
    )  # fmt: skip


class Packed(NamedTuple):
    """Images as the kernels take them, flat: pixels and window means less the image's mean, variances, and means."""

    pixels: NDArray
    means: NDArray
    variances: NDArray
    shifts: NDArray


def pack(images: NDArray, indices: NDArray[np.int64], data_range: float, plan: Layout) -> Packed:
    """Prepare ``images[indices]``, images [N, H, P], divided by their range."""
    count = len(indices)
    pixels = aligned((count, plan.height, plan.pixel_row), plan.dtype)
    means = aligned((count, plan.rows, plan.window_row), plan.dtype)
    variances = aligned((count, plan.rows, plan.window_row), plan.dtype)
    shifts = np.empty(count, plan.dtype)
    _pack(
        images, indices, 1.0 / data_range, plan.window, plan.channels, plan.width, plan.row,
        pixels, means, variances, shifts,
    )  # fmt: skip
    return Packed(pixels.reshape(-1), means.reshape(-1), variances.reshape(-1), shifts)


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def _pack(images, indices, scale, window, channels, width, row, pixels, means, variances, shifts):
    count, rows, _ = means.shape
    area = window * window
    for n in prange(count):
        image = images[indices[n]]
        total_value = 0.0
        for i in range(image.shape[0]):
            for q in range(width):
                total_value += image[i, q]
        shift = total_value * scale / (image.shape[0] * width)
        shifts[n] = shift
        # Covariances do not depend on the shift, and sums of products of smaller numbers lose less to rounding.
        shift = np.float64(shifts[n])
        for i in range(image.shape[0]):
            for q in range(width):
                pixels[n, i, q] = image[i, q] * scale - shift
        sums = np.zeros(width)
        squares = np.zeros(width)
        for i in range(rows):
            if i % RESTART == 0:
                sums[:] = 0.0
                squares[:] = 0.0
                for r in range(i, i + window):
                    for q in range(width):
                        value = image[r, q] * scale - shift
                        sums[q] += value
                        squares[q] += value * value
            else:
                for q in range(width):
                    leaving, entering = image[i - 1, q] * scale - shift, image[i + window - 1, q] * scale - shift
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
def _columns(a, a_place, b, b_place, plan, first, last, scratch):
    """Sums of products down the columns of two packed images, for windows in rows ``first`` to ``last``.

    Places are those of ``_places``. Where ``first`` is not 0, ``scratch`` holds the sums of the row before.
    """
    pixels, other_pixels = a[0], b[0]
    a_offset, b_offset = a_place[1], b_place[1]
    length, lanes, window = plan.pixel_row, plan.lanes, plan.window
    begin = first
    while begin < last:
        # As far as running sums run, and their first row by itself.
        end = min(last, begin - begin % RESTART + RESTART)
        fresh = begin % RESTART == 0
        for j in range(0, length, lanes):
            if fresh:
                place = begin * length + j
                column = load(pixels, a_offset + place) * load(other_pixels, b_offset + place)
                for _ in range(1, window):
                    place += length
                    column = column + load(pixels, a_offset + place) * load(other_pixels, b_offset + place)
                store(scratch, begin * length + j, column)
            else:
                column = load(scratch, (begin - 1) * length + j)
            place = (begin + 1 if fresh else begin) * length + j
            leaving, entering = place - length, place + (window - 1) * length
            for _ in range(begin + 1 if fresh else begin, end):
                column = column + (
                    load(pixels, a_offset + entering) * load(other_pixels, b_offset + entering)
                    - load(pixels, a_offset + leaving) * load(other_pixels, b_offset + leaving)
                )
                store(scratch, place, column)
                place, leaving, entering = place + length, leaving + length, entering + length
        begin = end


@njit(cache=True, error_model="numpy", inline="always")
def _band(a, a_place, b, b_place, plan, first, last, scratch):
    """Sum of the similarities of windows in rows ``first`` to ``last``, from the sums down their columns."""
    means, variances, shifts = a[1], a[2], a[3]
    other_means, other_variances, other_shifts = b[1], b[2], b[3]
    a_index, _, a_windows = a_place
    b_index, _, b_windows = b_place
    length, row, lanes, window, channels = plan.pixel_row, plan.window_row, plan.lanes, plan.window, plan.channels
    constants = plan.constants
    per_box, per_product = splat(constants[0]), splat(constants[1])
    c1, c2, two = splat(constants[2]), splat(constants[3]), splat(constants[4])
    shift, other_shift = splat(shifts[a_index]), splat(other_shifts[b_index])
    similarities = splat(constants[5])
    for i in range(first, last):
        for q in range(0, row, lanes):
            place = i * length + q
            box = load(scratch, place)
            for r in range(1, window):
                box = box + load(scratch, place + r * channels)
            place = i * row + q
            mean, other_mean = load(means, a_windows + place), load(other_means, b_windows + place)
            spread = load(variances, a_windows + place) + load(other_variances, b_windows + place)
            structure = per_box * box - per_product * (mean * other_mean) + c2
            mean, other_mean = mean + shift, other_mean + other_shift
            gap = mean - other_mean
            luminance = two * (mean * other_mean) + c1
            similarity = luminance * structure / ((luminance + gap * gap) * (spread + c2))
            similarities = similarities + load(plan.inside, q) * similarity
    return total(similarities)


def scratch(plan: Layout) -> NDArray:
    """Working memory of ``_band`` for every thread; what lies beyond a row's sums must be finite."""
    vectors = -(-(plan.rows * plan.pixel_row + plan.window * plan.channels) // plan.lanes) + 1
    return aligned((get_num_threads(), vectors * plan.lanes), plan.dtype)


@njit(cache=True, error_model="numpy")
def _places(index, plan):
    """Index of an image, and where its pixels and its windows begin in the flat arrays."""
    return index, index * plan.height * plan.pixel_row, index * plan.edges[-1] * plan.window_row


@njit(cache=True, error_model="numpy")
def _windows(plan):
    return plan.edges[-1] * (plan.width - (plan.window - 1) * plan.channels)


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def band_block(rows, columns, plan, memory, out):
    """Fill ``out`` [bands, A, B] with what every band adds to the similarities of packed images."""
    windows, edges = _windows(plan), plan.edges
    bands, count, others = out.shape
    for chunk in prange((count + CACHED - 1) // CACHED):
        scratch = memory[get_thread_id()]
        for begin in range(0, others, CACHED):
            for a in range(chunk * CACHED, min((chunk + 1) * CACHED, count)):
                a_place = _places(a, plan)
                for b in range(begin, min(begin + CACHED, others)):
                    b_place = _places(b, plan)
                    _columns(rows, a_place, columns, b_place, plan, 0, edges[1], scratch)
                    for k in range(bands):
                        if k + 1 < bands:
                            _columns(rows, a_place, columns, b_place, plan, edges[k + 1], edges[k + 2], scratch)
                        similarity = _band(rows, a_place, columns, b_place, plan, edges[k], edges[k + 1], scratch)
                        out[k, a, b] = similarity / windows


@njit(cache=True, error_model="numpy")
def _pair(a, b, window, channels, c1, c2):
    """1 - SSIM of two images [H, P] by direct sums in float64; exactly 0 for equal images."""
    if np.array_equal(a, b):
        return 0.0
    height, width = a.shape[0] - window + 1, a.shape[1] - (window - 1) * channels
    pixels = window * window
    loss = 0.0
    for i in range(height):
        for q in range(width):
            a_mean, b_mean = 0.0, 0.0
            for r in range(window):
                for s in range(window):
                    a_mean += a[i + r, q + s * channels]
                    b_mean += b[i + r, q + s * channels]
            a_mean /= pixels
            b_mean /= pixels
            a_square, b_square, covariance = 0.0, 0.0, 0.0
            for r in range(window):
                for s in range(window):
                    a_rest = a[i + r, q + s * channels] - a_mean
                    b_rest = b[i + r, q + s * channels] - b_mean
                    a_square += a_rest * a_rest
                    b_square += b_rest * b_rest
                    covariance += a_rest * b_rest
            luminance = (2.0 * a_mean * b_mean + c1) / (a_mean * a_mean + b_mean * b_mean + c1)
            scale = pixels - 1
            structure = (2.0 * covariance / scale + c2) / ((a_square + b_square) / scale + c2)
            loss += 1.0 - luminance * structure
    return max(loss / (height * width), 0.0)


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def distance_block(similarities, near, queries, rows, images, columns, window, channels, c1, c2):
    """Distances [A, B], float64, of ``similarities`` [bands, A, B]; below ``near`` evaluated again in float64."""
    bands, count, others = similarities.shape
    out = np.empty((count, others))
    for a in prange(count):
        for b in range(others):
            total_similarity = np.float64(similarities[0, a, b])
            for k in range(1, bands):
                total_similarity += np.float64(similarities[k, a, b])
            distance = 1.0 - total_similarity
            if distance < near:
                distance = _pair(queries[rows[a]], images[columns[b]], window, channels, c1, c2)
            out[a, b] = distance
    return out


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def evaluate_pairs(
    pairs, bounds, slack, limits, rows, columns, plan, memory, near,
    queries, row_indices, images, column_indices, c1, c2,
):  # fmt: skip
    """Distances of pairs [2, S] of packed images; inf where they are sure to exceed ``limits`` [S].

    ``bounds`` [bands, S]: minus the most that every band may add to the similarity; what the bands evaluated so far
    have added and those to come may add decides after every band. ``slack`` covers rounding.
    """
    windows, edges = _windows(plan), plan.edges
    bands = len(edges) - 1
    count = pairs.shape[1]
    values = np.empty(count)
    chunks, threads = (count + CHUNK - 1) // CHUNK, len(memory)
    turns = (chunks + threads - 1) // threads
    for turn in prange(turns * threads):
        # A thread is given turns that follow one another. The chunks that it takes lie far apart, as some parts of a
        # tile hold far more pairs that are soon abandoned than others do.
        chunk = turn % turns * threads + turn // turns
        scratch = memory[get_thread_id()]
        for s in range(chunk * CHUNK, min((chunk + 1) * CHUNK, count)):
            a, b = pairs[0, s], pairs[1, s]
            a_place, b_place = _places(a, plan), _places(b, plan)
            rest = 0.0
            for k in range(bands):
                rest -= bounds[k, s]
            least = 1.0 - limits[s] - slack
            similarity = 0.0
            value = np.inf
            if rest >= least:
                _columns(rows, a_place, columns, b_place, plan, 0, edges[1], scratch)
            for k in range(bands):
                if similarity + rest < least:
                    break
                rest += bounds[k, s]
                if k + 1 < bands:
                    _columns(rows, a_place, columns, b_place, plan, edges[k + 1], edges[k + 2], scratch)
                band = _band(rows, a_place, columns, b_place, plan, edges[k], edges[k + 1], scratch) / windows
                # Rounded to the precision of the whole block's, so that both give the same bits.
                similarity += float(plan.constants.dtype.type(band))
                if k == bands - 1:
                    value = 1.0 - similarity
                    if value < near:
                        value = _pair(
                            queries[row_indices[a]], images[column_indices[b]], plan.window, plan.channels, c1, c2
                        )
            values[s] = value
    return values
