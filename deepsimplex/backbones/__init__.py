"""Small networks from samples to features; any ``keras.Model`` whose output has shape [N, d] is a backbone."""

from deepsimplex.backbones.networks import ResidualBlock, backbone, cnn, mlp, resnet
from deepsimplex.backbones.pretrained import pretrained
from deepsimplex.backbones.spectral_convolution import SpectralConv2D

__all__ = ["ResidualBlock", "SpectralConv2D", "backbone", "cnn", "mlp", "pretrained", "resnet"]
