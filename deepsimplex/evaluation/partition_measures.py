"""How near memberships lie to the corners of the simplex: accuracy and ability to separate [SPS] sec. 5."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.inputs import check_probabilities
from deepsimplex.evaluation.named_labels import check_named_labels

INSTEAD = "standardized_memberships makes memberships of scores"


def mean_closeness(membership: NDArray[np.floating], corners: NDArray[np.int64]) -> float:
    """1 where all memberships lie in their corners, 0 where all lie in the centroid [SPS] sec. 5."""
    n = membership.shape[1]
    residuals = membership.astype(np.float64)
    residuals[np.arange(len(residuals)), corners] -= 1
    return float(1 - np.mean(np.linalg.norm(residuals, axis=1)) / np.sqrt((n - 1) / n))


def partition_accuracy(y: ArrayLike, membership: ArrayLike, *, classes: Sequence[Any] | None = None) -> float:
    """Accuracy Ac of memberships as they are: how near they lie to the corners of the true classes [SPS] sec. 5.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        True classes: numbers 0..n-1, or names that ``classes`` holds.
    membership : array_like, shape [N, n]
        In the simplex; scaled (``standardized_partition(...).membership``, whose rows may sum to less than 1) or not.
    classes : sequence of length n, optional
        The name of each column of ``membership``.

    Returns
    -------
    float
        1 where every row lies in the right corner, 0 where all lie in the centroid, 1 - sqrt(2 n / (n - 1)) where
        every row lies in a wrong corner.

    Notes
    -----
    The paper prints (G - 1) / G as the distance from the centroid to a corner. It is sqrt((G - 1) / G), and only this
    gives the 1 and the 0 that the paper asks for.

    Examples
    --------
    >>> partition_accuracy([0, 1], [[1, 0, 0], [0, 1, 0]])
    1.0
    >>> round(partition_accuracy([0, 1], [[0.6, 0.2, 0.2], [0.5, 0.5, 0.0]]), 4)
    0.267
    """
    table = check_probabilities(membership, "membership", INSTEAD, partial=True)
    return mean_closeness(table, check_named_labels(y, "y", classes, table.shape))


def ability_to_separate(
    membership: ArrayLike, assigned: ArrayLike | None = None, *, classes: Sequence[Any] | None = None
) -> float:
    """Ability to separate AS of memberships as they are: nearness to the corners of the assigned classes [SPS] sec. 5.

    Parameters
    ----------
    membership : array_like, shape [N, n]
        In the simplex; scaled (rows may sum to less than 1) or not.
    assigned : array_like, shape [N] or [N, 1], optional
        Assigned classes. Default: each row's largest membership, the lowest class among equals. For scaled
        memberships give the classes assigned before scaling, as the paper does.
    classes : sequence of length n, optional
        The name of each column of ``membership``.

    Returns
    -------
    float
        1 where every row lies in the corner of its assigned class, which is by default the nearest, and 0 where all
        lie in the centroid. With other classes ``assigned`` it may be negative, as ``partition_accuracy`` is.

    Examples
    --------
    >>> round(ability_to_separate([[0.6, 0.2, 0.2], [0.5, 0.5, 0.0]]), 4)
    0.267
    """
    table = check_probabilities(membership, "membership", INSTEAD, partial=True)
    corners = (
        table.argmax(axis=1) if assigned is None else check_named_labels(assigned, "assigned", classes, table.shape)
    )
    return mean_closeness(table, corners)
