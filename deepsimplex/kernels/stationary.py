"""Stationary kernels of unit variance, as functions of squared distances measured in lengthscales."""

import math
from collections.abc import Callable
from typing import Any, Literal

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

Kernel = Literal["rbf", "matern12", "matern32", "matern52"]


def operations(*values: Any) -> Any:
    """Return the module of operations on these values: NumPy for arrays, faster there, and keras.ops for tensors.

    Examples
    --------
    >>> operations(np.zeros(1)) is np, operations(ops.zeros(1)) is np
    (True, False)
    """
    return np if all(isinstance(value, np.ndarray) for value in values) else ops


def squared_distances(X: Any, Y: Any) -> Any:
    """Squared Euclidean distances [N, M] between the rows of X [N, d] and of Y [M, d], arrays or tensors.

    Examples
    --------
    >>> squared_distances(np.zeros((1, 2)), np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[25.,  0.]])
    """
    xp: Any = operations(X, Y)
    # Centered: the expansion of the square would lose small differences between rows far from the origin.
    center = xp.mean(Y, axis=0) if xp is np else ops.stop_gradient(ops.mean(Y, axis=0))
    X, Y = X - center, Y - center
    squares = xp.sum(X * X, axis=1)[:, None] + xp.sum(Y * Y, axis=1)
    squared = squares - 2.0 * xp.matmul(X, xp.transpose(Y))
    return without_rounding(squared, squares, X.shape[1])


def without_rounding(squared: Any, squares: Any, terms: int, precision: str | None = None) -> Any:
    """Set squared distances to zero that may be rounding, given the sums of the squares of both rows.

    The square root, which rough kernels take, would make a distance of equal rows of it. ``precision`` is the dtype in
    which the distances were computed, by default theirs.

    Examples
    --------
    >>> without_rounding(np.array([1e-16, 1.0]), np.array([1.0, 2.0]), 4)
    array([0., 1.])
    """
    xp = operations(squared)
    rounding = 4.0 * terms**0.5 * float(np.finfo(precision or keras.backend.standardize_dtype(squared.dtype)).eps)
    return xp.where(squared > rounding * squares, squared, 0.0)


def _distance(squared: Any) -> Any:
    # The square root has no gradient at zero; below this bound the kernels are constant.
    return ops.sqrt(ops.maximum(squared, 1e-12))


def rbf(squared: Any) -> Any:
    """Squared exponential: exp(-r^2 / 2).

    Examples
    --------
    >>> float(rbf(0.0))
    1.0
    """
    return ops.exp(-0.5 * squared)


def matern12(squared: Any) -> Any:
    """Matern kernel of smoothness 1/2, the exponential kernel: exp(-r).

    Examples
    --------
    >>> round(float(matern12(1.0)), 4)
    0.3679
    """
    return ops.exp(-_distance(squared))


def matern32(squared: Any) -> Any:
    """Matern kernel of smoothness 3/2: (1 + sqrt(3) r) exp(-sqrt(3) r).

    Examples
    --------
    >>> round(float(matern32(1.0)), 4)
    0.4834
    """
    r = math.sqrt(3.0) * _distance(squared)
    return (1.0 + r) * ops.exp(-r)


def matern52(squared: Any) -> Any:
    """Matern kernel of smoothness 5/2: (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r).

    Examples
    --------
    >>> round(float(matern52(1.0)), 4)
    0.524
    """
    r = math.sqrt(5.0) * _distance(squared)
    return (1.0 + r + r * r / 3.0) * ops.exp(-r)


KERNELS: dict[str, Callable[[Any], Any]] = {
    "rbf": rbf,
    "matern12": matern12,
    "matern32": matern32,
    "matern52": matern52,
}


def median_distance(rows: NDArray[np.float64]) -> float:
    """Return the median distance between distinct rows, an initial lengthscale; 1 if all are equal.

    Examples
    --------
    >>> median_distance(np.array([[0.0], [1.0], [3.0]]))
    2.0
    """
    from scipy.spatial.distance import pdist

    distances = pdist(np.unique(rows, axis=0))  # repeated rows count once
    apart = distances[distances > 0]  # squares of tiny differences underflow
    return float(np.median(apart)) if apart.size else 1.0
