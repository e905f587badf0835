"""TensorBoard callbacks for the training of classifiers."""

from deepsimplex.monitoring.calibration_board import CalibrationBoard

__all__ = ["CalibrationBoard"]
