"""Prototypes: Learning Vector Quantization and Gaussian processes on prototypes, on arrays and as Keras layers.

The scikit-learn classifiers ``LVQ1``, ``LVQ2``, ``GLVQ``, ``GMLVQ`` and ``GPLVQ`` of ``deepsimplex`` join these
pieces.
"""

from deepsimplex.heads.prototype_initialization import initial_prototypes
from deepsimplex.heads.prototype_layer import Explanation
from deepsimplex.prototypes.activations import Linear, Sigmoid
from deepsimplex.prototypes.ascent import LikelihoodAscent
from deepsimplex.prototypes.competition import compete
from deepsimplex.prototypes.decision import (
    fitted_temperature,
    nearest_of_classes,
    relative_scores,
    squared_distances,
)
from deepsimplex.prototypes.learning import Learned, learn_metric, learn_prototypes
from deepsimplex.prototypes.likelihood import (
    covariance,
    log_likelihood,
    pull_of_likelihood,
    pull_of_thesis,
)
from deepsimplex.prototypes.process import PrototypeProcess, log_odds
from deepsimplex.prototypes.relative_distance import RelativeDistanceCost

__all__ = [
    "Explanation",
    "Learned",
    "LikelihoodAscent",
    "Linear",
    "PrototypeProcess",
    "RelativeDistanceCost",
    "Sigmoid",
    "compete",
    "covariance",
    "fitted_temperature",
    "initial_prototypes",
    "learn_metric",
    "learn_prototypes",
    "log_likelihood",
    "log_odds",
    "nearest_of_classes",
    "pull_of_likelihood",
    "pull_of_thesis",
    "relative_scores",
    "squared_distances",
]
