"""Bias-corrected temperature scaling: a temperature for all classes, and a bias for each."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex.calibration.calibrator import ProbabilityCalibration, check_all_classes, smoothed_labels

# Mean NLL below which all samples are classified correctly, with ever larger parameters.
_SEPARABLE = 1e-6


@keras.saving.register_keras_serializable(package="deepsimplex")
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
    biases_: NDArray[np.float64]

    def _fit(self, p: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], floor: float) -> None:
        from scipy.optimize import minimize
        from scipy.special import log_softmax

        n = p.shape[1]
        check_all_classes(y, n, "BiasCorrectedTemperature")
        logits, shares = np.log(np.maximum(p, floor)), weights[:, None] / weights.sum()
        width = logits.std() if np.ptp(logits) > 0 else 1.0
        scaled, truth = logits / width, np.eye(n)[y]

        def nll(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            """Compute the mean NLL, and its gradient, of width / T and the biases."""
            log_q = log_softmax(parameters[0] * scaled + parameters[1:], axis=1)
            residual = shares * (np.exp(log_q) - truth)
            return -float(np.sum(shares * truth * log_q)), np.array([np.sum(residual * scaled), *residual.sum(axis=0)])

        def likeliest() -> Any:
            start = np.array([width, *np.zeros(n)])
            return minimize(nll, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 1000})

        fit = likeliest()
        if fit.x[0] > 0 and fit.fun < _SEPARABLE:
            truth = smoothed_labels(y, weights, n)
            fit = likeliest()
        end = fit.x
        if end[0] <= 0:
            raise ValueError(
                f"the likeliest temperature is infinite: the classes y of the {len(y)} held-out samples are no "
                "likelier under their probabilities than by their frequencies. Check that y and p belong together, or "
                "hold out more samples"
            )
        self.temperature_, self.biases_ = float(width / end[0]), end[1:] - end[1:].mean()

    def _transform(self, p: Any, floor: float) -> Any:
        if p.shape[1] != len(self.biases_):
            raise ValueError(f"p must have shape [N, {len(self.biases_)}], as in fit; found {tuple(p.shape)}")
        return tf.nn.softmax(tf.math.log(tf.maximum(p, floor)) / self.temperature_ + tf.constant(self.biases_, p.dtype))
