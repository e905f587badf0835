"""What one step of the fit of a classifier has come to, for those who watch it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ClassifierStep:
    """A step of the optimization behind a classifier.

    Attributes
    ----------
    iteration : int
        From 1, over all starts.
    objective : float
        What is minimized, there: a sum over samples.
    hyperparameters : dict of str to ndarray
        See ``deepsimplex.gp.Step``.
    num_samples : int
        Number of training samples N.
    classifier : callable
        Makes the classifier there, which predicts, reads out and saves as a fitted one does: worth some steps' time. To
        be called inside the callback, or it raises RuntimeError; the classifier that it gives may be kept.

    Examples
    --------
    >>> from deepsimplex import SimplexGaussianProcess
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> scores = []
    >>> watch = lambda step: scores.append(step.classifier().score(X[1::2], y[1::2]))
    >>> bool(SimplexGaussianProcess("ilr").fit(X[::2], y[::2], callback=watch).score(X[1::2], y[1::2]) == scores[-1])
    True
    """

    iteration: int
    objective: float
    hyperparameters: dict[str, NDArray[np.float64]]
    num_samples: int
    classifier: Callable[[], Any]


Callback = Callable[[ClassifierStep], None]
