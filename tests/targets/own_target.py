"""A target and a function outside the package, as users write them."""

import keras
import numpy as np

from deepsimplex.latent import LatentGaussian
from deepsimplex.targets import LabelTarget


@keras.saving.register_keras_serializable(package="own")
class Ring(LabelTarget):
    """Classes at equal angles on a circle."""

    def __init__(self, radius=1.0, noise_scale=0.0):
        self.radius, self.noise_scale = radius, noise_scale

    def scores(self, n):
        angles = 2 * np.pi * np.arange(n) / n
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def latents(self, memberships):
        loc = self.radius * memberships @ self.scores(memberships.shape[1])
        return LatentGaussian(loc, np.full((len(loc), 1), self.noise_scale))


@keras.saving.register_keras_serializable(package="own")
def root_mean_square(distances):
    return np.sqrt(np.square(distances).mean(axis=1))
