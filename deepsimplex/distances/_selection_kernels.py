"""The compiled selection of the k smallest distances."""

from numba import njit, prange

from deepsimplex.distances._compiled import exclusive


@njit(cache=True)
def insert(distance, index, distances, indices):
    """Put one candidate into ascending lists of k; equal distances are ordered by index."""
    last = len(distances) - 1
    if distance > distances[last] or (distance == distances[last] and index > indices[last]):
        return
    place = last
    while place > 0 and (
        distance < distances[place - 1] or (distance == distances[place - 1] and index < indices[place - 1])
    ):
        distances[place] = distances[place - 1]
        indices[place] = indices[place - 1]
        place -= 1
    distances[place] = distance
    indices[place] = index


@exclusive
@njit(parallel=True, cache=True)
def merge_block(block, first_column, own_columns, positive, distances, columns):
    """Merge a block [A, B] of distances into the k smallest so far [A, k] and the columns they came from [A, k].

    A row's own column is left out; where ``positive`` says so, zero distances are too.
    """
    for a in prange(block.shape[0]):
        last = distances.shape[1] - 1
        for b in range(block.shape[1]):
            distance = block[a, b]
            if distance < distances[a, last] and first_column + b != own_columns[a]:
                if positive[a] and distance <= 0.0:
                    continue
                # Columns come in ascending order: of equal distances the earlier one is there already.
                insert(distance, first_column + b, distances[a], columns[a])
