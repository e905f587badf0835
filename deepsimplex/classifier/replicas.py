"""Steps under a ``tf.distribute`` strategy: parts of batches on replicas, variables made in its scope."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import keras
import tensorflow as tf

from deepsimplex.classifier.several_workers import LocalReduction


@dataclass(frozen=True)
class BatchPart:
    """One replica's part of a batch: the whole batch on a single device, where no method changes its arguments.

    Attributes
    ----------
    rows : tensor or int
        Number of samples in this part.
    mean_rows : tensor or int
        Mean number of samples in the parts.
    replicas : int
        Number of parts.
    """

    rows: Any
    mean_rows: Any
    replicas: int

    @classmethod
    def of(cls, x: Any) -> Self:
        """Count the samples of this part and of the others."""
        rows = tf.cast(tf.shape(keras.tree.flatten(x)[0])[0], tf.float32)
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return cls(rows, rows, 1)
        replicas = replica.num_replicas_in_sync
        return cls(rows, replica.all_reduce(tf.distribute.ReduceOp.SUM, rows) / replicas, replicas)

    def outputs(self, function: Callable[..., Any], x: Any, training: bool) -> Any:
        """Return a function's outputs for samples x; an empty part is computed with a sample of zeros.

        The last batch may have fewer samples than there are replicas. Not all layers accept empty batches: the moments
        of batch normalization would be NaN.
        """
        if self.replicas == 1:
            return function(x, training=training)
        count = tf.cast(self.rows, tf.int32)
        x = keras.tree.map_structure(lambda leaf: _with_rows(leaf, tf.maximum(count, 1)), x)
        return keras.tree.map_structure(lambda leaf: leaf[:count], function(x, training=training))

    def times(self, loss: Any, factor: Any) -> Any:
        """Return a loss times a factor, which is one on a single device; zero for an empty part, whose mean is NaN."""
        if self.replicas == 1:
            return loss
        return tf.math.multiply_no_nan(loss, tf.cast(factor, loss.dtype) * tf.cast(self.rows > 0, loss.dtype))


def _with_rows(tensor: Any, count: Any) -> Any:
    """Pad a tensor with rows of zeros to ``count`` rows."""
    none = tf.zeros([len(tensor.shape) - 1, 2], tf.int32)
    padded = tf.pad(tensor, tf.concat([[[0, count - tf.shape(tensor)[0]]], none], axis=0))
    return tf.ensure_shape(padded, tensor.shape)


def check_made_in_scope(model: keras.Model, strategy: Any) -> None:
    """Raise ValueError if a model's weights or optimizer were made outside of the scope of the strategy."""
    outside = [weight.path for weight in model.weights if not _is_distributed(weight)]
    if outside or counts_steps_twice(model.optimizer, strategy):
        name = type(strategy.whole if isinstance(strategy, LocalReduction) else strategy).__name__
        value = f"weights, {outside[0]} among them," if outside else "the optimizer"
        raise ValueError(
            f"the model must be made inside the scope of the {name} that trains it; found "
            f"{value} made outside. Make it, and build it if you do, under 'with strategy.scope():'"
        )


def counts_steps_twice(optimizer: Any, strategy: Any) -> bool:
    """Return whether an optimizer was made outside of the scope: every replica would count a step."""
    if strategy.num_replicas_in_sync == 1 or not isinstance(optimizer, keras.optimizers.Optimizer):
        return False
    return not _is_distributed(optimizer.iterations)


def _is_distributed(variable: Any) -> bool:
    return isinstance(variable.value, tf.distribute.DistributedValues)
