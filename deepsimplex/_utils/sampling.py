"""Random samples of rows that are read in batches."""

import numpy as np
from numpy.typing import NDArray


def smallest_keys(keys: NDArray[np.float64], labels: NDArray[np.generic], number: int) -> NDArray[np.int64]:
    """Return the positions of the smallest keys of every label, ``number`` of each at most.

    With independent uniform keys they are a random sample without replacement. Rows can be read in batches: apply the
    function to the rows kept so far and the new ones together.

    Examples
    --------
    >>> smallest_keys(np.array([0.4, 0.1, 0.2, 0.3]), np.array([0, 0, 1, 0]), 2)
    array([1, 3, 2])
    """
    order = np.argsort(keys)
    return np.concatenate([order[labels[order] == label][:number] for label in np.unique(labels)] or [order])
