"""Keras layers that end a network in a Gaussian over latent space, and the models that train them."""

from deepsimplex.heads.backbones import BACKBONES, backbone, cnn, mlp
from deepsimplex.heads.gaussian import GaussianHead
from deepsimplex.heads.latent_model import LatentModel
from deepsimplex.heads.variational import VariationalGaussianProcess

__all__ = ["BACKBONES", "GaussianHead", "LatentModel", "VariationalGaussianProcess", "backbone", "cnn", "mlp"]
