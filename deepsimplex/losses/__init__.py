"""What training minimizes: losses of latents, of the class probabilities read out of them, and of both.

``SimplexClassifier.compile(loss=...)`` takes them, and any Keras loss of labels and class probabilities.
"""

from deepsimplex.losses.glvq_loss import GLVQ
from deepsimplex.losses.latent_losses import LatentLoss, LatentNLL
from deepsimplex.losses.readout_losses import LOSSES, Composition, Hybrid, classifier_loss, get_loss

__all__ = ["GLVQ", "LOSSES", "Composition", "Hybrid", "LatentLoss", "LatentNLL", "classifier_loss", "get_loss"]
