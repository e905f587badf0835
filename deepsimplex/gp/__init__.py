"""Gaussian processes from features to latents, on GPflow's kernels."""

from deepsimplex.gp.categorical import CategoricalProcess
from deepsimplex.gp.collapsed_bound import CollapsedGaussianProcess
from deepsimplex.gp.exact import ExactGaussianProcess
from deepsimplex.gp.optimize import Step
from deepsimplex.gp.regression import GaussianProcess
from deepsimplex.gp.stochastic import StochasticGaussianProcess

__all__ = [
    "CategoricalProcess",
    "CollapsedGaussianProcess",
    "ExactGaussianProcess",
    "GaussianProcess",
    "Step",
    "StochasticGaussianProcess",
]
