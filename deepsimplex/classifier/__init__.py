"""The Keras model that joins a target, a backbone with its head, and a readout."""

from deepsimplex.classifier.loading import load_model
from deepsimplex.classifier.model import SimplexClassifier

__all__ = ["SimplexClassifier", "load_model"]
