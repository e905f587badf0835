"""Keras layers that end a network: features [N, d] become a Gaussian over latent space, {"loc", "scale"}."""

import keras

from deepsimplex._utils.registry import Registry
from deepsimplex.heads.closed_form_head import ClosedFormHead
from deepsimplex.heads.gaussian import GaussianHead
from deepsimplex.heads.head import Head, LayerHead
from deepsimplex.heads.prototype_gaussian_process import PrototypeGaussianProcess
from deepsimplex.heads.prototype_scores import PrototypeScores
from deepsimplex.heads.variational import VariationalGaussianProcess

HEADS: Registry[keras.layers.Layer] = Registry(
    "head",
    keras.layers.Layer,
    {
        "closed_form": ClosedFormHead,
        "gaussian": GaussianHead,
        "variational": VariationalGaussianProcess,
        "prototypes": PrototypeGaussianProcess,
    },
)

__all__ = [
    "HEADS",
    "ClosedFormHead",
    "GaussianHead",
    "Head",
    "LayerHead",
    "PrototypeGaussianProcess",
    "PrototypeScores",
    "VariationalGaussianProcess",
]
