"""Scores, calibration, uncertainty and comparison of class probabilities: arrays in, numbers out."""

from deepsimplex.evaluation.bootstrap import Interval, bootstrap_interval
from deepsimplex.evaluation.calibration_errors import (
    adaptive_calibration_error,
    area_deviation,
    calibration_error_by_class,
    classwise_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from deepsimplex.evaluation.classification_scores import (
    accuracy,
    top_k_accuracy,
    weighted_f1,
    weighted_precision,
    weighted_recall,
)
from deepsimplex.evaluation.decision_curves import DecisionCurve, decision_curve, mean_cost, net_benefit
from deepsimplex.evaluation.drift_monitor import DriftMonitor, DriftReport
from deepsimplex.evaluation.exchangeability import ExchangeabilityTest
from deepsimplex.evaluation.labeled_predictions import LabeledPredictions, labeled_predictions
from deepsimplex.evaluation.memberships import ability_to_separate, partition_accuracy, standardized_memberships
from deepsimplex.evaluation.one_versus_rest import (
    ClassScores,
    average_precision,
    balanced_accuracy,
    class_scores,
    roc_auc,
)
from deepsimplex.evaluation.partition_comparison import PartitionComparison, compare_partitions
from deepsimplex.evaluation.partition_scaling import BetaScaling
from deepsimplex.evaluation.prediction_sets import coverage, coverage_by_class, coverage_by_size, set_size
from deepsimplex.evaluation.proper_scores import (
    BrierDecomposition,
    brier_decomposition,
    brier_score,
    negative_log_likelihood,
    proba_loss,
)
from deepsimplex.evaluation.reliability_curve import (
    ReliabilityBand,
    ReliabilityCurve,
    reliability_band,
    reliability_curve,
)
from deepsimplex.evaluation.report import Report, report
from deepsimplex.evaluation.report_comparison import ReportComparison, compare_reports
from deepsimplex.evaluation.standardized_partition import PartitionRegion, StandardizedPartition, standardized_partition
from deepsimplex.evaluation.threshold_curves import (
    PrecisionRecallCurve,
    ROCCurve,
    precision_recall_curve,
    roc_curve,
)
from deepsimplex.evaluation.uncertainty import (
    RiskCoverageCurve,
    accuracy_at_coverage,
    area_under_risk_coverage,
    out_of_distribution_auroc,
    risk_coverage_curve,
    uncertainty,
)

__all__ = [
    "BetaScaling",
    "BrierDecomposition",
    "ClassScores",
    "DecisionCurve",
    "DriftMonitor",
    "DriftReport",
    "ExchangeabilityTest",
    "Interval",
    "LabeledPredictions",
    "PartitionComparison",
    "PartitionRegion",
    "PrecisionRecallCurve",
    "ROCCurve",
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
    "average_precision",
    "balanced_accuracy",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "calibration_error_by_class",
    "class_scores",
    "classwise_calibration_error",
    "compare_partitions",
    "compare_reports",
    "coverage",
    "coverage_by_class",
    "coverage_by_size",
    "decision_curve",
    "expected_calibration_error",
    "labeled_predictions",
    "maximum_calibration_error",
    "mean_cost",
    "negative_log_likelihood",
    "net_benefit",
    "out_of_distribution_auroc",
    "partition_accuracy",
    "precision_recall_curve",
    "proba_loss",
    "reliability_band",
    "reliability_curve",
    "report",
    "risk_coverage_curve",
    "roc_auc",
    "roc_curve",
    "set_size",
    "standardized_memberships",
    "standardized_partition",
    "top_k_accuracy",
    "uncertainty",
    "weighted_f1",
    "weighted_precision",
    "weighted_recall",
]
