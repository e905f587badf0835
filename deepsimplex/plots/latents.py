"""Intervals of the probabilities that a figure shows, from the latent Gaussian behind them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import ClassIntervals, readout_layer

COMPARED, TOLERANCE = 64, 0.02
"""Rows whose probabilities are read out again, and how far they may differ: sampled ones vary by some thousandths."""


def intervals_behind(
    p: NDArray[np.floating],
    latent: LatentGaussian | dict[str, Any] | None,
    scores: ArrayLike | None,
    readout: str | None,
    level: float,
    rows: NDArray[np.integer] | None = None,
) -> ClassIntervals | None:
    """Intervals of the probabilities p [N, n], or of some rows of them; None where they have none.

    Parameters
    ----------
    p : ndarray, shape [N, n]
        Checked class probabilities.
    latent : LatentGaussian or dict, optional
        What they were read from.
    scores, readout, level
        As the figures take them: without ``readout`` they are said to be of the softmax readout, whose probabilities
        are random since latents are. Those of another readout have no intervals.
    rows : ndarray of int, optional
        Rows of interest; default all.

    Raises
    ------
    ValueError
        When latents are not as many as p or have other classes; when p is not what the softmax readout makes of them;
        and for ``scores`` or ``readout`` without latents.

    Examples
    --------
    >>> latent = LatentGaussian(np.zeros((1, 2)), np.full((1, 1), 0.5))
    >>> found = intervals_behind(np.full((1, 3), 1 / 3), latent, None, None, 0.95)
    >>> found.lower.round(2), found.upper.round(2)
    (array([[0.09, 0.09, 0.09]]), array([[0.67, 0.67, 0.67]]))
    """
    if latent is None:
        if scores is not None or readout is not None:
            raise ValueError("scores and readout belong to a latent Gaussian; give latent too, or leave them out")
        return None
    layer = readout_layer(readout or "softmax", scores)
    gaussian, (samples, n) = LatentGaussian.of(latent), p.shape
    classes = gaussian.latent_dim + 1 if scores is None else len(np.asarray(scores))
    if (len(gaussian), classes) != (samples, n):
        raise ValueError(
            f"latent must be of the {samples} samples and {n} classes of p; found {len(gaussian)} samples and "
            f"{classes} classes{' of the vertices: give scores' if scores is None and classes != n else ''}"
        )
    if not layer.credible_intervals:
        return None
    some = np.unique(np.linspace(0, samples - 1, COMPARED).astype(int))
    differ = float(np.abs(layer.predict(gaussian[some]) - p[some]).max())
    if differ > TOLERANCE:
        raise ValueError(
            f"p must be what the softmax readout makes of latent; found probabilities that differ by {differ:.2f}. "
            "Those of the argmax readout, or calibrated since, have no intervals: leave latent out, or say "
            "readout='argmax'; other scores than the vertices are given as scores"
        )
    return layer.intervals(gaussian if rows is None else gaussian[rows], level)
