"""What a classifier gives, as the calibration that it has, if any, would have it."""

from typing import Any

from deepsimplex.calibration.base import ProbabilityCalibration
from deepsimplex.calibration.latent_scaling import LatentScaling
from deepsimplex.calibration.registry import AnyCalibration
from deepsimplex.latent import LatentGaussian


def calibrated_latent(calibration: AnyCalibration | None, latent: Any) -> Any:
    """Latents, a LatentGaussian or the dict {"loc", "scale"}, scaled where that is the calibration."""
    if not isinstance(calibration, LatentScaling):
        return latent
    scaled = calibration.transform(latent)
    return scaled if isinstance(latent, LatentGaussian) else scaled.as_dict()


def calibrated_probabilities(calibration: AnyCalibration | None, p: Any) -> Any:
    """Class probabilities [N, n], an array or a tensor, mapped where that is what the calibration does."""
    return calibration.transform(p) if isinstance(calibration, ProbabilityCalibration) else p
