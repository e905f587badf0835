"""Figures of class probabilities: numbers in, Matplotlib figures out, without pyplot's global state."""

from deepsimplex.plots.curves import learning_curves, risk_coverage
from deepsimplex.plots.decision_regions import decision_regions
from deepsimplex.plots.predictions import predictions
from deepsimplex.plots.prototype_images import prototype_images
from deepsimplex.plots.relevance import relevance
from deepsimplex.plots.reliability import reliability

__all__ = [
    "decision_regions",
    "learning_curves",
    "predictions",
    "prototype_images",
    "relevance",
    "reliability",
    "risk_coverage",
]
