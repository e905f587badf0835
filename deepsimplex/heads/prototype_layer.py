"""What the Keras layers of prototypes share: prototypes of every class as weights, placed among real samples."""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.stacklevel import callers_stacklevel
from deepsimplex._utils.validation import check_labels, check_whole
from deepsimplex.heads.features import ROWS, batches_of, features_of, labeled_feature_rows
from deepsimplex.heads.prototype_initialization import initial_prototypes

# Deviation of features, on average, that calls for a warning.
_WIDE = 10.0


@dataclass(frozen=True)
class Explanation:
    """The nearest prototypes of samples, from near to far.

    Attributes
    ----------
    indices : ndarray, shape [N, k]
        Numbers of the prototypes.
    labels : ndarray, shape [N, k]
        Their classes.
    distances : ndarray, shape [N, k]
        Squared, as they are compared: of scaled features, through Omega or in lengthscales where there are such.
    weights : ndarray, shape [N, k]
        What each has to say in the decision. LVQ asks the nearest prototype of every class alone, whose weight is the
        probability of its class, and those of all prototypes sum to one; in the layer ``PrototypeScores``, which has no
        probabilities, it is its score. A Gaussian process sums contributions k(x, w_j) b_j of all: the weight is what
        is added to the score of the class that is decided for, in ``GPLVQ`` to the mean of its process.

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
        """The k nearest of M prototypes, of distances and weights [N, M] and labels [M].

        Of equally near ones the first; all where k is more.
        """
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        nearest = (np.take_along_axis(values, order, axis=1) for values in (distances, weights))
        return cls(order, labels[order], *nearest)


class PrototypeLayer(keras.layers.Layer):
    """A Keras layer that compares features [N, d] with M prototypes, as many of each class.

    Attributes
    ----------
    prototypes : keras.Variable, shape [M, d]
        Trainable; class by class.
    prototype_labels : ndarray, shape [M]
        Numbers of their classes.
    """

    prototypes: keras.Variable

    def __init__(self, num_classes: int, prototypes_per_class: int, **kwargs: Any) -> None:
        # Features come as they are and are cast up, never down.
        super().__init__(autocast=False, **kwargs)
        self.num_classes = check_whole(num_classes, "num_classes", least=2)
        self.prototypes_per_class = check_whole(prototypes_per_class, "prototypes_per_class", least=1)
        half = self.compute_dtype in ("float16", "bfloat16")
        self._output_dtype = "float32" if half else self.compute_dtype

    @property
    def prototype_labels(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.num_classes), self.prototypes_per_class)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                f"prototypes need features of shape [N, d]; found {tuple(input_shape)}. End the backbone in "
                "keras.layers.Flatten() or GlobalAveragePooling2D()"
            )
        shape = (self.num_classes * self.prototypes_per_class, input_shape[-1])
        self.prototypes = self._weight("prototypes", shape, keras.initializers.RandomNormal(stddev=1.0))

    def _weight(self, name: str, shape: tuple[int, ...], initializer: Any, trainable: bool = True) -> keras.Variable:
        return self.add_weight(
            shape, initializer, name=name, dtype=self._output_dtype, autocast=False, trainable=trainable
        )

    def initialize_from(
        self,
        samples: Any,
        labels: ArrayLike | None = None,
        backbone: Callable[..., Any] | None = None,
        *,
        initialization: str = "k-means++",
        seed: int = 0,
    ) -> Self:
        """Put prototypes among the features of samples of their class, and start what else depends on them there.

        Parameters
        ----------
        samples : array or tf.data.Dataset
            Samples [N, ...], or a finite data set of batches (samples, labels). One pass over it draws the features of
            2000 samples, as many of every class, and at least ten for each prototype.
        labels : array_like, shape [N] or [N, n], optional
            Of an array of samples. Of soft labels the likeliest class counts.
        backbone : keras.Model or keras.layers.Layer, optional
            What the layer follows, from samples to features [N, d]; called as in training, and left as it was. Default:
            samples are features.
        initialization : {"k-means++", "means", "samples"}
            "k-means++" (default): samples far from one another; see ``deepsimplex.prototypes.initial_prototypes``.
        seed : int
            Seed of all draws. Default 0.

        Returns
        -------
        PrototypeLayer
            The layer itself, built.

        Warns
        -----
        UserWarning
            When features vary by more than 10: images in 0..255, a table that is not scaled.

        Raises
        ------
        ValueError
            For labels outside 0..n-1, a class of fewer samples that differ than prototypes, features not of rank 2,
            not finite, or not as many as the layer was built for.
        """
        rng = np.random.default_rng(seed)
        per_class = max(-(-ROWS // self.num_classes), 10 * self.prototypes_per_class)
        X, y = labeled_feature_rows(samples, labels, backbone, per_class, rng, self._as_labels)
        if not np.isfinite(X).all():
            raise ValueError("samples must give finite features; found NaN or infinity")
        W, labels_of_all = initial_prototypes(X, y, self.prototypes_per_class, initialization, rng)
        self._check_all_there(labels_of_all)
        if not self.built:
            self.build((None, X.shape[1]))
        if X.shape[1] != self.prototypes.shape[1]:
            raise ValueError(
                f"samples must give {self.prototypes.shape[1]} features, what the layer was built for; found "
                f"{X.shape[1]}"
            )
        self.prototypes.assign(W)
        self._start_among(X, y)
        if (deviation := float(np.sqrt(X.var(axis=0).mean()))) > _WIDE:
            warnings.warn(
                f"features vary by {deviation:.3g}: optimizers, whose steps suit features that vary by about one, will "
                "hardly move the prototypes. Scale the samples, images to [0, 1]",
                UserWarning,
                stacklevel=callers_stacklevel(),
            )
        return self

    def _both(self, features: Any) -> tuple[Any, Any]:
        """Features [N, d] and prototypes [M, d], float64."""
        found, known = features.shape[1], self.prototypes.shape[1]
        if found != known:
            raise ValueError(
                f"features must have {known} columns, as the prototypes have; found {found}. initialize_from and "
                "explain need the backbone that the layer follows"
            )
        return ops.cast(features, "float64"), ops.cast(self.prototypes, "float64")

    def _as_labels(self, y: Any) -> NDArray[np.int64]:
        labels, _ = check_labels(y, self.num_classes, soft=True)
        return np.argmax(labels, axis=1) if labels.ndim == 2 else labels

    def _check_all_there(self, labels: NDArray[np.int64]) -> None:
        found = np.bincount(labels, minlength=self.num_classes)
        if (short := np.flatnonzero(found < self.prototypes_per_class)).size:
            raise ValueError(
                f"samples must hold at least prototypes_per_class={self.prototypes_per_class} that differ of every "
                f"class; found {found[short[0]]} of class {short[0]}"
            )

    @abstractmethod
    def _start_among(self, X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
        """Start other weights where drawn features [N, d] and labels [N] ask for."""

    @abstractmethod
    def _evidence(self, features: Any) -> tuple[Any, Any]:
        """Squared distances [N, M] to the prototypes, and their weights [N, M] in the decision."""

    def explain(self, samples: Any, k: int = 3, backbone: Callable[..., Any] | None = None) -> Explanation:
        """The k nearest prototypes of every sample, and their weight in the decision.

        Parameters
        ----------
        samples : array, shape [N, ...]
        k : int
            Default 3; all prototypes where there are no more.
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
        distances, weights = self._evidence_of(samples, backbone)
        return Explanation.of(distances, weights, self.prototype_labels, k)

    def wins(self, samples: Any, backbone: Callable[..., Any] | None = None) -> NDArray[np.int64]:
        """How many samples each prototype is the nearest of, shape [M]; zeros are prototypes without use.

        Parameters
        ----------
        samples, backbone
            See ``explain``.

        Examples
        --------
        >>> from deepsimplex.heads import PrototypeScores
        >>> layer = PrototypeScores(2).initialize_from([[0.0], [1.0]], [0, 1])
        >>> layer.wins([[-1.0], [0.2], [5.0]]).tolist()
        [2, 1]
        """
        distances, _ = self._evidence_of(samples, backbone)
        return np.bincount(np.argmin(distances, axis=1), minlength=len(self.prototype_labels))

    def _evidence_of(self, samples: Any, backbone: Callable[..., Any] | None) -> tuple[NDArray[np.float64], ...]:
        if not self.built:
            raise ValueError("the layer has no prototypes yet: call initialize_from, or train the model that it is in")
        pieces = [self._evidence(features_of(batch, backbone)) for batch in batches_of(samples)]
        return tuple(np.concatenate([np.asarray(part) for part in parts]) for parts in zip(*pieces, strict=True))

    def get_config(self) -> dict[str, Any]:
        own = {"num_classes": self.num_classes, "prototypes_per_class": self.prototypes_per_class}
        return {**super().get_config(), **own}
