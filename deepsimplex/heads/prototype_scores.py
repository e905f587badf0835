"""Learning Vector Quantization as a Keras layer: features in, class scores out."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_choice, check_whole
from deepsimplex.heads.prototype_initialization import Initialization
from deepsimplex.heads.prototype_layer import PrototypeLayer
from deepsimplex.kernels import squared_distances

# Added to the denominator, the first relative to the mean squared distance: a sample that equals prototypes of two
# classes has scores of zero, not NaN.
_FLOOR, _LEAST = 1e-12, 1e-100


def floored_relative_scores(nearest: Any, floor: Any) -> Any:
    """Scores (d_others - d_c) / (d_c + d_others + floor) of squared distances [N, n] to the nearest of every class."""
    # Not top_k, which ONNX has for float32 only, nor ops.argmin, whose bitwise operations ONNX lacks.
    first = tf.argmin(nearest, axis=1)[:, tf.newaxis] == np.arange(nearest.shape[1])
    least = ops.min(nearest, axis=1, keepdims=True)
    others = ops.where(first, ops.min(ops.where(first, np.inf, nearest), axis=1, keepdims=True), least)
    return (others - nearest) / (others + nearest + floor)


@keras.saving.register_keras_serializable(package="deepsimplex")
class PrototypeScores(PrototypeLayer):
    """Map features [N, d] to class scores: the relative distance to the nearest prototype of the class and the others.

    With d_c the squared distance to the nearest prototype of class c, and d_o that to the nearest of the other classes,

        score_c = -mu_c = (d_o - d_c) / (d_o + d_c),

    from -1 to 1; the largest is that of the class of the nearest prototype. Trained by ``losses.GLVQ``, the layer is
    GLVQ [GPLVQ Eq. 3.2] with Euclidean distances, and GMLVQ [GPLVQ Eq. 3.5] with ||Omega (x - w)||^2.

    Parameters
    ----------
    num_classes : int
        Number of classes n, at least 2.
    prototypes_per_class : int
        Default 1.
    metric : {"euclidean", "matrix"}
        "euclidean" (default) suffices for a backbone that learns its features; "matrix" learns Omega.
    rank : int, optional
        Number of rows of Omega, at most d, for metric="matrix". Default: d.
    initialization : {"k-means++", "means", "samples"}
        How ``adapt`` chooses prototypes; see ``deepsimplex.prototypes.initial_prototypes``. Default "k-means++".
    **kwargs
        Passed to keras.layers.Layer.

    Attributes
    ----------
    prototypes : keras.Variable, shape [M, d]
    prototype_labels : ndarray, shape [M]
    adapted : bool
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
        For numbers out of range, an unknown metric, a rank without a matrix or above d, features not of rank 2.

    Notes
    -----
    Call ``adapt(x, y, backbone)`` before training: it starts prototypes among the features of real samples, and an
    Omega with fewer rows than columns along the principal components of the features.

    Scores are not probabilities; ``keras.layers.Rescaling(s)`` and ``keras.layers.Softmax()`` turn them into
    probabilities, with a steepness s chosen on held-out data.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
    >>> backbone = ds.backbones.mlp([32])
    >>> model = keras.Sequential([backbone, PrototypeScores(10, prototypes_per_class=2).adapt(x, y, backbone)])
    >>> model.compile(keras.optimizers.Adam(0.01), loss=ds.losses.GLVQ(), metrics=["accuracy"])
    >>> history = model.fit(x, y, epochs=3, verbose=0)
    >>> bool(model.evaluate(x_test, y_test, verbose=0)[1] > 0.5)
    True
    """

    omega: keras.Variable | None = None

    def __init__(
        self,
        num_classes: int,
        prototypes_per_class: int = 1,
        *,
        metric: str = "euclidean",
        rank: int | None = None,
        initialization: Initialization = "k-means++",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, prototypes_per_class, initialization, **kwargs)
        self.metric = check_choice(metric, "metric", ("euclidean", "matrix"))
        if rank is not None and metric != "matrix":
            raise ValueError(f'rank must be None unless metric is "matrix"; found {rank!r}')
        self.rank = None if rank is None else check_whole(rank, "rank", least=1)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        d = self.prototypes.shape[1]
        if self.rank is not None and self.rank > d:
            raise ValueError(f"rank must be at most the number of features, {d}; found {self.rank}")
        if self.metric == "matrix":
            start = keras.initializers.Identity() if self.rank in (None, d) else keras.initializers.Orthogonal(seed=0)
            self.omega = self._weight("omega", (self.rank or d, d), start)

    @property
    def relevance(self) -> NDArray[np.float64] | None:
        if self.omega is None:
            return None
        squares = np.sum(np.square(np.asarray(self.omega, dtype=np.float64)), axis=0)
        return np.asarray(squares / squares.sum())

    def _adapt_to(self, X: NDArray[np.float64]) -> None:
        if self.omega is not None and self.omega.shape[0] < self.omega.shape[1]:
            directions = np.linalg.eigh(np.cov(X, rowvar=False))[1]
            self.omega.assign(directions[:, ::-1].T[: self.omega.shape[0]])

    def call(self, features: Any) -> Any:
        # features: [N, d]
        distances = self._squared_distances(features)  # [N, M]
        nearest = ops.min(self._by_class(distances), axis=2)  # [N, n]
        floor = _FLOOR * ops.mean(distances, axis=1, keepdims=True) + _LEAST
        return ops.cast(floored_relative_scores(nearest, floor), self._output_dtype)

    def _squared_distances(self, features: Any) -> Any:
        """[N, M] in float64: float32 products lose distances that are small beside those between clusters."""
        X, W = self._precise(features)
        if self.omega is not None:
            omega_transposed = ops.transpose(ops.cast(self.omega, X.dtype))
            X, W = ops.matmul(X, omega_transposed), ops.matmul(W, omega_transposed)
        return squared_distances(X, W)

    def _by_class(self, distances: Any) -> Any:
        """Reshape [N, M] to [N, n, prototypes_per_class]."""
        return ops.reshape(distances, (-1, self.num_classes, self.prototypes_per_class))

    def _evidence(self, features: Any) -> tuple[Any, Any]:
        distances = self._squared_distances(features)
        nearest = ops.argmin(self._by_class(distances), axis=2)
        chosen = ops.one_hot(nearest, self.prototypes_per_class, dtype=distances.dtype)
        weights = chosen * ops.cast(self(features), distances.dtype)[:, :, None]
        return distances, ops.reshape(weights, ops.shape(distances))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metric": self.metric, "rank": self.rank}
