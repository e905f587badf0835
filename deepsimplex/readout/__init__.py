"""Readouts: class probabilities of latent Gaussians."""

from deepsimplex.readout.argmax_readout import argmax, argmax_error, monte_carlo_standard_error
from deepsimplex.readout.gradients import feature_gradients, integrated_gradients
from deepsimplex.readout.layers import (
    READOUTS,
    ArgmaxReadout,
    ClassIntervals,
    Readout,
    SoftmaxReadout,
    class_intervals,
    method_for,
)
from deepsimplex.readout.left_out_latents import LeftOutLatents
from deepsimplex.readout.left_out_softmax import LeftOutSoftmax
from deepsimplex.readout.score_matrix import decision_function
from deepsimplex.readout.softmax_readout import softmax

READOUTS["left_out"] = LeftOutSoftmax

__all__ = [
    "READOUTS",
    "ArgmaxReadout",
    "ClassIntervals",
    "LeftOutLatents",
    "LeftOutSoftmax",
    "Readout",
    "SoftmaxReadout",
    "argmax",
    "argmax_error",
    "class_intervals",
    "decision_function",
    "feature_gradients",
    "integrated_gradients",
    "method_for",
    "monte_carlo_standard_error",
    "softmax",
]
