"""Small networks to begin with; any other ``keras.Model`` that ends in features [N, d] is a backbone too."""

from deepsimplex.backbones.networks import ResidualBlock, backbone, cnn, mlp, resnet
from deepsimplex.backbones.spectral_convolution import SpectralConv2D

__all__ = ["ResidualBlock", "SpectralConv2D", "backbone", "cnn", "mlp", "resnet"]
