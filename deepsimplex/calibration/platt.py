"""Platt scaling: a sigmoid of the log-odds of every class."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import operations
from deepsimplex._utils.portable_operations import log_sigmoid
from deepsimplex._utils.registry import registered
from deepsimplex.calibration.calibrator import ProbabilityCalibration, check_all_classes, check_columns


@registered
class PlattScaling(ProbabilityCalibration):
    """Map the log-odds of every class by a separate sigmoid, and normalize over the classes.

    Two parameters per class (two in all for two classes), fitted with Platt's smoothed labels, so that held-out samples
    may all be classified correctly. The likeliest class may change.

    Attributes
    ----------
    slopes_, intercepts_ : ndarray, shape [n], or [1] for two classes
        A class with log-odds F has the probability sigmoid(slope F + intercept) before normalization; for two classes
        this is the second one's.

    Raises
    ------
    ValueError
        By ``fit``, if held-out samples lack a class; by ``transform``, for another number of classes.

    Notes
    -----
    Platt: *Probabilistic Outputs for Support Vector Machines*, 1999. With N_1 held-out samples of a class and N_0 of
    the others, labels are (N_1 + 1) / (N_1 + 2) and 1 / (N_0 + 2) in place of 1 and 0. The fit is a logistic
    regression; the result is that of scikit-learn's ``CalibratedClassifierCV(FrozenEstimator(...), method="sigmoid")``
    for a classifier whose ``decision_function`` returns these log-odds. A probability of zero counts as the smallest
    normal number of its dtype.

    Examples
    --------
    >>> p, y = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.1, 0.9]], [0, 1, 1, 1]
    >>> PlattScaling().fit(p, y).transform(p).round(2)
    array([[0.49, 0.51],
           [0.41, 0.59],
           [0.22, 0.78],
           [0.14, 0.86]])
    """

    fitted_attributes = ("slopes_", "intercepts_")
    slopes_: NDArray[np.float64]
    intercepts_: NDArray[np.float64]

    def _fit(self, p: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], floor: float) -> None:
        check_all_classes(y, p.shape[1], "PlattScaling")
        decisions = _log_odds(p, floor)
        # Of two classes the log-odds are one column, of the second.
        events = (y[:, None] == np.arange(p.shape[1]))[:, -decisions.shape[1] :]
        sigmoids = [_fitted_sigmoid(F, event, weights) for F, event in zip(decisions.T, events.T, strict=True)]
        self.slopes_, self.intercepts_ = np.array(sigmoids).T

    def _transform(self, p: Any, floor: float) -> Any:
        check_columns(p, len(self.slopes_))
        ops = operations(p)
        z = _log_odds(p, floor) * self.slopes_ + self.intercepts_
        if len(self.slopes_) == 1:
            return ops.sigmoid(ops.concat([-z, z], axis=1))
        return ops.nn.softmax(log_sigmoid(z))  # normalized in log space: never 0 / 0


def _fitted_sigmoid(
    F: NDArray[np.float64], event: NDArray[np.bool_], weights: NDArray[np.float64]
) -> tuple[float, float]:
    """Fit slope and intercept of a sigmoid of F [N] to an event [N], with Platt's smoothed labels."""
    from sklearn.linear_model import LogisticRegression

    happened, failed = weights[event].sum(), weights[~event].sum()
    target = np.where(event, (happened + 1.0) / (happened + 2.0), 1.0 / (failed + 2.0))
    if np.ptp(F) == 0:
        share = np.average(target, weights=weights)
        return 0.0, float(np.log(share) - np.log1p(-share))
    center, width = F.mean(), F.std()
    # A smoothed label is one sample under both labels, at two weights.
    features = np.tile((F - center) / width, 2)[:, None]
    both = np.repeat([True, False], len(F))
    regression = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    regression.fit(features, both, sample_weight=np.concatenate([weights * target, weights * (1.0 - target)]))
    slope = float(regression.coef_[0, 0] / width)
    return slope, float(regression.intercept_[0] - slope * center)


def _log_odds(p: Any, floor: float) -> Any:
    """Compute log p_k - log sum_{j != k} p_j [N, n]; for two classes [N, 1], of the second."""
    n, ops = p.shape[1], operations(p)
    # Not 1 - p_k, which is off where p_k is near 1.
    rest = ops.matmul(p, ops.constant(1.0 - np.eye(n), p.dtype))
    odds = ops.math.log(ops.maximum(p, floor)) - ops.math.log(ops.maximum(rest, floor))
    return odds[:, 1:] if n == 2 else odds
