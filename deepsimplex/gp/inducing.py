"""Where the inducing points of sparse processes begin."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.scaling import Scaling
from deepsimplex._utils.spread import spread_rows
from deepsimplex._utils.validation import check_whole
from deepsimplex.gp.inputs import check_features


def inducing_points(
    inducing: int | ArrayLike,
    X: NDArray[np.float64],
    features: Scaling,
    seed: int,
    y: ArrayLike | None,
    sets: int = 1,
) -> NDArray[np.float64]:
    """Sets of inducing points [sets, M, d] of scaled features.

    Parameters
    ----------
    inducing : int or array_like, shape [M, d]
        How many are to be chosen among the rows by k-means++ in every class, or the points themselves, in the units of
        the data.
    X : ndarray, shape [N, d]
        Scaled features.
    features : Scaling
        From the units of the data.
    seed : int
    y : array_like, shape [N], optional
        Classes.
    sets : int
        How many sets are wanted. Chosen points differ from one to the next, given ones do not. Default 1.

    Raises
    ------
    TypeError, ValueError
        For what is neither a number of points nor points of as many features as X has.

    Examples
    --------
    >>> X = np.arange(6.0)[:, None]
    >>> inducing_points(6, X, Scaling.none(1), 0, None)[0].ravel()
    array([0., 1., 2., 3., 4., 5.])
    """
    if np.ndim(inducing) == 0:
        number = check_whole(inducing, "inducing, unless it holds points [M, d],", 1)
        rng = np.random.default_rng(seed)
        return np.stack([spread_rows(X, number, rng, y) for _ in range(sets)])
    if np.ndim(inducing) == 1:
        columns, found = X.shape[1], np.shape(inducing)
        hint = "np.reshape(inducing, (-1, 1)) makes them points of a single feature"
        if columns > 1:
            hint = "np.reshape(inducing, (1, -1)) makes them a single point"
        raise ValueError(f"inducing must be a whole number or points [M, {columns}]; found shape {found}. {hint}")
    points: Any = features(check_features(inducing, "inducing", columns=X.shape[1], least=1))
    return np.repeat(points[np.newaxis], sets, axis=0)
