"""How unsure a classifier is of each sample."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.names import did_you_mean
from deepsimplex.evaluation.inputs import check_labels, check_probabilities

Measure = Literal["entropy", "confidence", "margin", "likelihood"]


def _entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=1)


def _margin(p: NDArray[np.float64]) -> NDArray[np.float64]:
    second, first = np.sort(p, axis=1)[:, -2:].T
    return 1 - (first - second)


_OF_PROBABILITIES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "entropy": _entropy,
    "confidence": lambda p: 1 - p.max(axis=1),
    "margin": _margin,
}


def uncertainty(p: ArrayLike, by: Measure = "entropy", y: ArrayLike | None = None) -> NDArray[np.float64]:
    """Uncertainty of each sample's class, large where the classifier is unsure or wrong.

    Parameters
    ----------
    p : array_like, shape [N, n]
        Class probabilities.
    by : {"entropy", "confidence", "margin", "likelihood"}
        Entropy in nats (the default: every class counts); one minus the largest probability; one minus the distance
        between the two largest; or one minus the probability of the true class, which finds the worst calibrated.
    y : array_like, shape [N] or [N, 1], optional
        Class numbers 0..n-1, for "likelihood" alone.

    Returns
    -------
    ndarray, shape [N]
        Not negative. ``np.argsort(-uncertainty(p), kind="stable")`` ranks samples, the first among equals first.

    Raises
    ------
    ValueError
        For another ``by``, "likelihood" without ``y``, and arguments that break the above.

    Examples
    --------
    >>> p = [[0.5, 0.5], [0.9, 0.1]]
    >>> uncertainty(p).round(4), uncertainty(p, "likelihood", y=[0, 1])
    (array([0.6931, 0.3251]), array([0.5, 0.9]))
    """
    probabilities = check_probabilities(p).astype(np.float64)
    samples, n = probabilities.shape
    labels = None if y is None else check_labels(y, samples, n)
    known = [*_OF_PROBABILITIES, "likelihood"]
    if by not in known:
        raise ValueError(f"by must be one of {', '.join(known)}; found {by!r}{did_you_mean(by, known)}")
    if by != "likelihood":
        return np.maximum(_OF_PROBABILITIES[by](probabilities), 0.0)
    if labels is None:
        raise ValueError("by='likelihood' needs the true classes: give y")
    return np.maximum(1 - probabilities[np.arange(samples), labels], 0.0)
