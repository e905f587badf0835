"""Temperature scaling: one parameter for all classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import operations
from deepsimplex._utils.registry import registered
from deepsimplex.calibration.calibrator import ProbabilityCalibration, smoothed_labels, uninformative

# Largest 1 / T that is tried: probabilities are 0 and 1 long before.
_LARGEST_INVERSE = 2.0**40
# Slopes per sample that are round-off, of probabilities that are all equal.
_ROUND_OFF = 1e-12


@registered
class TemperatureScaling(ProbabilityCalibration):
    """Map class probabilities p to softmax(log p / T), with the temperature T that is likeliest for held-out samples.

    T > 1 flattens the probabilities of an overconfident classifier, T < 1 sharpens those of an underconfident one. The
    order of the classes, and so the accuracy, does not change. One parameter needs few samples: start with this.

    Attributes
    ----------
    temperature_ : float

    Raises
    ------
    ValueError
        By ``fit``, if the likeliest temperature is infinite: the classes of the held-out samples are no likelier than
        by chance.

    Warns
    -----
    UserWarning
        By ``fit``, if no class is likelier than the true one in any held-out sample: all are classified correctly, or
        tied. The likeliest temperature would be 0; labels are then smoothed, as if every class had one more sample,
        shared equally by all labels.

    Notes
    -----
    Guo, Pleiss, Sun, Weinberger: *On Calibration of Modern Neural Networks*, 2017. The NLL is convex in 1 / T, a
    log-sum-exp of linear terms minus a linear one, so that the root of its derivative is the only minimum.

    A probability of zero stays zero. In the NLL a true class of probability zero counts as the smallest normal number
    of its dtype.

    Examples
    --------
    >>> p, y = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], [0, 1, 1, 1]
    >>> scaling = TemperatureScaling().fit(p, y)  # three of four are right
    >>> round(scaling.temperature_, 4), scaling.transform(p)[0].round(4)
    (2.0, array([0.75, 0.25]))
    """

    fitted_attributes = ("temperature_",)
    temperature_: float

    def _fit(self, p: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], floor: float) -> None:
        from scipy.optimize import brentq
        from scipy.special import softmax

        true_class_p = p[np.arange(len(y)), y]
        positive = p > 0
        logits = np.log(np.where(positive, p, 1.0))
        linear = weights @ np.log(np.maximum(true_class_p, floor))

        def slope(inverse: float) -> float:
            """Compute the derivative of the NLL by 1 / T."""
            scaled_p = softmax(np.where(positive, inverse * logits, -np.inf), axis=1)
            return float(weights @ np.sum(scaled_p * logits, axis=1) - linear)

        certain = np.all(true_class_p == 1.0)  # no temperature changes such probabilities
        if not certain and slope(0.0) >= -_ROUND_OFF * weights.sum():
            raise uninformative(len(y), "chance")
        if np.all(true_class_p >= p.max(axis=1)):
            shares = np.where(positive, smoothed_labels(y, weights, p.shape[1]), 0.0)
            linear = weights @ (np.sum(shares * logits, axis=1) / np.sum(shares, axis=1))
        upper = 1.0
        while not certain and slope(upper) <= 0 and upper < _LARGEST_INVERSE:
            upper *= 2.0
        self.temperature_ = 1.0 if certain else 1.0 / brentq(slope, 0.0, upper, xtol=1e-14 * upper, rtol=1e-13)

    def _transform(self, p: Any, floor: float) -> Any:
        ops = operations(p)
        return ops.nn.softmax(ops.math.log(p) / self.temperature_)
