"""Neighbours under any metric: distances block by block, and only the k smallest of each row kept."""

import numpy as np

from deepsimplex.distances.search import BlockFunction, Neighbours, Search
from deepsimplex.progress import progress


def search_blockwise(block: BlockFunction, search: Search, name: str) -> Neighbours:
    """Evaluate every pair, a block of ``search.block_bytes`` at a time.

    Parameters
    ----------
    block : callable
        As ``Distance.blocks`` returns it, for ``search.order``.
    search : Search
    name : str
        Of the metric, shown beside the progress bar.

    Returns
    -------
    Neighbours
        The answer does not depend on the size of the blocks: of equally near samples those with the lowest indices
        are taken, in that order.
    """
    from deepsimplex.distances._selection_kernels import merge_block

    result = search.empty()
    total = search.num_queries * len(search.x)
    with progress(f"{name} neighbours", total=total, show=search.show_progress) as advance:
        for label in range(search.num_classes):
            columns = search.columns(label)
            positive = search.positive(label)
            # Views of the answer, which fill up in place.
            distances, positions = result.distances[:, label], result.indices[:, label]
            for part in _parts(columns, max(1, search.block_bytes // 8)):
                height = max(1, search.block_bytes // (8 * (part.stop - part.start)))
                for rows in _parts(slice(0, search.num_queries), height):
                    merge_block(
                        block(rows, part), part.start, search.own_columns[rows], positive[rows],
                        distances[rows], positions[rows],
                    )  # fmt: skip
                    advance((rows.stop - rows.start) * (part.stop - part.start))
    found = result.indices >= 0
    result.indices[found] = search.order[result.indices[found]]
    return result


def _parts(whole: slice, length: int) -> list[slice]:
    return [slice(begin, min(begin + length, whole.stop)) for begin in range(whole.start, whole.stop, length)]


def check_block_bytes(block_bytes: int) -> int:
    """Return ``block_bytes``, or say why it is no amount of memory."""
    if isinstance(block_bytes, bool) or not isinstance(block_bytes, int | np.integer) or block_bytes < 8:
        raise ValueError(f"block_bytes must be a whole number of bytes, at least 8; found {block_bytes!r}")
    return int(block_bytes)
