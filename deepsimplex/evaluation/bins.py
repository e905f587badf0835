"""Bins of probabilities: right-closed, the first one closed at 0 too."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_whole


def check_bins(bins: int) -> int:
    """Return ``bins`` as an int, or say why it cannot be a number of bins."""
    return check_whole(bins, "bins", 1)


def equal_width_edges(bins: int) -> NDArray[np.float64]:
    """Edges [bins + 1] of bins of [0, 1] that are equally wide."""
    return np.arange(bins + 1) / bins


def equal_mass_edges(confidences: NDArray[Any], bins: int) -> NDArray[np.float64]:
    """Edges [bins + 1], from 0 to 1, of bins that hold equally many of the confidences [N], give or take one.

    Each inner edge is a confidence and closes its bin. Equal confidences are never parted, so that ties, and fewer
    samples than bins, leave some bins fuller and others empty.
    """
    last = -(-len(confidences) * np.arange(1, bins) // bins) - 1  # of the samples in order, the last in each bin
    return np.concatenate([[0.0], np.sort(confidences)[last], [1.0]])


def bin_index(confidences: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.intp]:
    """The bin of each confidence, any shape; edges are rounded to the precision of the confidences."""
    # The number of inner edges strictly below a confidence: a confidence on an edge stays in the bin it closes.
    return np.searchsorted(edges[1:-1].astype(confidences.dtype), confidences, side="left")
