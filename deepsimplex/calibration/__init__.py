"""Calibration, other class frequencies, conformal prediction sets, rules of decision, familiarity, after training.

The methods ``calibrate``, ``conformalize`` and ``set_decision`` (on held-out samples), ``estimate_priors`` (on
unlabeled ones) and ``fit_density`` (on the training samples) of ``SimplexClassifier`` and of the scikit-learn
classifiers fit them; they are then saved and exported with the classifier. They can also be used alone, with the
outputs of any other classifier.
"""

from deepsimplex.calibration.after_training import CALIBRATIONS, DENSITIES
from deepsimplex.calibration.automatic_choice import AutomaticCalibration
from deepsimplex.calibration.calibrator import Calibration, ProbabilityCalibration
from deepsimplex.calibration.conformal_sets import ConformalSets
from deepsimplex.calibration.decision_rule import DecisionRule
from deepsimplex.calibration.expected_cost import ExpectedCost
from deepsimplex.calibration.feature_density import FeatureDensity
from deepsimplex.calibration.gaussian_density import GaussianDensity, RelativeMahalanobis
from deepsimplex.calibration.isotonic import IsotonicCalibration
from deepsimplex.calibration.jackknife_plus import JackknifePlusSets
from deepsimplex.calibration.latent_scaling import LatentScaling
from deepsimplex.calibration.logistic_scaling import BiasCorrectedTemperature, MatrixScaling, VectorScaling
from deepsimplex.calibration.neighbor_distance import NeighborDistance
from deepsimplex.calibration.platt import PlattScaling
from deepsimplex.calibration.prior_shift import PriorShift
from deepsimplex.calibration.risk_control import RiskControl
from deepsimplex.calibration.temperature import TemperatureScaling
from deepsimplex.calibration.unknown_score import UnknownScore
from deepsimplex.calibration.venn_abers import VennAbers

__all__ = [
    "CALIBRATIONS",
    "DENSITIES",
    "AutomaticCalibration",
    "BiasCorrectedTemperature",
    "Calibration",
    "ConformalSets",
    "DecisionRule",
    "ExpectedCost",
    "FeatureDensity",
    "GaussianDensity",
    "IsotonicCalibration",
    "JackknifePlusSets",
    "LatentScaling",
    "MatrixScaling",
    "NeighborDistance",
    "PlattScaling",
    "PriorShift",
    "ProbabilityCalibration",
    "RelativeMahalanobis",
    "RiskControl",
    "TemperatureScaling",
    "UnknownScore",
    "VectorScaling",
    "VennAbers",
]
