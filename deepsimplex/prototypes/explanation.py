"""A decision explained by the prototypes that are nearest."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Explanation:
    """The nearest prototypes of samples, from near to far.

    Attributes
    ----------
    indices : ndarray, shape [N, k]
        Numbers of the prototypes.
    labels : ndarray, shape [N, k]
        Their classes.
    distances : ndarray, shape [N, k]
        Squared, as they are compared: of scaled features, through Omega or in lengthscales where there are such.
    weights : ndarray, shape [N, k]
        What each has to say in the decision. LVQ asks the nearest prototype of every class alone, whose weight is the
        probability of its class, and those of all prototypes sum to one; in the layer ``PrototypeScores``, which has no
        probabilities, it is its score. A Gaussian process sums contributions k(x, w_j) b_j of all: the weight is what
        is added to the score of the class that is decided for.

    Examples
    --------
    >>> from deepsimplex import GLVQ
    >>> X, y = [[0.0], [1.0], [5.0], [6.0]], ["low", "low", "high", "high"]
    >>> explained = GLVQ().fit(X, y).explain([[2.0]], k=1)
    >>> explained.labels.tolist(), bool(explained.weights[0, 0] > 0.5)
    ([['low']], True)
    """

    indices: NDArray[np.int64]
    labels: NDArray[Any]
    distances: NDArray[np.float64]
    weights: NDArray[np.float64]


def nearest_prototypes(
    distances: NDArray[np.float64], weights: NDArray[np.float64], labels: NDArray[Any], k: int
) -> Explanation:
    """The k nearest of M prototypes: of equally near ones the first.

    Parameters
    ----------
    distances, weights : ndarray, shape [N, M]
    labels : ndarray, shape [M]
    k : int
        All where there are no more.

    Examples
    --------
    >>> nearest_prototypes(np.array([[4.0, 1.0]]), np.array([[0.2, 0.8]]), np.array(["a", "b"]), 1).labels
    array([['b']], dtype='<U1')
    """
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return Explanation(
        order,
        labels[order],
        np.take_along_axis(distances, order, axis=1),
        np.take_along_axis(weights, order, axis=1),
    )
