"""The images that a classifier is least sure of, or most wrong about."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from deepsimplex.checks import check_whole
from deepsimplex.evaluation.inputs import check_labels, check_probabilities
from deepsimplex.latent import LatentGaussian
from deepsimplex.names import did_you_mean
from deepsimplex.plots.predictions import predictions
from deepsimplex.readout import class_intervals

Measure = Literal["entropy", "confidence", "margin", "likelihood"]


def _entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=1)


def _margin(p: NDArray[np.float64]) -> NDArray[np.float64]:
    second, first = np.sort(p, axis=1)[:, -2:].T
    return second - first


# Large where the classifier is unsure.
MEASURES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "entropy": _entropy,
    "confidence": lambda p: -p.max(axis=1),
    "margin": _margin,
}


def uncertain_images(
    images: ArrayLike,
    p: ArrayLike,
    y: ArrayLike | None = None,
    *,
    latent: LatentGaussian | dict[str, Any] | None = None,
    scores: ArrayLike | None = None,
    readout: Literal["softmax", "argmax"] = "softmax",
    level: float = 0.95,
    k: int = 8,
    by: Measure = "entropy",
    class_names: Sequence[str] | None = None,
    columns: int = 4,
    top: int = 3,
) -> Figure:
    """Grid of the ``k`` most uncertain images, the most uncertain first, with bars of their likeliest classes.

    Parameters
    ----------
    images : array_like, shape [N, H, W], [N, H, W, 1] or [N, H, W, 3]
        Grey or colour images, uint8 or in [0, 1].
    p : array_like, shape [N, n]
        Class probabilities.
    y : array_like, shape [N] or [N, 1], optional
        Class numbers 0..n-1, for the marks of ``predictions`` and for ``by="likelihood"``.
    latent : LatentGaussian or dict, optional
        The Gaussian behind p: its ``readout.class_intervals`` become whiskers of the bars.
    scores : array_like, shape [n, L], optional
        For the intervals, as in ``readout.class_intervals``. Default: the vertices.
    readout : {"softmax", "argmax"}
        For the intervals. Default "softmax", whose class probabilities have a distribution; they are about bars that
        are a softmax readout of the same scores, as with ILR and Dirichlet targets. Probabilities of the argmax
        readout have none, and their intervals are of the width of round-off.
    level : float
        Of the intervals, 0.95 by default.
    k : int
        How many images, 8 by default; all where there are fewer.
    by : {"entropy", "confidence", "margin", "likelihood"}
        Largest entropy (the default: every class counts), smallest largest probability, smallest distance between the
        two likeliest classes, or smallest probability of the true class, which shows the worst calibrated first.
    class_names, columns, top
        As in ``predictions``.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        For another ``by``, ``by="likelihood"`` without ``y``, and arguments that ``predictions`` refuses.

    Examples
    --------
    >>> images, p = np.zeros((3, 8, 8)), [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]]
    >>> figure = uncertain_images(images, p, y=[0, 0, 0], k=2, class_names=["cat", "dog"])
    >>> [ax.get_title() for ax in figure.axes if ax.get_title()]
    ['✗ cat', '✓ cat']
    """
    probabilities = check_probabilities(p).astype(np.float64)
    samples, n = probabilities.shape
    labels = None if y is None else check_labels(y, samples, n)
    known = [*MEASURES, "likelihood"]
    if by not in known:
        raise ValueError(f"by must be one of {', '.join(known)}; found {by!r}{did_you_mean(by, known)}")
    if by == "likelihood":
        if labels is None:
            raise ValueError("by='likelihood' needs the true classes: give y")
        uncertainty = -probabilities[np.arange(len(labels)), labels]
    else:
        uncertainty = MEASURES[by](probabilities)
    pixels = np.asarray(images)
    if len(pixels) != len(probabilities):
        raise ValueError(f"images must be as many as the {len(probabilities)} rows of p; found {len(pixels)}")
    # Stable: the first of the set comes first among equals.
    order = np.argsort(-uncertainty, kind="stable")[: check_whole(k, "k", 1)]
    intervals = None
    if latent is not None:
        gaussian = latent if isinstance(latent, LatentGaussian) else LatentGaussian(**latent)
        few = LatentGaussian(np.asarray(gaussian.loc)[order], np.asarray(gaussian.scale)[order])
        intervals = class_intervals(few, level, scores, readout)
    return predictions(
        pixels[order],
        probabilities[order],
        None if labels is None else labels[order],
        class_names,
        columns=columns,
        top=top,
        intervals=intervals,
    )
