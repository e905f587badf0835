"""LVQ1 and LVQ2: samples are presented one by one, and the prototypes that compete for them move."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Report = Callable[[int, NDArray[np.float64]], None]


def compete(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    W: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    also_correct: bool = False,
    window: float | None = None,
    learning_rate: float = 0.05,
    decay: bool = True,
    epochs: int = 100,
    rng: np.random.Generator | None = None,
    report: Report | None = None,
) -> NDArray[np.float64]:
    """Prototypes after all samples have been presented in every epoch, in an order drawn anew.

    LVQ1 moves the winner, the nearest prototype, towards a sample of its own class, w + rate (x - w), and away from
    one of another, w - rate (x - w) [GPLVQ Eq. 3.1]. LVQ2 moves the nearest prototype of the sample's class towards it
    too when the winner is of another [GPLVQ ch. 3].

    Parameters
    ----------
    X : ndarray, shape [N, d]
    y : ndarray, shape [N]
        Numbers of the classes.
    W : ndarray, shape [P, d]
        Prototypes to begin with, left as they are.
    labels : ndarray, shape [P]
        Numbers of their classes.
    also_correct : bool
        LVQ2 instead of LVQ1. Default False.
    window : float, optional
        For LVQ2: a wrong winner and the nearest correct prototype move only if their distances to the sample are to
        one another as (1 - window) to (1 + window) at least, which keeps far-off samples from driving winners away.
        None (default): always, as in the thesis.
    learning_rate : float
        Share of the way, at the beginning. Default 0.05.
    decay : bool
        Whether it falls to zero, in proportion to what is left to do, so that prototypes come to rest. Default True;
        the thesis keeps it.
    epochs : int
        Default 100.
    rng : numpy.random.Generator, optional
        Draws the orders. None (default) is one of seed 0.
    report : callable, optional
        Called with the number of the epoch, from 1, and the prototypes [P, d].

    Returns
    -------
    ndarray, shape [P, d]

    Examples
    --------
    >>> X, W = np.array([[0.0], [1.0]]), np.array([[0.2], [0.6]])
    >>> compete(X, np.array([0, 1]), W, np.array([0, 1]), learning_rate=0.5, epochs=40).round(2).tolist()
    [[0.0], [1.0]]
    """
    from deepsimplex.prototypes._competition import present  # numba takes a second to import

    rng = np.random.default_rng(0) if rng is None else rng
    W, N = np.array(W, dtype=np.float64, order="C"), len(X)
    least_ratio = 0.0 if window is None else ((1.0 - window) / (1.0 + window)) ** 2
    for epoch, (order, rates) in enumerate(presentations(N, epochs, learning_rate, decay, rng), start=1):
        present(X[order], y[order], W, labels, rates, also_correct, least_ratio)
        if report is not None:
            report(epoch, W.copy())
    return W


def presentations(
    number: int, epochs: int, learning_rate: float, decay: bool, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """The order of the samples in every epoch, drawn anew, and the learning rate of each presentation.

    Examples
    --------
    >>> [rates.tolist() for _, rates in presentations(2, 2, 1.0, True, np.random.default_rng(0))]
    [[1.0, 0.75], [0.5, 0.25]]
    """
    for epoch in range(epochs):
        order = rng.permutation(number)
        done = (epoch * number + np.arange(number)) / (epochs * number) if decay else np.zeros(number)
        yield order, learning_rate * (1.0 - done)
