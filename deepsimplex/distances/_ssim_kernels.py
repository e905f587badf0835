"""Compiled inner loops of the structural similarity."""

import numpy as np
from numba import njit, prange

from deepsimplex.distances._compiled import exclusive

# Candidates evaluated side by side: four vectors of sixteen float32 hide the cost of the loop around them (measured).
LANES = 64
# Running sums are started afresh after so many windows: rounding then stays at 1e-6 however large the image is.
RESTART = 32


@njit(cache=True)
def _statistics(image, window, channels, shift, means, variances):
    """Fill means and sample variances [h, p] of the windows of one image [H, P], less ``shift``, in float64."""
    height, width = means.shape
    pixels = window * window
    for i in range(height):
        for q in range(width):
            total = 0.0
            for r in range(window):
                for s in range(window):
                    total += np.float64(image[i + r, q + s * channels]) - shift
            mean = total / pixels
            squares = 0.0
            for r in range(window):
                for s in range(window):
                    squares += (np.float64(image[i + r, q + s * channels]) - shift - mean) ** 2
            means[i, q] = mean
            variances[i, q] = squares / (pixels - 1)


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def statistics(images, rows, window, channels):
    """Shifted pixels, shifts, window means and variances of images [N, H, P] at ``rows``, in float32.

    P is width times channels, channels last. The shift of an image is its mean: covariances do not depend on it, and
    sums of products of smaller numbers lose less to rounding.
    """
    count, height, width = len(rows), images.shape[1], images.shape[2]
    shape = (count, height - window + 1, width - (window - 1) * channels)
    pixels = np.empty((count, height, width), np.float32)
    shifts = np.empty(count, np.float32)
    means = np.empty(shape, np.float32)
    variances = np.empty(shape, np.float32)
    for n in prange(count):
        image = images[rows[n]]
        shift = np.float32(image.mean())
        shifts[n] = shift
        for i in range(height):
            for q in range(width):
                pixels[n, i, q] = np.float64(image[i, q]) - shift
        _statistics(image, window, channels, np.float64(shift), means[n], variances[n])
    return pixels, shifts, means, variances


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def pack(images, rows, window, channels):
    """The arrays of ``statistics``, LANES images side by side in the last axis: [G, H, P, LANES] and so on.

    The last group is filled up with copies of the last image.
    """
    count, height, width = len(rows), images.shape[1], images.shape[2]
    groups = (count + LANES - 1) // LANES
    h, p = height - window + 1, width - (window - 1) * channels
    pixels = np.empty((groups, height, width, LANES), np.float32)
    shifts = np.empty((groups, LANES), np.float32)
    means = np.empty((groups, h, p, LANES), np.float32)
    variances = np.empty((groups, h, p, LANES), np.float32)
    for g in prange(groups):
        mean = np.empty((h, p), np.float32)
        variance = np.empty((h, p), np.float32)
        for lane in range(LANES):
            image = images[rows[min(g * LANES + lane, count - 1)]]
            shift = np.float32(image.mean())
            shifts[g, lane] = shift
            for i in range(height):
                for q in range(width):
                    pixels[g, i, q, lane] = np.float64(image[i, q]) - shift
            _statistics(image, window, channels, np.float64(shift), mean, variance)
            means[g, :, :, lane] = mean
            variances[g, :, :, lane] = variance
    return pixels, shifts, means, variances


@njit(cache=True, fastmath=True, error_model="numpy", inline="always")
def _similarities(a, a_shift, a_means, a_variances, b, b_shift, b_means, b_variances, window, channels, c1, c2, s):
    """Mean SSIM of one image [H, P] and LANES others [H, P, LANES]; ``s`` holds the working arrays."""
    columns, boxes, row_sum, total = s
    height, width = a_means.shape
    area = np.float32(1.0) / np.float32(window * window)
    unbiased = np.float32(window * window) / np.float32(window * window - 1)
    two = np.float32(2.0)
    for lane in range(LANES):
        total[lane] = 0.0
    for i in range(height):
        if i % RESTART == 0:
            for q in range(a.shape[1]):
                pixel, others, column = a[i, q], b[i, q], columns[q]
                for lane in range(LANES):
                    column[lane] = pixel * others[lane]
                for r in range(i + 1, i + window):
                    pixel, others = a[r, q], b[r, q]
                    for lane in range(LANES):
                        column[lane] += pixel * others[lane]
        else:
            for q in range(a.shape[1]):
                leaving, entering, column = a[i - 1, q], a[i + window - 1, q], columns[q]
                leaving_others, entering_others = b[i - 1, q], b[i + window - 1, q]
                for lane in range(LANES):
                    column[lane] += entering * entering_others[lane] - leaving * leaving_others[lane]
        for lane in range(LANES):
            row_sum[lane] = np.float32(0.0)
        for q in range(width):
            box = boxes[q % channels]
            if (q // channels) % RESTART == 0:
                for lane in range(LANES):
                    box[lane] = columns[q, lane]
                for r in range(1, window):
                    column = columns[q + r * channels]
                    for lane in range(LANES):
                        box[lane] += column[lane]
            else:
                leaving_column, entering_column = columns[q - channels], columns[q + (window - 1) * channels]
                for lane in range(LANES):
                    box[lane] += entering_column[lane] - leaving_column[lane]
            mean, variance = a_means[i, q], a_variances[i, q]
            true_mean = mean + a_shift
            means, variances = b_means[i, q], b_variances[i, q]
            for lane in range(LANES):
                covariance = (box[lane] * area - mean * means[lane]) * unbiased
                other_mean = means[lane] + b_shift[lane]
                product = true_mean * other_mean
                gap = true_mean - other_mean
                luminance = two * product + c1
                structure = two * covariance + c2
                row_sum[lane] += luminance * structure / ((luminance + gap * gap) * (variance + variances[lane] + c2))
        for lane in range(LANES):
            total[lane] += row_sum[lane]


@exclusive
@njit(parallel=True, cache=True, error_model="numpy")
def distance_block(queries, others, first, last, window, channels, c1, c2):
    """Distances 1 - SSIM [A, last - first] of images as ``statistics`` gives them to packed ones first..last-1."""
    pixels, shifts, means, variances = queries
    other_pixels, other_shifts, other_means, other_variances = others
    count = len(pixels)
    windows = means.shape[1] * means.shape[2]
    out = np.empty((count, last - first))
    # A group stays in a core's cache while all the queries pass by.
    for g in prange(first // LANES, (last + LANES - 1) // LANES):
        total = np.empty(LANES, np.float64)
        scratch = (
            np.empty((pixels.shape[2], LANES), np.float32),
            np.empty((channels, LANES), np.float32),
            np.empty(LANES, np.float32),
            total,
        )
        begin, end = max(first, g * LANES), min(last, (g + 1) * LANES)
        for a in range(count):
            _similarities(
                pixels[a], shifts[a], means[a], variances[a],
                other_pixels[g], other_shifts[g], other_means[g], other_variances[g],
                window, channels, c1, c2, scratch,
            )  # fmt: skip
            for m in range(begin, end):
                out[a, m - first] = 1.0 - total[m - g * LANES] / windows
    return out


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
def evaluate_near(block, threshold, queries, rows, images, columns, window, channels, c1, c2):
    """Evaluate again, in float64, the entries of ``block`` below ``threshold``."""
    for a in prange(block.shape[0]):
        for m in range(block.shape[1]):
            if block[a, m] < threshold:
                block[a, m] = _pair(queries[rows[a]], images[columns[m]], window, channels, c1, c2)
