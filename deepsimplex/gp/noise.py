"""The variance of latent observations: the target's own, or learned."""

from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex.gp.kernels import positive
from deepsimplex.latent import LatentGaussian

NoiseName = Literal["auto", "target", "learned", "scaled"]
NOISES: tuple[str, ...] = get_args(NoiseName)
# Variance at which a learned noise starts where the observations bring none, in units of the latents' own variance.
_START = 0.1
# Least variance at which it starts: from below the floor no derivative leads out.
_LEAST_START = 1e-3
# Least variance, in the same units: what keeps a covariance matrix of distinct rows regular.
_FLOOR = 1e-6


def check_noise(noise: str) -> str:
    """Return ``noise``, or say which ways there are to treat it."""
    if noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; found {noise!r}")
    return noise


class Noise(tf.Module):
    """Variances [N, 1] (shared by all latent dimensions) or [N, L] of observations, with what is learned of them.

    Parameters
    ----------
    own : ndarray, shape [N, 1] or [N, L]
        Variances that the target states, in units of scaled latents; zero for none.
    noise : {"auto", "target", "learned", "scaled"}
        As for the regressors.

    Attributes
    ----------
    own : ndarray, shape [N, 1] or [N, L]
        Of one column too where a single learned number takes the place of all.
    """

    def __init__(self, own: NDArray[np.float64], noise: str) -> None:
        super().__init__()
        stated = bool(np.any(own > 0))
        if check_noise(noise) in ("target", "scaled") and not stated:
            raise ValueError(f"noise={noise!r} needs a target that states its noise (ILR, Dirichlet); found none")
        self.kind = noise if noise != "auto" else "target" if stated else "learned"
        self.own = own[:, :1] if self.kind == "learned" else own
        start = {"learned": max(float(own.mean()), _LEAST_START) if stated else _START, "scaled": np.ones(own.shape[1])}
        self.parameter = positive(start[self.kind]) if self.kind in start else None

    @classmethod
    def of(cls, observation: LatentGaussian, width: float, noise: str) -> "Noise":
        """From observations whose latents are divided by ``width``."""
        if observation.covariance == "full":
            raise ValueError("observations must have an isotropic or diagonal scale; found a full one, [N, L, L]")
        return cls(np.square(np.asarray(observation.scale, dtype=np.float64) / width), noise)

    def __call__(self, own: Any) -> Any:
        """Variances of the rows whose stated ones are ``own``, shape as that, as a tensor."""
        own = tf.convert_to_tensor(own)
        if self.kind == "learned":
            own = tf.fill(tf.shape(own), self.parameter)
        elif self.parameter is not None:
            own = tf.maximum(own, _FLOOR) * self.parameter
        return tf.maximum(own, _FLOOR)
