"""Keras layers that end a network: features [N, d] become a Gaussian over latent space, {"loc", "scale"}."""

import keras

from deepsimplex._utils.registry import Registry
from deepsimplex.heads.gaussian import GaussianHead
from deepsimplex.heads.head import Head, LayerHead
from deepsimplex.heads.prototype_gaussian_process import PrototypeGaussianProcess
from deepsimplex.heads.prototype_scores import PrototypeScores
from deepsimplex.heads.variational import VariationalGaussianProcess

HEADS: Registry[keras.layers.Layer] = Registry(
    "head",
    keras.layers.Layer,
    {"gaussian": GaussianHead, "variational": VariationalGaussianProcess, "prototypes": PrototypeGaussianProcess},
)

__all__ = [
    "HEADS",
    "GaussianHead",
    "Head",
    "LayerHead",
    "PrototypeGaussianProcess",
    "PrototypeScores",
    "VariationalGaussianProcess",
]
