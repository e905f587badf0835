"""Training losses of latents, of the class probabilities read out of them, and of both.

``SimplexClassifier.compile(loss=...)`` takes them, and any Keras loss of labels and class probabilities.
"""

from deepsimplex.losses.composition import Composition, composition, composition_tau
from deepsimplex.losses.glvq_loss import GLVQ
from deepsimplex.losses.latent_losses import ClassifierLoss, LatentLoss, LatentNLL
from deepsimplex.losses.readout_losses import LOSSES, Hybrid, get_loss

__all__ = [
    "GLVQ",
    "LOSSES",
    "ClassifierLoss",
    "Composition",
    "Hybrid",
    "LatentLoss",
    "LatentNLL",
    "composition",
    "composition_tau",
    "get_loss",
]
