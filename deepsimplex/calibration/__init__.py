"""Calibration after training: a few numbers, learned on held-out samples, that mend the probabilities of a classifier.

``SimplexClassifier.calibrate`` and that of the scikit-learn classifiers put them into a classifier, its files and its
SavedModel; by themselves they serve any other.
"""

from deepsimplex.calibration.base import Calibration, ProbabilityCalibration
from deepsimplex.calibration.isotonic import IsotonicCalibration
from deepsimplex.calibration.latent_scaling import LatentScaling
from deepsimplex.calibration.platt import PlattScaling
from deepsimplex.calibration.registry import METHODS, make_calibration
from deepsimplex.calibration.temperature import TemperatureScaling

__all__ = [
    "METHODS",
    "Calibration",
    "IsotonicCalibration",
    "LatentScaling",
    "PlattScaling",
    "ProbabilityCalibration",
    "TemperatureScaling",
    "make_calibration",
]
