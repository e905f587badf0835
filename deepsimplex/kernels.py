"""Stationary kernels of unit variance, as functions of squared distances measured in lengthscales."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from keras import ops
from numpy.typing import NDArray

Kernel = Literal["rbf", "matern32", "matern52"]


def squared_distances(X: Any, Y: Any) -> Any:
    """Squared Euclidean distances [N, M] between the rows of X [N, d] and of Y [M, d].

    Examples
    --------
    >>> import numpy as np
    >>> squared_distances(np.zeros((1, 2)), np.array([[3.0, 4.0], [0.0, 0.0]])).numpy()
    array([[25.,  0.]])
    """
    # Centered: the expansion of the square would lose small differences between rows far from the origin.
    center = ops.stop_gradient(ops.mean(Y, axis=0))
    X, Y = X - center, Y - center
    squares = ops.sum(X * X, axis=1)[:, None] + ops.sum(Y * Y, axis=1)
    return ops.maximum(squares - 2.0 * ops.matmul(X, ops.transpose(Y)), 0.0)


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


KERNELS: dict[str, Callable[[Any], Any]] = {"rbf": rbf, "matern32": matern32, "matern52": matern52}


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
