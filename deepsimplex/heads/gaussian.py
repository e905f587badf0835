"""The Gaussian head: features in, a Gaussian over latent space out."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from deepsimplex._utils.portable_operations import softplus
from deepsimplex._utils.validation import check_choice, check_number, check_whole
from deepsimplex.heads.head import Head
from deepsimplex.latent import COVARIANCES, Covariance

# softplus(UNIT_SCALE) = 1: a new head starts with unit standard deviations.
UNIT_SCALE = math.log(math.e - 1.0)


@keras.saving.register_keras_serializable(package="deepsimplex")
class GaussianHead(Head):
    """Map features [N, d] to a Gaussian over latent space, N(mu(x), Sigma(x)).

    Both parameters are affine in the features; standard deviations go through softplus plus a floor, since a scale
    must be positive (erratum to [CASIMAC] sec. 3.4, whose last layer is linear).

    Parameters
    ----------
    latent_dim : int
        Number of latent dimensions L.
    covariance : {"isotropic", "diagonal", "full"}
        Shape of Sigma(x). "isotropic" (default) has one standard deviation per sample: its argmax readout is exact in
        one dimension. "diagonal" is the paper's. "full" has a lower-triangular factor, of L (L + 1) / 2 parameters.
    scale_floor : float
        Smallest standard deviation, in units of the latents. The default 1e-3 is far below the spread of any target
        here, yet keeps the likelihood bounded when the network fits its training samples exactly.
    **kwargs
        Passed to keras.layers.Layer.

    Returns
    -------
    dict
        {"loc": [N, L], "scale": [N, 1], [N, L] or [N, L, L]}, of dtype float32 under mixed precision (half-precision
        variances underflow), else of the layer's dtype. ``deepsimplex.LatentGaussian.of`` reads it.

    Raises
    ------
    ValueError
        For a latent_dim below 1, an unknown covariance, a floor that is not positive, features not of rank 2.

    Examples
    --------
    >>> import numpy as np
    >>> head = GaussianHead(latent_dim=3, covariance="full")
    >>> {name: tuple(value.shape) for name, value in head(np.zeros((5, 8))).items()}
    {'loc': (5, 3), 'scale': (5, 3, 3)}
    """

    latent_dim: int
    covariance: Covariance

    def __init__(
        self, latent_dim: int, covariance: Covariance = "isotropic", scale_floor: float = 1e-3, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.latent_dim = check_whole(latent_dim, "latent_dim", least=1)
        self.covariance = check_choice(covariance, "covariance", COVARIANCES)
        self.scale_floor = check_number(scale_floor, "scale_floor", above=0)
        # Setting ``trainable`` reaches only sublayers that exist already: pass it to new ones.
        shared = {"dtype": self._output_dtype, "trainable": self.trainable}
        self._loc = keras.layers.Dense(self.latent_dim, name="loc", **shared)
        sizes = {"isotropic": 1, "diagonal": self.latent_dim, "full": self.latent_dim * (self.latent_dim + 1) // 2}
        # The scale begins the same for all samples: a random triangle of many dimensions is almost singular, and the
        # first gradients of a likelihood under it would be of the order of 1e7.
        self._raw_scale = keras.layers.Dense(
            sizes[self.covariance],
            kernel_initializer="zeros",
            bias_initializer=self._initial_raw_scale,
            name="raw_scale",
            **shared,
        )

    def _initial_raw_scale(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        initial = np.full(shape, UNIT_SCALE)
        if self.covariance == "full":
            initial[self.latent_dim :] = 0.0  # raw parameters hold the diagonal first, then the rest
        return ops.convert_to_tensor(initial, dtype=dtype)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        self._loc.build(input_shape)
        self._raw_scale.build(input_shape)

    def call(self, features: Any) -> dict[str, Any]:
        # features: [N, d]
        raw = self._raw_scale(features)
        if self.covariance != "full":
            return {"loc": self._loc(features), "scale": softplus(raw) + self.scale_floor}
        diagonal = softplus(raw[:, : self.latent_dim]) + self.scale_floor
        return {"loc": self._loc(features), "scale": self._triangle(diagonal, raw[:, self.latent_dim :])}

    def _triangle(self, diagonal: Any, below: Any) -> Any:
        """Lower-triangular factor [N, L, L] from its diagonal [N, L] and what lies below it [N, L (L - 1) / 2]."""
        L = self.latent_dim
        place = np.zeros((L, L), dtype=int)  # above the diagonal: the zero in front
        place[np.diag_indices(L)] = np.arange(1, L + 1)
        place[np.tril_indices(L, k=-1)] = np.arange(L + 1, L * (L + 1) // 2 + 1)
        entries = ops.concatenate([ops.zeros_like(diagonal[:, :1]), diagonal, below], axis=-1)
        return ops.reshape(ops.take(entries, place.reshape(-1), axis=-1), (-1, L, L))

    def get_config(self) -> dict[str, Any]:
        names = ("latent_dim", "covariance", "scale_floor")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
