"""How good and how well calibrated class probabilities are: arrays in, numbers out."""

from deepsimplex.evaluation.inputs import SUM_TOLERANCE, check_labels_and_probabilities
from deepsimplex.evaluation.reliability import ReliabilityCurve, expected_calibration_error, reliability_curve
from deepsimplex.evaluation.report import Report, report
from deepsimplex.evaluation.scores import accuracy, brier_score, negative_log_likelihood, top_k_accuracy

__all__ = [
    "SUM_TOLERANCE",
    "ReliabilityCurve",
    "Report",
    "accuracy",
    "brier_score",
    "check_labels_and_probabilities",
    "expected_calibration_error",
    "negative_log_likelihood",
    "reliability_curve",
    "report",
    "top_k_accuracy",
]
