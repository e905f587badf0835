"""Base class of the Keras layers of prototypes: their weights, initialization and explanations."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.validation import check_choice, check_whole
from deepsimplex.heads.features import BATCH_SIZE, ROWS, as_arrays, compute_features, draw_features
from deepsimplex.heads.head import Head
from deepsimplex.heads.prototype_initialization import INITIALIZATIONS, Initialization, initial_prototypes
from deepsimplex.samples import Labels, Samples
from deepsimplex.samples.reservoir import joined

# Root mean square standard deviation of features above which adapt warns.
_WIDE = 10.0


@dataclass(frozen=True)
class Explanation:
    """The nearest prototypes of every sample, sorted by distance, and their weight in the decision.

    Attributes
    ----------
    indices : ndarray, shape [N, k]
        Numbers of the prototypes.
    labels : ndarray, shape [N, k]
        Their classes.
    distances : ndarray, shape [N, k]
        Squared, of features as they are compared: scaled, mapped by Omega or in units of the lengthscale.
    weights : ndarray, shape [N, k]
        LVQ: the probability of the class for the nearest prototype of a class, else zero; they sum to one over all
        prototypes. In the layer ``PrototypeScores``, which has no probabilities, the score of the class. A Gaussian
        process: the term k(x, w_j) b_j in the score of the predicted class, in ``GPLVQ`` in the mean of its process.

    Examples
    --------
    >>> from deepsimplex import GLVQ
    >>> X, y = [[0.0], [1.0], [5.0], [6.0]], ["low", "low", "high", "high"]
    >>> explained = GLVQ().fit(X, y).explain([[2.0]], k=1)
    >>> explained.labels.tolist(), bool(explained.weights[0, 0] > 0.5)
    ([['low']], True)
    """

    indices: NDArray[np.int64]
    labels: NDArray[Any]
    distances: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls, distances: NDArray[np.float64], weights: NDArray[np.float64], labels: NDArray[Any], k: int
    ) -> "Explanation":
        """Select the k nearest of M prototypes from distances and weights [N, M] and labels [M]."""
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        nearest = (np.take_along_axis(values, order, axis=1) for values in (distances, weights))
        return cls(order, labels[order], *nearest)


class PrototypeLayer(Head):
    """A Keras layer that compares features [N, d] with M prototypes, the same number for every class.

    Attributes
    ----------
    prototypes : keras.Variable, shape [M, d]
        Trainable; sorted by class.
    prototype_labels : ndarray, shape [M]
        Their class numbers.
    adapted : bool
        Whether ``adapt`` was called or weights were loaded.
    """

    num_classes: int
    prototypes: keras.Variable

    def __init__(
        self, num_classes: int, prototypes_per_class: int, initialization: Initialization, **kwargs: Any
    ) -> None:
        # Features are cast to higher precision in the layer, never to lower.
        super().__init__(autocast=False, **kwargs)
        self.adapted = False
        self.num_classes = check_whole(num_classes, "num_classes", least=2)
        self.prototypes_per_class = check_whole(prototypes_per_class, "prototypes_per_class", least=1)
        self.initialization = check_choice(initialization, "initialization", INITIALIZATIONS)

    @property
    def prototype_labels(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.num_classes), self.prototypes_per_class)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        shape = (self.num_classes * self.prototypes_per_class, self._num_features)
        self.prototypes = self._weight("prototypes", shape, keras.initializers.RandomNormal(stddev=1.0))

    def adapt(
        self, x: Any, y: ArrayLike | None = None, backbone: Callable[..., Any] | None = None, *, seed: int = 0
    ) -> Self:
        """Initialize prototypes from features of training samples of their class, and the other weights.

        Parameters
        ----------
        x : array, tf.data.Dataset, keras.utils.PyDataset or iterator
            Samples [N, ...], or finitely many batches (samples, labels). One pass over it draws the features of
            2000 samples, the same number for every class, and at least ten for each prototype.
        y : array_like, shape [N] or [N, n], optional
            Labels, unless x holds them. Soft labels count for their likeliest class.
        backbone : keras.Model or keras.layers.Layer, optional
            The network before the layer, from samples to features [N, d]. It is called in training mode, and its state
            is restored. Default: samples are features.
        seed : int
            Seed of all draws. Default 0.

        Returns
        -------
        PrototypeLayer
            The layer itself, built.

        Warns
        -----
        UserWarning
            If the standard deviation of the features is above 10: images in 0..255, a table that is not scaled.

        Raises
        ------
        ValueError
            For labels outside 0..n-1, a class with fewer distinct samples than prototypes, features that are not of
            rank 2, not finite, or not as many as the layer was built for.
        """
        rng = np.random.default_rng(check_whole(seed, "seed", 0))
        per_class = max(-(-ROWS // self.num_classes), 10 * self.prototypes_per_class)
        (X, numbers), _, _ = draw_features(
            x, y, backbone, per_class, rng, lambda labels: Labels.of(labels, self.num_classes).hard
        )
        self._build_for(X)
        W, labels = initial_prototypes(X, numbers, self.prototypes_per_class, self.initialization, rng)
        counts = np.bincount(labels, minlength=self.num_classes)
        if (counts < self.prototypes_per_class).any():
            label = int(np.argmax(counts < self.prototypes_per_class))
            raise ValueError(
                f"samples must hold at least prototypes_per_class={self.prototypes_per_class} that differ of every "
                f"class; found {counts[label]} of class {label}"
            )
        self.prototypes.assign(W)
        self._adapt_to(X)
        self.adapted = True
        if (spread := float(np.sqrt(X.var(axis=0).mean()))) > _WIDE:
            warn_caller(
                f"features have a standard deviation of {spread:.3g}: optimizers, whose steps suit features that vary "
                "by about one, will hardly move the prototypes. Scale the samples, images to [0, 1]"
            )
        return self

    @abstractmethod
    def _adapt_to(self, X: NDArray[np.float64]) -> None:
        """Initialize the other weights from features [N, d]."""

    @abstractmethod
    def _evidence(self, features: Any) -> tuple[Any, Any]:
        """Squared distances [N, M] to the prototypes, and their weights [N, M] in the decision."""

    def _precise(self, features: Any) -> tuple[Any, Any]:
        """Cast features [N, d] and prototypes [M, d] to float64, except for export formats without it."""
        if features.shape[1] != self._num_features:
            raise ValueError(
                f"features must have {self._num_features} columns, as the prototypes have; found {features.shape[1]}. "
                "adapt and explain need the backbone before the layer"
            )
        return ops.cast(features, precise_dtype()), ops.cast(self.prototypes, precise_dtype())

    def explain(self, x: Any, k: int = 3, backbone: Callable[..., Any] | None = None) -> Explanation:
        """Find the k nearest prototypes of every sample, and their weight in the decision.

        Parameters
        ----------
        x : array, shape [N, ...]
        k : int
            Default 3; all prototypes if there are fewer.
        backbone : keras.Model or keras.layers.Layer, optional
            From samples to features. Default: samples are features.

        Returns
        -------
        Explanation

        Raises
        ------
        ValueError
            For a k below 1, and a layer that is not built.
        """
        check_whole(k, "k", least=1)
        distances, weights = self._evidence_of(x, backbone)
        return Explanation.of(distances, weights, self.prototype_labels, k)

    def wins(self, x: Any, backbone: Callable[..., Any] | None = None) -> NDArray[np.int64]:
        """Count the samples to which each prototype is the nearest, shape [M].

        Parameters
        ----------
        x, backbone
            See ``explain``.

        Examples
        --------
        >>> from deepsimplex.heads import PrototypeScores
        >>> layer = PrototypeScores(2).adapt([[0.0], [1.0]], [0, 1])
        >>> layer.wins([[-1.0], [0.2], [5.0]]).tolist()
        [2, 1]
        """
        distances, _ = self._evidence_of(x, backbone)
        return np.bincount(np.argmin(distances, axis=1), minlength=len(self.prototype_labels))

    def _evidence_of(self, x: Any, backbone: Callable[..., Any] | None) -> tuple[NDArray[np.float64], ...]:
        if not self.built:
            raise ValueError("the layer has no prototypes yet: call adapt, or train the model that it is in")
        batches = Samples.of(as_arrays(x)).blocks(BATCH_SIZE)
        evidence = (self._evidence(compute_features(batch, backbone)) for (batch,) in batches)
        return joined([keras.tree.map_structure(np.asarray, parts) for parts in evidence])

    def get_config(self) -> dict[str, Any]:
        names = ("num_classes", "prototypes_per_class", "initialization")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
