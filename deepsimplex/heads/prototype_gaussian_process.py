"""A Gaussian process on prototypes as a Keras layer: features in, a Gaussian over latent space out."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import NDArray

from deepsimplex._utils.portable_operations import precise_dtype, solve_lower
from deepsimplex._utils.validation import check_choice, check_flag, check_number
from deepsimplex.heads.features import ROWS
from deepsimplex.heads.prototype_initialization import Initialization
from deepsimplex.heads.prototype_layer import PrototypeLayer
from deepsimplex.kernels import KERNELS, Kernel, median_distance, squared_distances
from deepsimplex.targets import TARGETS, Target


@keras.saving.register_keras_serializable(package="deepsimplex")
class PrototypeGaussianProcess(PrototypeLayer):
    """Map features [N, d] to the posterior of a Gaussian process that has observed M prototypes: a deep GPLVQ.

    The prototypes w_j lie in the space of the features, and their positions c_j, the rows of C, in latent space: at the
    vertices of the simplex, or where the target puts their classes. With K the correlations of the prototypes and k(x)
    those with x,

        mu(x) = k(x)^T (K + s^2 I)^-1 C,    var(x) = v (1 - k(x)^T (K + s^2 I)^-1 k(x)),

    one variance for all L = n - 1 latent dimensions, so that class probabilities are exact (``readout.argmax``). The
    prototypes, the lengthscale, the noise s^2 and the variance v are trained together with the backbone.

    Parameters
    ----------
    num_classes : int
        Number of classes n, at least 2; [GPLVQ] has two.
    prototypes_per_class : int
        M is n times this. Default 8. A step factorizes one matrix [M, M].
    target : Target, str or dict
        Target of the classifier. Default "vertices".
    kernel : {"rbf", "matern12", "matern32", "matern52"}
        Squared exponential (default, as in [GPLVQ]) or Matern.
    ard : bool
        Whether every feature has its own lengthscale. Default False: a backbone can scale its features itself.
    variance : float, optional
        Initial v, in squared units of the latents. Default: the mean squared distance of the positions from their mean,
        which is 1 for vertices, as in [GPLVQ].
    noise_variance : float
        Initial s^2, relative to the variance, above ``noise_floor``. Default 0.1: nearby prototypes of different
        classes are averaged rather than interpolated.
    learn_latents : bool, optional
        Whether to train the positions C. Default: only if the target computes latents from samples (CASIMAC).
    noise_floor : float
        Smallest s^2. Default 1e-3, which keeps the matrix invertible for duplicate prototypes.
    scale_floor : float
        Least standard deviation, added in quadrature, in units of the latents. Default 1e-3, as in
        ``heads.GaussianHead``.
    initialization : {"k-means++", "means", "samples"}
        How ``adapt`` chooses prototypes; see ``deepsimplex.prototypes.initial_prototypes``. Default "k-means++".
    **kwargs
        Passed to keras.layers.Layer.

    Attributes
    ----------
    prototypes : keras.Variable, shape [M, d]
    prototype_labels : ndarray, shape [M]
    latents : keras.Variable, shape [M, L]
    adapted : bool

    Returns
    -------
    dict
        {"loc": [N, L], "scale": [N, 1]}, L = n - 1 for vertices, of dtype float32 under mixed precision, else of the
        layer's dtype. ``deepsimplex.LatentGaussian.of`` reads it. The scale is that of the process, without its noise.

    Raises
    ------
    ValueError
        For numbers out of range, an unknown kernel, features not of rank 2.

    Notes
    -----
    Call ``adapt(x, y, backbone)`` before training, unless ``SimplexClassifier.fit`` does: it starts prototypes among
    the features of real samples, and the lengthscale at their median distance. Otherwise prototypes are drawn from
    N(0, I), with the matching lengthscale sqrt(2 d).

    As the head of a ``SimplexClassifier`` with the target "vertices" it trains by class likelihood, by the likelihood
    of the vertices [GPLVQ] or by both. With other targets the mean of the process is the mean of the classes'
    positions, to which it returns far from all prototypes.

    After batch normalization, predictions lag behind training for the first hundreds of steps, until Keras' moving
    averages have converged: until then features at inference lie far from the prototypes.

    Correlations and the Cholesky factor are float64 for every dtype of the layer: the variance is a small difference of
    numbers near v, of which float32 would keep few digits.

    Source: [GPLVQ ch. 4], a Gaussian process on prototypes of two classes; here for any number of classes by the
    simplex of [CASIMAC] instead of one class against the rest.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> backbone = ds.backbones.mlp([32])
    >>> head = PrototypeGaussianProcess(10, prototypes_per_class=2).adapt(x, y, backbone)
    >>> latent = ds.LatentGaussian.of(head(backbone(x_test)))
    >>> latent.covariance, ds.readout.argmax(latent).shape == (len(x_test), 10)
    ('isotropic', True)
    """

    latent_dim: int
    covariance = "isotropic"

    def __init__(
        self,
        num_classes: int,
        prototypes_per_class: int = 8,
        *,
        target: Target | str | Mapping[str, Any] = "vertices",
        kernel: Kernel = "rbf",
        ard: bool = False,
        variance: float | None = None,
        noise_variance: float = 0.1,
        learn_latents: bool | None = None,
        noise_floor: float = 1e-3,
        scale_floor: float = 1e-3,
        initialization: Initialization = "k-means++",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, prototypes_per_class, initialization, **kwargs)
        self.noise_floor = check_number(noise_floor, "noise_floor", 0.0)
        self.scale_floor = check_number(scale_floor, "scale_floor", 0.0)
        self.noise_variance = check_number(noise_variance, "noise_variance", 0.0)
        if not noise_variance > noise_floor:
            raise ValueError(f"noise_variance must be above noise_floor, {noise_floor}; found {noise_variance!r}")
        self.variance = None if variance is None else check_number(variance, "variance, unless it is None,", 0.0)
        self.target = TARGETS.get(target)
        self.kernel: Kernel = check_choice(kernel, "kernel", KERNELS)
        self.ard = check_flag(ard, "ard")
        self.learn_latents = None if learn_latents is None else check_flag(learn_latents, "learn_latents")
        self.latent_dim = self.target.latent_dim(self.num_classes)
        self._scores = self.target.scores(self.num_classes)  # [n, L]
        self._positions = _positions(self.target, self.num_classes)  # [n, L]
        self._center = self._positions.mean(axis=0)

    def check_target(self, target: Target, num_classes: int) -> None:
        """Raise ValueError for another number of classes, or a target with other positions of the classes."""
        super().check_target(target, num_classes)
        positions = _positions(target, self.num_classes)
        if not np.allclose(positions, self._positions):
            raise ValueError(
                f"head must have the classifier's target, target={target!r}, to know where classes lie; found "
                f"{self.target!r}"
            )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        d = self.prototypes.shape[1]
        positions = self._positions[self.prototype_labels]
        variance = self.variance or float(np.mean(np.sum(np.square(self._positions - self._center), axis=1)))
        trainable = self.target.needs_samples if self.learn_latents is None else self.learn_latents
        self.latents = self._weight("latents", positions.shape, lambda *_, **__: positions, trainable=trainable)
        self.log_lengthscale = self._log("log_lengthscale", math.sqrt(2 * d), (d,) if self.ard else ())
        self.log_variance = self._log("log_variance", variance)
        self.log_noise = self._log("log_noise", self.noise_variance - self.noise_floor)

    def _log(self, name: str, start: float, shape: tuple[int, ...] = ()) -> keras.Variable:
        return self._weight(name, shape, keras.initializers.Constant(math.log(start)))

    def _adapt_to(self, X: NDArray[np.float64]) -> None:
        rows = np.random.default_rng(0).permutation(len(X))[:ROWS]  # all pairs are compared
        self.log_lengthscale.assign(np.full(self.log_lengthscale.shape, math.log(median_distance(X[rows]))))

    def call(self, features: Any) -> dict[str, Any]:
        # features: [N, d]
        k = ops.transpose(self._correlations(features)[1])  # [M, N]
        solved = solve_lower(self._factor, ops.concatenate([ops.cast(self._centered_latents(), k.dtype), k], axis=1))
        A = solved[:, self.latent_dim :]
        loc = self._center + ops.matmul(ops.transpose(A), solved[:, : self.latent_dim])
        loc = ops.reshape(loc, (-1, self.latent_dim))  # static width: otherwise a single column is dropped
        left = ops.maximum(1.0 - ops.sum(A * A, axis=0), 0.0)  # rounding may leave it below zero
        variance = ops.exp(ops.cast(self.log_variance, left.dtype)) * left[:, None]
        scale = ops.sqrt(variance + self.scale_floor**2)
        return {"loc": ops.cast(loc, self._output_dtype), "scale": ops.cast(scale, self._output_dtype)}

    def _factor(self) -> Any:
        """Cholesky factor of K + s^2 I [M, M]."""
        K = self._correlations(self.prototypes)[1]
        noise = ops.exp(ops.cast(self.log_noise, K.dtype)) + self.noise_floor
        return tf.linalg.cholesky(K + noise * ops.eye(K.shape[0], dtype=K.dtype))

    def _centered_latents(self) -> Any:
        """Positions of the prototypes less the mean position of the classes, [M, L]."""
        return ops.cast(self.latents, precise_dtype()) - self._center

    def _correlations(self, features: Any) -> tuple[Any, Any]:
        """Squared distances in lengthscales, and k(x, w_j), both [N, M], of features [N, d]."""
        lengthscale = ops.exp(ops.cast(self.log_lengthscale, precise_dtype()))
        X, W = (values / lengthscale for values in self._precise(features))
        squared = squared_distances(X, W)
        return squared, KERNELS[self.kernel](squared)

    def _evidence(self, features: Any) -> tuple[Any, Any]:
        factor, C = self._factor(), self._centered_latents()
        # The rows b_j of (K + s^2 I)^-1 C, and their terms in the scores of the classes.
        B = ops.solve_triangular(ops.transpose(factor), ops.solve_triangular(factor, C, lower=True), lower=False)
        scores = ops.matmul(B, self._scores.T)  # [M, n]
        squared, k = self._correlations(features)
        predicted = ops.argmax(ops.matmul(k, scores) + self._scores @ self._center, axis=1)
        return squared, k * ops.transpose(ops.take(scores, predicted, axis=1))

    def get_config(self) -> dict[str, Any]:
        names = ("kernel", "ard", "variance", "noise_variance", "learn_latents", "noise_floor", "scale_floor")
        target = {"target": keras.saving.serialize_keras_object(self.target)}
        return {**super().get_config(), **target, **{name: getattr(self, name) for name in names}}


def _positions(target: Target, n: int) -> NDArray[np.float64]:
    """Latent positions of the n classes [n, L]: the target's table or, without one, the scores."""
    table = target.table(n)
    return np.asarray(target.scores(n) if table is None else table.loc, dtype=np.float64)
