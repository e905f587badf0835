"""GLVQ and GMLVQ: prototypes, and the metric of their distances, fitted by L-BFGS."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_number, check_sample_weight, check_whole
from deepsimplex.prototypes.online_learning import PrototypeFit, Report, check_problem
from deepsimplex.prototypes.relative_distance import LocalRelativeDistanceCost, RelativeDistanceCost, Value

# Added to Omega Omega^T, relative to the mean squared norm of a row: keeps the penalty finite for dependent rows.
_JITTER = 1e-12
# Least variance of a whitened direction, relative to the mean variance within classes.
_LEAST_VARIANCE = 1e-6
# Number of parameters above which matrix products gain from several threads.
_LARGE = 20_000


def fit_glvq(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    W: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    activation: str = "sigmoid",
    steepness: float = 2.0,
    max_iter: int = 200,
    tol: float = 1e-6,
    weights: NDArray[np.float64] | None = None,
    report: Report | None = None,
) -> PrototypeFit:
    """GLVQ: minimize sum_i Phi(mu_i) by the prototypes [GPLVQ Eq. 3.2].

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [N]
        Class numbers.
    W : ndarray, shape [P, d]
        Initial prototypes. Those of a single class are returned as they are.
    labels : ndarray, shape [P]
        Class numbers of the prototypes.
    activation, steepness
        Phi; see ``relative_distance.activate``.
    max_iter : int
        Maximum number of iterations of L-BFGS. Default 200.
    tol : float
        Stop when the relative decrease of the cost is below this. Default 1e-6.
    report : callable, optional
        Called with a ``PrototypeFit`` after every iteration.
    weights : ndarray, shape [N], optional
        Sample weights in the cost. Default: ones.

    Returns
    -------
    PrototypeFit

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> fit = fit_glvq(X, np.array([0, 0, 1, 1]), np.array([[1.0], [2.0]]), np.array([0, 1]), activation="linear")
    >>> bool(abs(fit.prototypes.mean() - 1.5) < 1e-3)
    True
    """
    X, y, W, labels = check_problem(X, y, W, labels)
    if (labels == labels[0]).all():
        return PrototypeFit(W.copy(), None, 0.0, 0)
    # In units of the samples' spread about their mean, so that step sizes and tolerances do not depend on the units.
    weights = check_sample_weight(weights, len(X), name="weights")
    center = np.average(X, axis=0, weights=weights)
    width = float(np.sqrt(np.average(np.sum(np.square(X - center), axis=1), weights=weights))) or 1.0
    cost = RelativeDistanceCost((X - center) / width, y, labels, activation, steepness, weights)

    def unscaled(V: Value) -> tuple[Value, None]:
        return V * width + center, None

    return _minimize(cost, [(W - center) / width], unscaled, weights.sum(), max_iter, tol, report)


def fit_gmlvq(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    W: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    rank: int | None = None,
    regularization: float = 0.0,
    local: bool = False,
    activation: str = "sigmoid",
    steepness: float = 2.0,
    max_iter: int = 200,
    tol: float = 1e-6,
    weights: NDArray[np.float64] | None = None,
    report: Report | None = None,
) -> PrototypeFit:
    """GMLVQ: minimize sum_i Phi(mu_i) by prototypes and Omega, d(x, w) = ||Omega (x - w)||^2 [GPLVQ Eq. 3.3-3.5].

    Parameters
    ----------
    X, y, W, labels, activation, steepness, max_iter, tol, weights, report
        See ``fit_glvq``.
    rank : int, optional
        Number of rows m of Omega, at most d. Default: d.
    regularization : float
        Weight of the penalties below. Default 0.
    local : bool
        Whether every prototype has a matrix of its own, as in LGMLVQ. Default False.

    Returns
    -------
    PrototypeFit
        A constant feature has a column of zeros in Omega. Local matrices [P, m, d] have a mean square of one.

    Notes
    -----
    Omega starts as the metric of linear discriminant analysis, for a limited rank its leading directions, and is
    parametrized as Omega = A S with the whitening S. The penalty (m log(tr(A A^T) / m) - log det(A A^T)) / 2 is 0 there
    and infinite where a direction is lost. Neither the cost nor the penalty depends on the scale of Omega.

    If every class has one prototype, half its squared distance from the class mean, in whitened features, is a second
    penalty. Together they shrink the classifier towards linear discriminant analysis.

    Local matrices (Schneider, Biehl, Hammer: *Adaptive Relevance Matrices in Learning Vector Quantization*, 2009) start
    alike. Of whitened features all have the norm of the identity: none is near to everything by a small scale. The
    penalty is the mean of theirs.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> W = np.stack([X[y == 0].mean(axis=0), X[y == 1].mean(axis=0)])
    >>> omega = fit_gmlvq(X, y, W, np.array([0, 1])).omega
    >>> np.sum(omega**2, axis=0).round(2).tolist()
    [1.0, 0.0]
    """
    X, y, W, labels = check_problem(X, y, W, labels)
    check_number(regularization, "regularization", least=0.0)
    d = X.shape[1]
    m = d if rank is None else check_whole(rank, "rank, unless it is None,", 1)
    if m > d:
        raise ValueError(f"rank must be at most n_features = {d}, the number of features; found {rank}")
    varies = np.ptp(X, axis=0) > 0
    if not varies.any() or (labels == labels[0]).all():
        omega = np.eye(m, d) / np.sqrt(m)
        return PrototypeFit(W.copy(), np.stack([omega] * len(W)) if local else omega, 0.0, 0)
    weights = check_sample_weight(weights, len(X), name="weights")
    center = np.average(X[:, varies], axis=0, weights=weights)
    S = within_class_whitening(X[:, varies] - center, y, weights)
    Z, V = (X[:, varies] - center) @ S, (W[:, varies] - center) @ S
    mean_penalty = regularization if len(np.unique(labels)) == len(labels) else 0.0
    means = _class_means(Z, y, weights, labels)
    A = discriminant_directions(Z, y, min(m, Z.shape[1]), weights)
    kind = LocalRelativeDistanceCost if local else RelativeDistanceCost
    cost, inverse = kind(Z, y, labels, activation, steepness, weights), np.linalg.inv(S)

    def penalized_cost(V: Value, A: Value) -> tuple[float, Value, Value]:
        B, factor = _with_norm_of_identity(A) if local else (A, 1.0)
        value, by_prototype, by_matrix = cost(V, B)
        if local:  # the derivative along B itself vanishes
            by_matrix = factor * (by_matrix - B * np.sum(B * by_matrix, axis=(1, 2), keepdims=True) / B.shape[1])
        if regularization:
            penalties, slopes = zip(*map(rank_penalty, A if local else [A]), strict=True)
            value += regularization * float(np.mean(penalties))
            by_matrix += regularization / len(slopes) * np.reshape(slopes, A.shape)
        gap = V - means
        value += 0.5 * mean_penalty * float(np.sum(gap * gap))
        return value, by_prototype + mean_penalty * gap, by_matrix

    def unwhitened(V: Value, A: Value) -> tuple[Value, Value]:
        prototypes, omega = W.copy(), np.zeros((*A.shape[:-2], m, d))
        prototypes[:, varies] = V @ inverse + center
        omega[..., : A.shape[-2], varies] = (_with_norm_of_identity(A)[0] if local else A) @ S
        return prototypes, omega / np.sqrt(np.mean(np.sum(np.square(omega), axis=(-2, -1))))

    if local:
        A = np.stack([A] * len(V))

    return _minimize(penalized_cost, [V, A], unwhitened, weights.sum(), max_iter, tol, report)


def _with_norm_of_identity(A: Value) -> tuple[Value, Value]:
    """Return matrices [P, m, d] whose squares sum to m, and the factors [P, 1, 1] that make them so."""
    factor = np.sqrt(A.shape[1] / np.sum(np.square(A), axis=(1, 2), keepdims=True))
    return factor * A, factor


def rank_penalty(A: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Compute (m log(tr(A A^T) / m) - log det(A A^T)) / 2 of A [m, d] and its gradient.

    Examples
    --------
    >>> penalty, slope = rank_penalty(np.diag([1.0, 2.0]))
    >>> round(penalty, 6), slope.round(6).tolist()
    (0.223144, [[-0.6, 0.0], [0.0, 0.3]])
    """
    m, size = len(A), float(np.sum(np.square(A)))
    gram = A @ A.T + _JITTER * size / m * np.eye(m)
    penalty = 0.5 * (m * np.log(size / m) - np.linalg.slogdet(gram)[1])
    return float(penalty), m * A / size - np.linalg.solve(gram, A)


def within_class_whitening(X: NDArray[np.float64], y: NDArray[np.int64], weights: Any) -> NDArray[np.float64]:
    """Compute S [d, d], symmetric, such that features S x have unit variance in all directions around class means.

    Distances between whitened features are Mahalanobis distances; the nearest class mean is then linear discriminant
    analysis with equal priors. The covariance is shrunk by Ledoit and Wolf's rule: d may exceed N.

    Parameters
    ----------
    X : ndarray, shape [N, d]
        No feature constant.
    y : ndarray, shape [N]
        Class numbers.
    weights : ndarray, shape [N]
        Numbers of samples that the rows count as.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 2)) * [1.0, 0.5]
    >>> np.diag(within_class_whitening(X, np.arange(1000) % 2, np.ones(1000))).round(1).tolist()
    [1.0, 2.0]
    """
    present, numbers = np.unique(y, return_inverse=True)
    residuals, N, d = X - _class_means(X, y, weights, present)[numbers], weights.sum(), X.shape[1]
    S = (residuals.T * weights) @ residuals / N
    mean = float(np.trace(S)) / d
    least = _LEAST_VARIANCE * mean
    if least <= 0.0:  # every sample equals its class mean
        return np.eye(d)
    # Not sklearn.covariance.ledoit_wolf, which takes no weights.
    size, fourth = np.sum(np.square(S)), weights @ np.square(np.sum(np.square(residuals), axis=1)) / N
    shrinkage = min((fourth - size) / N / max(size - d * mean**2, np.finfo(np.float64).tiny), 1.0)
    variances, directions = np.linalg.eigh((1.0 - shrinkage) * S + shrinkage * mean * np.eye(d))
    return (directions / np.sqrt(np.maximum(variances, least))) @ directions.T


def discriminant_directions(
    X: NDArray[np.float64], y: NDArray[np.int64], rank: int, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute the orthonormal directions [rank, d] along which class means differ most; the identity for rank d.

    Parameters
    ----------
    X : ndarray, shape [N, d]
        Whitened features: the directions are then those of linear discriminant analysis.
    y : ndarray, shape [N]
        Class numbers.
    rank : int
        From 1 to d. Directions beyond the number of classes less one are those of the largest remaining variance.
    weights : ndarray, shape [N]
        Sample weights.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> np.abs(discriminant_directions(X, np.array([0, 0, 1, 1]), 1, np.ones(4))).round(3).tolist()
    [[1.0, 0.0]]
    """
    d = X.shape[1]
    if rank == d:
        return np.eye(d)
    means = _class_means(X, y, weights, np.unique(y))
    _, sizes, between = np.linalg.svd(means - means.mean(axis=0))
    kept = between[: min(rank, int(np.sum(sizes > 1e-9 * max(sizes.max(), 1e-300))))]
    rest = X - np.average(X, axis=0, weights=weights)
    rest = rest - (rest @ kept.T) @ kept
    _, _, others = np.linalg.svd((rest.T * weights) @ rest)
    return np.linalg.qr(np.concatenate([kept, others]).T)[0].T[:rank]


def _class_means(X: NDArray[np.float64], y: NDArray[np.int64], weights: Any, classes: Any) -> NDArray[np.float64]:
    return np.stack([np.average(X[y == label], axis=0, weights=weights[y == label]) for label in classes])


def _minimize(
    cost: Callable[..., tuple[float, Value, Any]],
    start: list[Value],
    restored: Callable[..., tuple[Value, Value | None]],
    total: float,
    max_iter: int,
    tol: float,
    report: Report | None,
) -> PrototypeFit:
    """Minimize by L-BFGS a sum over samples of weight ``total`` by prototypes V and, if it is learned, a matrix A.

    ``start`` holds both. ``cost(V, A)`` returns the sum and its gradients; ``restored(V, A)`` are prototypes and Omega
    for the given features.
    """
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    check_whole(max_iter, "max_iter", 0)
    check_number(tol, "tol", least=0.0, most=1.0)

    sizes = np.cumsum([part.size for part in start])

    def parts(theta: Value) -> list[Value]:
        return [part.reshape(like.shape) for part, like in zip(np.split(theta, sizes[:-1]), start, strict=True)]

    def mean(theta: Value) -> tuple[float, Value]:
        value, *gradients = cost(*parts(theta))
        return value / total, np.concatenate([part.ravel() for part in gradients if part is not None]) / total

    def fit(theta: Value, value: float, n_iter: int) -> PrototypeFit:
        return PrototypeFit(*restored(*parts(theta)), total * float(value), n_iter)

    theta = np.concatenate([part.ravel() for part in start])
    if max_iter == 0:
        return fit(theta, mean(theta)[0], 0)
    iterations = itertools.count(1)

    def callback(intermediate_result: Any) -> None:
        if report is not None:
            report(fit(intermediate_result.x.copy(), intermediate_result.fun, next(iterations)))

    options = {"maxiter": max_iter, "maxcor": 20, "ftol": tol, "gtol": 1e-7}
    # Small products are faster on one thread: several would wait for one another.
    with threadpool_limits(1 if theta.size < _LARGE else None):
        end = minimize(mean, theta, jac=True, method="L-BFGS-B", options=options, callback=callback)
    return fit(end.x, end.fun, int(end.nit))
