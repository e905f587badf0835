"""Readouts: a latent Gaussian becomes class probabilities."""

from deepsimplex.readout.argmax_probabilities import METHODS, Method, argmax
from deepsimplex.readout.decision import decision_function
from deepsimplex.readout.gradients import feature_gradients
from deepsimplex.readout.intervals import ClassIntervals, class_intervals
from deepsimplex.readout.layers import ArgmaxReadout, SoftmaxReadout
from deepsimplex.readout.method import method_for
from deepsimplex.readout.monte_carlo import monte_carlo_standard_error
from deepsimplex.readout.numerical_error import argmax_error
from deepsimplex.readout.registry import READOUTS, readout_layer
from deepsimplex.readout.softmax_probabilities import softmax

__all__ = [
    "METHODS",
    "READOUTS",
    "ArgmaxReadout",
    "ClassIntervals",
    "Method",
    "SoftmaxReadout",
    "argmax",
    "argmax_error",
    "class_intervals",
    "decision_function",
    "feature_gradients",
    "method_for",
    "monte_carlo_standard_error",
    "readout_layer",
    "softmax",
]
