"""Keras layers that end a network in a Gaussian over latent space, and the models that train them."""

from deepsimplex.heads.backbones import BACKBONES, backbone, cnn, mlp
from deepsimplex.heads.gaussian import GaussianHead
from deepsimplex.heads.latent_model import LatentModel

__all__ = ["BACKBONES", "GaussianHead", "LatentModel", "backbone", "cnn", "mlp"]
