"""What every fitted Gaussian process is in the end: a weighted sum of kernels, and the variance that they leave."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.scaling import Scaling
from deepsimplex.gp.kernels import KERNELS, kernel_from_state, kernel_state
from deepsimplex.latent import LatentGaussian

# Numbers in the largest tensor of a piece of rows.
_BUDGET = 2**22


class Posterior(tf.Module):
    """Gaussians over latents from features, in TensorFlow ops alone: it predicts, and is what is exported.

    With k = k(Z, x) the mean is W^T k and the variance k(x, x) - ||T k||^2, both in the units of scaled latents.

    Parameters
    ----------
    kernel : gpflow.kernels.Kernel
    support : ndarray, shape [M, d] or [L, M, d]
        Training or inducing inputs Z, of scaled features, for all latent dimensions or for each.
    weights : ndarray, shape [M, L]
        W.
    factors : ndarray, shape [1, M, M] or [L, M, M]
        T, one for all latent dimensions or one for each.
    features, latents : Scaling
    scores : ndarray, shape [n, L], optional
        Scores by which the latents are read out, where they were learned together; None (default) where a target has
        them.
    """

    def __init__(
        self,
        kernel: Any,
        support: NDArray[np.float64],
        weights: NDArray[np.float64],
        factors: NDArray[np.float64],
        features: Scaling,
        latents: Scaling,
        scores: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__()
        self.kernel, self.scores = kernel, scores
        # Variables, so that an export holds them once and not in every graph.
        self.support, self.weights, self.factors = (
            tf.Variable(value, trainable=False, dtype=tf.float64) for value in (support, weights, factors)
        )
        self.features, self.latents = features, latents

    @property
    def latent_dim(self) -> int:
        """Number of latent dimensions L."""
        return int(self.weights.shape[1])

    @property
    def _most_rows(self) -> int:
        """How many rows at a time leave the memory bounded."""
        return max(1, _BUDGET // (int(self.factors.shape[0]) * int(self.factors.shape[1])))

    def __call__(self, x: Any) -> dict[str, Any]:
        """Latents {"loc": [N, L], "scale": [N, 1] or [N, L]} of features x [N, d], float64.

        A graph takes rows of any number in pieces that bound the memory.
        """
        x, most = tf.cast(x, tf.float64), self._most_rows
        if x.shape[0] is not None and x.shape[0] <= most:
            return self._latents(x)
        rows, columns = tf.shape(x)[0], x.shape[1]
        pieces = tf.maximum(1, -(-rows // most))
        size = -(-rows // pieces)
        padded = tf.pad(x, [[0, pieces * size - rows], [0, 0]])
        signature = {"loc": tf.float64, "scale": tf.float64}
        parts = tf.reshape(padded, [pieces, size, columns])
        latents = tf.map_fn(self._latents, parts, fn_output_signature=signature, parallel_iterations=1)
        return {name: tf.reshape(part, [pieces * size, part.shape[-1]])[:rows] for name, part in latents.items()}

    def _latents(self, x: Any) -> dict[str, Any]:
        x = self.features(x)
        k = self.kernel(self.support, x)  # [M, N] or [L, M, N]
        explained = tf.reduce_sum(tf.square(tf.matmul(self.factors, k)), axis=1)  # [1 or L, N]
        prior = self.kernel(x, full_cov=False)
        # What round-off takes below zero is as good as known.
        variance = tf.maximum(tf.transpose(prior - explained), 1e-12 * prior[:, tf.newaxis])
        width = self.latents.width[:1]
        mean = (
            tf.matmul(k, self.weights, transpose_a=True)
            if k.shape.rank == 2
            else tf.einsum("lmn,ml->nl", k, self.weights)
        )
        return {
            "loc": self.latents.center + width * mean,
            "scale": width * tf.sqrt(variance),
        }

    def predict(self, X: NDArray[np.float64]) -> LatentGaussian:
        """The same for arrays of any length, in pieces that bound the memory."""
        pieces = [self(X[rows]) for rows in row_slices(len(X), self._most_rows)]
        loc, scale = (np.concatenate([piece[key].numpy() for piece in pieces]) for key in ("loc", "scale"))
        return LatentGaussian(loc, scale)

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays that ``of_state`` makes it of again, which need no pickle.

        Raises
        ------
        ValueError
            For a GPflow kernel of one's own: no array holds its formula.
        """
        kernel = kernel_state(self.kernel)
        if not isinstance(kernel, dict):
            raise ValueError(
                f"kernel is a {type(kernel).__name__} object, of which arrays cannot tell the formula: give a kernel "
                f"by name ({', '.join(KERNELS)}) and fit again, or pickle"
            )
        scalings = {"features": self.features, "latents": self.latents}
        return {
            **{f"kernel_{key}": np.asarray(value) for key, value in kernel.items()},
            **{name: getattr(self, name).numpy() for name in ("support", "weights", "factors")},
            **{f"{name}_center": scaling.center for name, scaling in scalings.items()},
            **{f"{name}_width": scaling.width for name, scaling in scalings.items()},
            **({} if self.scores is None else {"scores": self.scores}),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, NDArray[Any]]) -> "Posterior":
        """The posterior of ``state``."""
        kernel = {key: state[f"kernel_{key}"] for key in ("variance", "lengthscales")}
        features, latents = (
            Scaling(state[f"{name}_center"], state[f"{name}_width"]) for name in ("features", "latents")
        )
        kernel = kernel_from_state({**kernel, "name": str(state["kernel_name"])})
        support, weights, factors = (state[name] for name in ("support", "weights", "factors"))
        return cls(kernel, support, weights, factors, features, latents, state.get("scores"))

    def __reduce__(self) -> Any:
        """Arrays and a kernel's name can be pickled, TensorFlow's variables not everywhere."""
        arrays = [variable.numpy() for variable in (self.support, self.weights, self.factors)]
        return _posterior_of, (kernel_state(self.kernel), *arrays, self.features, self.latents, self.scores)


def _posterior_of(kernel: Any, *parts: Any) -> Posterior:
    return Posterior(kernel_from_state(kernel), *parts)
