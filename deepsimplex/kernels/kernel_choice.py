"""Choice of the kernel of given features by the likelihood of left-out rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from deepsimplex.kernels.feature_kernel import TRANSFORMATIONS, FeatureKernel, Transformation
from deepsimplex.kernels.label_regression import NoisePath, jittered_cholesky, sums
from deepsimplex.kernels.left_out_readout import log_softplus, shifted_exponentials
from deepsimplex.kernels.stationary import Kernel, without_rounding

Array = NDArray[np.float64]

NOISES = 10.0 ** np.arange(-4.0, 1.76, 0.25)
"""Noises s^2 among which is chosen, in units of the kernel's variance."""
# Kernels that the search starts from, each with its step of lengthscale.
_PARTS: tuple[tuple[Kernel, int], ...] = (("matern32", -1), ("rbf", -2), ("matern12", 0))
LINEAR = (0.0, 0.3, 3.0)
# Lengthscales in units of the median distance: powers of the square root of two, from 2^-2.5 to 2^2.5.
_STEPS = 5


class _Choice(NamedTuple):
    transformation: Transformation
    kernel: Kernel = _PARTS[0][0]
    step: int = _PARTS[0][1]
    linear: float = 0.0


class LabelLikelihood:
    """Likelihood of labels given regressed labels, by softmax(a q + g log softplus(t q)) with the likeliest a, g >= 0.

    Left out, a row takes its label from the mean of all: with negative numbers balanced labels would be predicted from
    that alone.

    Parameters
    ----------
    Y : ndarray, shape [N, n]
    used : ndarray of bool, shape [N], optional
        Rows that count. Default: all.

    Examples
    --------
    >>> Y = np.eye(2)[[0, 1, 0, 1]]
    >>> likelihood = LabelLikelihood(Y)
    >>> bool(likelihood(0.8 * Y + 0.1) < likelihood(0.2 * Y + 0.4))
    True
    """

    def __init__(self, Y: Array, used: NDArray[np.bool_] | None = None) -> None:
        self._used = np.ones(len(Y), bool) if used is None else used
        self._labels = Y[self._used]
        self._totals = self._labels.sum(axis=1, keepdims=True)
        self._steepness = 2.5 * Y.shape[1] ** 0.5
        self._numbers = np.array([3.0, 1.0])

    def __call__(self, regressed: Array) -> float:
        """Return the mean negative log-likelihood of regressed labels [N, n]."""
        return float(np.mean(self.losses(regressed)))

    def losses(self, regressed: Array) -> Array:
        """Return the negative log-likelihood of each row that counts."""
        regressed = regressed[self._used]
        columns = np.stack([regressed, log_softplus(self._steepness * regressed)])
        of_labels = np.tensordot(columns, self._labels, 2)
        numbers, previous, losses = self._numbers, np.inf, np.empty(0)
        for _ in range(20):
            logits = np.tensordot(numbers, columns, 1)
            p, normalizers = shifted_exponentials(logits)
            by_row = self._totals[:, 0] * np.log(normalizers[:, 0]) - np.einsum("ij,ij->i", self._labels, logits)
            loss = np.sum(by_row) + 0.5 * np.sum(np.square(numbers / 100.0))
            if loss > previous - 1e-4 * len(self._labels) ** 0.5:
                break
            self._numbers, previous, losses = numbers, loss, by_row
            p *= self._totals / normalizers
            gradient = np.tensordot(columns, p, 2) - of_labels + numbers / 1e4
            weighted = columns * p
            means = weighted.sum(axis=2)
            hessian = np.tensordot(weighted, columns, ([1, 2], [1, 2])) - (means / self._totals[:, 0]) @ means.T
            # The least of the quadratic approximation among numbers that are not negative.
            factor = np.linalg.cholesky(hessian + 1e-4 * np.eye(2))
            numbers = nnls(factor.T, np.linalg.solve(factor, factor @ (factor.T @ numbers) - gradient))[0]
        return losses


@dataclass(eq=False)
class KernelChoice:
    """Search for the transformation, kernel, lengthscale and linear part under which left-out rows are likeliest.

    The transformation is chosen first, by a rough kernel of short lengthscale, which suits most features; then the
    kernel, its lengthscale and the linear part, each with the noise chosen anew: some 15 decompositions. Of
    transformations the first is taken whose loss is within two standard errors of the least, by row: left-out losses
    of few rows do not tell more, and rows of length one, which come first, tell unknown classes apart best.

    Parameters
    ----------
    X, Y : ndarray, shapes [N, d] and [N, n]
        Features and labels.
    inducing : ndarray of int
        Rows that are inducing.
    groups : ndarray, shape [N], optional
        Rows that are left out together.
    used : ndarray of bool, shape [N], optional
        Rows whose likelihood counts.
    transformations : sequence of str
        Transformations among which is chosen, preferred ones first. Default: all; those with roots only for features
        that are not negative.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> Y = np.eye(2)[(X[:, 0] > 0).astype(int)]
    >>> choice = KernelChoice(X, Y, np.arange(100))
    >>> kernel, noise = choice.best(choice.transformation())
    >>> kernel.lengthscale > 0 and 0 <= noise < len(NOISES)
    True
    """

    X: NDArray[Any]
    Y: Array
    inducing: NDArray[np.int64]
    groups: NDArray[Any] | None = None
    used: NDArray[np.bool_] | None = None
    transformations: Sequence[Transformation] = TRANSFORMATIONS
    _noise: int = len(NOISES) // 2
    _scores: dict[_Choice, tuple[float, int, Array]] = field(default_factory=dict)
    _pairs: dict[str, tuple[FeatureKernel, Array, Array]] = field(default_factory=dict)

    def transformation(self) -> Transformation:
        """Return the transformation."""
        usable = [name for name in self.transformations if not name.startswith("root") or self.X.min() >= 0]
        if len(usable) == 1:
            return usable[0]
        choices = [_Choice(name) for name in usable]
        least = self._row_losses(min(choices, key=self._score))
        for choice in choices:
            differences = self._row_losses(choice) - least
            if np.mean(differences) <= 2.0 * np.std(differences) / len(differences) ** 0.5:
                return choice.transformation
        raise AssertionError  # the least itself differs by nothing

    def best(self, transformation: Transformation) -> tuple[FeatureKernel, int]:
        """Return the kernel of transformed features, and the number of its noise in ``NOISES``."""
        best = min([_Choice(transformation, *part) for part in _PARTS], key=self._score)
        for direction in (-1, 1):
            while abs(best.step + direction) <= _STEPS:
                next_one = best._replace(step=best.step + direction)
                if self._score(next_one) >= self._score(best):
                    break
                best = next_one
        best = min([best._replace(linear=linear) for linear in LINEAR], key=self._score)
        return self._kernel(best), self._scores[best][1]

    def _kernel(self, choice: _Choice) -> FeatureKernel:
        kernel = self._transformed(choice.transformation)[0]
        return kernel.with_parts(choice.kernel, 2.0 ** (0.5 * choice.step), choice.linear)

    def _row_losses(self, choice: _Choice) -> Array:
        self._score(choice)
        return self._scores[choice][2]

    def _transformed(self, transformation: Transformation) -> tuple[FeatureKernel, Array, Array]:
        """Kernel of median lengthscale, and squared distances and inner products [M, N] of inducing rows and rows."""
        if transformation not in self._pairs:
            kernel = FeatureKernel.of(self.X, transformation)
            U = kernel.transform(self.X)
            products, squares = U[self.inducing] @ U.T, np.sum(U * U, axis=1)
            lengths = squares[self.inducing, None] + squares
            squared = without_rounding(lengths - 2.0 * products, lengths, U.shape[1])
            self._pairs[transformation] = kernel, squared, products
        return self._pairs[transformation]

    def _score(self, choice: _Choice) -> float:
        if choice not in self._scores:
            K = self._kernel(choice).of_pairs(*self._transformed(choice.transformation)[1:])
            factor = jittered_cholesky(K[:, self.inducing])
            phi = solve_triangular(factor, K, lower=True, check_finite=False).T
            # Of groups, all rows are needed to leave one out.
            used = slice(None) if self.used is None or self.groups is not None else self.used
            path = NoisePath(*sums(phi, self.Y), phi[used], self.Y[used], self.groups)
            likelihood = LabelLikelihood(self.Y[used], None if self.groups is None else self.used)
            loss, self._noise = likeliest_noise(path, likelihood, self._noise)
            self._scores[choice] = loss, self._noise, likelihood.losses(path(NOISES[self._noise]))
        return self._scores[choice][0]


def likeliest_noise(
    left_out: Callable[[float], Array], likelihood: LabelLikelihood, start: int, strides: Sequence[int] = (2, 1)
) -> tuple[float, int]:
    """Descend from the noise of number ``start`` to the one of the least loss: (loss, number of the noise).

    ``left_out`` gives left-out means [N, n] for a noise.
    """
    losses: dict[int, float] = {}

    def loss(number: int) -> float:
        if not 0 <= number < len(NOISES):
            return np.inf
        if number not in losses:
            losses[number] = likelihood(left_out(NOISES[number]))
        return losses[number]

    number = start
    for stride in strides:
        for direction in (-stride, stride):
            while loss(number + direction) < loss(number):
                number += direction
    return loss(number), number
