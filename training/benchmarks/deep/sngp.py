"""The head of SNGP: random Fourier features, a Laplace covariance, mean-field probabilities.

Liu et al.: *Simple and Principled Uncertainty Estimation with Deterministic Deep Learning via Distance
Awareness*, 2020.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

FEATURES, MEAN_FIELD = 1024, math.pi / 8


class RandomFeatureGaussianProcess(keras.layers.Layer):
    """Features [N, d] to mean-field logits [N, n]; in training to the logits themselves."""

    def __init__(self, num_classes: int, seed: int = 0) -> None:
        super().__init__()
        self.num_classes, self.seed = num_classes, seed

    def build(self, input_shape: Any) -> None:
        rng = np.random.default_rng(self.seed)
        self.norm = keras.layers.LayerNormalization()
        self.norm.build(input_shape)
        frequencies = rng.normal(size=(input_shape[-1], FEATURES)).astype("float32")
        phases = rng.uniform(0, 2 * np.pi, FEATURES).astype("float32")
        self.frequencies, self.phases = ops.convert_to_tensor(frequencies), ops.convert_to_tensor(phases)
        self.weight = self.add_weight((FEATURES, self.num_classes), "glorot_uniform")
        self.covariance = self.add_weight((FEATURES, FEATURES), "zeros", trainable=False)

    def random_features(self, features: Any) -> Any:
        """phi [N, 1024]."""
        angles = ops.matmul(self.norm(features), self.frequencies) / math.sqrt(features.shape[-1]) + self.phases
        return math.sqrt(2 / FEATURES) * ops.cos(angles)

    def call(self, features: Any, training: bool | None = None) -> Any:
        phi = self.random_features(features)
        logits = ops.matmul(phi, self.weight)
        if training:
            return logits
        variance = ops.sum(ops.matmul(phi, self.covariance) * phi, axis=1, keepdims=True)
        return logits / ops.sqrt(1 + MEAN_FIELD * variance)

    def set_covariance(self, features: Any) -> None:
        """The Laplace covariance (I + sum p (1 - p) phi phi^T)^-1 of the likeliest class, after training."""
        phi = ops.convert_to_numpy(self.random_features(features)).astype(float)
        p = ops.convert_to_numpy(ops.softmax(ops.convert_to_tensor(phi @ self.weight.numpy()))).max(axis=1)
        self.covariance.assign(np.linalg.inv(np.eye(FEATURES) + (phi * (p * (1 - p))[:, None]).T @ phi))
