"""The images that a classifier is least sure of, or most wrong about."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from deepsimplex._utils.validation import check_probabilities, check_whole
from deepsimplex.evaluation import uncertainty
from deepsimplex.evaluation.uncertainty import Measure
from deepsimplex.latent import LatentGaussian
from deepsimplex.plots.latents import intervals_behind
from deepsimplex.plots.predictions import predictions


def uncertain_images(
    images: ArrayLike,
    p: ArrayLike,
    y: ArrayLike | None = None,
    *,
    latent: LatentGaussian | dict[str, Any] | None = None,
    scores: ArrayLike | None = None,
    readout: str | None = None,
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
        Gray or color images, uint8 or in [0, 1].
    p : array_like, shape [N, n]
        Class probabilities.
    y : array_like, shape [N] or [N, 1], optional
        Class numbers 0..n-1, for the marks of ``predictions`` and for ``by="likelihood"``.
    latent : LatentGaussian or dict, optional
        The Gaussian behind p: its ``readout.class_intervals`` become whiskers of the bars.
    scores : array_like, shape [n, L], optional
        For the intervals, as in ``readout.class_intervals``. Default: the vertices.
    readout : {"softmax", "argmax"}, optional
        What p was read from ``latent`` by. Default "softmax", whose probabilities vary with the latent. Those of
        "argmax" do not: no whiskers are drawn then.
    level : float
        Of the intervals, 0.95 by default.
    k : int
        How many images, 8 by default; all where there are fewer.
    by : {"entropy", "confidence", "margin", "likelihood"}
        As in ``evaluation.uncertainty``. Default "entropy"; "likelihood" shows the worst calibrated first.
    class_names, columns, top
        As in ``predictions``.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        For another ``by``, ``by="likelihood"`` without ``y``, latents that p was not read from by the softmax readout,
        and arguments that ``predictions`` refuses.

    Examples
    --------
    >>> images, p = np.zeros((3, 8, 8)), [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]]
    >>> figure = uncertain_images(images, p, y=[0, 0, 0], k=2, class_names=["cat", "dog"])
    >>> [ax.get_title() for ax in figure.axes if ax.get_title()]
    ['✗ cat', '✓ cat']
    """
    probabilities = check_probabilities(p)
    ranked = uncertainty(probabilities, by, y)
    pixels = np.asarray(images)
    if len(pixels) != len(probabilities):
        raise ValueError(f"images must be as many as the {len(probabilities)} rows of p; found {len(pixels)}")
    # Stable: the first of the set comes first among equals.
    order = np.argsort(-ranked, kind="stable")[: check_whole(k, "k", 1)]
    return predictions(
        pixels[order],
        probabilities[order],
        None if y is None else np.asarray(y).reshape(-1)[order],
        class_names,
        columns=columns,
        top=top,
        intervals=intervals_behind(probabilities, latent, scores, readout, level, order),
    )
