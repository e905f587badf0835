"""scikit-learn classifiers that join a target, a regressor and a readout, and those that they are compared with."""

from deepsimplex.estimators.baselines import least_squares_gaussian_process, nystroem_kernel_ridge
from deepsimplex.estimators.categorical import CategoricalGaussianProcess
from deepsimplex.estimators.gaussian_process import SimplexGaussianProcess
from deepsimplex.estimators.latent_regression import LatentRegressionClassifier
from deepsimplex.estimators.saving import load_classifier
from deepsimplex.estimators.step import ClassifierStep

__all__ = [
    "CategoricalGaussianProcess",
    "ClassifierStep",
    "LatentRegressionClassifier",
    "SimplexGaussianProcess",
    "least_squares_gaussian_process",
    "load_classifier",
    "nystroem_kernel_ridge",
]
