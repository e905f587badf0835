"""The functions of CASIMAC's generalized mapping [CASIMAC Eq. 32-33], and the care they are called with."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Reduction = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    return distances.mean(axis=1)


def inverse_mean(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / distances.mean(axis=1)


def per_count(function: Reduction, distances: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Apply ``function`` to the rows of inf-padded distances [M, k], with only the neighbors that are there."""
    counts = np.isfinite(distances).sum(axis=1)
    values = np.empty(len(distances))
    for count in np.unique(counts):
        rows = counts == count
        values[rows] = checked(function, distances[rows, :count], name)
    return values


def checked(function: Reduction, argument: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """``function(argument)``, or an error when it is not one finite, non-negative value per row (Eq. 32-33)."""
    values = np.asarray(function(argument), dtype=np.float64)
    if values.shape != argument.shape[:1]:
        raise ValueError(
            f"{name} must be vectorized and return one value per row: shape {argument.shape[:1]} for an argument of "
            f"shape {argument.shape}; found {values.shape}"
        )
    wrong = ~(np.isfinite(values) & (values >= 0))
    if np.any(wrong):
        found = values[np.argmax(wrong)]
        raise ValueError(f"{name} must return finite values that are not negative; found {found}")
    return values
