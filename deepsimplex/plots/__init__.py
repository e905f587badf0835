"""Figures of class probabilities: numbers in, Matplotlib figures out, without pyplot's global state."""

from deepsimplex.plots.predictions import predictions
from deepsimplex.plots.reliability import reliability

__all__ = ["predictions", "reliability"]
