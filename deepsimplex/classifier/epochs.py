"""Epochs whose order and dropout depend on the seed and the training step alone, so that a resumed run is the same."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex.classifier.observations import Samples, num_rows


class SeededEpochs(keras.callbacks.Callback):
    """Draw each epoch's order and reseed the random layers from (seed, optimizer step) as the epoch begins.

    keras.callbacks.BackupAndRestore brings back weights and optimizer, hence the step, but neither the state of Keras'
    seed generators nor that of a shuffle; with this callback nothing else is needed to go on exactly where a run was
    cut off. Two calls of ``fit`` in a row still see different orders, since the step goes on.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self._step = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._step = int(self.model.optimizer.iterations.numpy())
        saved = {id(variable) for variable in self.model.weights}
        generators = [v for v in self.model.variables if id(v) not in saved and v.name == "seed_generator_state"]
        for index, state in enumerate(generators):
            words = np.random.SeedSequence([self.seed, self._step, index]).generate_state(2, np.uint32)
            state.assign(words.astype(state.dtype))

    def order(self, rows: int) -> np.ndarray:
        """The order of this epoch's samples, a permutation of range(rows), int64."""
        return np.random.default_rng([self.seed, self._step]).permutation(rows)


def batches(samples: Samples, batch_size: int, epochs: SeededEpochs | None) -> tf.data.Dataset:
    """Batches of arrays in the order that ``epochs`` draws, or as they are without it.

    The arrays are copied once, into tensors; batches are gathered from them.
    """
    rows = num_rows(samples.x)
    parts = (samples.x, samples.y) if samples.sample_weight is None else tuple(samples)
    tensors = keras.tree.map_structure(_as_tensor, parts)

    def this_epoch(_: Any) -> tf.data.Dataset:
        if epochs is None:
            return tf.data.Dataset.range(rows)
        order = tf.numpy_function(lambda: epochs.order(rows), [], tf.int64)
        return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(order, [rows]))

    indices = tf.data.Dataset.from_tensors(0).flat_map(this_epoch).batch(batch_size)
    indices = indices.apply(tf.data.experimental.assert_cardinality(-(-rows // batch_size)))
    gathered = indices.map(
        lambda index: keras.tree.map_structure(lambda tensor: tf.gather(tensor, index), tensors),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return gathered.prefetch(tf.data.AUTOTUNE)


def _as_tensor(array: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(array)
    # As Keras does: double precision input becomes the precision that layers work in.
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype.is_floating else tensor
