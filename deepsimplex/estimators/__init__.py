"""scikit-learn classifiers that join a target, a regressor and a readout."""

from deepsimplex.estimators.gaussian_process import SimplexGaussianProcess
from deepsimplex.estimators.latent_regression import LatentRegressionClassifier

__all__ = ["LatentRegressionClassifier", "SimplexGaussianProcess"]
