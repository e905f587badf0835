"""Inducing points as an optimizer moves them: in deviations of the features, whatever their units."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.scaling import Scaling


class MovablePoints(tf.Module):
    """Inducing points U = U_0 + width * shift, of which the shift is the variable and starts at zero.

    A step of Adam is as long as its learning rate, and so is one of L-BFGS at first: taken in the units of the
    features, it would leave points where features are in the thousands, and throw them about where they are in
    thousandths.

    Parameters
    ----------
    points : ndarray, shape [..., M, d]
        U_0, in the units of X.
    X : ndarray, shape [N, d]
        Features; the width of each is its standard deviation, or one where all are equal.
    trainable : bool
        Whether the points are moved.

    Examples
    --------
    >>> points = MovablePoints(np.zeros((1, 2)), np.array([[1.0, 0.0], [3.0, 4000.0]]), trainable=True)
    >>> moved = points.shift.assign([[0.5, 0.5]])
    >>> points().numpy()
    array([[5.e-01, 1.e+03]])
    """

    def __init__(self, points: NDArray[np.float64], X: NDArray[np.float64], trainable: bool) -> None:
        super().__init__()
        self._start, self._width = points, Scaling.of_features(X).width
        self.shift = tf.Variable(tf.zeros(points.shape, tf.float64), trainable=trainable)

    def __call__(self) -> Any:
        """The points [..., M, d] where they are now."""
        return self._start + self._width * self.shift
