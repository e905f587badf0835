"""Prototypes: Learning Vector Quantization from LVQ1 to GMLVQ on arrays, and Gaussian processes on prototypes.

The scikit-learn classifiers ``LVQ1``, ``LVQ2``, ``GLVQ`` and ``GMLVQ`` of ``deepsimplex`` join these pieces.
"""

from deepsimplex.prototypes.activations import Linear, Sigmoid
from deepsimplex.prototypes.competition import compete
from deepsimplex.prototypes.decision import (
    fitted_temperature,
    nearest_of_classes,
    relative_scores,
    squared_distances,
)
from deepsimplex.prototypes.explanation import Explanation
from deepsimplex.prototypes.gaussian_process import PrototypeGaussianProcess
from deepsimplex.prototypes.initialisation import initial_prototypes
from deepsimplex.prototypes.learning import Learned, learn_metric, learn_prototypes
from deepsimplex.prototypes.relative_distance import RelativeDistanceCost
from deepsimplex.prototypes.scores import PrototypeScores

__all__ = [
    "Explanation",
    "Learned",
    "Linear",
    "PrototypeGaussianProcess",
    "PrototypeScores",
    "RelativeDistanceCost",
    "Sigmoid",
    "compete",
    "fitted_temperature",
    "initial_prototypes",
    "learn_metric",
    "learn_prototypes",
    "nearest_of_classes",
    "relative_scores",
    "squared_distances",
]
