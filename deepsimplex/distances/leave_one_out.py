"""The leave-one-out error of the nearest neighbor: how well a distance separates the classes."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_whole
from deepsimplex.distances.named_distances import get_distance
from deepsimplex.distances.neighbors import class_neighbors


def neighbor_error(
    x: ArrayLike, y: ArrayLike, distance: Any = "euclidean", *, max_samples: int = 1000, seed: int = 0
) -> float:
    """Return the share of samples whose nearest other sample is of another class.

    With many samples it is at most twice the Bayes error (Cover and Hart).

    Parameters
    ----------
    x : array_like, shape [N, ...]
        Samples.
    y : array_like of int, shape [N]
        Their classes.
    distance : str, dict, callable, ndarray or Distance
        As ``get_distance`` takes it. The default is "euclidean".
    max_samples : int
        Number of samples, drawn at random, whose nearest neighbor among all is searched. The default 1000 gives a
        standard error of at most 0.016.
    seed : int
        Seed of the draw. The default is 0.

    Returns
    -------
    float
        In [0, 1]. A sample that lies as near to another class as to its own counts by a half.

    Raises
    ------
    TypeError, ValueError
        As ``class_neighbors``; for less than two samples.

    Notes
    -----
    Cover, Hart: *Nearest Neighbor Pattern Classification*, 1967.

    Examples
    --------
    >>> neighbor_error([[0.0], [1.0], [5.0], [6.0]], [0, 0, 1, 0])
    0.5
    """
    metric = get_distance(distance)
    samples, labels = metric.check(x, "x"), np.asarray(y)
    N, most = len(samples), check_whole(max_samples, "max_samples", 1)
    if N < 2:
        raise ValueError(f"x must hold at least two samples; found {N}")
    if most >= N or not metric.has_features:  # samples may be indices into a matrix
        nearest = class_neighbors(samples, labels, metric, show_progress=False).distances[..., 0]
    else:
        chosen = np.sort(np.random.default_rng(check_whole(seed, "seed", 0)).permutation(N)[:most])
        # With a second neighbor of each class there is one beside the sample itself.
        found = class_neighbors(samples, labels, metric, k=2, queries=samples[chosen], show_progress=False)
        nearest = np.where(found.indices == chosen[:, None, None], np.inf, found.distances).min(axis=-1)
        labels = labels[chosen]
    own = nearest[np.arange(len(labels)), labels]
    nearest[np.arange(len(labels)), labels] = np.inf
    others = nearest.min(axis=-1)
    return float(np.mean((others < own) + 0.5 * (others == own)))
