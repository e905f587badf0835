"""Gaussian process regression on labels in closed form, with exact leave-one-out."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, cholesky, eigh, lapack, solve_triangular

from deepsimplex.kernels.feature_kernel import FeatureKernel

Array = NDArray[np.float64]
# Numbers of a block of basis values, and of kernel values: 32 MiB, and 4 MiB, which caches hold.
_BLOCK, _KERNEL_BLOCK = 2**22, 2**19
# Added to the diagonal of the inducing rows' kernel matrix, in units of its mean.
_JITTER = 1e-6
# Added to the diagonal of the same matrix where it is inverted without jitter, in the same units.
_LEAST_EIGENVALUE = 1e-14


class Regressed(NamedTuple):
    """Predictions of a regression on labels.

    Attributes
    ----------
    mean : ndarray, shape [N, n]
        Regressed labels: shares of the classes, which sum to about one but may be negative.
    variance : ndarray, shape [N]
        Variances of the process, in units of its noise-free kernel.
    """

    mean: Array
    variance: Array


class LabelRegression:
    """Gaussian process regression of labels on features, of one kernel and one noise for all classes.

    The process is that of subsets of regressors on M inducing rows w_j, exact if all training rows are among them:
    with K_mm = L L^T and phi(x) = L^-1 k(w, x), labels Y [N, n] (one-hot or soft) and Phi [N, M],

        mean(x) = phi(x)^T (Phi^T Phi + s^2)^-1 Phi^T Y,
        var(x) = k(x, x) - |phi(x)|^2 + s^2 phi(x)^T (Phi^T Phi + s^2)^-1 phi(x).

    Rows of labels sum to the weights of the rows, 1 or any positive number w: such a row counts w times in both sums,
    and is left out as a whole. Latents of a target with positions C [n, L] of its classes are mean(x) C, with the
    same variance for every latent dimension. Only the sums Phi^T Phi [M, M] and Phi^T Y [M, n] are kept, so that rows
    and classes can be added, and rows be removed, at any time.

    Parameters
    ----------
    kernel : FeatureKernel
    points : ndarray, shape [M, d]
        Inducing rows, transformed by the kernel.
    num_classes : int
        Number of classes n; ``add`` enlarges it.

    Attributes
    ----------
    gram : ndarray, shape [M, M]
        Phi^T Phi.
    moments : ndarray, shape [M, n]
        Phi^T Y.
    num_rows : int
    noise : float
        s^2, in units of the kernel's variance.

    Notes
    -----
    Left out, row i has the mean (mean_i - h_i y_i) / (1 - h_i) with h_i = phi_i^T (Phi^T Phi + s^2)^-1 phi_i: exactly
    what refitting without the row gives, for the kernel, noise and inducing rows as they are. Rows G that are left out
    together have y_G - mean_-G = (I - H_GG)^-1 (y_G - mean_G).

    Sources: Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2006, sec. 5.4.2; Quinonero-Candela and
    Rasmussen, *A Unifying View of Sparse Approximate Gaussian Process Regression*, 2005.

    Examples
    --------
    >>> X, Y = np.array([[0.0], [0.1], [1.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> kernel = FeatureKernel.of(X, "raw", "rbf", 0.5)
    >>> regression = LabelRegression(kernel, kernel.transform(X), 2).add(X, Y).solve(0.1)
    >>> regression.predict(np.array([[0.05]])).mean.round(1).tolist()
    [[1.0, 0.0]]
    >>> regression.leave_out(regression.basis(X), Y).mean[0].round(1).tolist()  # by the second row
    [0.9, 0.0]
    """

    def __init__(self, kernel: FeatureKernel, points: NDArray[Any], num_classes: int) -> None:
        self.kernel = kernel
        self.points = points
        M = len(points)
        self._factor = jittered_cholesky(self._kernel_values(self.points, np.asarray)[0])
        self.gram, self.moments = np.zeros((M, M)), np.zeros((M, num_classes))
        self.num_rows = 0

    def basis(self, X: NDArray[Any]) -> tuple[Array, Array]:
        """Return phi [N, M] of features X [N, d], and the variances outside of its span, k(x, x) - |phi|^2 [N]."""
        return self._basis(X, self.kernel.transform)

    def basis_of(self, U: Array) -> tuple[Array, Array]:
        """Return the same as ``basis`` of rows U [N, d] that are transformed already."""
        return self._basis(U, np.asarray)

    def _basis(self, X: NDArray[Any], transform: Callable[[NDArray[Any]], Array]) -> tuple[Array, Array]:
        values, variance = self._kernel_values(X, transform)
        phi = solve_triangular(self._factor, values.T, lower=True, overwrite_b=True, check_finite=False).T
        return phi, np.maximum(variance - _squared_lengths(phi), 0.0)

    def _kernel_values(self, X: NDArray[Any], transform: Callable[[NDArray[Any]], Array]) -> tuple[Array, Array]:
        """Kernel values [N, M] of rows and inducing rows, and the rows' variances [N]."""
        values, variance = np.empty((len(X), len(self.points))), np.empty(len(X))
        squares = np.sum(self.points * self.points, axis=1)
        size = max(_KERNEL_BLOCK // max(self.points.shape), 1)
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            u = transform(X[rows])
            values[rows], variance[rows] = (
                self.kernel.of_products(u, u @ self.points.T, squares),
                self.kernel.variance(u),
            )
        return values, variance

    def basis_of_points(self) -> tuple[Array, Array]:
        """Return the same of the inducing rows themselves, from the factor alone.

        With K + j = L L^T, j the jitter, K L^-T is L - j L^-T.
        """
        variance = self.kernel.variance(self.points)
        phi = self._factor - _JITTER * np.mean(variance) * self._inverse_factor().T
        return phi, np.maximum(variance - _squared_lengths(phi), 0.0)

    def _inverse_factor(self) -> Array:
        return np.asarray(lapack.dtrtri(self._factor, lower=1)[0])

    def _blocks(self, *columns: Any) -> Iterator[tuple[Any, ...]]:
        size = max(_BLOCK // len(self.points), 1)
        for start in range(0, len(columns[0]), size):
            yield tuple(column[start : start + size] for column in columns)

    def add(self, X: NDArray[Any], Y: Array, sign: int = 1) -> Self:
        """Add rows X [N, d] with labels Y [N, n], which may have more classes than before; ``sign`` -1 removes them."""
        for x, y in self._blocks(X, Y):
            self.add_basis(self.basis(x)[0], y, sign)
        return self

    def add_basis(self, phi: Array, Y: Array, sign: int = 1) -> None:
        """Add rows by their phi [N, M], the first of ``basis(X)``; else as ``add``."""
        new = Y.shape[1] - self.moments.shape[1]
        if new > 0:
            self.moments = np.pad(self.moments, ((0, 0), (0, new)))
        gram, moments = sums(phi, Y)
        gram *= sign
        self.gram += gram
        self.moments[:, : Y.shape[1]] += sign * moments
        self.num_rows += sign * len(phi)

    def add_inducing(self, U: Array, Y: Array) -> "LabelRegression":
        """Return a regression with transformed rows U [N, d] and labels Y [N, n] added, as inducing rows too.

        Before, all rows must be among the inducing rows w_j: then k(u, x) = k(u, w) K_mm^-1 k(w, x) for each of them.
        """
        # K_mm L^-T, with a diagonal that equal and nearly equal rows do not make singular.
        root = self.basis_of_points()[0]
        root += _LEAST_EIGENVALUE * np.mean(self.kernel.variance(self.points)) * self._inverse_factor().T
        new = np.linalg.solve(root, self._kernel_values(U, np.asarray)[0].T).T
        other = self._carried_to(np.concatenate([self.points, U]), np.concatenate([self._factor, new]))
        other.add_basis(other.basis_of(U)[0], Y)
        return other

    def without_inducing(self, rows: Sequence[int]) -> "LabelRegression":
        """Return a regression of the same sums without some inducing rows, by their numbers."""
        kept = np.delete(np.arange(len(self.points)), list(rows))
        return self._carried_to(self.points[kept], self._factor[kept])

    def _carried_to(self, points: Array, values: Array) -> "LabelRegression":
        """The sums for other inducing rows, of which kernel values are ``values`` [M', M] times phi, of all rows."""
        other = LabelRegression(self.kernel, points, self.moments.shape[1])
        T = solve_triangular(other._factor, values, lower=True)
        other.gram, other.moments, other.num_rows = T @ self.gram @ T.T, T @ self.moments, self.num_rows
        return other

    def solve(self, noise: float) -> Self:
        """Solve for a noise s^2, in units of the kernel's variance."""
        self.noise = noise
        damped = self.gram.copy()
        damped[np.diag_indices_from(damped)] += noise
        self._solved = cholesky(damped.T, lower=True, overwrite_a=True, check_finite=False)
        self._weights = cho_solve((self._solved, True), self.moments)
        return self

    def predict(self, X: NDArray[Any]) -> Regressed:
        """Return means [N, n] and variances [N] at features X [N, d]."""
        parts = []
        for (x,) in self._blocks(X):
            phi, rest = self.basis(x)
            V = self._half(phi)
            parts.append((phi @ self._weights, rest + self.noise * _squared_lengths(V)))
        mean, variance = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Regressed(mean, variance)

    def locations(self, X: NDArray[Any], weights: Array) -> Array:
        """Return latent means [N, L] at features X [N, d] by ``loc_weights`` [M, L] alone: without variances."""
        parts = [
            self.kernel(self.kernel.transform(np.asarray(x, np.float64)), self.points) @ weights
            for (x,) in self._blocks(X)
        ]
        return np.concatenate(parts)

    def loc_weights(self, positions: Array) -> Array:
        """Return W [M, L]: latents of positions [n, L] have the mean W^T k(x), with k(x) [M] as in ``reduction``."""
        return solve_triangular(self._factor, self._weights @ positions, lower=True, trans=1)

    def reduction(self) -> Array:
        """Return Q [M, M]: the variance is k(x, x) - k(x)^T Q k(x), k(x) [M] the kernel values of the inducing rows."""
        inner = -self.noise * symmetric(lapack.dpotri(self._solved, lower=1)[0])
        inner[np.diag_indices_from(inner)] += 1.0
        inverse = self._inverse_factor()
        half = blas.dtrmm(1.0, inverse, inner, lower=1, trans_a=1)
        return blas.dtrmm(1.0, inverse, half, side=1, lower=1)

    def reduction_change(self, phi: Array, Y: Array, sign: int = 1) -> Array:
        """Return C [M, B]: adding rows of phi [B, M] adds C C^T to the reduction, removing them takes it away."""
        root = _root_weights(Y)
        phi = phi if root is None else phi * root
        V = self._half(phi).T
        outer = solve_triangular(self._solved, V, lower=True, trans=1)
        T = solve_triangular(self._factor, outer, lower=True, trans=1)
        root = cholesky(np.eye(len(phi)) + sign * V.T @ V, lower=True)
        return self.noise**0.5 * solve_triangular(root, T.T, lower=True).T

    def smooth(self, phi: Array) -> tuple[Array, Array]:
        """Return rows v_i [N, M] of the smoother, h_ij = v_i^T v_j, and fitted means [N, n] of rows phi [N, M]."""
        return self._half(phi), phi @ self._weights

    def influence(self, phi: Array) -> Array:
        """Return W [M, N]: kernel values k(x) [M] of a row times W are h(x, x_i) for rows phi_i [N, M] that were added.

        Without row i the mean at x is mean(x) - h(x, x_i) (y_i - w_i mean_-i(x_i)), with the row's weight w_i.
        """
        outer = solve_triangular(self._solved, self._half(phi).T, lower=True, trans=1)
        return solve_triangular(self._factor, outer, lower=True, trans=1)

    def _half(self, phi: Array) -> Array:
        """Rows v_i [N, M] with h_ij = v_i^T v_j."""
        return solve_triangular(self._solved, phi.T, lower=True, check_finite=False).T

    def leave_out(self, basis: tuple[Array, Array], Y: Array, groups: NDArray[Any] | None = None) -> Regressed:
        """Return the prediction of every row without the row, or without its group.

        Parameters
        ----------
        basis : tuple
            ``basis(X)`` of rows X [N, d] that were added.
        Y : ndarray, shape [N, n]
            Their labels.
        groups : ndarray, shape [N], optional
            Rows of equal values are left out together; all rows of a group must be in X.
        """
        phi, rest = basis
        mean, growth = left_out(*self.smooth(phi), Y, groups)
        return Regressed(mean, rest + self.noise * growth)


def sums(phi: Array, Y: Array) -> tuple[Array, Array]:
    """Return Phi^T Phi [M, M], with the weights of rows, and Phi^T Y [M, n] of rows phi [N, M] and labels [N, n].

    Examples
    --------
    >>> sums(np.ones((2, 1)), np.array([[4.0, 0.0], [0.0, 4.0]]))[0].tolist()
    [[8.0]]
    """
    root = _root_weights(Y)
    weighted = phi if root is None else phi * root
    return weighted.T @ weighted, phi.T @ Y


def shares(Y: Array) -> tuple[Array, Array]:
    """Return labels [N, n] divided by the sums of their rows, and these, the weights [N].

    Examples
    --------
    >>> shares(np.array([[0.0, 3.0], [1.0, 0.0]]))[1].tolist()
    [3.0, 1.0]
    """
    weights = Y.sum(axis=1)
    return Y / weights[:, None], weights


def _root_weights(Y: Array) -> Array | None:
    """Square roots [N, 1] of the weights, None if all are one but for rounding."""
    weights = Y.sum(axis=1, keepdims=True)
    return None if np.allclose(weights, 1.0, rtol=0.0, atol=1e-5) else np.sqrt(weights)


def symmetric(lower: Array) -> Array:
    """Symmetric matrix of a lower triangle.

    Examples
    --------
    >>> symmetric(np.array([[1.0, 0.0], [2.0, 3.0]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    return np.tril(lower) + np.tril(lower, -1).T


def jittered_cholesky(K: Array) -> Array:
    """Lower Cholesky factor of a kernel matrix [M, M], with a millionth of its mean variance added to the diagonal.

    Examples
    --------
    >>> jittered_cholesky(np.ones((2, 2))).round(3).tolist()
    [[1.0, 0.0], [1.0, 0.001]]
    """
    K = K.copy()
    K[np.diag_indices_from(K)] += _JITTER * np.mean(np.diag(K))
    return cholesky(K.T, lower=True, overwrite_a=True, check_finite=False)


def left_out(V: Array, fitted: Array, Y: Array, groups: NDArray[Any] | None = None) -> tuple[Array, Array]:
    """Return means [N, n] of left-out rows, and h / (1 - h) / w [N] for the smoother's diagonal h of their groups.

    Parameters
    ----------
    V : ndarray, shape [N, M]
        Rows v_i of the smoother H = V V^T, of rows of weight w one.
    fitted, Y : ndarray, shape [N, n]
        Fitted means and labels, of which rows sum to w.
    groups : ndarray, shape [N], optional

    Examples
    --------
    >>> V, Y = np.array([[0.5], [0.5]]), np.eye(2)
    >>> left_out(V, V @ V.T @ Y, Y)[0].round(3).tolist()  # 0.25 / (0.25 + 0.5), the other row with its noise
    [[0.0, 0.333], [0.333, 0.0]]
    """
    root, columns = _with_equal_noise(V, fitted, Y)
    mean, growth = _left_out(*columns, groups)
    return mean / root, growth / root[:, 0] ** 2


def left_out_without(
    V: Array,
    fitted: Array,
    Y: Array,
    fold: NDArray[np.bool_],
    kept: NDArray[np.bool_],
    groups: NDArray[Any] | None = None,
) -> tuple[Array, Array]:
    """Return means of kept rows, left out, and means of a fold's rows, both of the regression without the fold.

    Without rows F the smoother of others is H + W W^T, W = H_KF C^-T, with the factor C of I - H_FF = C C^T.

    Parameters
    ----------
    V, fitted, Y, groups
        As for ``left_out``.
    fold, kept : ndarray of bool, shape [N]

    Examples
    --------
    >>> V, Y = np.array([[0.5], [0.5]]), np.eye(2)
    >>> kept, held = left_out_without(V, V @ V.T @ Y, Y, np.array([True, False]), np.array([False, True]))
    >>> np.abs(kept).round(3).tolist(), np.abs(held).round(3).tolist()
    ([[0.0, 0.0]], [[0.0, 0.333]])
    """
    root, (V, fitted, Y) = _with_equal_noise(V, fitted, Y)
    F = V[fold]
    factor = cholesky(np.eye(len(F)) - F @ F.T, lower=True, overwrite_a=True, check_finite=False)
    W = solve_triangular(factor, (F @ V.T)[:, kept], lower=True, overwrite_b=True, check_finite=False).T
    residual = solve_triangular(factor, Y[fold] - fitted[fold], lower=True)
    held = Y[fold] - solve_triangular(factor, residual, lower=True, trans=1)
    others, labels = fitted[kept] - W @ residual, Y[kept]
    if groups is None:
        mean = _left_out_each(_squared_lengths(V)[kept] + _squared_lengths(W), others, labels)
    else:
        mean, _ = _left_out(np.concatenate([V[kept], W], axis=1), others, labels, groups[kept])
    return mean / root[kept], held / root[fold]


def _with_equal_noise(V: Array, fitted: Array, Y: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    """Square roots [N, 1] of the rows' weights, and rows of which the noise is that of weight one."""
    root = _root_weights(Y)
    if root is None:
        return np.ones((len(Y), 1)), (V, fitted, Y)
    return root, (V * root, fitted * root, Y / root)


def _squared_lengths(V: Array) -> Array:
    return np.einsum("ij,ij->i", V, V)


def _left_out(V: Array, fitted: Array, Y: Array, groups: NDArray[Any] | None) -> tuple[Array, Array]:
    """Leave out rows of equal noise."""
    if groups is None:
        h = _squared_lengths(V)
        return _left_out_each(h, fitted, Y), h / (1.0 - h)
    _, numbers = np.unique(groups, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    mean, growth = np.empty(Y.shape), np.empty(len(Y))
    for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        v, residual = V[rows], Y[rows] - fitted[rows]
        # (I - v v^T)^-1 = I + v (I - v^T v)^-1 v^T, by whichever is smaller.
        if len(v) <= v.shape[1]:
            amplified = np.linalg.inv(np.eye(len(v)) - v @ v.T)
        else:
            amplified = np.eye(len(v)) + v @ np.linalg.solve(np.eye(v.shape[1]) - v.T @ v, v.T)
        mean[rows], growth[rows] = Y[rows] - amplified @ residual, np.diag(amplified) - 1.0
    return mean, growth


def _left_out_each(h: Array, fitted: Array, Y: Array) -> Array:
    """Means [N, n] of rows that are left out one by one, with the diagonal h [N] of the smoother."""
    return np.asarray((fitted - h[:, None] * Y) / (1.0 - h)[:, None])


class NoisePath:
    """Left-out means of rows for every noise, by one decomposition of the sums.

    Parameters
    ----------
    gram, moments : ndarray, shapes [M, M] and [M, n]
        Sums Phi^T Phi and Phi^T Y over all rows.
    phi, Y : ndarray, shapes [N, M] and [N, n]
        Some of the rows.
    groups : ndarray, shape [N], optional

    Examples
    --------
    >>> X, Y = np.array([[0.0], [0.1], [1.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> kernel = FeatureKernel.of(X, "raw", "rbf", 0.5)
    >>> regression = LabelRegression(kernel, kernel.transform(X), 2).add(X, Y).solve(0.1)
    >>> basis = regression.basis(X)
    >>> path = NoisePath(regression.gram, regression.moments, basis[0], Y)
    >>> np.allclose(path(0.1), regression.leave_out(basis, Y).mean)
    True
    """

    def __init__(self, gram: Array, moments: Array, phi: Array, Y: Array, groups: NDArray[Any] | None = None) -> None:
        values, U = eigh(gram, driver="evd", check_finite=False)
        self._values = np.maximum(values, 0.0)
        self._phi, self._moments = phi @ U, U.T @ moments
        self._labels, self._groups = Y, groups

    def __call__(self, noise: float) -> Array:
        """Return left-out means [N, n]."""
        root = 1.0 / np.sqrt(self._values + noise)
        fitted = self._phi @ (np.square(root)[:, None] * self._moments)
        return left_out(self._phi * root, fitted, self._labels, self._groups)[0]
