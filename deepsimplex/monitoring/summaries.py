"""Scalars, histograms and pictures of a classifier's outputs, by their TensorBoard tags."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.evaluation import calibration_error_by_class, report
from deepsimplex.evaluation.report import SCORE_GROUPS
from deepsimplex.monitoring.classifier_outputs import ClassifierOutputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = (*(score for scores in SCORE_GROUPS.values() for score in scores), "out_of_distribution_auroc")
_CALIBRATION = (*SCORE_GROUPS["Calibration"], "brier_reliability")
CLASS_CURVES = 20  # largest number of classes with a curve each
DPI = 80
POINTS = 1000  # of a scatter plot: more would overlap
WORST = 4  # a row of images


def tag_of(score: str) -> str:
    """Return the tag of a score of ``evaluation.report``.

    Examples
    --------
    >>> tag_of("expected_calibration_error"), tag_of("accuracy")
    ('calibration/expected_calibration_error', 'score/accuracy')
    """
    return f"{'calibration' if score in _CALIBRATION else 'score'}/{score}"


def summary_values(outputs: ClassifierOutputs, bins: int) -> dict[str, Any]:
    """Return every score of ``evaluation.report``, and the histogram of confidences.

    Also the sensitivity and, of more than two classes, the calibration error of each of up to twenty classes. If any
    output is not finite, all scores are NaN, and there is no histogram.
    """
    n = outputs.probabilities.shape[1]
    numbered = [f"{k}_{name}" for k, name in enumerate(outputs.class_names)] if n <= CLASS_CURVES else []
    sensitivity_tags = [f"sensitivity_of_class/{name}" for name in numbered]
    class_tags = {f"calibration_of_class/{name}": k for k, name in enumerate(numbered) if n > 2}
    if outputs.not_finite:
        scores = [name for name in SCORES if name != "out_of_distribution_auroc" or outputs.outside is not None]
        return dict.fromkeys([*map(tag_of, scores), *sensitivity_tags, *class_tags], math.nan)
    all_scores = report(outputs.labels, outputs.probabilities, bins, outside=outputs.outside)
    scored = all_scores.as_dict()
    by_class = calibration_error_by_class(outputs.labels, outputs.probabilities, bins)
    return (
        {tag_of(name): scored[name] for name in SCORES if name in scored}
        | dict(zip(sensitivity_tags, all_scores.by_class.sensitivity.tolist(), strict=False))
        | {tag: float(by_class[k]) for tag, k in class_tags.items()}
        | {"confidence": outputs.probabilities.max(axis=1)}
    )


def latents(outputs: ClassifierOutputs) -> dict[str, NDArray[Any]]:
    """Return norms of the latent means, and the latent standard deviations, for histograms, if there are latents."""
    if outputs.latent is None or outputs.not_finite:
        return {}
    loc, scale = outputs.latent["loc"], outputs.latent["scale"]
    # The norms of the rows of a factor are standard deviations.
    scale = scale if scale.ndim == 2 else np.linalg.norm(scale, axis=2)
    return {"latent/norm": np.linalg.norm(loc, axis=1), "latent/scale": scale.ravel()}


def pictures(outputs: ClassifierOutputs, seed: int) -> dict[str, NDArray[np.uint8]]:
    """Draw pictures [H, W, 3]; none if any output is not finite.

    "reliability"; "simplex" for three and four classes, else "latent_space" if there are latents; and "highest_loss",
    the samples whose true class has the least probability, if samples are images.
    """
    if outputs.not_finite:
        return {}
    return {f"pictures/{name}": figure_pixels(figure) for name, figure in _figures(outputs, seed)}


def _figures(outputs: ClassifierOutputs, seed: int) -> Iterator[tuple[str, "Figure"]]:
    from deepsimplex import plots  # imports Matplotlib

    y, p, names = outputs.labels, outputs.probabilities, outputs.class_names
    yield "reliability", plots.reliability(y, p)
    few = np.random.default_rng(seed).permutation(len(y))[:POINTS]
    latent = outputs.gaussian
    if p.shape[1] in (3, 4):
        yield "simplex", plots.simplex(p[few], y[few], class_names=names)
    elif latent is not None:
        yield "latent_space", plots.latent_space(latent[few], y[few], scores=outputs.scores, class_names=names)
    if outputs.images is not None:
        options: dict[str, Any] = {"k": WORST, "by": "likelihood", "class_names": names}
        yield "highest_loss", plots.uncertain_images(outputs.images, p, y, **outputs.credible, **options)


def band_picture(outputs: ClassifierOutputs) -> dict[str, NDArray[np.uint8]]:
    """Draw the reliability diagram with the 95% band of [GPD] Fig. 6, if the readout has credible intervals.

    The quantiles of thousands of samples take seconds.
    """
    if outputs.not_finite or not outputs.credible:
        return {}
    from deepsimplex import plots

    figure = plots.reliability(outputs.labels, outputs.probabilities, **outputs.credible)
    return {"pictures/reliability_band": figure_pixels(figure)}


def figure_pixels(figure: "Figure") -> NDArray[np.uint8]:
    """Return the picture [H, W, 3] of a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]
