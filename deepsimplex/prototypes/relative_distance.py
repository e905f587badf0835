"""The cost of GLVQ and GMLVQ: how much nearer every sample lies to its own class than to the others; its gradient."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex.prototypes.activations import Activation

# Rows that are measured at once: their distances stay in a core's cache.
_ROWS = 2048
# Of the mean squared deviation of the samples: distances below are those of a sample on top of prototypes.
_FLOOR = 1e-10


@dataclass(frozen=True)
class Gradient:
    """Derivatives of the cost.

    Attributes
    ----------
    prototypes : ndarray, shape [P, d]
    omega : ndarray, shape [m, d], or None
        None where distances have no matrix.
    """

    prototypes: NDArray[np.float64]
    omega: NDArray[np.float64] | None


class RelativeDistanceCost:
    """E = sum_i Phi(mu_i), mu_i = (d_J - d_K) / (d_J + d_K + floor), over samples i.

    d_J and d_K are the squared distances ||Omega (x - w)||^2 to the nearest prototype of the sample's own class and of
    all others [GPLVQ Eq. 3.2, 3.5].

    Parameters
    ----------
    X : ndarray, shape [N, d]
        Features, about zero: distances are compared as |w|^2 - 2 x.w, from far away with round-off.
    y : ndarray, shape [N]
        Numbers of their classes.
    prototype_labels : ndarray, shape [P]
        Numbers of the prototypes' classes, at least two of which differ.
    activation : Activation
        Phi.

    Notes
    -----
    The floor is 1e-10 of the mean squared norm of the samples. A sample that lies on prototypes of two classes at once
    has mu = 0 and leaves them where they are; nowhere is zero divided by zero.

    Between prototypes that are equally near, the first is the nearest. The cost is continuous where the nearest
    changes, its gradient is not.

    Examples
    --------
    >>> from deepsimplex.prototypes.activations import Linear
    >>> cost = RelativeDistanceCost(np.array([[-1.0], [1.0]]), np.array([0, 1]), np.array([0, 1]), Linear())
    >>> value, gradient = cost(np.array([[-2.0], [1.0]]))
    >>> round(value, 6), gradient.prototypes.round(6).tolist()
    (-1.6, [[-0.64], [-0.32]])
    """

    def __init__(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        prototype_labels: NDArray[np.int64],
        activation: Activation,
    ) -> None:
        self._X, self._y, self._labels, self._activation = X, y, prototype_labels, activation
        self._of_class = _members(prototype_labels, int(max(y.max(), prototype_labels.max())) + 1)
        self._floor = _FLOOR * float(np.mean(np.einsum("nd,nd->n", X, X))) or _FLOOR

    def __call__(self, W: NDArray[np.float64], Omega: NDArray[np.float64] | None = None) -> tuple[float, Gradient]:
        """The cost of prototypes W [P, d] and the matrix Omega [m, d], None for Euclidean distances; its gradient."""
        V = W if Omega is None else W @ Omega.T
        value, pulls, D_omega = 0.0, np.zeros_like(V), None if Omega is None else np.zeros_like(Omega)
        for rows in row_slices(len(self._X), _ROWS):
            X = self._X[rows]
            Z = X if Omega is None else X @ Omega.T
            winners = self._winners(Z, V, self._y[rows])
            gaps = [Z - V[winner] for winner in winners]
            d_own, d_other = (np.einsum("nm,nm->n", gap, gap) for gap in gaps)
            total = d_own + d_other + self._floor
            phi, slope = self._activation((d_own - d_other) / total)
            value += float(phi.sum())
            # Derivatives of Phi(mu) by d_J and by d_K.
            slope = slope / total**2
            by_distance = slope * (2.0 * d_other + self._floor), -slope * (2.0 * d_own + self._floor)
            for winner, gap, derivative in zip(winners, gaps, by_distance, strict=True):
                weighted = 2.0 * derivative[:, None] * gap
                _add_rows(pulls, winner, weighted)
                if D_omega is not None:
                    D_omega += weighted.T @ (X - W[winner])
        by_prototype = -pulls if Omega is None else -pulls @ Omega
        return value, Gradient(by_prototype, D_omega)

    def _winners(
        self, Z: NDArray[np.float64], V: NDArray[np.float64], y: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The nearest prototype of the class of every row, and the nearest of the other classes."""
        nearness = Z @ (-2.0 * V.T)
        nearness += np.einsum("pm,pm->p", V, V)
        rows, candidates = np.arange(len(Z))[:, None], self._of_class[y]
        first = np.argmin(nearness[rows, candidates], axis=1)
        nearness[rows, candidates] = np.inf
        return candidates[rows[:, 0], first], nearness.argmin(axis=1)


def _members(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    """Prototypes of every class, [n, most of a class]: of classes that have fewer, the first again."""
    most = int(np.bincount(labels).max())
    table = np.zeros((num_classes, most), dtype=np.int64)
    for label in np.unique(labels):
        found = np.flatnonzero(labels == label)
        table[label] = found[0]
        table[label, : len(found)] = found
    return table


def _add_rows(sums: NDArray[np.float64], at: NDArray[np.int64], rows: NDArray[np.float64]) -> None:
    """sums[at[i]] += rows[i] for all i, as one product with a matrix of zeros and ones."""
    from scipy.sparse import csr_array

    N = len(at)
    chosen = csr_array((np.ones(N), at, np.arange(N + 1)), shape=(N, len(sums)))
    sums += chosen.T @ rows
