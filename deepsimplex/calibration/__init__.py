"""Calibration of class probabilities, conformal prediction sets, and familiarity, fitted after training.

``calibrate`` and ``conformalize``, on held-out samples, and ``fit_density``, on the training samples, of
``SimplexClassifier`` and of the scikit-learn classifiers put them into a classifier, its files and its SavedModel; by
themselves they serve any other.
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
