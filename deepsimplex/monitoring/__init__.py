"""What is learned, watched in TensorBoard while it is learned."""

from deepsimplex.monitoring.calibration import CalibrationBoard
from deepsimplex.monitoring.gaussian_process import GaussianProcessBoard

__all__ = ["CalibrationBoard", "GaussianProcessBoard"]
