"""How good and how well calibrated class probabilities are: arrays in, numbers out."""

from deepsimplex.evaluation.inputs import SUM_TOLERANCE, check_labels_and_probabilities
from deepsimplex.evaluation.memberships import standardized_memberships
from deepsimplex.evaluation.partition import (
    PartitionRegion,
    StandardizedPartition,
    ability_to_separate,
    partition_accuracy,
    standardized_partition,
)
from deepsimplex.evaluation.partition_comparison import PartitionComparison, compare_partitions
from deepsimplex.evaluation.partition_scaling import BetaScaling
from deepsimplex.evaluation.reliability import ReliabilityCurve, expected_calibration_error, reliability_curve
from deepsimplex.evaluation.report import Report, report
from deepsimplex.evaluation.scores import accuracy, brier_score, negative_log_likelihood, top_k_accuracy

__all__ = [
    "SUM_TOLERANCE",
    "BetaScaling",
    "PartitionComparison",
    "PartitionRegion",
    "ReliabilityCurve",
    "Report",
    "StandardizedPartition",
    "ability_to_separate",
    "accuracy",
    "brier_score",
    "check_labels_and_probabilities",
    "compare_partitions",
    "expected_calibration_error",
    "negative_log_likelihood",
    "partition_accuracy",
    "reliability_curve",
    "report",
    "standardized_memberships",
    "standardized_partition",
    "top_k_accuracy",
]
