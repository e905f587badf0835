"""Scalars, histograms and pictures of a classifier's outputs, by their TensorBoard tags."""

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.calibration import NeighborDistance
from deepsimplex.calibration.feature_density import VARIANCE_SHARE
from deepsimplex.evaluation import Report, calibration_error_by_class, out_of_distribution_auroc, report
from deepsimplex.evaluation.report import SCORE_GROUPS
from deepsimplex.monitoring.classifier_outputs import ClassifierOutputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Fields of a report that are not training scores: settings, and prediction sets, which are fitted afterwards.
_SETTINGS = ("samples", "classes", "bins", "k", "coverage", "level", "intervals", "set_coverage", "set_size")
SCORES = tuple(field.name for field in dataclasses.fields(Report) if field.name not in _SETTINGS)
_CALIBRATION = (*SCORE_GROUPS["Calibration"], "brier_reliability")
BY_DENSITY = "score/out_of_distribution_auroc_by_density"
CLASS_CURVES = 20  # at most so many classes have curves of their own
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


def scalars(found: ClassifierOutputs, bins: int, familiarity: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Return every score of ``evaluation.report``, and the calibration error of each of up to twenty classes.

    ``familiarity`` is what ``familiarities`` returns. All are NaN if any output is not finite.
    """
    n = found.probabilities.shape[1]
    of_classes = {
        f"calibration_of_class/{k}_{name}": k for k, name in enumerate(found.class_names) if 2 < n <= CLASS_CURVES
    }
    if found.not_finite:
        known = [name for name in SCORES if name != "out_of_distribution_auroc" or found.outside is not None]
        density = [] if found.features is None else [BY_DENSITY]
        return dict.fromkeys([*map(tag_of, known), *of_classes, *density], math.nan)
    values = report(found.labels, found.probabilities, bins, outside=found.outside).as_dict()
    by_class = calibration_error_by_class(found.labels, found.probabilities, bins)
    errors = {tag: float(by_class[k]) for tag, k in of_classes.items()}
    unfamiliar = [1.0 - one for one in familiarity.values()]
    detected = {BY_DENSITY: float(out_of_distribution_auroc(*unfamiliar))} if unfamiliar else {}
    return {tag_of(name): values[name] for name in SCORES if name in values} | errors | detected


def familiarities(found: ClassifierOutputs) -> dict[str, NDArray[Any]]:
    """Return familiarities, by a density fitted to half of the samples: of the other half, and of those from outside.

    They are for histograms; there are none without samples from outside, or if any output is not finite.
    """
    if found.features is None or found.outside_features is None or found.not_finite:
        return {}
    density = NeighborDistance().fit(found.features[::2], found.labels[::2], VARIANCE_SHARE)
    parts = {"validation": found.features[1::2], "outside": found.outside_features}
    return {f"familiarity/{name}": density.familiarity(features) for name, features in parts.items()}


def confidences(found: ClassifierOutputs) -> dict[str, NDArray[Any]]:
    """Return the largest probability of each sample, for a histogram; nothing if any output is not finite."""
    return {} if found.not_finite else {"confidence": found.probabilities.max(axis=1)}


def latents(found: ClassifierOutputs) -> dict[str, NDArray[Any]]:
    """Return norms of the latent means, and the latent standard deviations, for histograms, if there are latents."""
    if found.latent is None or found.not_finite:
        return {}
    loc, scale = found.latent["loc"], found.latent["scale"]
    # The norms of the rows of a factor are standard deviations.
    scale = scale if scale.ndim == 2 else np.linalg.norm(scale, axis=2)
    return {"latent/norm": np.linalg.norm(loc, axis=1), "latent/scale": scale.ravel()}


def pictures(found: ClassifierOutputs, seed: int) -> dict[str, NDArray[np.uint8]]:
    """Draw pictures [H, W, 3]; none if any output is not finite.

    "reliability"; "simplex" for three and four classes, else "latent_space" if there are latents; and "highest_loss",
    the samples whose own class has the least probability, if samples are images.
    """
    if found.not_finite:
        return {}
    return {f"pictures/{name}": _pixels(figure) for name, figure in _figures(found, seed)}


def _figures(found: ClassifierOutputs, seed: int) -> Iterator[tuple[str, "Figure"]]:
    from deepsimplex import plots  # imports Matplotlib

    y, p, names = found.labels, found.probabilities, found.class_names
    yield "reliability", plots.reliability(y, p)
    few = np.random.default_rng(seed).permutation(len(y))[:POINTS]
    latent = found.gaussian
    if p.shape[1] in (3, 4):
        yield "simplex", plots.simplex(p[few], y[few], class_names=names)
    elif latent is not None:
        yield "latent_space", plots.latent_space(latent[few], y[few], scores=found.scores, class_names=names)
    if found.images is not None:
        options: dict[str, Any] = {"k": WORST, "by": "likelihood", "class_names": names}
        yield "highest_loss", plots.uncertain_images(found.images, p, y, **found.credible, **options)


def band_picture(found: ClassifierOutputs) -> dict[str, NDArray[np.uint8]]:
    """Draw the reliability diagram with the 95% band of [GPD] Fig. 6, if the readout has credible intervals.

    The quantiles of thousands of samples take seconds.
    """
    if found.not_finite or not found.credible:
        return {}
    from deepsimplex import plots

    figure = plots.reliability(found.labels, found.probabilities, **found.credible)
    return {"pictures/reliability_band": _pixels(figure)}


def _pixels(figure: "Figure") -> NDArray[np.uint8]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]
