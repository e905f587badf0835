"""GLVQ and GMLVQ: prototypes, and the metric of their distances, where the cost is least."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.prototypes.activations import Activation
from deepsimplex.prototypes.relative_distance import RelativeDistanceCost
from deepsimplex.prototypes.whitening import discriminant_directions, within_class_whitening

# Of the mean squared size of a row of Omega: keeps the penalty finite where rows become dependent.
_JITTER = 1e-12
# Parameters from which on products of matrices gain by more threads than one.
_SHARED = 20_000


@dataclass(frozen=True)
class Learned:
    """Where an optimization has come to.

    Attributes
    ----------
    prototypes : ndarray, shape [P, d]
    omega : ndarray, shape [m, d], or None
        Of GMLVQ, its squares summing to one.
    objective : float
        What is minimized, there: a sum over samples.
    iterations : int

    Examples
    --------
    >>> from deepsimplex.prototypes.activations import Linear
    >>> X, y, steps = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1]), []
    >>> end = learn_prototypes(X, y, np.array([[0.0], [2.0]]), np.array([0, 1]), Linear(), report=steps.append)
    >>> steps[-1].objective == end.objective, steps[-1].iterations == end.iterations
    (True, True)
    """

    prototypes: NDArray[np.float64]
    omega: NDArray[np.float64] | None
    objective: float
    iterations: int


Report = Callable[[Learned], None]


def learn_prototypes(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    W: NDArray[np.float64],
    labels: NDArray[np.int64],
    activation: Activation,
    *,
    max_iterations: int = 200,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Learned:
    """GLVQ: minimize sum_i Phi(mu_i) by the prototypes [GPLVQ Eq. 3.2].

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [N]
        Numbers of the classes.
    W : ndarray, shape [P, d]
        Prototypes to begin with, of at least two classes.
    labels : ndarray, shape [P]
        Numbers of their classes.
    activation : Activation
        Phi.
    max_iterations : int
        Of L-BFGS, on the gradient of all samples. Default 200.
    tol : float
        Ends it when the cost falls by a smaller share of itself. Default 1e-6.
    report : callable, optional
        Called after every iteration.

    Returns
    -------
    Learned

    Examples
    --------
    >>> from deepsimplex.prototypes.activations import Linear
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> learned = learn_prototypes(X, np.array([0, 0, 1, 1]), np.array([[1.0], [2.0]]), np.array([0, 1]), Linear())
    >>> bool(abs(learned.prototypes.mean() - 1.5) < 1e-3)
    True
    """
    # In deviations of the samples about their mean, so that steps and tolerances mean the same in all units.
    center = X.mean(axis=0)
    width = float(np.sqrt(np.mean(np.sum(np.square(X - center), axis=1)))) or 1.0
    cost = RelativeDistanceCost((X - center) / width, y, labels, activation)

    def value_and_gradient(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = cost(theta.reshape(W.shape))
        return value, gradient.prototypes.ravel()

    def learned(theta: NDArray[np.float64], value: float, iterations: int) -> Learned:
        return Learned(theta.reshape(W.shape) * width + center, None, value, iterations)

    start = ((W - center) / width).ravel()
    return _minimize(value_and_gradient, start, len(X), max_iterations, tol, learned, report)


def learn_metric(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    W: NDArray[np.float64],
    labels: NDArray[np.int64],
    activation: Activation,
    *,
    rank: int | None = None,
    regularization: float = 0.0,
    max_iterations: int = 200,
    tol: float = 1e-6,
    report: Report | None = None,
) -> Learned:
    """GMLVQ: minimize sum_i Phi(mu_i) by the prototypes and Omega, d(x, w) = ||Omega (x - w)||^2 [GPLVQ Eq. 3.3-3.5].

    Parameters
    ----------
    X, y, W, labels, activation, max_iterations, tol, report
        See ``learn_prototypes``.
    rank : int, optional
        Rows m of Omega, at most the features. None (default): as many.
    regularization : float
        Weight of the penalties below. Default 0.

    Returns
    -------
    Learned
        A feature that is constant has no relevance: a column of zeros in Omega.

    Notes
    -----
    Omega starts as the metric of linear discriminant analysis, of which a limited rank takes the leading directions,
    and is learned in coordinates A, Omega = A S with the whitening S. The penalty (m log(tr(A A^T) / m) -
    log det(A A^T)) / 2 is 0 there and infinite where a direction is lost: what matrices of GMLVQ tend to, and what
    Schneider's log det(Omega Omega^T) is against. The cost knows no scale of Omega, nor does the penalty.

    Where every class has one prototype, half its squared distance from the mean of the class, in whitened features, is
    the other penalty. Both together draw back to linear discriminant analysis, which has no more prototypes either;
    where classes have several, the first penalty stands alone.

    Examples
    --------
    >>> from deepsimplex.prototypes.activations import Linear
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> W = np.stack([X[y == 0].mean(axis=0), X[y == 1].mean(axis=0)])
    >>> omega = learn_metric(X, y, W, np.array([0, 1]), Linear()).omega
    >>> np.sum(omega**2, axis=0).round(2).tolist()
    [1.0, 0.0]
    """
    varies = np.ptp(X, axis=0) > 0
    m, d = min(rank or X.shape[1], X.shape[1]), X.shape[1]
    if not varies.any():
        return Learned(W.copy(), np.eye(m, d) / np.sqrt(m), 0.0, 0)
    center = X[:, varies].mean(axis=0)
    S = within_class_whitening(X[:, varies] - center, y)
    Z, V = (X[:, varies] - center) @ S, (W[:, varies] - center) @ S
    held = regularization if len(np.unique(labels)) == len(labels) else 0.0
    means = np.stack([Z[y == label].mean(axis=0) for label in labels])
    A = discriminant_directions(Z, y, min(m, Z.shape[1]))
    cost, unwhitened = RelativeDistanceCost(Z, y, labels, activation), np.linalg.inv(S)

    def parts(theta: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return theta[: V.size].reshape(V.shape), theta[V.size :].reshape(A.shape)

    def value_and_gradient(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        prototypes, matrix = parts(theta)
        value, gradient = cost(prototypes, matrix)
        by_prototype, by_matrix = gradient.prototypes, gradient.omega
        assert by_matrix is not None
        if regularization:
            penalty, slope = lost_directions(matrix)
            value, by_matrix = value + regularization * penalty, by_matrix + regularization * slope
        if held:
            gap = prototypes - means
            value, by_prototype = value + 0.5 * held * float(np.sum(gap * gap)), by_prototype + held * gap
        return value, np.concatenate([by_prototype.ravel(), by_matrix.ravel()])

    def learned(theta: NDArray[np.float64], value: float, iterations: int) -> Learned:
        prototypes, matrix = parts(theta)
        moved, omega = W.copy(), np.zeros((m, d))
        moved[:, varies] = prototypes @ unwhitened + center
        omega[: len(matrix), varies] = matrix @ S
        return Learned(moved, omega / np.linalg.norm(omega), value, iterations)

    start = np.concatenate([V.ravel(), A.ravel()])
    return _minimize(value_and_gradient, start, len(X), max_iterations, tol, learned, report)


def lost_directions(A: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """(m log(tr(A A^T) / m) - log det(A A^T)) / 2 of A [m, d], and its derivative by A.

    Examples
    --------
    >>> penalty, slope = lost_directions(np.diag([1.0, 2.0]))
    >>> round(penalty, 6), slope.round(6).tolist()
    (0.223144, [[-0.6, 0.0], [0.0, 0.3]])
    """
    m, size = len(A), float(np.sum(np.square(A)))
    gram = A @ A.T + _JITTER * size / m * np.eye(m)
    penalty = 0.5 * (m * np.log(size / m) - np.linalg.slogdet(gram)[1])
    return float(penalty), m * A / size - np.linalg.solve(gram, A)


def _minimize(
    value_and_gradient: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
    start: NDArray[np.float64],
    num_samples: int,
    max_iterations: int,
    tol: float,
    learned: Callable[[NDArray[np.float64], float, int], Learned],
    report: Report | None,
) -> Learned:
    """L-BFGS from the start, on means over samples."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    if max_iterations == 0:
        return learned(start, value_and_gradient(start)[0], 0)
    iteration = 0

    def mean(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = value_and_gradient(theta)
        return value / num_samples, gradient / num_samples

    def tell(intermediate_result: Any) -> None:
        nonlocal iteration
        iteration += 1
        if report is not None:
            report(learned(intermediate_result.x.copy(), num_samples * float(intermediate_result.fun), iteration))

    options = {"maxiter": max_iterations, "maxcor": 20, "ftol": tol, "gtol": 1e-7}
    # Products of a block of rows are too small to be shared: threads that wait for one another took twice as long.
    with threadpool_limits(1 if start.size < _SHARED else None):
        end = minimize(mean, start, jac=True, method="L-BFGS-B", options=options, callback=tell)
    return learned(end.x, num_samples * float(end.fun), int(end.nit))
