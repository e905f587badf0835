"""Matplotlib figures of class probabilities, latents, prototypes and learning, drawn without pyplot's global state."""

from deepsimplex.plots.confusion_matrix import confusion_matrix
from deepsimplex.plots.curves import decision_curve, learning_curves, precision_recall, risk_coverage, roc
from deepsimplex.plots.decision_regions import decision_regions
from deepsimplex.plots.drift_figure import drift
from deepsimplex.plots.image_predictions import predictions, uncertain_images
from deepsimplex.plots.latent_space import latent_space
from deepsimplex.plots.prototypes import prototype_images, relevance
from deepsimplex.plots.reliability_diagram import classwise_reliability, reliability
from deepsimplex.plots.saliency import saliency
from deepsimplex.plots.set_coverage import prediction_sets
from deepsimplex.plots.simplex import simplex

__all__ = [
    "classwise_reliability",
    "confusion_matrix",
    "decision_curve",
    "decision_regions",
    "drift",
    "latent_space",
    "learning_curves",
    "precision_recall",
    "prediction_sets",
    "predictions",
    "prototype_images",
    "relevance",
    "reliability",
    "risk_coverage",
    "roc",
    "saliency",
    "simplex",
    "uncertain_images",
]
