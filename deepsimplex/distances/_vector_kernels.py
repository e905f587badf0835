"""Compiled inner loops of the distances between flattened samples."""

import math

import numpy as np
from numba import njit, prange

from deepsimplex.distances._compiled import exclusive
from deepsimplex.distances._selection_kernels import insert

_ROUNDOFF = 2.0**-24  # unit roundoff of float32
_UNDERFLOW = 2.0**-126  # an upper bound of what float32 loses where results are too small for it
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


@exclusive
@njit(parallel=True, cache=True)
def distance_block(queries, x, columns, squared):
    """Sums of differences [A, B] between queries and the samples ``x[columns]``, by direct differences."""
    out = np.empty((len(queries), len(columns)))
    for a in prange(len(queries)):
        for b in range(len(columns)):
            out[a, b] = _sum(queries[a], x[columns[b]], squared, np.inf)
    return out


@njit(cache=True)
def _lower_bound(farthest, kth, size, scale, features, squared):
    """A distance that no sample beyond the candidates can fall short of, unless it lies farther than ``kth`` anyway.

    ``farthest`` is the largest estimate among the candidates and ``size`` the norm of the float32 query. The proof is
    in the text of ``deepsimplex.distances.vectors``; the factors 1.001 cover what the bound itself loses to rounding.
    """
    terms = (features + 8) * _ROUNDOFF
    if terms >= 0.5:
        return -np.inf
    error = 1.001 * terms / (1.0 - terms)
    underflow = features * _UNDERFLOW
    # Norms of the two points together, for any sample as near as ``kth``.
    reach = size + 1.001 * (size + kth / scale) + underflow
    if squared:
        nearest = math.sqrt(max(farthest - error * reach * reach - 4.0 * underflow, 0.0))
    else:
        nearest = farthest * (1.0 - error)
    return scale * (nearest - 1.001 * _ROUNDOFF * reach - 2.0 * underflow)


@njit(cache=True)
def _consider(query, sample, index, positive, squared, distances, indices):
    value = _sum(query, sample, squared, distances[-1])
    if not (positive and value <= 0.0):
        insert(value, index, distances, indices)


@exclusive
@njit(parallel=True, cache=True)
def confirm(
    queries, x, members, own, positive, squared, candidates, farthest, sizes, scale, distances, indices
):  # fmt: skip
    """Fill ``distances`` (sums of differences) and ``indices`` [A, k] with the neighbours among ``x[members]``.

    ``candidates`` [A, m] are positions in ``members``. Rows that they cannot settle are searched in full; returned is
    how many those were.
    """
    last = distances.shape[1] - 1
    unsettled = 0
    for a in prange(len(queries)):
        for c in range(candidates.shape[1]):
            index = members[candidates[a, c]]
            if index != own[a]:
                _consider(queries[a], x[index], index, positive[a], squared, distances[a], indices[a])
        if candidates.shape[1] == len(members):
            continue
        kth = math.sqrt(distances[a, last]) if squared else distances[a, last]
        bound = _lower_bound(farthest[a], kth, sizes[a], scale, queries.shape[1], squared)
        if kth * (1.0 + 1e-6) < bound:
            continue
        unsettled += 1
        distances[a] = np.inf
        indices[a] = -1
        for index in members:
            if index != own[a]:
                _consider(queries[a], x[index], index, positive[a], squared, distances[a], indices[a])
    return unsettled
