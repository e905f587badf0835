"""Logistic scaling, softmax(W log p + b): a temperature with biases, a factor for each class, or a whole matrix."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import operations
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_number
from deepsimplex.calibration.calibrator import (
    ProbabilityCalibration,
    check_all_classes,
    check_columns,
    smoothed_labels,
    uninformative,
)

# Mean NLL below which all samples are classified correctly, with ever larger parameters.
_SEPARABLE = 1e-6
# Stands for a probability of zero before it is tempered: the smallest normal number of single precision.
_SMALLEST = float(np.finfo(np.float32).tiny)
# Relative differences of NLLs that are round-off.
_ROUND_OFF = 1e-12
# Logarithms of the temperatures that are compared before the best is refined.
_LOG_TEMPERATURES = np.linspace(-5.0, 5.0, 41)

Array = NDArray[np.float64]


@registered
class BiasCorrectedTemperature(ProbabilityCalibration):
    """Map class probabilities p to softmax(log p / T + b), with the temperature T and the biases b that are likeliest.

    The biases shift the frequencies of the classes: after training with class weights, on resampled classes, or where
    classes are more or less frequent than among the training samples. On the held-out samples the mean probability of
    every class is then its frequency. The likeliest class may change.

    Attributes
    ----------
    temperature_ : float
    biases_ : ndarray, shape [n]
        Their sum is 0.

    Raises
    ------
    ValueError
        By ``fit``, if held-out samples lack a class, or if their classes are no likelier than by chance; by
        ``transform``, for another number of classes.

    Warns
    -----
    UserWarning
        By ``fit``, if some temperature and biases classify all held-out samples correctly: labels are then smoothed, as
        for ``TemperatureScaling``.

    Notes
    -----
    Alexandari, Kundaje, Shrikumar: *Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at Label Shift
    Adaptation*, 2020. The NLL is convex in 1 / T and b. A probability of zero counts as the smallest normal number of
    its dtype.

    Examples
    --------
    Probabilities of a classifier that was trained as if class 1 were three times as frequent:

    >>> p = np.array([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75], [0.25, 0.75]])
    >>> scaling = BiasCorrectedTemperature().fit(p, [0, 1, 1, 0], sample_weight=[9, 1, 1, 1])
    >>> scaling.transform(p[::2]).round(3)
    array([[0.9, 0.1],
           [0.5, 0.5]])
    """

    fitted_attributes = ("temperature_", "biases_")
    temperature_: float
    biases_: Array

    def _fit(self, p: Array, y: NDArray[np.int64], weights: Array, floor: float) -> None:
        n = p.shape[1]
        check_all_classes(y, n, "BiasCorrectedTemperature")
        logits, truth = np.log(np.maximum(p, floor)), np.eye(n)[y]
        width = logits.std() if np.ptp(logits) > 0 else 1.0

        def likeliest() -> tuple[Array, Array, float]:
            return _fit_scaling(
                logits / width, truth, weights, np.array([width]), np.multiply, lambda R, z: np.sum(R * z)
            )

        inverse, biases, nll = likeliest()
        if inverse > 0 and nll < _SEPARABLE:
            truth = smoothed_labels(y, weights, n)
            inverse, biases, _ = likeliest()
        if inverse <= 0:
            raise uninformative(len(y), "their frequencies")
        self.temperature_, self.biases_ = float(width / inverse[0]), biases - biases.mean()

    def _transform(self, p: Any, floor: float) -> Any:
        check_columns(p, len(self.biases_))
        ops = operations(p)
        logits = ops.math.log(ops.maximum(p, floor)) / self.temperature_
        return ops.nn.softmax(logits + ops.constant(self.biases_, p.dtype))


@registered
class VectorScaling(ProbabilityCalibration):
    """Map class probabilities to softmax(w z + b), z = log of tempered ones, with a factor w and a bias b per class.

    Factors are shrunk towards 1 and biases towards 0, and so the whole towards temperature scaling, the more, the fewer
    held-out samples and the more classes there are. Samples may lack classes, or all be classified correctly. The
    likeliest class may change.

    Parameters
    ----------
    penalty : float
        Strength of the shrinkage, above 0. Default 1, the paper's.

    Attributes
    ----------
    temperature_ : float
        Of the first step.
    uniform_share_ : float
        Share of uniform probabilities that the tempered ones are mixed with.
    biases_, factors_ : ndarray, shape [n]

    Raises
    ------
    ValueError
        By ``fit``, if the classes of the held-out samples are no likelier than by chance; by ``transform``, for another
        number of classes.

    Notes
    -----
    Guo, Pleiss, Sun, Weinberger: *On Calibration of Modern Neural Networks*, 2017; shrunk as in Berta, Holzmüller,
    Jordan, Bach: *Structured Matrix Scaling for Multi-Class Calibration*, 2026. With N held-out samples (the sum of
    their weights) of n classes, z = log((1 - s) softmax(log p / T) + s / n) and s = 1 / (N + 1): a true class of
    probability zero, which counts as the smallest normal number of single precision, costs a bounded loss. T minimizes
    the NLL of z; w and b then minimize the mean NLL, plus ``penalty`` n / N times the squares of w - 1 and b.

    Examples
    --------
    >>> p, y = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], [0, 1, 1, 1]
    >>> VectorScaling().fit(p, y).transform(p[1:3]).round(2)
    array([[0.64, 0.36],
           [0.16, 0.84]])
    """

    fitted_attributes = ("temperature_", "uniform_share_", "biases_", "factors_")
    temperature_: float
    uniform_share_: float
    biases_: Array
    factors_: Array

    def __init__(self, penalty: float = 1.0) -> None:
        self.penalty = check_number(penalty, "penalty", above=0)

    def _fit(self, p: Array, y: NDArray[np.int64], weights: Array, floor: float) -> None:
        n, penalty = p.shape[1], self.penalty * p.shape[1] / weights.sum()
        self.temperature_, self.uniform_share_, z = _fit_temperature(p, y, weights)
        self.factors_, self.biases_, _ = _fit_scaling(
            z, np.eye(n)[y], weights, np.ones(n), np.multiply, lambda R, z: np.sum(R * z, axis=0), penalty, penalty
        )

    def _transform(self, p: Any, floor: float) -> Any:
        check_columns(p, len(self.biases_))
        ops = operations(p)
        z = ops.math.log(_mixed(p, self.temperature_, self.uniform_share_))
        return ops.nn.softmax(z * ops.constant(self.factors_, p.dtype) + ops.constant(self.biases_, p.dtype))


@registered
class MatrixScaling(ProbabilityCalibration):
    """Map class probabilities to softmax(W z + b), z = log of tempered ones, with a matrix W that is near the identity.

    The matrix knows which classes are mistaken for which. Its diagonal, its other numbers and the biases are shrunk
    towards the identity and 0 by penalties of their own, so that few samples give little more than a temperature:
    ``method="auto"`` chooses between both. Samples may lack classes, or all be classified correctly. The likeliest
    class may change. The fit is of n^2 numbers: beyond a few hundred classes take ``VectorScaling``.

    Parameters
    ----------
    penalty : float
        Strength of the shrinkage, above 0. Default 1, the paper's.

    Attributes
    ----------
    temperature_ : float
        Of the first step.
    uniform_share_ : float
        Share of uniform probabilities that the tempered ones are mixed with.
    biases_ : ndarray, shape [n]
    matrix_ : ndarray, shape [n, n]
        W.

    Raises
    ------
    ValueError
        By ``fit``, if the classes of the held-out samples are no likelier than by chance; by ``transform``, for another
        number of classes.

    Notes
    -----
    Berta, Holzmüller, Jordan, Bach: *Structured Matrix Scaling for Multi-Class Calibration*, 2026. The first step is
    that of ``VectorScaling``. The mean NLL is minimized with ``penalty`` n / N times the squares of W_kk - 1 and of
    b_k, and ``penalty`` n (n - 1) / N times those of the other numbers of W.

    Examples
    --------
    Half of the samples that are called class 2 are of class 1:

    >>> p, y = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.1, 0.1, 0.8]] * 25, [0, 1, 2, 1] * 25
    >>> MatrixScaling().fit(p, y).transform(p[:3]).round(2)
    array([[0.89, 0.08, 0.02],
           [0.02, 0.95, 0.02],
           [0.04, 0.46, 0.5 ]])
    """

    fitted_attributes = ("temperature_", "uniform_share_", "biases_", "matrix_")
    temperature_: float
    uniform_share_: float
    biases_: Array
    matrix_: Array

    def __init__(self, penalty: float = 1.0) -> None:
        self.penalty = check_number(penalty, "penalty", above=0)

    def _fit(self, p: Array, y: NDArray[np.int64], weights: Array, floor: float) -> None:
        n, identity = p.shape[1], np.eye(p.shape[1])
        penalty = self.penalty * n / weights.sum()
        penalties = penalty * np.where(identity > 0, 1.0, n - 1.0)
        self.temperature_, self.uniform_share_, z = _fit_temperature(p, y, weights)
        self.matrix_, self.biases_, _ = _fit_scaling(
            z, identity[y], weights, identity, lambda z, W: z @ W.T, lambda R, z: R.T @ z, penalties, penalty
        )

    def _transform(self, p: Any, floor: float) -> Any:
        check_columns(p, len(self.biases_))
        ops = operations(p)
        z = ops.math.log(_mixed(p, self.temperature_, self.uniform_share_))
        return ops.nn.softmax(
            ops.matmul(z, ops.constant(self.matrix_.T, p.dtype)) + ops.constant(self.biases_, p.dtype)
        )


def _fit_temperature(p: Array, y: NDArray[np.int64], weights: Array) -> tuple[float, float, Array]:
    """Return temperature, share of uniform probabilities, and the logarithms [N, n] of the mixtures.

    The mixtures bound the NLL of a sample, whose sum then may have several minima.
    """
    from scipy.optimize import minimize_scalar

    total = float(weights.sum())
    share = 1.0 / (total + 1.0)

    def nll(log_temperature: float) -> float:
        mixed = _mixed(p, np.exp(log_temperature), share)
        return -float(weights @ np.log(mixed[range(len(y)), y]))

    losses = [nll(value) for value in _LOG_TEMPERATURES]
    best = int(np.argmin(losses))
    if losses[best] >= (1.0 - _ROUND_OFF) * total * np.log(p.shape[1]):
        raise uninformative(len(y), "chance")
    bounds = _LOG_TEMPERATURES[[max(best - 1, 0), min(best + 1, len(_LOG_TEMPERATURES) - 1)]]
    temperature = float(np.exp(minimize_scalar(nll, bounds=bounds, method="bounded").x))
    return temperature, share, np.log(_mixed(p, temperature, share))


def _mixed(p: Any, temperature: float, share: float) -> Any:
    """Temper probabilities [N, n] and mix a share of uniform ones in."""
    ops = operations(p)
    tempered = ops.nn.softmax(ops.math.log(ops.maximum(p, _SMALLEST)) / temperature)
    return (1.0 - share) * tempered + share / p.shape[1]


def _fit_scaling(
    z: Array,
    truth: Array,
    weights: Array,
    start: Array,
    scaled: Callable[[Array, Array], Array],
    gradient: Callable[[Array, Array], Any],
    penalties: float | Array = 0.0,
    bias_penalty: float = 0.0,
) -> tuple[Array, Array, float]:
    """Minimize the mean NLL of softmax(scaled(z, factors) + b), with penalties of squared distances from the start.

    ``truth`` [N, n] holds the shares of the classes, and ``gradient`` is that of sum(R * scaled(z, factors)) by the
    factors. Returns factors, biases and the mean NLL with its penalties.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    n, shares = z.shape[1], weights[:, np.newaxis] / weights.sum()

    def objective(parameters: Array) -> tuple[float, Array]:
        factors, biases = parameters[:-n].reshape(start.shape), parameters[-n:]
        log_q = log_softmax(scaled(z, factors) + biases, axis=1)
        residual = shares * (np.exp(log_q) - truth)
        change = factors - start
        value = -np.sum(shares * truth * log_q) + np.sum(penalties * change**2) + bias_penalty * biases @ biases
        by_factors = gradient(residual, z) + 2.0 * penalties * change
        return float(value), np.append(by_factors, residual.sum(axis=0) + 2.0 * bias_penalty * biases)

    first = np.append(start, np.zeros(n))
    fit = minimize(objective, first, jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-9, "maxiter": 1000})
    return fit.x[:-n].reshape(start.shape), fit.x[-n:], float(fit.fun)
