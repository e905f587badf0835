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
        is added to the score of the class that is decided for, in ``GPLVQ`` to the mean of its process.

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

    @classmethod
    def of(
        cls, distances: NDArray[np.float64], weights: NDArray[np.float64], labels: NDArray[Any], k: int
    ) -> "Explanation":
        """The k nearest of M prototypes, of distances and weights [N, M] and labels [M].

        Of equally near ones the first; all where k is more.
        """
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        nearest = (np.take_along_axis(values, order, axis=1) for values in (distances, weights))
        return cls(order, labels[order], *nearest)
