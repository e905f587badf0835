"""What a classifier says of its validation samples, as the boards write it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.latent import LatentGaussian


def on_one_line(names: Sequence[str]) -> list[str]:
    """Names of classes without tabs and ends of lines, which pictures cannot show and which would end a table's cell.

    Examples
    --------
    >>> on_one_line(["T-shirt\\tor top", ""])
    ['T-shirt or top', '1']
    """
    return [" ".join(name.split()) or str(k) for k, name in enumerate(names)]


@dataclass(frozen=True, eq=False)
class WatchedPredictions:
    """Class probabilities beside labels, and what else is known.

    Attributes
    ----------
    labels : ndarray, shape [N], int64
        Class numbers 0..n-1.
    probabilities : ndarray, shape [N, n]
        Of a network that diverged they may hold NaN.
    class_names : sequence of str, length n
        On one line each, see ``on_one_line``.
    latent : dict of "loc" and "scale", optional
        As Keras layers emit it, in arrays: a LatentGaussian would refuse what a network that diverged gives.
    scores : ndarray, shape [n, L], optional
        By which the latents are read out.
    readout : str, optional
        "argmax" or "softmax".
    outside : ndarray, shape [M, n], optional
        Class probabilities of samples from outside the training distribution.
    images : ndarray, optional
        The samples [N, H, W] or [N, H, W, 3] as ``plots`` take them, where they are images.
    """

    labels: NDArray[np.int64]
    probabilities: NDArray[Any]
    class_names: Sequence[str]
    latent: dict[str, NDArray[Any]] | None = None
    scores: NDArray[Any] | None = None
    readout: str | None = None
    outside: NDArray[Any] | None = None
    images: NDArray[Any] | None = None

    @cached_property
    def not_finite(self) -> int:
        """Number of samples with NaN or infinity in what was predicted of them."""
        parts = [self.probabilities, *(() if self.latent is None else self.latent.values())]
        finite = np.ones(len(self.labels), dtype=bool)
        for part in parts:
            finite &= np.isfinite(part).reshape(len(part), -1).all(axis=1)
        outside = 0 if self.outside is None else np.sum(~np.isfinite(self.outside).all(axis=1))
        return int(np.sum(~finite) + outside)

    @property
    def gaussian(self) -> LatentGaussian | None:
        """The latents, where there are any."""
        return None if self.latent is None else LatentGaussian.of(self.latent)

    @property
    def behind(self) -> dict[str, Any]:
        """What figures take to draw intervals of the probabilities; nothing where no known readout made them."""
        if self.latent is None or self.readout is None:
            return {}
        return {"latent": self.gaussian, "scores": self.scores, "readout": self.readout}
