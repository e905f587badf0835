"""Calibration of class probabilities, conformal prediction sets, and familiarity, fitted after training.

The methods ``calibrate`` and ``conformalize`` (on held-out samples) and ``fit_density`` (on the training samples) of
``SimplexClassifier`` and of the scikit-learn classifiers fit them; they are then saved and exported with the
classifier. They can also be used alone, with the outputs of any other classifier.
"""

from deepsimplex._utils.registry import Registry
from deepsimplex.calibration.calibrator import Calibration, ProbabilityCalibration
from deepsimplex.calibration.conformal_sets import ConformalSets
from deepsimplex.calibration.familiarity import (
    DENSITIES,
    FeatureDensity,
    GaussianDensity,
    NeighborDistance,
    RelativeMahalanobis,
)
from deepsimplex.calibration.isotonic import IsotonicCalibration
from deepsimplex.calibration.latent_scaling import LatentScaling
from deepsimplex.calibration.platt import PlattScaling
from deepsimplex.calibration.temperature import TemperatureScaling

CALIBRATIONS: Registry[Calibration] = Registry(
    "method",
    Calibration,
    {
        "temperature": TemperatureScaling,
        "latent": LatentScaling,
        "platt": PlattScaling,
        "isotonic": IsotonicCalibration,
    },
)

__all__ = [
    "CALIBRATIONS",
    "DENSITIES",
    "Calibration",
    "ConformalSets",
    "FeatureDensity",
    "GaussianDensity",
    "IsotonicCalibration",
    "LatentScaling",
    "NeighborDistance",
    "PlattScaling",
    "ProbabilityCalibration",
    "RelativeMahalanobis",
    "TemperatureScaling",
]
