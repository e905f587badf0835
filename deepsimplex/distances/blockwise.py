"""Neighbors under any metric: distances block by block, and only the k smallest of each row kept."""

from collections.abc import Iterator

import numpy as np

from deepsimplex._utils.batching import parts
from deepsimplex._utils.progress import progress
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.search import BlockFunction, Neighbors, Search, refuse_nan


def search_blockwise(block: BlockFunction, search: Search, name: str, checkpoint: Checkpoint) -> Neighbors:
    """Evaluate every pair, a block of ``search.block_bytes`` at a time.

    Parameters
    ----------
    block : callable
        As ``Distance.blocks`` returns it, for ``search.order``.
    search : Search
    name : str
        Of the metric, shown beside the progress bar.
    checkpoint : Checkpoint
        Blocks that it says are finished are not evaluated again.

    Returns
    -------
    Neighbors
        The answer does not depend on the size of the blocks: of equally near samples those with the lowest indices
        are taken, in that order.

    Raises
    ------
    ValueError
        When a distance that counts is NaN.
    """
    from deepsimplex.distances._selection_kernels import merge_block

    result = search.empty()
    own = np.arange(search.num_queries) if search.symmetric else np.full(search.num_queries, -1)
    blocks = list(_blocks(search))
    state = checkpoint.load("blocks")
    begin = 0
    if state is not None:
        result.distances[...], result.indices[...], begin = state["distances"], state["indices"], int(state["blocks"])
    areas = [(rows.stop - rows.start) * (columns.stop - columns.start) for _, rows, columns in blocks]
    with progress(
        f"{name} neighbors", sum(areas), search.show_progress, unit="pairs", done=sum(areas[:begin])
    ) as advance:
        for number, (label, rows, columns) in enumerate(blocks[begin:], begin):
            wanted, positive = search.wants(label)[rows], search.positive(label)[rows]
            if wanted.any():
                # Views of the answer, which fills up in place.
                distances, nearest = result.distances[rows, label], result.indices[rows, label]
                values, indices = block(rows, columns), search.order[columns]
                if np.isnan(values.min()):
                    # What a sample's distance to itself is does not matter.
                    refuse_nan(values[wanted[:, None] & (own[rows, None] != indices)], name)
                merge_block(values, own[rows], indices, positive, distances, nearest)
                distances[~wanted], nearest[~wanted] = np.inf, -1
            advance(areas[number])
            checkpoint.keep(
                "blocks", {"distances": result.distances, "indices": result.indices, "blocks": np.array(number + 1)}
            )
    checkpoint.clear()
    return result


def _blocks(search: Search) -> Iterator[tuple[int, slice, slice]]:
    """Class, rows and columns of every block."""
    for label in range(search.num_classes):
        for columns in parts(search.columns(label), max(1, search.block_bytes // 8)):
            height = max(1, search.block_bytes // (8 * (columns.stop - columns.start)))
            for rows in parts(slice(0, search.num_queries), height):
                yield label, rows, columns


def check_block_bytes(block_bytes: int) -> int:
    """Return ``block_bytes``, or say why it is no amount of memory."""
    if isinstance(block_bytes, bool) or not isinstance(block_bytes, int | np.integer) or block_bytes < 8:
        raise ValueError(f"block_bytes must be a whole number of bytes, at least 8; found {block_bytes!r}")
    return int(block_bytes)
