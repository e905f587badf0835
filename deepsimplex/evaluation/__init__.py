"""How good and how well calibrated class probabilities are: arrays in, numbers out."""

from deepsimplex.evaluation.bootstrap import Interval, bootstrap_interval
from deepsimplex.evaluation.brier import BrierDecomposition, brier_decomposition
from deepsimplex.evaluation.calibration_errors import (
    adaptive_calibration_error,
    area_deviation,
    calibration_error_by_class,
    classwise_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from deepsimplex.evaluation.detection import out_of_distribution_auroc
from deepsimplex.evaluation.inputs import SUM_TOLERANCE, check_labels_and_probabilities
from deepsimplex.evaluation.memberships import standardized_memberships
from deepsimplex.evaluation.partition import standardized_partition
from deepsimplex.evaluation.partition_comparison import PartitionComparison, compare_partitions
from deepsimplex.evaluation.partition_measures import ability_to_separate, partition_accuracy
from deepsimplex.evaluation.partition_result import PartitionRegion, StandardizedPartition
from deepsimplex.evaluation.partition_scaling import BetaScaling
from deepsimplex.evaluation.reliability import ReliabilityCurve, reliability_curve
from deepsimplex.evaluation.reliability_band import ReliabilityBand, reliability_band
from deepsimplex.evaluation.report import Report, report
from deepsimplex.evaluation.report_comparison import HIGHER_IS_BETTER, ReportComparison, compare_reports
from deepsimplex.evaluation.scores import accuracy, brier_score, negative_log_likelihood, proba_loss, top_k_accuracy
from deepsimplex.evaluation.selective import (
    RiskCoverageCurve,
    accuracy_at_coverage,
    area_under_risk_coverage,
    risk_coverage_curve,
)
from deepsimplex.evaluation.uncertainty import uncertainty
from deepsimplex.evaluation.weighted import weighted_f1, weighted_precision, weighted_recall

__all__ = [
    "HIGHER_IS_BETTER",
    "SUM_TOLERANCE",
    "BetaScaling",
    "BrierDecomposition",
    "Interval",
    "PartitionComparison",
    "PartitionRegion",
    "ReliabilityBand",
    "ReliabilityCurve",
    "Report",
    "ReportComparison",
    "RiskCoverageCurve",
    "StandardizedPartition",
    "ability_to_separate",
    "accuracy",
    "accuracy_at_coverage",
    "adaptive_calibration_error",
    "area_deviation",
    "area_under_risk_coverage",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "calibration_error_by_class",
    "check_labels_and_probabilities",
    "classwise_calibration_error",
    "compare_partitions",
    "compare_reports",
    "expected_calibration_error",
    "maximum_calibration_error",
    "negative_log_likelihood",
    "out_of_distribution_auroc",
    "partition_accuracy",
    "proba_loss",
    "reliability_band",
    "reliability_curve",
    "report",
    "risk_coverage_curve",
    "standardized_memberships",
    "standardized_partition",
    "top_k_accuracy",
    "uncertainty",
    "weighted_f1",
    "weighted_precision",
    "weighted_recall",
]
