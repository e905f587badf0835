"""scikit-learn classifiers that join a target, a regressor and a readout, and those that they are compared with."""

from deepsimplex.estimators.baselines import least_squares_gaussian_process, nystroem_kernel_ridge
from deepsimplex.estimators.gaussian_process import SimplexGaussianProcess
from deepsimplex.estimators.latent_regression import LatentRegressionClassifier

__all__ = [
    "LatentRegressionClassifier",
    "SimplexGaussianProcess",
    "least_squares_gaussian_process",
    "nystroem_kernel_ridge",
]
