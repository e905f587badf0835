"""Choice of the kernel of given features by the likelihood of left-out rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from deepsimplex.kernels.feature_kernel import TRANSFORMATIONS, FeatureKernel, Transformation
from deepsimplex.kernels.label_regression import NoisePath, jittered_cholesky
from deepsimplex.kernels.left_out_readout import log_softmax, log_softplus
from deepsimplex.kernels.stationary import Kernel, squared_distances

Array = NDArray[np.float64]

NOISES = 10.0 ** np.arange(-4.0, 1.76, 0.25)
"""Noises s^2 among which is chosen, in units of the kernel's variance."""
KERNELS: tuple[Kernel, ...] = ("rbf", "matern32", "matern12")
LINEAR = (0.0, 0.3, 3.0)
# Lengthscales in units of the median distance: powers of the square root of two, from 2^-2.5 to 2^2.5.
_STEPS = 5


class LabelLikelihood:
    """Likelihood of labels given regressed labels, by softmax(a q + g log softplus(t q)) with the likeliest a and g.

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
        regressed = regressed[self._used]
        columns = np.stack([regressed, log_softplus(self._steepness * regressed)])
        numbers, previous = self._numbers, np.inf
        for _ in range(20):
            log_p = log_softmax(np.tensordot(numbers, columns, 1))
            loss = -np.vdot(self._labels, log_p) + 0.5 * np.sum(np.square(numbers / 100.0))
            if loss > previous - 1e-4 * len(self._labels) ** 0.5:
                break
            self._numbers, previous = numbers, loss
            p = self._totals * np.exp(log_p)
            gradient = np.tensordot(columns, p - self._labels, 2) + numbers / 1e4
            weighted = columns * p
            means = weighted.sum(axis=2)
            hessian = np.tensordot(weighted, columns, ([1, 2], [1, 2])) - (means / self._totals[:, 0]) @ means.T
            numbers = numbers - np.linalg.solve(hessian + 1e-4 * np.eye(2), gradient)
        return min(previous, loss) / len(self._labels)


@dataclass(eq=False)
class KernelChoice:
    """Search for the transformation, kernel, lengthscale and linear part under which left-out rows are likeliest.

    The transformation is chosen first, then the kernel, its lengthscale and the linear part, each with the noise
    chosen anew: some 20 decompositions.

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
        Transformations among which is chosen. Default: all; those with roots only for features that are not negative.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> Y = np.eye(2)[(X[:, 0] > 0).astype(int)]
    >>> kernel, noise = KernelChoice(X, Y, np.arange(100)).best()
    >>> kernel.lengthscale > 0 and noise > 0
    True
    """

    X: Array
    Y: Array
    inducing: NDArray[np.int64]
    groups: NDArray[Any] | None = None
    used: NDArray[np.bool_] | None = None
    transformations: Sequence[Transformation] = TRANSFORMATIONS
    _noise: int = len(NOISES) // 2
    scores: dict[tuple[Any, ...], tuple[float, int]] = field(default_factory=dict)
    _pairs: dict[str, tuple[FeatureKernel, Array, Array]] = field(default_factory=dict)

    def best(self) -> tuple[FeatureKernel, float]:
        """Return the kernel and its noise."""
        usable = [name for name in self.transformations if not name.startswith("root") or self.X.min() >= 0]
        transformation = self._best([(name, KERNELS[0], 0, 0.0) for name in usable])[0]
        kernel = self._best([(transformation, name, 0, 0.0) for name in KERNELS])[1]
        step = 0
        for direction in (-1, 1):
            while abs(step + direction) <= _STEPS and self._score(
                (transformation, kernel, step + direction, 0.0)
            ) < self._score((transformation, kernel, step, 0.0)):
                step += direction
        choice = self._best([(transformation, kernel, step, linear) for linear in LINEAR])
        return self._kernel(choice), float(NOISES[self.scores[choice][1]])

    def _best(self, choices: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        return min(choices, key=self._score)

    def _kernel(self, choice: tuple[Any, ...]) -> FeatureKernel:
        transformation, kernel, step, linear = choice
        return self._transformed(transformation)[0].with_parts(kernel, 2.0 ** (0.5 * step), linear)

    def _transformed(self, transformation: Transformation) -> tuple[FeatureKernel, Array, Array]:
        """Kernel of median lengthscale, and squared distances and inner products [M, N] of inducing rows and rows."""
        if transformation not in self._pairs:
            kernel = FeatureKernel.of(self.X, transformation)
            U = kernel.transform(self.X)
            self._pairs[transformation] = kernel, squared_distances(U[self.inducing], U), U[self.inducing] @ U.T
        return self._pairs[transformation]

    def _score(self, choice: tuple[Any, ...]) -> float:
        if choice not in self.scores:
            K = self._kernel(choice).of_pairs(*self._transformed(choice[0])[1:])
            factor = jittered_cholesky(K[:, self.inducing])
            phi = solve_triangular(factor, K, lower=True, check_finite=False).T
            path = NoisePath(phi.T @ phi, phi.T @ self.Y, phi, self.Y, self.groups)
            self.scores[choice] = likeliest_noise(path, LabelLikelihood(self.Y, self.used), self._noise)
            self._noise = self.scores[choice][1]
        return self.scores[choice][0]


def likeliest_noise(path: NoisePath, likelihood: LabelLikelihood, start: int) -> tuple[float, int]:
    """Descend from the noise of number ``start`` to the one of the least loss: (loss, number of the noise)."""
    losses: dict[int, float] = {}

    def loss(number: int) -> float:
        if not 0 <= number < len(NOISES):
            return np.inf
        if number not in losses:
            losses[number] = likelihood(path(NOISES[number]))
        return losses[number]

    number = start
    for stride in (2, 1):
        for direction in (-stride, stride):
            while loss(number + direction) < loss(number):
                number += direction
    return loss(number), number
