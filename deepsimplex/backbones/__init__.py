"""Small networks to begin with; any other ``keras.Model`` that ends in features [N, d] is a backbone too."""

from deepsimplex.backbones.networks import backbone, cnn, mlp

__all__ = ["backbone", "cnn", "mlp"]
