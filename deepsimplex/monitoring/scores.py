"""The numbers of predictions: scalars and distributions, under tags that stay."""

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.evaluation import Report, calibration_error_by_class, report
from deepsimplex.monitoring.predictions import WatchedPredictions

# What a report says of itself, not of the predictions.
_SETTINGS = ("samples", "classes", "bins", "k", "coverage", "level", "intervals")
_CALIBRATION = (
    "expected_calibration_error",
    "adaptive_calibration_error",
    "classwise_calibration_error",
    "maximum_calibration_error",
    "area_deviation",
    "brier_reliability",
)
_CLASS_CURVES = 20


def tag_of(score: str) -> str:
    """The tag of a score of ``evaluation.report``: "calibration/..." if it is of calibration alone, else "score/...".

    Examples
    --------
    >>> tag_of("expected_calibration_error"), tag_of("accuracy")
    ('calibration/expected_calibration_error', 'score/accuracy')
    """
    return f"{'calibration' if score in _CALIBRATION else 'score'}/{score}"


SCORES = tuple(field.name for field in dataclasses.fields(Report) if field.name not in _SETTINGS)
"""Every score that a report holds."""


def scalars(found: WatchedPredictions, bins: int = 15) -> dict[str, float]:
    """Every score of ``evaluation.report`` by its tag, and the calibration error of each of up to twenty classes.

    Where any prediction is not finite all of them are NaN.
    """
    n = found.probabilities.shape[1]
    of_classes = {
        f"calibration_of_class/{k}_{name}": k for k, name in enumerate(found.class_names) if 2 < n <= _CLASS_CURVES
    }
    if found.not_finite:
        known = [name for name in SCORES if name != "out_of_distribution_auroc" or found.outside is not None]
        return dict.fromkeys([*map(tag_of, known), *of_classes], math.nan)
    values = report(found.labels, found.probabilities, bins, outside=found.outside).as_dict()
    by_class = calibration_error_by_class(found.labels, found.probabilities, bins)
    errors = {tag: float(by_class[k]) for tag, k in of_classes.items()}
    return {tag_of(name): values[name] for name in SCORES if name in values} | errors


def histograms(found: WatchedPredictions) -> dict[str, NDArray[Any]]:
    """Distribution over the samples of the largest probability; nothing where any prediction is not finite."""
    return {} if found.not_finite else {"confidence": found.probabilities.max(axis=1)}


def latent_histograms(found: WatchedPredictions) -> dict[str, NDArray[Any]]:
    """Distributions of the latents, where there are any: the norm of means, and the standard deviations."""
    if found.latent is None or found.not_finite:
        return {}
    loc, scale = found.latent["loc"], found.latent["scale"]
    # The rows of a factor are as long as the standard deviations.
    deviations = scale if scale.ndim == 2 else np.linalg.norm(scale, axis=2)
    return {"latent/norm": np.linalg.norm(loc, axis=1), "latent/scale": deviations.ravel()}
