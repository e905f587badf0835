"""Small networks to begin with; any other ``keras.Model`` that ends in features [N, d] is a backbone too."""

from deepsimplex.backbones.networks import BACKBONES, backbone, cnn, mlp

__all__ = ["BACKBONES", "backbone", "cnn", "mlp"]
