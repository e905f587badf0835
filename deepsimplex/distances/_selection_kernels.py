"""The compiled selection of the k smallest distances."""

import numpy as np
from numba import njit, prange

from deepsimplex.distances._compiled import exclusive
from deepsimplex.distances._lanes import lanes_of, load, not_above, splat

LANES = lanes_of(np.float32)
# Pairs are listed by strips of so many columns: what a pair's evaluation needs of them then stays in a core's cache.
STRIP = 128


@njit(cache=True)
def insert(distance, index, distances, indices):
    """Put one candidate into ascending lists of k; equal distances are ordered by index, and none enters twice."""
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
def merge_block(block, own, indices, positive, nearest_distances, nearest_indices):
    """Merge a block [A, B] of distances to one class into the k smallest so far [A, k] and their indices [A, k].

    ``indices`` [B] are those of the columns. A row's own index is left out; where ``positive`` says so, zero distances
    are too.
    """
    for a in prange(block.shape[0]):
        last = nearest_distances.shape[1] - 1
        for b in range(block.shape[1]):
            distance = block[a, b]
            if distance <= nearest_distances[a, last] and indices[b] != own[a] and not (positive[a] and distance <= 0):
                insert(distance, indices[b], nearest_distances[a], nearest_indices[a])


@exclusive
@njit(parallel=True, cache=True)
def merge_landmarks(
    block, indices, labels, own, row_labels, positive, own_classes, other_classes, distances, nearest
):  # fmt: skip
    """Merge a block [A, B] of distances to samples of any classes into the lists [A, n, k] of its rows."""
    for a in prange(block.shape[0]):
        for b in range(block.shape[1]):
            same = labels[b] == row_labels[a]
            if indices[b] == own[a] or not (own_classes if same else other_classes):
                continue
            if not (same and positive[a] and block[a, b] <= 0):
                insert(block[a, b], indices[b], distances[a, labels[b]], nearest[a, labels[b]])


@exclusive
@njit(parallel=True, cache=True)
def add_parts(scores):
    """The sums [A, B] of scores in parts [P, A, B], in the memory of the first where it is the only one."""
    parts, rows, columns = scores.shape
    if parts == 1:
        return scores[0]
    sums = np.empty((rows, columns), np.float32)
    for a in prange(rows):
        for b in range(columns):
            sums[a, b] = scores[0, a, b]
        for p in range(1, parts):
            for b in range(columns):
                sums[a, b] += scores[p, a, b]
    return sums


@exclusive
@njit(parallel=True, cache=True)
def parts_of(scores, pairs):
    """The parts [P, S] of the scores [P, A, B] of pairs [2, S]."""
    found = np.empty((len(scores), pairs.shape[1]), np.float32)
    for s in prange(pairs.shape[1]):
        for p in range(len(scores)):
            found[p, s] = scores[p, pairs[0, s], pairs[1, s]]
    return found


@njit(cache=True)
def _runs(labels):
    """Where the runs of equal labels begin, and the end."""
    begins = [0]
    for b in range(1, len(labels)):
        if labels[b] != labels[b - 1]:
            begins.append(b)
    begins.append(len(labels))
    return begins


@njit(cache=True)
def _lead(score, place, best, places):
    """Put a score into an ascending list, and its place into the list of places."""
    at = len(best) - 1
    while at > 0 and score < best[at - 1]:
        best[at] = best[at - 1]
        places[at] = places[at - 1]
        at -= 1
    best[at] = score
    places[at] = place


@exclusive
@njit(parallel=True, cache=True)
def row_leaders(scores, ceilings, labels, wanted, k):
    """The columns [A, R, k] of the k smallest scores [A, B] of every row and run of equal column labels; -1 for none.

    Scores beyond ``ceilings`` [A, n], the largest that still matter by the column's class, are left out. ``labels`` are
    those of rows and of columns. ``wanted`` [2] says whether pairs of equal and of different labels are.
    """
    row_labels, column_labels = labels
    rows, columns = scores.shape
    runs = _runs(column_labels)
    found = np.full((rows, len(runs) - 1, k), -1, np.int32)
    flat = scores.reshape(-1)
    for a in prange(rows):
        for run in range(len(runs) - 1):
            begin, end = runs[run], runs[run + 1]
            label = column_labels[begin]
            if not wanted[0 if label == row_labels[a] else 1]:
                continue
            best = np.full(k, ceilings[a, label])
            for b in range(begin, end, LANES):
                if b + LANES <= end and not_above(load(flat, a * columns + b), splat(best[k - 1])) == 0:
                    continue
                for near in range(b, min(b + LANES, end)):
                    if scores[a, near] < best[k - 1]:
                        _lead(scores[a, near], near, best, found[a, run])
    return found


@exclusive
@njit(parallel=True, cache=True)
def column_leaders(scores, ceilings, labels, wanted, k):
    """The same for columns: the rows [B, R, k] of the k smallest scores of every column and run of equal row labels.

    ``ceilings`` [n, B] are those of the columns, by the row's class.
    """
    row_labels, column_labels = labels
    columns = scores.shape[1]
    runs = _runs(row_labels)
    found = np.full((columns, len(runs) - 1, k), -1, np.int32)
    flat = scores.reshape(-1)
    for strip in prange((columns + STRIP - 1) // STRIP):
        begin, end = strip * STRIP, min((strip + 1) * STRIP, columns)
        best = np.empty((STRIP, k), np.float32)
        last = np.empty(STRIP, np.float32)
        for run in range(len(runs) - 1):
            label = row_labels[runs[run]]
            for b in range(begin, end):
                best[b - begin] = ceilings[label, b] if wanted[0 if label == column_labels[b] else 1] else -np.inf
                last[b - begin] = best[b - begin, k - 1]
            for a in range(runs[run], runs[run + 1]):
                for b in range(begin, end, LANES):
                    if b + LANES <= end and not_above(load(flat, a * columns + b), load(last, b - begin)) == 0:
                        continue
                    for near in range(b, min(b + LANES, end)):
                        if scores[a, near] < last[near - begin]:
                            _lead(scores[a, near], a, best[near - begin], found[near, run])
                            last[near - begin] = best[near - begin, k - 1]
    return found


@exclusive
@njit(parallel=True, cache=True)
def select(scores, row_ceilings, column_ceilings, labels, wanted, diagonal):
    """Pairs [2, S] whose score [A, B] allows a place among the nearest of the row or of the column.

    ``row_ceilings`` [A, n] and ``column_ceilings`` [n, B] are the largest scores that still matter, by the class of the
    other side; -inf where none does. On the ``diagonal`` only columns beyond the row are considered. The rest is as for
    ``row_leaders``.
    """
    row_labels, column_labels = labels
    rows, columns = scores.shape
    runs = _runs(column_labels)
    strips, chunks = (columns + STRIP - 1) // STRIP, (rows + STRIP - 1) // STRIP
    kept = np.zeros((strips * chunks, STRIP, STRIP), np.bool_)
    counts = np.zeros(strips * chunks + 1, np.int64)
    flat, flat_ceilings = scores.reshape(-1), column_ceilings.reshape(-1)
    for box in prange(strips * chunks):
        first_b, first_a = box // chunks * STRIP, box % chunks * STRIP
        last_b = min(first_b + STRIP, columns)
        count = 0
        for a in range(first_a, min(first_a + STRIP, rows)):
            offset, column_offset = a * columns, max(row_labels[a], 0) * columns
            for run in range(len(runs) - 1):
                begin, end = max(runs[run], first_b), min(runs[run + 1], last_b)
                if diagonal:
                    begin = max(begin, a + 1)
                if begin >= end or not wanted[0 if column_labels[begin] == row_labels[a] else 1]:
                    continue
                ceiling = row_ceilings[a, column_labels[begin]]
                limit = splat(ceiling)
                for b in range(begin, end, LANES):
                    if b + LANES <= end:
                        some = load(flat, offset + b)
                        if not_above(some, limit) | not_above(some, load(flat_ceilings, column_offset + b)) == 0:
                            continue
                    for near in range(b, min(b + LANES, end)):
                        score = flat[offset + near]
                        near_enough = score <= ceiling or score <= flat_ceilings[column_offset + near]
                        kept[box, a - first_a, near - first_b] = near_enough
                        count += near_enough
        counts[box + 1] = count
    begins = np.cumsum(counts)
    pairs = np.empty((2, begins[-1]), np.int32)
    for box in prange(strips * chunks):
        first_b, first_a = box // chunks * STRIP, box % chunks * STRIP
        place = begins[box]
        for a in range(STRIP):
            if place == begins[box + 1]:
                break
            for b in range(STRIP):
                if kept[box, a, b]:
                    pairs[0, place] = first_a + a
                    pairs[1, place] = first_b + b
                    place += 1
    return pairs


@exclusive
@njit(cache=True)
def merge_pairs(
    pairs, values, rows, columns, row_labels, column_labels, row_positive, column_positive, symmetric
):  # fmt: skip
    """Merge evaluated pairs into the lists of rows and, where symmetric, of columns.

    ``rows`` and ``columns`` are (indices, nearest distances [., n, k], nearest indices [., n, k]); a row of which
    ``positive`` is true wants only positive distances in its own class.
    """
    row_indices, row_distances, row_nearest = rows
    column_indices, column_distances, column_nearest = columns
    for s in range(pairs.shape[1]):
        value = values[s]
        if value == np.inf:
            continue
        a, b = pairs[0, s], pairs[1, s]
        label, other = row_labels[a], column_labels[b]
        same = label == other and value <= 0
        if not (same and row_positive[a]):
            insert(value, column_indices[b], row_distances[a, other], row_nearest[a, other])
        if symmetric and not (same and column_positive[b]):
            insert(value, row_indices[a], column_distances[b, label], column_nearest[b, label])


@exclusive
@njit(parallel=True, cache=True)
def pair_limits(pairs, row_distances, column_distances, row_labels, column_labels, symmetric):
    """The distances [S] beyond which pairs matter to neither of their sides."""
    limits = np.empty(pairs.shape[1])
    for s in prange(pairs.shape[1]):
        a, b = pairs[0, s], pairs[1, s]
        limits[s] = row_distances[a, column_labels[b], -1]
        if symmetric:
            limits[s] = max(limits[s], column_distances[b, row_labels[a], -1])
    return limits


@exclusive
@njit(cache=True)
def merge_candidates(rows, indices, values, distances, nearest):
    """Merge pairs of queries ``rows`` and samples ``indices`` [S] into the lists [M, k] of one class."""
    for s in range(len(rows)):
        insert(values[s], indices[s], distances[rows[s]], nearest[rows[s]])
