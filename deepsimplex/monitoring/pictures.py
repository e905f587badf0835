"""The pictures of predictions, as pixels, drawn small and fast."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deepsimplex.monitoring.predictions import WatchedPredictions
from deepsimplex.readout import READOUTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 80  # of figures of some inches: what fits a card of TensorBoard
POINTS = 1000  # of a scatter: more hide one another
WORST = 4  # a row: every image has two axes to draw


def pixels_of(figure: "Figure") -> NDArray[np.uint8]:
    """A figure as [H, W, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def pictures(found: WatchedPredictions, seed: int = 0) -> dict[str, NDArray[np.uint8]]:
    """Pictures [H, W, 3] by tag: those that the predictions hold the material of, none where any is not finite.

    "reliability"; "simplex" for three and four classes, else "latent_space" where there are latents; and
    "highest_loss", the samples whose own class has the least probability, where samples are images.
    """
    if found.not_finite:
        return {}
    return {f"pictures/{name}": pixels_of(figure) for name, figure in _figures(found, seed)}


def band_picture(found: WatchedPredictions) -> dict[str, NDArray[np.uint8]]:
    """The reliability diagram with the 95% band of [GPD] Fig. 6, where a softmax readout has one.

    Apart, since the quantiles of thousands of samples take seconds.
    """
    if found.not_finite or found.latent is None or not READOUTS.get(found.readout or "argmax").credible_intervals:
        return {}
    from deepsimplex import plots

    figure = plots.reliability(found.labels, found.probabilities, **found.behind)
    return {"pictures/reliability_band": pixels_of(figure)}


def _figures(found: WatchedPredictions, seed: int) -> Iterator[tuple[str, "Figure"]]:
    from deepsimplex import plots  # matplotlib comes in here and not before

    y, p, names = found.labels, found.probabilities, found.class_names
    yield "reliability", plots.reliability(y, p)
    few = np.random.default_rng(seed).permutation(len(y))[:POINTS]
    latent = found.gaussian
    if p.shape[1] in (3, 4):
        yield "simplex", plots.simplex(p[few], y[few], class_names=names)
    elif latent is not None:
        scatter = plots.latent_space(latent[few], y[few], scores=found.scores, class_names=names)
        yield "latent_space", scatter
    if found.images is not None:
        worst = plots.uncertain_images(found.images, p, y, **found.behind, k=WORST, by="likelihood", class_names=names)
        yield "highest_loss", worst
