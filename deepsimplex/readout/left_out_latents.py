"""Latents of training samples that were left out, which a readout is fitted to."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class LeftOutLatents(NamedTuple):
    """Latents of training samples that were left out of the regression, for ``Readout.adapt``.

    Attributes
    ----------
    loc : ndarray, shape [N, L]
        Means.
    scale : ndarray, shape [N, 1]
        Standard deviations.
    labels : ndarray, shape [N, n]
        Shares of the classes, one-hot for hard labels, times the weights of the samples.
    rows : ndarray of int64, shape [N]
        Positions of the samples among all training samples, ascending.
    folds : list of tuple
        Folds of these samples: means of the other samples, left out, and of the fold's, both predicted without the
        fold, and which samples are the fold's, bool [N].

    Examples
    --------
    >>> LeftOutLatents(np.zeros((2, 1)), np.ones((2, 1)), np.eye(2), np.arange(2), []).loc.shape
    (2, 1)
    """

    loc: Array
    scale: Array
    labels: Array
    rows: NDArray[np.int64]
    folds: list[tuple[Array, Array, NDArray[np.bool_]]]
