"""TensorBoard: callbacks for the training of classifiers, and the drift of their predictions."""

from deepsimplex.monitoring.calibration_board import CalibrationBoard
from deepsimplex.monitoring.drift_events import write_drift

__all__ = ["CalibrationBoard", "write_drift"]
