"""Kernels on Keras operations, and the regression on labels in closed form with its exact leave-one-out."""

from deepsimplex.kernels.closed_form import Block, ClosedForm, Fold, array_blocks, default_inducing
from deepsimplex.kernels.feature_kernel import TRANSFORMATIONS, FeatureKernel, Transformation
from deepsimplex.kernels.label_regression import LabelRegression, NoisePath, Regressed, left_out, symmetric
from deepsimplex.kernels.left_out_readout import LeftOutReadout
from deepsimplex.kernels.stationary import (
    KERNELS,
    Kernel,
    matern12,
    matern32,
    matern52,
    median_distance,
    rbf,
    squared_distances,
)

__all__ = [
    "KERNELS",
    "TRANSFORMATIONS",
    "Block",
    "ClosedForm",
    "FeatureKernel",
    "Fold",
    "Kernel",
    "LabelRegression",
    "LeftOutReadout",
    "NoisePath",
    "Regressed",
    "Transformation",
    "array_blocks",
    "default_inducing",
    "left_out",
    "matern12",
    "matern32",
    "matern52",
    "median_distance",
    "rbf",
    "squared_distances",
    "symmetric",
]
