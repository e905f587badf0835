"""The cost of GLVQ and GMLVQ, a sum over samples of the relative distance to their own class, and its gradient."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.validation import check_choice, check_number, check_sample_weight
from deepsimplex.prototypes.class_scores import members

# Rows per block: their distances stay in a core's cache.
_ROWS = 2048
# Added to the denominator, relative to the mean squared norm of the samples.
_FLOOR = 1e-10

Value = NDArray[np.float64]


def activate(mu: Value, activation: str = "sigmoid", steepness: float = 2.0) -> tuple[Value, Value]:
    """Compute Phi(mu) and its derivative: the cost of a relative distance mu from -1 (well classified) to 1.

    Parameters
    ----------
    mu : ndarray, shape [N]
    activation : {"sigmoid", "linear"}
        "sigmoid" (default): 1 / (1 + exp(-steepness mu)), which weights samples near the decision boundary most.
        "linear": mu, which weights all samples alike.
    steepness : float
        Of the sigmoid, above 0. Default 2; with 1 it is almost linear.

    Raises
    ------
    ValueError
        For another activation or steepness.

    Examples
    --------
    >>> phi, slope = activate(np.array([0.0, 1.0]), "sigmoid", 4.0)
    >>> phi.round(3).tolist(), slope.round(3).tolist()
    ([0.5, 0.982], [1.0, 0.071])
    """
    check_choice(activation, "activation", ("sigmoid", "linear"))
    check_number(steepness, "steepness", 0.0)
    if activation == "linear":
        return mu, np.ones_like(mu)
    phi = 0.5 + 0.5 * np.tanh(0.5 * steepness * mu)  # does not overflow
    return phi, steepness * phi * (1.0 - phi)


class RelativeDistanceCost:
    """E = sum_i w_i Phi(mu_i), mu_i = (d_J - d_K) / (d_J + d_K + floor), over samples i.

    d_J and d_K are the squared distances ||Omega (x - w)||^2 to the nearest prototype of the sample's own class and of
    all others [GPLVQ Eq. 3.2, 3.5].

    Parameters
    ----------
    X : ndarray, shape [N, d]
        Centered features: distances are computed as |w|^2 - 2 x.w, with rounding errors far from zero.
    y : ndarray, shape [N]
        Class numbers.
    labels : ndarray, shape [P]
        Class numbers of the prototypes, of at least two classes.
    activation, steepness
        See ``activate``.
    weights : ndarray, shape [N], optional
        Weights w of the samples. Default: ones.

    Notes
    -----
    The floor is 1e-10 of the mean squared norm of the samples: a sample that equals prototypes of two classes has
    mu = 0 and a zero gradient. Of equally near prototypes the first is the nearest. The cost is continuous where the
    nearest changes, its gradient is not.

    Examples
    --------
    >>> cost = RelativeDistanceCost(np.array([[-1.0], [1.0]]), np.array([0, 1]), np.array([0, 1]), "linear")
    >>> value, by_prototype, _ = cost(np.array([[-2.0], [1.0]]))
    >>> round(value, 6), by_prototype.round(6).tolist()
    (-1.6, [[-0.64], [-0.32]])
    """

    def __init__(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        labels: NDArray[np.int64],
        activation: str = "sigmoid",
        steepness: float = 2.0,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        self._weights = check_sample_weight(weights, len(X), name="weights")
        self._X, self._y, self._activation = X, y, (activation, steepness)
        self._members = members(labels, int(max(y.max(), labels.max())) + 1)
        self._floor = _FLOOR * float(np.average(np.einsum("nd,nd->n", X, X), weights=weights)) or _FLOOR

    def __call__(self, W: Value, Omega: Value | None = None) -> tuple[float, Value, Any]:
        """Compute the cost and its gradient.

        Parameters
        ----------
        W : ndarray, shape [P, d]
            Prototypes.
        Omega : ndarray, shape [m, d], optional
            Default: Euclidean distances.

        Returns
        -------
        cost : float
        by_prototype : ndarray, shape [P, d]
        by_omega : ndarray, shape [m, d], or None
        """
        V = W if Omega is None else W @ Omega.T
        value, pulls, by_omega = 0.0, np.zeros_like(V), None if Omega is None else np.zeros_like(Omega)
        for rows in row_slices(len(self._X), _ROWS):
            X = self._X[rows]
            Z = X if Omega is None else X @ Omega.T
            nearness = Z @ (-2.0 * V.T)
            nearness += np.einsum("pm,pm->p", V, V)
            winners = self._winners(nearness, self._y[rows])
            gaps = [Z - V[winner] for winner in winners]
            part, by_distance = self._by_distance(rows, *(np.einsum("nm,nm->n", gap, gap) for gap in gaps))
            value += part
            for winner, gap, derivative in zip(winners, gaps, by_distance, strict=True):
                weighted = 2.0 * derivative[:, None] * gap
                _add_rows(pulls, winner, weighted)
                if by_omega is not None:
                    by_omega += weighted.T @ (X - W[winner])
        return value, -pulls if Omega is None else -pulls @ Omega, by_omega

    def _winners(self, nearness: Value, y: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the nearest prototype of the class of every row, and the nearest of the others; changes ``nearness``."""
        rows, candidates = np.arange(len(y))[:, None], self._members[y]
        first = np.argmin(nearness[rows, candidates], axis=1)
        nearness[rows, candidates] = np.inf
        return candidates[rows[:, 0], first], nearness.argmin(axis=1)

    def _by_distance(self, rows: slice, d_correct: Value, d_wrong: Value) -> tuple[float, tuple[Value, Value]]:
        """Return the cost of rows, and its derivatives by d_J and by d_K."""
        total = d_correct + d_wrong + self._floor
        phi, slope = activate((d_correct - d_wrong) / total, *self._activation)
        slope = self._weights[rows] * slope / total**2
        by_distance = slope * (2.0 * d_wrong + self._floor), -slope * (2.0 * d_correct + self._floor)
        return float(self._weights[rows] @ phi), by_distance


class LocalRelativeDistanceCost(RelativeDistanceCost):
    """``RelativeDistanceCost`` with a matrix for every prototype: d(x, w_p) = ||Omega_p (x - w_p)||^2.

    Examples
    --------
    >>> X, y = np.array([[-1.0, 3.0], [1.0, 0.0]]), np.array([0, 1])
    >>> cost = LocalRelativeDistanceCost(X, y, np.array([0, 1]), "linear")
    >>> value, _, by_omega = cost(np.array([[-2.0, 0.0], [1.0, 0.0]]), np.array([[[1.0, 0.0]], [[1.0, 0.0]]]))
    >>> round(value, 6), by_omega.shape
    (-1.6, (2, 1, 2))
    """

    def __call__(self, W: Value, Omega: Value | None = None) -> tuple[float, Value, Any]:
        """Compute the cost and its gradient by prototypes W [P, d] and matrices Omega [P, m, d]."""
        assert Omega is not None
        value, by_prototype, by_omega = 0.0, np.zeros_like(W), np.zeros_like(Omega)
        for rows in row_slices(len(self._X), _ROWS):
            X = self._X[rows]
            gaps = [(X - w) @ local.T for w, local in zip(W, Omega, strict=True)]
            distances = np.stack([np.einsum("nm,nm->n", gap, gap) for gap in gaps], axis=1)
            winners = self._winners(distances.copy(), self._y[rows])
            nearest = (distances[np.arange(len(X)), winner] for winner in winners)
            part, by_distance = self._by_distance(rows, *nearest)
            value += part
            for winner, derivative in zip(winners, by_distance, strict=True):
                for p in np.unique(winner):
                    chosen = winner == p
                    weighted = 2.0 * derivative[chosen, None] * gaps[p][chosen]
                    by_omega[p] += weighted.T @ (X[chosen] - W[p])
                    by_prototype[p] -= weighted.sum(axis=0) @ Omega[p]
        return value, by_prototype, by_omega


def _add_rows(sums: NDArray[np.float64], at: NDArray[np.int64], rows: NDArray[np.float64]) -> None:
    """Add rows[i] to sums[at[i]] for all i, as a sparse product: much faster than np.add.at."""
    from scipy.sparse import csr_array

    N = len(at)
    chosen = csr_array((np.ones(N), at, np.arange(N + 1)), shape=(N, len(sums)))
    sums += chosen.T @ rows
