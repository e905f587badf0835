"""The problem that a Gaussian process solves, in units in which its priors make sense."""

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.scaling import Scaling
from deepsimplex.gp.kernels import covariance_function, kernel_hyperparameters
from deepsimplex.gp.noise import Noise
from deepsimplex.gp.posterior import Posterior


class Problem(tf.Module):
    """Scaled features and latents, with the kernel and the noise whose hyperparameters are to be learned.

    Parameters
    ----------
    X : ndarray, shape [N, d]
    Z : ndarray, shape [N, L]
        Features and latents, scaled.
    kernel : gpflow.kernels.Kernel
    noise : Noise
    features, latents : Scaling
        From the units of the data.
    """

    def __init__(
        self,
        X: NDArray[np.float64],
        Z: NDArray[np.float64],
        kernel: Any,
        noise: Noise,
        features: Scaling,
        latents: Scaling,
    ) -> None:
        super().__init__()
        self.X, self.Z, self.kernel, self.noise = X, Z, kernel, noise
        self.features, self.latents = features, latents

    @cached_property
    def _covariance(self) -> Any:
        return covariance_function(self.kernel, self.X)

    @cached_property
    def moments(self) -> Any:
        """The kernel matrix K(X, X) and the variances of the noise at the hyperparameters as they are, compiled."""
        covariance = self._covariance
        return tf.function(lambda: (covariance(), self.noise(self.noise.own)), autograph=False)

    @cached_property
    def pull_back(self) -> Any:
        """Derivatives by ``trainable_variables`` of what has these derivatives by the moments, compiled."""
        covariance = self._covariance

        def compute(by_covariance: Any, by_variances: Any) -> Any:
            with tf.GradientTape() as tape:
                moments = covariance(), self.noise(self.noise.own)
            by_moments = [by_covariance, by_variances]
            return tape.gradient(moments, self.trainable_variables, by_moments, unconnected_gradients="zero")

        return tf.function(compute, autograph=False)

    def spreads(self, variables: Sequence[Any]) -> list[float]:
        """How far apart different starts put each of the variables: logarithms by one, what is none not at all."""
        return [1.0] * len(variables)

    def hyperparameters(self) -> dict[str, NDArray[np.float64]]:
        """The kernel's and the noise's that are learned, by their names."""
        named = kernel_hyperparameters(self.kernel)
        return named if self.noise.parameter is None else {**named, "noise": self.noise.parameter.numpy()}

    def posterior(
        self, support: NDArray[np.float64], weights: NDArray[np.float64], factors: NDArray[np.float64]
    ) -> Posterior:
        """With this kernel as it is now and these scalings."""
        # A copy: a posterior that is kept must not change when the optimization goes on.
        return Posterior(copy.deepcopy(self.kernel), support, weights, factors, self.features, self.latents)

    def columns(self) -> list[tuple[int, slice]]:
        """Columns of the noise variances, each with the latent dimensions that have that noise."""
        count, dims = self.noise.own.shape[1], self.Z.shape[1]
        return [(0, slice(0, dims))] if count == 1 else [(column, slice(column, column + 1)) for column in range(count)]
