"""Compiled selection of the k nearest samples of every class."""

import numpy as np
from numba import njit, prange

from deepsimplex.distances.simd import exclusive


@njit(cache=True)
def insert(distance, index, distances, indices):
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
def merge_block(values, row, column, wanted, own_positive, distances, indices):
    """Merge distances [A, B] into the k nearest of every row, ``distances`` and ``indices`` [A, n, k].

    ``row`` and ``column`` are (labels, indices) of the two sides. ``wanted`` [2] is whether pairs of the same class,
    and of different classes, count. A row's own index is left out and, with ``own_positive``, zero distances in the own
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
                if counts and not (same and own_positive and values[a, b] <= 0):
                    insert(values[a, b], other_ids[b], distances[a, label], indices[a, label])


@exclusive
@njit(cache=True)
def merge_pairs(rows, ids, values, distances, indices):
    """Merge single pairs, queries ``rows`` and samples ``ids`` [S], into the lists [M, k] of one class."""
    for s in range(len(rows)):
        insert(values[s], ids[s], distances[rows[s]], indices[rows[s]])


@njit(cache=True)
def merge_lists(distances, indices, into_distances, into_indices):
    """Merge lists of neighbors [M, n, k] into others of the same rows."""
    for row in range(len(distances)):
        for label in range(distances.shape[1]):
            for place in range(distances.shape[2]):
                insert(
                    distances[row, label, place],
                    indices[row, label, place],
                    into_distances[row, label],
                    into_indices[row, label],
                )
