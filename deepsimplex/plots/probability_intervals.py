"""Intervals of class probabilities, from the latent Gaussians that these were read out of."""

from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import READOUTS, ClassIntervals
from deepsimplex.readout.layers import readout_layer

COMPARED, TOLERANCE = 64, 0.02  # rows that are read out again, and how far sampled probabilities may differ


def probability_intervals(
    p: NDArray[np.floating],
    latent: LatentGaussian | dict[str, Any] | None,
    scores: ArrayLike | None,
    readout: str | dict[str, Any] | keras.layers.Layer | None,
    level: float,
    rows: NDArray[np.integer] | None = None,
) -> ClassIntervals | None:
    """Compute intervals of the probabilities p [N, n], or of some rows of them.

    Parameters
    ----------
    p : ndarray, shape [N, n]
        Class probabilities, already checked.
    latent : LatentGaussian or dict, optional
        Latents that ``p`` was read out of.
    scores, readout, level
        As in ``reliability``.
    rows : ndarray of int, optional
        Rows to compute intervals for. Default: all.

    Returns
    -------
    ClassIntervals or None
        None without ``latent``, and for a readout whose probabilities are certain given the latent Gaussian.

    Raises
    ------
    ValueError
        If the latents are not as many as the rows of p or have other classes; if p is not what the readout makes of
        them; for ``scores`` or ``readout`` without latents.

    Examples
    --------
    >>> latent = LatentGaussian(np.zeros((1, 2)), np.full((1, 1), 0.5))
    >>> intervals = probability_intervals(np.full((1, 3), 1 / 3), latent, None, None, 0.95)
    >>> intervals.lower.round(2), intervals.upper.round(2)
    (array([[0.09, 0.09, 0.09]]), array([[0.67, 0.67, 0.67]]))
    """
    if latent is None:
        if scores is not None or readout is not None:
            raise ValueError("scores and readout belong to a latent Gaussian; give latent too, or leave them out")
        return None
    layer = readout_layer(readout or "softmax", scores)
    scores = layer.scores
    gaussian, (samples, n) = LatentGaussian.of(latent), p.shape
    classes = gaussian.latent_dim + 1 if scores is None else len(check_array(scores, "scores", "[n, L]"))
    if (len(gaussian), classes) != (samples, n):
        raise ValueError(
            f"latent must be of the {samples} samples and {n} classes of p; found {len(gaussian)} samples and "
            f"{classes} classes{' of the vertices: give scores' if scores is None and classes != n else ' of scores'}"
        )
    if not layer.credible_intervals:
        return None
    some = np.unique(np.linspace(0, samples - 1, COMPARED).astype(int))
    difference = float(np.abs(layer.predict(gaussian[some]) - p[some]).max())
    if difference > TOLERANCE:
        raise ValueError(
            f"p must be what the {READOUTS.name_of(layer)} readout makes of latent; found probabilities that differ by "
            f"{difference:.2f}. Those of the argmax readout, or calibrated since, have no intervals: leave latent out, "
            "or pass readout='argmax'; other scores than the vertices are passed as scores"
        )
    return layer.intervals(gaussian if rows is None else gaussian[rows], level)
