"""What is learned, watched in TensorBoard while it is learned."""

from deepsimplex.monitoring.gaussian_process import GaussianProcessBoard

__all__ = ["GaussianProcessBoard"]
