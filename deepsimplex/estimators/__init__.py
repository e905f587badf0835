"""scikit-learn classifiers: regression onto latents, prototypes, baselines, and any classifier after its training."""

from deepsimplex.estimators.any_classifier import AfterTraining
from deepsimplex.estimators.baselines import least_squares_gaussian_process, nystroem_kernel_ridge
from deepsimplex.estimators.calibrated_classifier import ClassifierStep
from deepsimplex.estimators.gaussian_process import CategoricalGaussianProcess, SimplexGaussianProcess
from deepsimplex.estimators.gplvq import GPLVQ
from deepsimplex.estimators.latent_regression import LatentRegressionClassifier
from deepsimplex.estimators.lvq import GLVQ, GMLVQ, LGMLVQ, LVQ1, LVQ2
from deepsimplex.estimators.network_classifier import SimplexNetworkClassifier
from deepsimplex.estimators.saving import load
from deepsimplex.heads.prototype_layer import Explanation

__all__ = [
    "GLVQ",
    "GMLVQ",
    "GPLVQ",
    "LGMLVQ",
    "LVQ1",
    "LVQ2",
    "AfterTraining",
    "CategoricalGaussianProcess",
    "ClassifierStep",
    "Explanation",
    "LatentRegressionClassifier",
    "SimplexGaussianProcess",
    "SimplexNetworkClassifier",
    "least_squares_gaussian_process",
    "load",
    "nystroem_kernel_ridge",
]
