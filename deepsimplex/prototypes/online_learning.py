"""Online learning of prototypes, sample by sample: LVQ1, LVQ2 and GPLVQ."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import (
    check_array,
    check_flag,
    check_labels,
    check_number,
    check_sample_weight,
    check_whole,
)
from deepsimplex.prototypes.class_scores import finite_squared_distances
from deepsimplex.prototypes.prototype_process import LEAST_NOISE, covariance, winner_log_likelihood

# Largest absolute value of features: their squares are finite.
LARGEST = 1e100


@dataclass(frozen=True)
class PrototypeFit:
    """State of a fit of prototypes, during or after it.

    Attributes
    ----------
    prototypes : ndarray, shape [P, d]
    omega : ndarray, shape [m, d] or [P, m, d], or None
        Matrix of the distances of GMLVQ, or those of LGMLVQ; the squares of one sum to one, on average.
    objective : float
        Cost, a sum over samples.
    n_iter : int
        Iterations or epochs so far.

    Examples
    --------
    >>> X, y, steps = np.array([[0.0], [1.0]]), np.array([0, 1]), []
    >>> fit = fit_lvq(X, y, X + 0.1, y, max_iter=2, report=steps.append)
    >>> [step.n_iter for step in steps], steps[-1].objective == fit.objective
    ([1, 2], True)
    """

    prototypes: NDArray[np.float64]
    omega: NDArray[np.float64] | None
    objective: float
    n_iter: int


Report = Callable[[PrototypeFit], None]


def check_problem(X: Any, y: Any, W: Any, labels: Any) -> Any:
    """Return samples [N, d], their class numbers [N], copied prototypes [P, d] and their class numbers [P]."""
    X, W = check_features(X, W)
    y, _ = check_labels(y, rows=len(X), of="X", least_classes=1)
    labels, _ = check_labels(labels, name="labels", rows=len(W), of="W", least_classes=1)
    return X, y, W, labels


def check_features(X: Any, W: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return samples [N, d] and copied prototypes [P, d] of the same features, whose squared distances are finite."""
    X, W = check_array(X, "X", "[N, d]", least=1), check_array(W, "W", "[P, d]", least=1)
    if X.shape[1] != W.shape[1] or not X.shape[1]:
        raise ValueError(f"X and W must have the same features, at least one; found shapes {X.shape} and {W.shape}")
    if (largest := max(np.abs(X).max(), np.abs(W).max())) > LARGEST:
        raise ValueError(
            f"X and W must lie between -{LARGEST:g} and {LARGEST:g}, so that squared distances are finite; found "
            f"{largest:g} in size. Scale the features"
        )
    return X, np.array(W, order="C")


def fit_lvq(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    W: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    also_correct: bool = False,
    window: float | None = None,
    learning_rate: float = 0.05,
    decay: bool = True,
    max_iter: int = 100,
    rng: np.random.Generator | None = None,
    weights: NDArray[np.float64] | None = None,
    report: Report | None = None,
) -> PrototypeFit:
    """Fit prototypes by LVQ1 or LVQ2: one sample after the other moves its nearest prototypes.

    LVQ1 moves the winner, the nearest prototype, towards a sample of its own class, w + rate (x - w), and away from
    one of another, w - rate (x - w) [GPLVQ Eq. 3.1]. If the winner is of another class, LVQ2 also moves the nearest
    prototype of the sample's class towards it [GPLVQ ch. 3].

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [N]
        Class numbers.
    W : ndarray, shape [P, d]
        Initial prototypes; not changed.
    labels : ndarray, shape [P]
        Class numbers of the prototypes.
    also_correct : bool
        LVQ2 instead of LVQ1. Default False.
    window : float, optional
        For LVQ2: a wrong winner and the nearest correct prototype move only if the ratio of their distances to the
        sample is at least (1 - window) to (1 + window), so that distant samples do not drive winners away. None
        (default): always, as in the thesis.
    learning_rate : float
        Initial step, as a fraction of x - w. Default 0.05.
    decay : bool
        Whether the learning rate decreases linearly to zero, so that prototypes converge. Default True; the thesis
        keeps it constant.
    max_iter : int
        Epochs: passes over the samples, each in a new random order. Default 100.
    rng : numpy.random.Generator, optional
        Draws the orders. Default: a generator of seed 0.
    report : callable, optional
        Called with a ``PrototypeFit`` after every epoch.
    weights : ndarray, shape [N], optional
        Sample weights in the objective. Steps are multiplied by weight / mean weight, and end at the sample at most.
        Default: ones.

    Returns
    -------
    PrototypeFit
        Its objective is the total weight of the misclassified samples.

    Examples
    --------
    >>> X, W = np.array([[0.0], [1.0]]), np.array([[0.2], [0.6]])
    >>> fit = fit_lvq(X, np.array([0, 1]), W, np.array([0, 1]), learning_rate=0.5, max_iter=40)
    >>> fit.prototypes.round(2).tolist(), fit.objective
    ([[0.0], [1.0]], 0.0)
    """
    from deepsimplex.prototypes.online_steps import lvq_epoch  # numba takes a second to import

    X, y, W, labels = check_problem(X, y, W, labels)
    check_flag(also_correct, "also_correct")
    window = None if window is None else check_number(window, "window, unless it is None,", 0.0, 1.0)
    check_number(learning_rate, "learning_rate", 0.0, 1.0)
    weights = check_sample_weight(weights, len(X), name="weights")
    least_ratio = 0.0 if window is None else ((1.0 - window) / (1.0 + window)) ** 2

    def fit(epoch: int) -> PrototypeFit:
        errors = labels[np.argmin(finite_squared_distances(X, W), axis=1)] != y
        return PrototypeFit(W.copy(), None, float(weights @ errors), epoch)

    for epoch, (order, rates) in enumerate(_presentations(weights, max_iter, learning_rate, decay, rng), start=1):
        lvq_epoch(X, y, W, labels, order, np.minimum(rates, 1.0), also_correct, least_ratio)
        if report is not None:
            report(fit(epoch))
    return fit(max_iter)


def fit_gplvq(
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    W: NDArray[np.float64],
    c: NDArray[np.float64],
    *,
    lengthscale: float,
    noise_variance: float,
    learning_rate: float = 0.01,
    decay: bool = True,
    max_iter: int = 50,
    rng: np.random.Generator | None = None,
    weights: NDArray[np.float64] | None = None,
    report: Report | None = None,
) -> PrototypeFit:
    """Fit prototypes by GPLVQ: each sample moves its nearest prototype along the gradient of the likelihood.

    The winner moves by w + rate g (x - w) [GPLVQ Eq. 4.7], g being ``winner_gradient``, at most by the distance to the
    sample. Several labelings of the same samples, such as one class against the rest, are fitted side by side.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [R, N]
        Labels +-1 of the samples in each of R runs.
    W : ndarray, shape [P, d]
        Initial prototypes of every run; not changed.
    c : ndarray, shape [R, P]
        Labels +-1 of the prototypes in each run.
    lengthscale : float
        alpha, of the squared exponential kernel.
    noise_variance : float
        s^2, of the labels; values below 1e-6 count as 1e-6.
    learning_rate : float
        For features in units of the lengthscale: the thesis's eta is this times alpha^2. Default 0.01.
    decay, max_iter, rng, weights, report
        See ``fit_lvq``. Default 50 epochs.

    Returns
    -------
    PrototypeFit
        Prototypes [R P, d], run by run; the objective is the negative log likelihood of the labels given the winners,
        a sum over samples and runs.

    Examples
    --------
    >>> X, W, signs = np.array([[0.0], [2.0]]), np.array([[0.5], [2.1]]), np.array([[-1.0, 1.0]])
    >>> options = {"learning_rate": 0.1, "max_iter": 1, "decay": False}
    >>> fit = fit_gplvq(X, signs, W, signs, lengthscale=1.0, noise_variance=0.5, **options)
    >>> fit.prototypes.round(2).tolist()
    [[0.44], [2.08]]
    """
    from deepsimplex.prototypes.online_steps import gplvq_epoch  # numba takes a second to import

    X, W = check_features(X, W)
    y = check_array(y, "y", "[R, N]", columns=len(X), least=1)
    c = check_array(c, "c", "[R, P]", columns=len(W), rows=len(y), of="the rows of y")
    lengthscale = check_number(lengthscale, "lengthscale", 0.0)
    noise = max(check_number(noise_variance, "noise_variance", least=0.0), LEAST_NOISE)
    check_number(learning_rate, "learning_rate", 0.0)
    weights = check_sample_weight(weights, len(X), name="weights")
    runs = [(labels, W.copy(), signs) for labels, signs in zip(y, c, strict=True)]

    def objective(labels: NDArray[np.float64], moved: NDArray[np.float64], signs: NDArray[np.float64]) -> float:
        distances = finite_squared_distances(X, moved)
        winners = np.argmin(distances, axis=1)
        k = covariance(distances[np.arange(len(X)), winners], lengthscale)
        return -float(weights @ winner_log_likelihood(k, signs[winners] * labels, noise))

    def fit(epoch: int) -> PrototypeFit:
        total = sum(objective(*run) for run in runs)
        return PrototypeFit(np.concatenate([moved for _, moved, _ in runs]), None, total, epoch)

    for epoch, (order, rates) in enumerate(_presentations(weights, max_iter, learning_rate, decay, rng), start=1):
        for run in runs:
            gplvq_epoch(X, *run, order, rates, lengthscale, noise)
        if report is not None:
            report(fit(epoch))
    return fit(max_iter)


def _presentations(
    weights: NDArray[np.float64], max_iter: int, learning_rate: float, decay: bool, rng: np.random.Generator | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield the random order of the samples in every epoch, and the learning rate of each."""
    check_whole(max_iter, "max_iter", 0)
    check_flag(decay, "decay")
    rng, N = np.random.default_rng(0) if rng is None else rng, len(weights)
    for epoch in range(max_iter):
        order = rng.permutation(N)
        done = (epoch * N + np.arange(N)) / (max_iter * N) if decay else np.zeros(N)
        yield order, learning_rate * (1.0 - done) * weights[order] / weights.mean()
