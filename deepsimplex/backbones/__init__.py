"""Small networks to begin with; any other ``keras.Model`` that ends in features [N, d] is a backbone too."""

from deepsimplex.backbones.named_backbones import backbone
from deepsimplex.backbones.networks import cnn, mlp
from deepsimplex.backbones.residual import ResidualBlock, resnet
from deepsimplex.backbones.spectral_convolution import SpectralConv2D

__all__ = ["ResidualBlock", "SpectralConv2D", "backbone", "cnn", "mlp", "resnet"]
