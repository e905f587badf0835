"""Posterior of a fitted Gaussian process: its mean is a weighted sum of kernels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import in_batches, row_slices
from deepsimplex._utils.portable_operations import portable_format
from deepsimplex._utils.validation import check_array
from deepsimplex.gp.gpflow_kernels import KERNELS, kernel_from_state, kernel_state
from deepsimplex.gp.scaling import Scaling
from deepsimplex.latent import LatentGaussian

# Numbers in the largest tensor of a block of rows.
_BUDGET = 2**22


class Posterior(tf.Module):
    """Predict Gaussians over latents from features, in TensorFlow operations that can be exported.

    With k = k(Z, x) the mean is W^T k and the variance k(x, x) - ||T k||^2, both in units of scaled latents.

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
        Scores that were learned together with the latents. Default None: those of the target apply.
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
        self._features, self.latents = features, latents

    @property
    def num_features(self) -> int:
        """Number of features d."""
        return len(self._features.center)

    @property
    def _block_rows(self) -> int:
        """Number of rows in a block of predictions, chosen to bound memory."""
        return max(1, _BUDGET // (int(self.factors.shape[0]) * int(self.factors.shape[1])))

    def __call__(self, x: Any) -> dict[str, Any]:
        """Return latents {"loc": [N, L], "scale": [N, 1] or [N, L]}, float64, of features x [N, d].

        A graph takes any number of rows, in blocks that bound the memory.
        """
        x, most = tf.cast(x, tf.float64), self._block_rows
        if portable_format.get() or (x.shape[0] is not None and x.shape[0] <= most):
            return self._moments(x)
        return in_batches(self._moments, {"loc": tf.float64, "scale": tf.float64}, most, x)

    def _moments(self, x: Any) -> dict[str, Any]:
        x = self._features(x)
        k = self.kernel(self.support, x)  # [M, N] or [L, M, N]
        explained = tf.reduce_sum(tf.square(tf.matmul(self.factors, k)), axis=1)  # [1 or L, N]
        prior = self.kernel(x, full_cov=False)
        variance = tf.maximum(tf.transpose(prior - explained), 1e-12 * prior[:, tf.newaxis])  # round-off may be below 0
        if k.shape.rank == 2:
            mean = tf.matmul(k, self.weights, transpose_a=True)
        else:
            mean = tf.einsum("lmn,ml->nl", k, self.weights)
        width = self.latents.width[:1]
        return {"loc": self.latents.center + width * mean, "scale": width * tf.sqrt(variance)}

    def predict(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Return the latents of features X [N, d], computed in blocks that bound the memory."""
        blocks = [self._moments(tf.constant(X[rows], tf.float64)) for rows in row_slices(len(X), self._block_rows)]
        loc, scale = (np.concatenate([block[key].numpy() for block in blocks]) for key in ("loc", "scale"))
        return LatentGaussian(loc, scale)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``from_state`` restores the posterior.

        Raises
        ------
        ValueError
            For a GPflow kernel that was given as an object.
        """
        kernel = kernel_state(self.kernel)
        if not isinstance(kernel, dict):
            raise ValueError(
                f"kernel is a {type(kernel).__name__} object, which arrays cannot hold: give a kernel by name "
                f"({', '.join(KERNELS)}) and fit again, or pickle"
            )
        return {
            **{f"kernel_{key}": np.asarray(value) for key, value in kernel.items()},
            **{name: getattr(self, name).numpy() for name in ("support", "weights", "factors")},
            **{f"features_{key}": value for key, value in self._features._asdict().items()},
            **{f"latents_{key}": value for key, value in self.latents._asdict().items()},
            **({} if self.scores is None else {"scores": self.scores}),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> "Posterior":
        """Restore the posterior from the arrays of ``state``."""
        values = {key: state[f"kernel_{key}"] for key in ("variance", "lengthscales")}
        kernel = kernel_from_state({"name": str(state["kernel_name"]), **values})
        features, latents = (Scaling(state[f"{of}_center"], state[f"{of}_width"]) for of in ("features", "latents"))
        support, weights, factors = (state[name] for name in ("support", "weights", "factors"))
        (M, L), (d,), scores = weights.shape, features.center.shape, state.get("scores")
        wanted: dict[str, set[tuple[int, ...]]] = {
            "support": {(M, d), (L, M, d)},
            "factors": {(1, M, M), (L, M, M)},
            "kernel_variance": {()},
            "kernel_lengthscales": {(), (d,)},
            "features_width": {(d,)},
            "latents_center": {(L,)},
            "latents_width": {(L,)},
        }
        for name, shapes in wanted.items():
            if state[name].shape not in shapes:
                raise ValueError(f"{name} must have a shape of {sorted(shapes)}; found {state[name].shape}")
        return cls(kernel, support, weights, factors, features, latents, scores)

    def __getstate__(self) -> dict[str, Any]:
        """Return arrays and the kernel's name: TensorFlow's variables cannot be pickled everywhere."""
        variables = {name: getattr(self, name).numpy() for name in ("support", "weights", "factors")}
        others = {"features": self._features, "latents": self.latents, "scores": self.scores}
        return {"kernel": kernel_state(self.kernel), **variables, **others}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**{**state, "kernel": kernel_from_state(state["kernel"])})  # type: ignore[misc]


def predict_latents(process: Any, X: ArrayLike) -> LatentGaussian:
    """Return the latents of features X [N, d] by a process' posterior; raise ValueError before ``fit``."""
    if not hasattr(process, "posterior_"):
        raise ValueError("predict needs a posterior: call fit first")
    posterior: Posterior = process.posterior_
    return posterior.predict(check_array(X, "X", "[N, d]", columns=posterior.num_features))
