"""Compiled loops of the neighbor search and of pairwise distances: k nearest of every class, Euclidean, cityblock."""

import math

import numpy as np
from numba import njit, prange

from deepsimplex.distances.simd import exclusive, lanes_of, load, magnitude, splat, total

_LANES = lanes_of(np.float32)
# Points whose distances are computed together, so that they stay in a core's cache.
_CACHED = 64
# Features between two checks whether the sum exceeds its limit.
_STRIDE = 64


@njit(cache=True)
def _insert(distance, index, distances, indices):
    """Insert a candidate into ascending lists of k; equal distances are ordered by index, and none enters twice."""
    last = len(distances) - 1
    if distance == np.inf or distance > distances[last]:
        return
    for known in indices:
        if known == index:
            return
    place = last
    while place >= 0 and (distance < distances[place] or (distance == distances[place] and index < indices[place])):
        place -= 1
    for later in range(last, place + 1, -1):
        distances[later] = distances[later - 1]
        indices[later] = indices[later - 1]
    if place < last:
        distances[place + 1] = distance
        indices[place + 1] = index


@exclusive
@njit(parallel=True, cache=True)
def merge_block(values, row, column, wanted, exclude_duplicates, distances, indices):
    """Merge distances [A, B] into the k nearest of every row, ``distances`` and ``indices`` [A, n, k].

    ``row`` and ``column`` are (labels, indices) of the two sides. ``wanted`` [2] is whether pairs of the same class,
    and of different classes, count. The row itself is left out and, with ``exclude_duplicates``, zero distances in its
    class.
    """
    labels, ids = row
    other_labels, other_ids = column
    for a in prange(len(values)):
        for b in range(values.shape[1]):
            label = other_labels[b]
            # False for NaN.
            if values[a, b] <= distances[a, label, -1]:
                same = label == labels[a]
                counts = (wanted[0] if same else wanted[1]) and ids[a] != other_ids[b]
                if counts and not (same and exclude_duplicates and values[a, b] <= 0):
                    _insert(values[a, b], other_ids[b], distances[a, label], indices[a, label])


@exclusive
@njit(cache=True)
def merge_pairs(rows, ids, values, distances, indices):
    """Merge single pairs, queries ``rows`` and samples ``ids`` [S], into the lists [M, k] of one class."""
    for s in range(len(rows)):
        _insert(values[s], ids[s], distances[rows[s]], indices[rows[s]])


@njit(cache=True)
def merge_lists(distances, indices, into_distances, into_indices):
    """Merge lists of neighbors [M, n, k] into others of the same rows."""
    for row in range(len(distances)):
        for label in range(distances.shape[1]):
            for place in range(distances.shape[2]):
                _insert(
                    distances[row, label, place],
                    indices[row, label, place],
                    into_distances[row, label],
                    into_indices[row, label],
                )


@njit(cache=True)
def _term(a, b, d, squared):
    # Each converted first: the difference of two float32 would be rounded to float32.
    difference = np.float64(a[d]) - np.float64(b[d])
    return difference * difference if squared else abs(difference)


@njit(cache=True)
def _distance(a, b, squared, limit):
    """Distance of two samples in float64, or inf if it is sure to exceed ``limit``.

    Eight partial sums in a fixed order: the same pair gives the same bits in every kernel.
    """
    # The factor covers the rounding of the square.
    most = limit * limit * (1.0 + 1e-12) if squared else limit
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    whole = len(a) // 8 * 8
    for begin in range(0, whole, _STRIDE):
        for d in range(begin, min(begin + _STRIDE, whole), 8):
            s0 += _term(a, b, d, squared)
            s1 += _term(a, b, d + 1, squared)
            s2 += _term(a, b, d + 2, squared)
            s3 += _term(a, b, d + 3, squared)
            s4 += _term(a, b, d + 4, squared)
            s5 += _term(a, b, d + 5, squared)
            s6 += _term(a, b, d + 6, squared)
            s7 += _term(a, b, d + 7, squared)
        # Rounded sums of terms >= 0 never fall: the whole cannot come out below a part.
        if ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) > most:
            return np.inf
    rest = 0.0
    for d in range(whole, len(a)):
        rest += _term(a, b, d, squared)
    sum_of_terms = (((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))) + rest
    return math.sqrt(sum_of_terms) if squared else sum_of_terms


@exclusive
@njit(parallel=True, cache=True)
def distance_block(queries, x, squared):
    """Distances [A, B] between queries and samples."""
    out = np.empty((len(queries), len(x)))
    for a in prange(len(queries)):
        for b in range(len(x)):
            out[a, b] = _distance(queries[a], x[b], squared, np.inf)
    return out


@exclusive
@njit(parallel=True, cache=True)
def pair_distances(queries, rows, x, columns, squared):
    """Distances [S] of the pairs of ``queries[rows]`` and ``x[columns]``."""
    out = np.empty(len(rows))
    for s in prange(len(rows)):
        out[s] = _distance(queries[rows[s]], x[columns[s]], squared, np.inf)
    return out


@exclusive
@njit(parallel=True, cache=True)
def cityblock_scores(rows, columns, out):
    """Fill ``out`` [A, B] with cityblock distances in float32 of points [A, D] and [B, D], D in whole vectors."""
    length = rows.shape[1]
    a_flat, b_flat = rows.reshape(-1), columns.reshape(-1)
    others = len(columns)
    for chunk in prange((len(rows) + _CACHED - 1) // _CACHED):
        for begin in range(0, others, _CACHED):
            end = min(begin + _CACHED, others)
            for a in range(chunk * _CACHED, min((chunk + 1) * _CACHED, len(rows))):
                # Four at a time: their sums do not wait for one another.
                for b in range(begin, end, 4):
                    b1, b2, b3 = min(b + 1, end - 1), min(b + 2, end - 1), min(b + 3, end - 1)
                    s0 = splat(np.float32(0.0))
                    s1, s2, s3 = s0, s0, s0
                    for d in range(0, length, _LANES):
                        point = load(a_flat, a * length + d)
                        s0 = s0 + magnitude(point - load(b_flat, b * length + d))
                        s1 = s1 + magnitude(point - load(b_flat, b1 * length + d))
                        s2 = s2 + magnitude(point - load(b_flat, b2 * length + d))
                        s3 = s3 + magnitude(point - load(b_flat, b3 * length + d))
                    out[a, b], out[a, b1] = total(s0), total(s1)
                    out[a, b2], out[a, b3] = total(s2), total(s3)


@njit(cache=True)
def _ceiling(limit, norm, rounding):
    """The largest score that a pair at a distance of at most ``limit`` can have: see ``vector_distances``."""
    squared, scale, error, roundoff, underflow = rounding
    limit /= scale
    # Norms of the two points together; the factors 1.001 cover the rounding of the bound itself.
    reach = 1.001 * (2 * norm + limit) + underflow
    farthest = limit + 1.001 * roundoff * reach + 2.0 * underflow
    bound = farthest * farthest + error * reach * reach + 4.0 * underflow if squared else farthest * (1.0 + error)
    return bound * 1.001 + underflow


@exclusive
@njit(parallel=True, cache=True)
def merge_scored(scores, turned, row, column, wanted, exclude_duplicates, rounding, distances, indices):
    """Evaluate the pairs that scores [A, B] do not rule out, and merge them into the k nearest [A, n, k] of every row.

    ``row`` and ``column`` are (samples, labels, indices, squared norms, norms) of the two sides; the score of a pair is
    the sum of its squared norms and, for the Euclidean distance, -2 times the inner product in ``scores``. If
    ``turned``, ``scores`` is [B, A]. Returns how many pairs were evaluated.
    """
    samples, labels, ids, squares, norms = row
    others, other_labels, other_ids, other_squares, _ = column
    squared = rounding[0]
    factor = -2.0 if squared else 1.0
    count, number, n = len(labels), len(other_labels), distances.shape[1]
    strips = (count + _CACHED - 1) // _CACHED
    evaluated = np.zeros(strips, np.int64)
    for strip in prange(strips):
        begin, end = strip * _CACHED, min((strip + 1) * _CACHED, count)
        ceilings = np.full((end - begin, n), -np.inf)
        for a in range(begin, end):
            for label in range(n):
                if wanted[0] if label == labels[a] else wanted[1]:
                    ceilings[a - begin, label] = _ceiling(distances[a, label, -1], norms[a], rounding)
        # In the order in which scores lie in memory.
        for outer in range(number if turned else end - begin):
            for inner in range(end - begin if turned else number):
                a, b = (begin + inner, outer) if turned else (begin + outer, inner)
                score = squares[a] + other_squares[b] + factor * (scores[b, a] if turned else scores[a, b])
                label = other_labels[b]
                if score > ceilings[a - begin, label] or ids[a] == other_ids[b]:
                    continue
                evaluated[strip] += 1
                value = _distance(samples[a], others[b], squared, distances[a, label, -1])
                if value <= distances[a, label, -1] and not (exclude_duplicates and label == labels[a] and value <= 0):
                    _insert(value, other_ids[b], distances[a, label], indices[a, label])
                    ceilings[a - begin, label] = _ceiling(distances[a, label, -1], norms[a], rounding)
    return evaluated.sum()
