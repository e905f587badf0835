"""Where prototypes begin: at samples of their class, at its mean, or spread over it."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.spread import spread_rows

Initialization = Literal["means", "samples", "k-means++"]
INITIALIZATIONS: tuple[Initialization, ...] = ("means", "samples", "k-means++")


def initial_prototypes(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    number: int,
    initialization: str = "means",
    rng: np.random.Generator | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Prototypes of every class that has samples, and the numbers of their classes.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [N]
        Numbers of the classes.
    number : int
        Prototypes of every class. A class with fewer samples that differ has as many as those.
    initialization : {"means", "samples", "k-means++"}
        "means" (default): the mean of the class, or the means that k-means finds where there are several; "samples":
        drawn among those that differ [GPLVQ ch. 3]; "k-means++": samples far from one another.
    rng : numpy.random.Generator, optional
        Makes the choices. None (default) is one of seed 0.

    Returns
    -------
    prototypes : ndarray, shape [P, d]
        Class by class; no two of a class are equal.
    labels : ndarray, shape [P]

    Raises
    ------
    ValueError
        For another initialization.

    Examples
    --------
    >>> X = np.array([[0.0], [2.0], [10.0], [11.0], [30.0]])
    >>> W, labels = initial_prototypes(X, np.array([0, 0, 1, 1, 1]), 2)
    >>> W.ravel().tolist(), labels.tolist()
    ([0.0, 2.0, 10.5, 30.0], [0, 0, 1, 1])
    """
    if initialization not in INITIALIZATIONS:
        raise ValueError(
            f"initialization must be one of {', '.join(INITIALIZATIONS)}; found {initialization!r}"
            f"{did_you_mean(initialization, INITIALIZATIONS)}"
        )
    rng = np.random.default_rng(0) if rng is None else rng
    classes = np.unique(y)
    chosen = [_of_class(X[y == label], number, initialization, rng) for label in classes]
    return np.concatenate(chosen), np.repeat(classes, [len(rows) for rows in chosen])


def _of_class(
    rows: NDArray[np.float64], number: int, initialization: str, rng: np.random.Generator
) -> NDArray[np.float64]:
    if initialization == "means" and number == 1:
        return rows.mean(axis=0, keepdims=True)
    if initialization == "samples":
        distinct = np.unique(rows, axis=0)
        return distinct[np.sort(rng.permutation(len(distinct))[:number])]
    spread = spread_rows(rows, number, rng)
    if initialization == "k-means++" or len(spread) < number:
        return spread
    return np.unique(_means(rows, spread), axis=0)


def _means(rows: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where k-means ends that starts there."""
    from sklearn.cluster import KMeans  # imported here: the package comes in lightly
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # of the samples of one class: threads would wait for one another most of the time
        return np.asarray(KMeans(len(start), init=start, n_init=1).fit(rows).cluster_centers_)
