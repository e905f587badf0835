"""Readouts: a latent Gaussian becomes class probabilities."""

from deepsimplex.readout.argmax_probabilities import argmax
from deepsimplex.readout.decision import decision_function
from deepsimplex.readout.gradients import feature_gradients
from deepsimplex.readout.intervals import class_intervals
from deepsimplex.readout.layers import READOUTS, ArgmaxReadout, SoftmaxReadout, readout_layer
from deepsimplex.readout.method import method_for
from deepsimplex.readout.monte_carlo import monte_carlo_standard_error
from deepsimplex.readout.numerical_error import argmax_error
from deepsimplex.readout.readout_base import ClassIntervals, Readout, log_probabilities
from deepsimplex.readout.softmax_probabilities import softmax

__all__ = [
    "READOUTS",
    "ArgmaxReadout",
    "ClassIntervals",
    "Readout",
    "SoftmaxReadout",
    "argmax",
    "argmax_error",
    "class_intervals",
    "decision_function",
    "feature_gradients",
    "log_probabilities",
    "method_for",
    "monte_carlo_standard_error",
    "readout_layer",
    "softmax",
]
