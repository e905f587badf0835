"""A Gaussian process on prototypes as a Keras layer: features in, a Gaussian over the simplex's space out."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from deepsimplex._utils.spread import median_distance
from deepsimplex._utils.validation import check_flag, check_number
from deepsimplex.heads.features import ROWS
from deepsimplex.heads.prototype_layer import PrototypeLayer
from deepsimplex.kernels import KERNELS, Kernel, check_kernel, squared_distances
from deepsimplex.targets import Target, get_target


@keras.saving.register_keras_serializable(package="deepsimplex")
class PrototypeGaussianProcess(PrototypeLayer):
    """Map features [N, d] to the posterior of a Gaussian process that has observed M prototypes: a deep GPLVQ.

    Prototypes w_j of all classes lie in the space of the features, and their positions c_j, rows of C, in latent space:
    where the target puts their classes, at the vertices of the simplex. With K the correlations of the prototypes and
    k(x) those with x,

        mu(x) = k(x)^T (K + s^2 I)^-1 C,    var(x) = v (1 - k(x)^T (K + s^2 I)^-1 k(x)),

    one variance for all L = n - 1 latent dimensions, so that class probabilities are exact (``readout.argmax``). What
    is learned are the prototypes, the lengthscale, the noise s^2 and the variance v, with the backbone before them.

    Parameters
    ----------
    num_classes : int
        Number of classes n, at least 2; [GPLVQ] has two.
    prototypes_per_class : int
        M = n times as many. Default 8. A step factorizes one matrix [M, M].
    target : Target, str or dict
        That of the classifier which the layer is a head of. Default "vertices".
    kernel : {"rbf", "matern32", "matern52"}
        Squared exponential (default, that of [GPLVQ]) or Matern.
    ard : bool
        Whether every feature has a lengthscale of its own. Default False: a backbone can scale its features itself.
    variance : float, optional
        Where v starts, in squared units of the latents; it is learned. None (default) is the mean squared length of the
        positions about their mean: 1 for vertices, as [GPLVQ] has it.
    noise_variance : float
        Where s^2 starts, in units of the variance, above ``noise_floor``; it is learned. Default 0.1: prototypes of
        other classes nearby are averaged, not obeyed.
    learn_latents : bool, optional
        Whether the positions C are learned too. None (default): where the target makes latents of samples (CASIMAC);
        those of labels stay where they are.
    noise_floor : float
        Least s^2. Default 1e-3: duplicate prototypes are no obstacle, and no variance is less than a prototype's own.
    scale_floor : float
        Added to the standard deviation in quadrature, in units of the latents: the least scale. Default 1e-3, as in
        ``heads.GaussianHead``.
    **kwargs
        Passed to keras.layers.Layer.

    Attributes
    ----------
    prototypes : keras.Variable, shape [M, d]
    prototype_labels : ndarray, shape [M]
    latents : keras.Variable, shape [M, L]

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
    Call ``initialize_from(samples, labels, backbone)`` before training: it puts prototypes among the features of real
    samples, and the lengthscale at their median distance. Without it prototypes are drawn from N(0, I), with the
    lengthscale sqrt(2 d) that such points ask for.

    As head of a ``SimplexClassifier`` with the target "vertices" it learns by class likelihood
    (``objective="class"``), by the likelihood of the vertices [GPLVQ] (``"latent"``) or by both (``"hybrid"``). With
    other targets the process is about the mean of the classes' positions, to which it returns far from all prototypes.

    After batch normalization, predictions lag behind training for the first hundreds of steps, until Keras' averages
    have come close: features lie elsewhere than the prototypes then, where no class is likely.

    Correlations and the Cholesky factor are float64 whatever the layer's dtype: a variance is what is left of v when
    nearly all of it is taken away, of which float32 keeps few digits.

    Sources: [GPLVQ ch. 4] (Gaussian process on prototypes of two classes), here for any number of classes by the
    simplex of [CASIMAC] instead of one class against the rest.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> backbone = ds.backbones.mlp([32])
    >>> head = PrototypeGaussianProcess(10, prototypes_per_class=2).initialize_from(x, y, backbone)
    >>> model = ds.SimplexClassifier(backbone, "vertices", num_classes=10, head=head, objective="class")
    >>> model.compile(optimizer=keras.optimizers.Adam(0.01))
    >>> history = model.fit(x, y, epochs=1, verbose=0)
    >>> model.predict_latent(x_test).covariance
    'isotropic'
    """

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
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, prototypes_per_class, **kwargs)
        check_number(noise_floor, "noise_floor", 0.0)
        check_number(scale_floor, "scale_floor", 0.0)
        check_number(noise_variance, "noise_variance", 0.0)
        if not noise_variance > noise_floor:
            raise ValueError(f"noise_variance must be above noise_floor, {noise_floor}; found {noise_variance!r}")
        if variance is not None:
            check_number(variance, "variance, unless it is None,", 0.0)
        self.target = get_target(target)
        self.kernel = check_kernel(kernel)
        self.ard = check_flag(ard, "ard")
        self.variance = None if variance is None else float(variance)
        self.noise_variance = float(noise_variance)
        self.learn_latents = None if learn_latents is None else check_flag(learn_latents, "learn_latents")
        self.noise_floor = float(noise_floor)
        self.scale_floor = float(scale_floor)
        self.latent_dim = self.target.latent_dim(self.num_classes)
        self._scores = self.target.scores(self.num_classes)  # [n, L]
        self._positions = _positions(self.target, self.num_classes)  # [n, L]
        self._center = self._positions.mean(axis=0)

    def check_target(self, target: Target) -> None:
        """Raise ValueError for a target that puts classes elsewhere than that of the layer."""
        positions = _positions(target, self.num_classes)
        if positions.shape != self._positions.shape or not np.allclose(positions, self._positions):
            raise ValueError(
                f"head must have the classifier's target, target={target!r}, to know where classes lie; found "
                f"{self.target!r}"
            )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        d = self.prototypes.shape[1]
        constant = keras.initializers.Constant
        positions = self._positions[self.prototype_labels]
        learned = self.target.needs_samples if self.learn_latents is None else self.learn_latents
        self.latents = self._weight("latents", positions.shape, lambda *_, **__: positions, learned)
        self.log_lengthscale = self._weight(
            "log_lengthscale", (d,) if self.ard else (), constant(0.5 * math.log(2 * d))
        )
        lengths = np.sum(np.square(self._positions - self._center), axis=1)
        variance = float(lengths.mean()) if self.variance is None else self.variance
        self.log_variance = self._weight("log_variance", (), constant(math.log(variance)))
        excess = self.noise_variance - self.noise_floor
        self.log_noise = self._weight("log_noise", (), constant(math.log(excess)))

    def _start_among(self, X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
        some = np.random.default_rng(0).permutation(len(X))[:ROWS]  # distances are of all pairs
        self.log_lengthscale.assign(np.full(self.log_lengthscale.shape, math.log(median_distance(X[some]))))

    def call(self, features: Any) -> dict[str, Any]:
        # features: [N, d]
        factor = ops.cholesky(self._covariance())
        A = self._solve(factor, ops.transpose(self._correlations(features)))  # [M, N]
        loc = self._center + ops.matmul(ops.transpose(A), self._solve(factor, self._deviations()))
        left = ops.maximum(1.0 - ops.sum(A * A, axis=0), 0.0)  # rounding may leave it below zero
        variance = ops.exp(ops.cast(self.log_variance, "float64")) * left[:, None]
        scale = ops.sqrt(variance + self.scale_floor**2)
        return {"loc": ops.cast(loc, self._output_dtype), "scale": ops.cast(scale, self._output_dtype)}

    @staticmethod
    def _solve(factor: Any, right: Any) -> Any:
        return ops.solve_triangular(factor, right, lower=True)

    def _deviations(self) -> Any:
        """Positions of the prototypes about the mean of the classes, [M, L]."""
        return ops.cast(self.latents, "float64") - self._center

    def _covariance(self) -> Any:
        """K + s^2 I [M, M], in units of the variance."""
        noise = ops.exp(ops.cast(self.log_noise, "float64")) + self.noise_floor
        return self._correlations(self.prototypes) + noise * ops.eye(self.prototypes.shape[0], dtype="float64")

    def _correlations(self, features: Any) -> Any:
        """k(x, w_j) [N, M] of features [N, d]."""
        return self._correlations_at(self._squared_distances(features))

    def _correlations_at(self, squared: Any) -> Any:
        return KERNELS[self.kernel](squared)

    def _squared_distances(self, features: Any) -> Any:
        """In lengthscales, [N, M]."""
        lengthscale = ops.exp(ops.cast(self.log_lengthscale, "float64"))
        X, W = (values / lengthscale for values in self._both(features))
        return squared_distances(X, W)

    def _evidence(self, features: Any) -> tuple[Any, Any]:
        factor = ops.cholesky(self._covariance())
        # The rows b_j of (K + s^2 I)^-1 C, and what each gives to the scores of the classes.
        B = ops.solve_triangular(ops.transpose(factor), self._solve(factor, self._deviations()), lower=False)
        scores = ops.matmul(B, self._scores.T)  # [M, n]
        squared = self._squared_distances(features)
        k = self._correlations_at(squared)
        decided = ops.argmax(ops.matmul(k, scores) + self._scores @ self._center, axis=1)
        return squared, k * ops.transpose(ops.take(scores, decided, axis=1))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> dict[str, tuple[int | None, ...]]:
        return {"loc": (input_shape[0], self.latent_dim), "scale": (input_shape[0], 1)}

    def compute_output_spec(self, features: Any) -> dict[str, keras.KerasTensor]:
        return {
            name: keras.KerasTensor(shape, dtype=self._output_dtype)
            for name, shape in self.compute_output_shape(features.shape).items()
        }

    def get_config(self) -> dict[str, Any]:
        own = ("kernel", "ard", "variance", "noise_variance", "learn_latents", "noise_floor", "scale_floor")
        target = {"target": keras.saving.serialize_keras_object(self.target)}
        return {**super().get_config(), **target, **{name: getattr(self, name) for name in own}}


def _positions(target: Target, n: int) -> NDArray[np.float64]:
    """Where a target puts the n classes, [n, L]; of latents of samples, to be learned, the directions are known."""
    table = getattr(target, "table", None)
    at = target.scores(n) if target.needs_samples or table is None else table(n).loc
    return np.asarray(at, dtype=np.float64)
