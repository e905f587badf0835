"""The Keras model that joins a target, a backbone with its head, and a readout."""

from deepsimplex.classifier.model import SimplexClassifier

__all__ = ["SimplexClassifier"]
