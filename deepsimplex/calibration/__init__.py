"""Calibration after training: a few numbers, fitted on held-out samples, that correct a classifier's probabilities.

``SimplexClassifier.calibrate`` and that of the scikit-learn classifiers put them into a classifier, its files and its
SavedModel; by themselves they serve any other.
"""

from deepsimplex._utils.registry import Registry
from deepsimplex.calibration.calibrator import Calibration, ProbabilityCalibration
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
    "Calibration",
    "IsotonicCalibration",
    "LatentScaling",
    "PlattScaling",
    "ProbabilityCalibration",
    "TemperatureScaling",
]
