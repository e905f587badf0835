"""scikit-learn classifiers that join a target, a regressor and a readout."""

from deepsimplex.estimators.gaussian_process import SimplexGaussianProcess
from deepsimplex.estimators.latent_regression import LatentRegressionClassifier
from deepsimplex.estimators.saving import load_classifier
from deepsimplex.estimators.step import ClassifierStep

__all__ = ["ClassifierStep", "LatentRegressionClassifier", "SimplexGaussianProcess", "load_classifier"]
