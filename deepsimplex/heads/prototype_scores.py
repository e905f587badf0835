"""Learning Vector Quantization at the end of a network: features in, a score of every class out."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_whole
from deepsimplex.heads.prototype_layer import PrototypeLayer
from deepsimplex.kernels import squared_distances

# Of the mean squared distance to all prototypes, and of numbers at all: a sample on top of prototypes of two classes
# has scores of zero, and no NaN.
_FLOOR, _LEAST = 1e-12, 1e-100


@keras.saving.register_keras_serializable(package="deepsimplex")
class PrototypeScores(PrototypeLayer):
    """Map features [N, d] to scores of the classes: how much nearer its nearest prototype is than that of all others.

    With d_c the squared distance to the nearest prototype of class c, and d_o that to the nearest of the other classes,

        score_c = -mu_c = (d_o - d_c) / (d_o + d_c),

    from -1 to 1; the greatest is that of the class of the nearest prototype. Trained by ``losses.GLVQ``, the layer is
    GLVQ [GPLVQ Eq. 3.2] with Euclidean distances, and GMLVQ [GPLVQ Eq. 3.5] with ||Omega (x - w)||^2.

    Parameters
    ----------
    num_classes : int
        Number of classes n, at least 2.
    prototypes_per_class : int
        Default 1.
    metric : {"euclidean", "matrix"}
        "euclidean" (default), what a backbone that learns its features needs; "matrix" learns Omega.
    rank : int, optional
        Rows of Omega, at most the features. None (default): as many as features. For the matrix alone.
    **kwargs
        Passed to keras.layers.Layer.

    Attributes
    ----------
    prototypes : keras.Variable, shape [M, d]
    prototype_labels : ndarray, shape [M]
    omega : keras.Variable, shape [m, d], or None
    relevance : ndarray, shape [d], or None
        Diagonal of Omega^T Omega, summing to one.

    Returns
    -------
    tensor, shape [N, n]
        Of dtype float32 under mixed precision, else of the layer's dtype.

    Raises
    ------
    ValueError
        For numbers out of range, an unknown metric, a rank without a matrix or above the features, features not of
        rank 2.

    Notes
    -----
    Call ``initialize_from(samples, labels, backbone)`` before training: it puts prototypes among the features of real
    samples, and Omega, when it has fewer rows than columns, along the directions in which those vary most.

    Scores are no probabilities; ``keras.layers.Rescaling(s)`` and ``keras.layers.Softmax()`` after them make such, the
    steepness s being chosen on held-out data.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> backbone = ds.backbones.mlp([32])
    >>> scores = PrototypeScores(10, prototypes_per_class=2).initialize_from(x, y, backbone)
    >>> model = keras.Sequential([backbone, scores])
    >>> model.compile(keras.optimizers.Adam(0.01), loss=ds.losses.GLVQ(), metrics=["accuracy"])
    >>> history = model.fit(x, y, epochs=3, verbose=0)
    >>> bool(model.evaluate(x_test, y_test, verbose=0)[1] > 0.5)
    True
    """

    def __init__(
        self,
        num_classes: int,
        prototypes_per_class: int = 1,
        *,
        metric: str = "euclidean",
        rank: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, prototypes_per_class, **kwargs)
        if metric not in ("euclidean", "matrix"):
            raise ValueError(f"metric must be one of euclidean, matrix; found {metric!r}")
        if rank is not None and metric != "matrix":
            raise ValueError(f'rank must be None unless metric is "matrix"; found {rank!r}')
        self.metric = metric
        self.rank = None if rank is None else check_whole(rank, "rank", least=1)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        d = self.prototypes.shape[1]
        if self.rank is not None and self.rank > d:
            raise ValueError(f"rank must be at most the number of features, {d}; found {self.rank}")
        self.omega = None
        if self.metric == "matrix":
            start = keras.initializers.Identity() if self.rank in (None, d) else keras.initializers.Orthogonal(seed=0)
            self.omega = self._weight("omega", (self.rank or d, d), start)

    @property
    def relevance(self) -> NDArray[np.float64] | None:
        if getattr(self, "omega", None) is None:
            return None
        squares = np.sum(np.square(np.asarray(self.omega, dtype=np.float64)), axis=0)
        return np.asarray(squares / squares.sum())

    def _start_among(self, X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
        if self.omega is not None and self.omega.shape[0] < self.omega.shape[1]:
            deviations = X - X.mean(axis=0)
            directions = np.linalg.eigh(deviations.T @ deviations)[1]
            self.omega.assign(directions[:, ::-1].T[: self.omega.shape[0]])

    def call(self, features: Any) -> Any:
        # features: [N, d]
        distances = self._squared_distances(features)  # [N, M]
        nearest = self._nearest(distances)  # [N, n]
        floor = _FLOOR * ops.mean(distances, axis=1, keepdims=True) + _LEAST
        least, second = ops.split(-ops.top_k(-nearest, 2)[0], 2, axis=1)
        first = ops.one_hot(ops.argmin(nearest, axis=1), self.num_classes, dtype="bool")
        others = ops.where(first, second, least)
        return ops.cast((others - nearest) / (others + nearest + floor), self._output_dtype)

    def _squared_distances(self, features: Any) -> Any:
        """[N, M], float64: products of float32 lose distances that are short beside those of other clusters."""
        X, W = self._both(features)
        if self.omega is not None:
            omega_transposed = ops.transpose(ops.cast(self.omega, "float64"))
            X, W = ops.matmul(X, omega_transposed), ops.matmul(W, omega_transposed)
        return squared_distances(X, W)

    def _nearest(self, distances: Any) -> Any:
        """To the nearest prototype of every class, [N, n]."""
        return ops.min(ops.reshape(distances, (-1, self.num_classes, self.prototypes_per_class)), axis=2)

    def _evidence(self, features: Any) -> tuple[Any, Any]:
        distances = self._squared_distances(features)
        by_class = ops.reshape(distances, (-1, self.num_classes, self.prototypes_per_class))
        asked = ops.one_hot(ops.argmin(by_class, axis=2), self.prototypes_per_class, dtype=distances.dtype)
        weights = asked * ops.cast(self(features), distances.dtype)[:, :, None]
        return distances, ops.reshape(weights, ops.shape(distances))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (input_shape[0], self.num_classes)

    def compute_output_spec(self, features: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(features.shape), dtype=self._output_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metric": self.metric, "rank": self.rank}
