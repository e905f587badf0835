"""Keras metrics for class probabilities, streaming over batches; the formulas are those of ``evaluation``."""

from deepsimplex.metrics.brier_score import BrierScore
from deepsimplex.metrics.classwise_calibration_error import ClasswiseCalibrationError
from deepsimplex.metrics.expected_calibration_error import ExpectedCalibrationError
from deepsimplex.metrics.negative_log_likelihood import NegativeLogLikelihood

__all__ = ["BrierScore", "ClasswiseCalibrationError", "ExpectedCalibrationError", "NegativeLogLikelihood"]
