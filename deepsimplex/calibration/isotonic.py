"""Isotonic calibration: a non-decreasing, piecewise linear map of the probability of every class."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import numpy_dtype, operations
from deepsimplex._utils.portable_operations import count_at_most
from deepsimplex._utils.registry import registered
from deepsimplex.calibration.calibrator import ProbabilityCalibration, check_all_classes, check_columns, padded_table


@registered
class IsotonicCalibration(ProbabilityCalibration):
    """Map the probability of every class by a non-decreasing, piecewise linear curve, and normalize over the classes.

    The curve is fitted by isotonic regression. It needs hundreds of samples per class, and gives probabilities of
    exactly 0 and 1, so that the NLL of new samples may be infinite. The likeliest class may change.

    Attributes
    ----------
    inputs_, outputs_ : ndarray, shape [n, K], or [1, K] for two classes
        Nodes of the curve of each class; for two classes, of the second only. A curve is constant beyond the first
        and the last input; one of fewer nodes repeats its last.

    Raises
    ------
    ValueError
        By ``fit``, if held-out samples lack a class; by ``transform``, for another number of classes.

    Notes
    -----
    Zadrozny and Elkan: *Transforming Classifier Scores into Accurate Multiclass Probability Estimates*, 2002. The fit
    is scikit-learn's ``IsotonicRegression(out_of_bounds="clip")``, and a row in which all classes are mapped to zero
    becomes uniform, as in its ``CalibratedClassifierCV``.

    Examples
    --------
    >>> p, y = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.1, 0.9]], [0, 1, 0, 1]
    >>> IsotonicCalibration().fit(p, y).transform([[0.95, 0.05], [0.5, 0.5], [0.2, 0.8]])
    array([[1.  , 0.  ],
           [0.5 , 0.5 ],
           [0.25, 0.75]])
    """

    fitted_attributes = ("inputs_", "outputs_")
    inputs_: NDArray[np.float64]
    outputs_: NDArray[np.float64]

    def _fit(self, p: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], floor: float) -> None:
        from sklearn.isotonic import IsotonicRegression

        n = p.shape[1]
        check_all_classes(y, n, "IsotonicCalibration")
        classes = [1] if n == 2 else range(n)
        curves = [IsotonicRegression(out_of_bounds="clip").fit(p[:, k], y == k, weights) for k in classes]
        self.inputs_ = padded_table([curve.X_thresholds_ for curve in curves])
        self.outputs_ = padded_table([curve.y_thresholds_ for curve in curves])

    def _transform(self, p: Any, floor: float) -> Any:
        n, ops = p.shape[1], operations(p)
        check_columns(p, len(self.inputs_))
        columns = p[:, 1:] if n == 2 else p
        mapped = ops.transpose(_interpolated(ops.transpose(columns), self.inputs_, self.outputs_))
        if n == 2:
            return ops.concat([1.0 - mapped, mapped], axis=1)
        total = ops.reduce_sum(mapped, axis=1, keepdims=True)
        return ops.where(total > 0, ops.math.divide_no_nan(mapped, total), 1.0 / n)


def _interpolated(x: Any, inputs: NDArray[np.float64], outputs: NDArray[np.float64]) -> Any:
    """Evaluate m piecewise linear curves at x [m, N]; they are constant beyond their ends."""
    ops = operations(x)
    right = count_at_most(inputs.astype(numpy_dtype(x)), x)
    right = ops.clip_by_value(right, 1, inputs.shape[1] - 1)
    x_0, x_1, y_0, y_1 = (
        ops.gather(ops.constant(table, x.dtype), at, batch_dims=1)
        for table in (inputs, outputs)
        for at in (right - 1, right)
    )
    share = ops.clip_by_value(ops.math.divide_no_nan(x - x_0, x_1 - x_0), 0.0, 1.0)
    return y_0 + share * (y_1 - y_0)
