"""Array algorithms of Learning Vector Quantization (LVQ) and of Gaussian processes on prototypes (GPLVQ).

The scikit-learn classifiers ``LVQ1``, ``LVQ2``, ``GLVQ``, ``GMLVQ`` and ``GPLVQ`` of ``deepsimplex`` are made of them.
"""

from deepsimplex.heads.prototype_initialization import initial_prototypes
from deepsimplex.heads.prototype_layer import Explanation
from deepsimplex.prototypes.class_scores import (
    fitted_temperature,
    nearest_of_classes,
    relative_scores,
    squared_distances,
)
from deepsimplex.prototypes.metric_learning import fit_glvq, fit_gmlvq
from deepsimplex.prototypes.online_learning import PrototypeFit, fit_gplvq, fit_lvq
from deepsimplex.prototypes.prototype_process import PrototypeProcess, log_odds
from deepsimplex.prototypes.relative_distance import RelativeDistanceCost

__all__ = [
    "Explanation",
    "PrototypeFit",
    "PrototypeProcess",
    "RelativeDistanceCost",
    "fit_glvq",
    "fit_gmlvq",
    "fit_gplvq",
    "fit_lvq",
    "fitted_temperature",
    "initial_prototypes",
    "log_odds",
    "nearest_of_classes",
    "relative_scores",
    "squared_distances",
]
