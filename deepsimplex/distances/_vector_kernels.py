"""Compiled inner loops of the distances between flattened samples."""

import math

import numpy as np
from numba import njit, prange

from deepsimplex.distances._compiled import exclusive
from deepsimplex.distances._lanes import lanes_of, load, magnitude, splat, total

LANES = lanes_of(np.float32)
# Points whose distances are computed together, so that they stay in a core's cache.
CACHED = 64

_STRIDE = 64  # features between two looks at whether the sum has grown too large


@njit(cache=True)
def _gap(a, b, d):
    # Each converted first: the difference of two float32 would be rounded to float32.
    return np.float64(a[d]) - np.float64(b[d])


@njit(cache=True)
def _sum(a, b, squared, limit):
    """Sum of squared or absolute differences in float64, or inf once it is sure to exceed ``limit``.

    Eight partial sums in a fixed order: the same pair gives the same bits wherever and however often it is evaluated.
    """
    features = len(a)
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    blocks = features // 8 * 8
    for begin in range(0, blocks, _STRIDE):
        end = min(begin + _STRIDE, blocks)
        if squared:
            for d in range(begin, end, 8):
                s0 += _gap(a, b, d) ** 2
                s1 += _gap(a, b, d + 1) ** 2
                s2 += _gap(a, b, d + 2) ** 2
                s3 += _gap(a, b, d + 3) ** 2
                s4 += _gap(a, b, d + 4) ** 2
                s5 += _gap(a, b, d + 5) ** 2
                s6 += _gap(a, b, d + 6) ** 2
                s7 += _gap(a, b, d + 7) ** 2
        else:
            for d in range(begin, end, 8):
                s0 += abs(_gap(a, b, d))
                s1 += abs(_gap(a, b, d + 1))
                s2 += abs(_gap(a, b, d + 2))
                s3 += abs(_gap(a, b, d + 3))
                s4 += abs(_gap(a, b, d + 4))
                s5 += abs(_gap(a, b, d + 5))
                s6 += abs(_gap(a, b, d + 6))
                s7 += abs(_gap(a, b, d + 7))
        # Rounded sums of terms >= 0 never fall: the whole cannot come out below a part.
        if ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) > limit:
            return np.inf
    rest = 0.0
    for d in range(blocks, features):
        difference = _gap(a, b, d)
        rest += difference**2 if squared else abs(difference)
    return (((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))) + rest


@njit(cache=True)
def _distance(a, b, squared, limit):
    """The distance of two samples, or inf where it is sure to exceed ``limit``."""
    if squared:
        # The factor covers the rounding of the square.
        return math.sqrt(_sum(a, b, squared, limit * limit * (1.0 + 1e-12)))
    return _sum(a, b, squared, limit)


@exclusive
@njit(parallel=True, cache=True)
def distance_block(queries, x, columns, squared):
    """Distances [A, B] between queries and the samples ``x[columns]``, by direct differences."""
    out = np.empty((len(queries), len(columns)))
    for a in prange(len(queries)):
        for b in range(len(columns)):
            out[a, b] = _distance(queries[a], x[columns[b]], squared, np.inf)
    return out


@exclusive
@njit(parallel=True, cache=True)
def evaluate_pairs(pairs, limits, queries, rows, x, columns, squared):
    """Distances of pairs [2, S] of the queries ``rows`` and the samples ``columns``; inf where they exceed limits."""
    values = np.empty(pairs.shape[1])
    for s in prange(pairs.shape[1]):
        values[s] = _distance(queries[rows[pairs[0, s]]], x[columns[pairs[1, s]]], squared, limits[s])
    return values


@exclusive
@njit(parallel=True, cache=True)
def cityblock_block(rows, columns, out):
    """Fill ``out`` [A, B] with cityblock distances in float32 of points [A, D] and [B, D], D of whole vectors."""
    length = rows.shape[1]
    a_flat, b_flat = rows.reshape(-1), columns.reshape(-1)
    others = len(columns)
    for chunk in prange((len(rows) + CACHED - 1) // CACHED):
        for begin in range(0, others, CACHED):
            end = min(begin + CACHED, others)
            for a in range(chunk * CACHED, min((chunk + 1) * CACHED, len(rows))):
                # Four at a time: their sums do not wait for one another.
                for b in range(begin, end, 4):
                    b1, b2, b3 = min(b + 1, end - 1), min(b + 2, end - 1), min(b + 3, end - 1)
                    s0 = splat(np.float32(0.0))
                    s1, s2, s3 = s0, s0, s0
                    for d in range(0, length, LANES):
                        point = load(a_flat, a * length + d)
                        s0 = s0 + magnitude(point - load(b_flat, b * length + d))
                        s1 = s1 + magnitude(point - load(b_flat, b1 * length + d))
                        s2 = s2 + magnitude(point - load(b_flat, b2 * length + d))
                        s3 = s3 + magnitude(point - load(b_flat, b3 * length + d))
                    out[a, b], out[a, b1] = total(s0), total(s1)
                    out[a, b2], out[a, b3] = total(s2), total(s3)
