"""Kernels of given features: a transformation of the features, a stationary, a linear and a constant part."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from keras import ops
from numpy.typing import NDArray

from deepsimplex.kernels.stationary import Kernel, operations, squared_distances, without_rounding

Transformation = Literal["raw", "unit", "root", "root_unit", "standardized"]
TRANSFORMATIONS: tuple[Transformation, ...] = ("root_unit", "unit", "root", "raw", "standardized")
# A stationary kernel is (1 + a r + b r^2) exp(-c r - d r^2), so that a served graph holds its choice as four numbers.
COEFFICIENTS: dict[str, tuple[float, float, float, float]] = {
    "rbf": (0.0, 0.0, 0.0, 0.5),
    "matern12": (0.0, 0.0, 1.0, 0.0),
    "matern32": (3.0**0.5, 0.0, 3.0**0.5, 0.0),
    "matern52": (5.0**0.5, 5.0 / 3.0, 5.0**0.5, 0.0),
}
# Square roots of less than its square are constant: at zero they have no gradient.
_TINY = 1e-12
# Rows whose distances are compared for their median.
_ROWS = 500


@dataclass(frozen=True, eq=False)
class FeatureKernel:
    """Kernel k(x, y) = s(|u - v| / lengthscale) + linear u.v / power + 1 of transformed features u, v.

    Parameters
    ----------
    coefficients : ndarray, shape [4]
        Coefficients a, b, c, d of s(r) = (1 + a r + b r^2) exp(-c r - d r^2); see ``COEFFICIENTS``.
    lengthscale : float
    linear : float
        Weight of the linear part.
    root, unit : float
        1 to take the square roots of features (negative ones count as 0), then to divide rows by their length; else 0.
    center, scale : ndarray, shape [d]
        Subtracted from the features, after roots and lengths, and divided by.
    power : float
        Mean squared length of transformed rows, the unit of the linear part.

    Examples
    --------
    >>> X = np.array([[0.0], [3.0], [4.0]])
    >>> kernel = FeatureKernel.of(X, "raw", "rbf", scale=2.0)
    >>> U = kernel.transform(X)
    >>> round(kernel.lengthscale, 6), kernel(U, U)[0].round(3).tolist()  # twice the median distance
    (6.0, [2.0, 1.882, 1.801])
    """

    coefficients: NDArray[np.float64]
    lengthscale: float
    linear: float
    root: float
    unit: float
    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    power: float

    @classmethod
    def of(
        cls,
        X: NDArray[Any],
        transformation: Transformation,
        kernel: Kernel = "rbf",
        scale: float = 1.0,
        linear: float = 0.0,
    ) -> "FeatureKernel":
        """Make the kernel whose lengthscale is ``scale`` times the median distance of the transformed rows X [N, d]."""
        root, unit = float(transformation.startswith("root")), float(transformation.endswith("unit"))
        blank = np.zeros(X.shape[1])
        whole = cls(np.array(COEFFICIENTS[kernel]), 1.0, linear, root, unit, blank, blank + 1.0, 1.0)
        U = whole.transform(X)
        center, deviation = U.mean(axis=0), blank + 1.0
        if transformation == "standardized":
            deviation = U.std(axis=0)
            deviation = np.where(deviation > _TINY * np.maximum(np.abs(center), 1.0), deviation, 1.0)
        U = (U - center) / deviation
        power = float(np.mean(np.sum(U * U, axis=1))) or 1.0
        return replace(
            whole, center=center, scale=deviation, power=power, lengthscale=scale * _median_distance(U[:_ROWS])
        )

    def with_parts(self, kernel: Kernel, scale: float, linear: float) -> "FeatureKernel":
        """Return the kernel with another stationary part, its lengthscale multiplied by ``scale``, and linear part."""
        coefficients = np.array(COEFFICIENTS[kernel])
        return replace(self, coefficients=coefficients, lengthscale=scale * self.lengthscale, linear=linear)

    def transform(self, X: Any) -> Any:
        """Transform features [N, d], an array of any dtype or a tensor of the precision of the kernel's numbers.

        Rows are rounded to single precision, in which layers keep inducing rows: equal rows stay at distance zero.
        """
        xp = operations(X)
        X = X.astype(np.float64) if xp is np else X
        X = self.root * xp.sqrt(xp.maximum(X, _TINY**2)) + (1.0 - self.root) * X
        length = xp.sqrt(xp.maximum(xp.sum(X * X, axis=1, keepdims=True), _TINY**2))
        X = X / (self.unit * length + (1.0 - self.unit))
        X = (X - self.center) / self.scale
        return X.astype(np.float32).astype(np.float64) if xp is np else ops.cast(ops.cast(X, "float32"), X.dtype)

    def __call__(self, U: Any, V: Any) -> Any:
        """Kernel values [N, M] of transformed features U [N, d] and V [M, d]."""
        xp = operations(U, V)
        return self.of_products(U, xp.matmul(U, xp.transpose(V)), xp.sum(V * V, axis=1))

    def of_products(self, U: Any, products: Any, squares: Any, precision: str | None = None) -> Any:
        """Kernel values [N, M] of transformed features U [N, d] and rows, by inner products and squared lengths [M].

        ``precision`` is the dtype in which the products were computed, by default theirs.
        """
        xp = operations(U)
        # Transformed rows are centered: the expansion of the square loses no digits.
        squares = xp.sum(U * U, axis=1)[:, None] + squares
        return self.of_pairs(without_rounding(squares - 2.0 * products, squares, U.shape[1], precision), products)

    def of_pairs(self, squared: Any, products: Any) -> Any:
        """Kernel values of pairs of transformed rows with these squared distances and inner products."""
        xp = operations(squared)
        a, b, c, d = (self.coefficients[i] for i in range(4))
        squared = squared / self.lengthscale**2
        r = xp.sqrt(xp.maximum(squared, _TINY**2))
        stationary = (1.0 + a * r + b * squared) * xp.exp(-c * r - d * squared)
        return stationary + (self.linear / self.power) * products + 1.0

    def variance(self, U: Any) -> Any:
        """Variances k(u, u) [N] of transformed features."""
        return 2.0 + (self.linear / self.power) * operations(U).sum(U * U, axis=1)


def _median_distance(U: NDArray[np.float64]) -> float:
    """Median distance of rows that differ, 1 if all are equal."""
    squared = squared_distances(U, U)[np.triu_indices(len(U), 1)]
    apart = squared[squared > 0]
    return float(np.sqrt(np.median(apart))) if apart.size else 1.0
