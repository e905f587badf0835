"""The plane that decision regions are drawn in: that of two features, or of the first two principal components."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from deepsimplex._utils.scaling import Scaling


@dataclass(frozen=True)
class Plane:
    """Coordinates of features [N, d], and the features [M, d] of points in the plane.

    Attributes
    ----------
    scaling : Scaling
        Features are measured as (x - center) / width.
    axes : ndarray, shape [k, d]
        Orthonormal directions of scaled features; k is 2, or 1 with one feature.
    share : ndarray, shape [2], optional
        Of the variance of scaled features, along the axes; None where no feature is left out.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [0.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    >>> plane = Plane.of(X, scale_features=False)
    >>> plane.coordinates(X).round(1).tolist()
    [[-1.0, -0.5], [1.0, -0.5], [-1.0, 0.5], [1.0, 0.5]]
    >>> plane.features(np.array([[0.0, 0.0]])).tolist()
    [[1.0, 0.5, 1.0]]
    """

    scaling: Scaling
    axes: NDArray[np.float64]
    share: NDArray[np.float64] | None

    @classmethod
    def of(cls, X: NDArray[np.floating], scale_features: bool) -> "Plane":
        """The plane of X [N, d]: the features themselves up to two of them, else principal components."""
        d = X.shape[1]
        if d <= 2:
            return cls(Scaling.none(d), np.eye(d), None)
        X = X.astype(np.float64)
        if np.all(X[0] == X):
            raise ValueError(
                f"X must hold rows that differ, for the plane of principal components; found {len(X)} alike"
            )
        scaling = Scaling.of_features(X)
        if not scale_features:
            scaling = Scaling(scaling.center, np.ones(d))
        found = PCA(2, random_state=0).fit(scaling(X))
        return cls(scaling, found.components_, found.explained_variance_ratio_)

    def coordinates(self, X: NDArray[np.floating]) -> NDArray[np.float64]:
        """Where rows [N, d] lie, projected onto the plane: [N, k]."""
        return self.scaling(X) @ self.axes.T

    def features(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Features [M, d] of points of the plane [M, k]."""
        return self.scaling.undo(coordinates @ self.axes)

    def names(self, feature_names: list[str] | None) -> list[str]:
        """What stands along the axes."""
        if self.share is None:
            return feature_names or [f"feature {j}" for j in range(len(self.axes))]
        return [f"principal component {j + 1} ({share:.0%} of variance)" for j, share in enumerate(self.share)]


def limits(values: NDArray[np.floating]) -> tuple[float, float]:
    """Ends of an axis with some room on both sides, also of values that are all the same.

    Examples
    --------
    >>> limits(np.array([0.0, 10.0]))
    (-1.0, 11.0)
    >>> limits(np.array([5.0, 5.0]))
    (4.5, 5.5)
    """
    low, high = float(values.min()), float(values.max())
    room = 0.1 * (high - low) if high > low else 0.1 * max(abs(low), 1.0)
    return low - room, high + room
