"""Keras metrics of class probabilities, accumulated over batches, with the formulas of ``evaluation``."""

from deepsimplex.metrics.calibration_metrics import ClasswiseCalibrationError, ExpectedCalibrationError
from deepsimplex.metrics.probability_metrics import BrierScore, NegativeLogLikelihood

__all__ = ["BrierScore", "ClasswiseCalibrationError", "ExpectedCalibrationError", "NegativeLogLikelihood"]
