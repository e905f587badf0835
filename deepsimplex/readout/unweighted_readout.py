"""Readout of a network that was trained with weights of the classes, without their effect on class probabilities."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex.readout.layers import Readout


class UnweightedReadout(Readout):
    """Class probabilities of a readout, divided by the weights of the classes in training and normalized.

    Cross-entropies with weights w teach probabilities that are proportional to w_k p_k, as if class k were w_k times as
    frequent; p_k is what remains of them. Weights that are all equal change nothing.

    Parameters
    ----------
    readout : Readout
    num_classes : int

    Attributes
    ----------
    class_weight : keras.Variable, shape [n]
        Positive weights of the latest training, among the weights of the network; ones before.

    Notes
    -----
    Saerens, Latinne, Decaestecker: *Adjusting the Outputs of a Classifier to New a Priori Probabilities*, 2002, Eq. 4.
    """

    def __init__(self, readout: Readout, num_classes: int) -> None:
        super().__init__(readout.scores, readout.num_points, readout.seed, dtype="float32", name="unweighted_readout")
        self._readout = lambda: readout  # a layer of the network already
        self.scale_invariant, self.uses_scale = readout.scale_invariant, readout.uses_scale
        self.num_classes = num_classes

    def build(self, input_shape: dict[str, Any]) -> None:
        """Create the weights of the classes."""
        options: Any = {"initializer": "ones", "trainable": False, "autocast": False, "name": "class_weight"}
        self.class_weight = self.add_weight(shape=(self.num_classes,), **options)
        self.built = True

    def set_class_weight(self, weights: NDArray[Any] | None) -> None:
        """Set the weights [n] of a training, or None; a class of weight 0 was not trained, and keeps 1."""
        w = np.ones(self.class_weight.shape) if weights is None else np.where(weights > 0, weights, 1.0)
        self.class_weight.assign(w)

    def factors(self, labels: NDArray[Any]) -> NDArray[Any] | None:
        """Return the weights [N] of class numbers [N] or soft labels [N, n]; None if all weights are one."""
        w = np.asarray(self.class_weight)
        return None if (w == 1.0).all() else w[labels] if labels.ndim == 1 else labels @ w

    def unweighted(self, p: Any) -> Any:
        """Return class probabilities [..., n] of the readout without the weights of the classes."""
        divided = p / tf.cast(tf.convert_to_tensor(self.class_weight), p.dtype)
        total, sums = (tf.reduce_sum(shares, axis=-1, keepdims=True) for shares in (divided, p))
        return divided * tf.math.divide_no_nan(sums, total)  # a factor of exactly 1 where all weights are

    @property
    def differentiable(self) -> bool:
        return self._readout().differentiable

    @property
    def credible_intervals(self) -> bool:
        return self._readout().credible_intervals

    def class_probabilities(self, points: Any) -> Any:
        return self.unweighted(self._readout().class_probabilities(points))

    def call(self, latent: dict[str, Any], training: bool | None = None) -> Any:
        return self.unweighted(self._readout()(latent, training=training))

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        return self.unweighted_logarithms(self._readout().log_probabilities(latent))

    def unweighted_logarithms(self, log_p: Any) -> Any:
        """Return the logarithms of what ``unweighted`` gives, from log-probabilities [N, n] of the readout."""
        divided = log_p - tf.math.log(tf.cast(tf.convert_to_tensor(self.class_weight), log_p.dtype))
        total, sums = (tf.reduce_logsumexp(shares, axis=-1, keepdims=True) for shares in (divided, log_p))
        return divided + (sums - total)

    def compute_output_spec(self, latent: dict[str, Any], training: bool | None = None) -> keras.KerasTensor:
        return self._readout().compute_output_spec(latent, training)
