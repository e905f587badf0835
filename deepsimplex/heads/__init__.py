"""Keras layers that end a network in a Gaussian over latent space, and the models that train them."""

from deepsimplex.heads.gaussian import GaussianHead
from deepsimplex.heads.latent_model import LatentModel
from deepsimplex.heads.prototype_gaussian_process import PrototypeGaussianProcess
from deepsimplex.heads.prototype_scores import PrototypeScores
from deepsimplex.heads.variational import VariationalGaussianProcess

__all__ = ["GaussianHead", "LatentModel", "PrototypeGaussianProcess", "PrototypeScores", "VariationalGaussianProcess"]
