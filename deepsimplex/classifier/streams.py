"""Streams of batches: tf.data data sets, PyDatasets and generators; seeded epochs, with an order of seed and step."""

import itertools
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex.latent import LatentGaussian

# AutoGraph caches the functions that it converts, and with them samples and model, until the process ends.
not_converted = tf.autograph.experimental.do_not_convert


class SeededEpochs(keras.callbacks.Callback):
    """Draw each epoch's order and reseed the random layers from (seed, optimizer step) as the epoch begins.

    ``keras.callbacks.BackupAndRestore`` restores weights and optimizer, hence the step, but neither the state of Keras'
    seed generators nor that of a shuffle. With this callback a resumed run equals an uninterrupted one. Two calls of
    ``fit`` in a row still see different orders, since the step goes on.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.step = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Reseed the random layers."""
        self.step = int(self.model.optimizer.iterations.numpy())
        saved = {id(variable) for variable in self.model.weights}
        generators = [v for v in self.model.variables if id(v) not in saved and v.name == "seed_generator_state"]
        for index, state in enumerate(generators):
            words = np.random.SeedSequence([self.seed, self.step, index]).generate_state(2, np.uint32)
            state.assign(words.astype(state.dtype))

    def order(self, rows: int) -> np.ndarray:
        """Return the order of this epoch's samples, a permutation of range(rows), int64."""
        return np.random.default_rng([self.seed, self.step]).permutation(rows)


class ObservedDataset(keras.utils.PyDataset):
    """A PyDataset whose labels are replaced by observations, in an order drawn for every epoch."""

    def __init__(
        self,
        dataset: keras.utils.PyDataset,
        observe: Callable[[Any], tuple[Any, ...]],
        order: Callable[[int], np.ndarray] | None = None,
    ) -> None:
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self.dataset = dataset
        self.observe = observe
        self.order = order
        self.indices: np.ndarray | None = None

    @property
    def num_batches(self) -> int | None:
        """Number of batches of an epoch, None for an endless data set."""
        return self.dataset.num_batches

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self.observe(self.dataset[index if self.indices is None else int(self.indices[index])])

    def on_epoch_begin(self) -> None:
        """Draw the order of the batches, and call the data set's own ``on_epoch_begin``."""
        if self.order is not None and self.num_batches is not None:
            self.indices = self.order(self.num_batches)
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Call the data set's own ``on_epoch_end``."""
        self.dataset.on_epoch_end()


def is_stream(x: Any) -> bool:
    """Return whether ``x`` yields batches: a tf.data.Dataset, a PyDataset or a generator."""
    return isinstance(x, tf.data.Dataset | keras.utils.PyDataset) or (hasattr(x, "__next__") and hasattr(x, "__iter__"))


def is_observed(x: Any) -> bool:
    """Return whether a stream's labels are observations already, as when Keras calls evaluate from fit."""
    if isinstance(x, tf.data.Dataset):
        spec = x.element_spec
        return isinstance(spec, tuple) and len(spec) > 1 and isinstance(spec[1], dict) and "label" in spec[1]
    return isinstance(x, ObservedDataset)


def is_repeatable(stream: Any) -> bool:
    """Return whether a stream can be read more than once; a generator cannot."""
    return isinstance(stream, tf.data.Dataset | keras.utils.PyDataset)


def peek(stream: Any) -> tuple[tuple[Any, Any], Any]:
    """Return samples and labels of the first batch, or their specifications, and a stream that still yields it."""
    if isinstance(stream, tf.data.Dataset):
        return element_spec(stream)[:2], stream
    if isinstance(stream, keras.utils.PyDataset):
        first = stream[0]
    else:
        first = next(stream, None)
        stream = itertools.chain([first], stream)
    if first is None:
        raise ValueError("x must yield samples; found a generator that is exhausted")
    x, y, _ = keras.utils.unpack_x_y_sample_weight(first)
    return (x, y if isinstance(y, dict | LatentGaussian) else np.asarray(y)), stream


def read_batches(stream: Any, steps: int | None = None, argument: str = "steps") -> Iterator[tuple[Any, Any, Any]]:
    """Yield the batches (x, y, weights) of an epoch as arrays: ``steps`` of them, or all."""
    if isinstance(stream, tf.data.Dataset):
        element_spec(stream)
        infinite = stream.cardinality() == tf.data.INFINITE_CARDINALITY
        found: Iterable[Any] = stream.as_numpy_iterator()
    elif isinstance(stream, keras.utils.PyDataset):
        infinite = stream.num_batches is None
        found = (stream[index] for index in range(stream.num_batches or steps or 0))
    else:
        infinite, found = False, stream
    if infinite and steps is None:
        raise ValueError(
            "x must be a finite stream where all of it is read, for the neighbors of a distance target, the scale of "
            f"compositions or a calibration: pass it without repeat(), or give {argument}"
        )
    for batch in itertools.islice(found, steps):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        yield keras.tree.map_structure(np.asarray, x), keras.tree.map_structure(np.asarray, y), weight


def read(stream: Any, steps: int | None = None, argument: str = "steps") -> tuple[Any, Any, Any, int]:
    """Read an epoch of a stream, in order: x, y, sample weights or None, and its batch size."""
    found = list(read_batches(stream, steps, argument))
    if not found:
        raise ValueError("x must yield samples; found an empty stream")
    x, y, weight = (
        None if part[0] is None else keras.tree.map_structure(lambda *leaves: np.concatenate(leaves), *part)
        for part in zip(*found, strict=True)
    )
    return x, y, weight, len(keras.tree.flatten(found[0][0])[0])


def has_memmap(arrays: Any) -> bool:
    """Return whether one of the arrays of a structure is a ``numpy.memmap``."""
    return any(isinstance(leaf, np.memmap) for leaf in keras.tree.flatten(arrays))


def gathered(arrays: Any, indices: tf.data.Dataset) -> tf.data.Dataset:
    """Return batches of the rows that a data set of indices selects; rows of memmaps are read from their files."""
    arrays = keras.tree.map_structure(lambda leaf: leaf if isinstance(leaf, np.memmap) else as_tensor(leaf), arrays)

    def rows(array: Any, index: tf.Tensor) -> tf.Tensor:
        if not isinstance(array, np.memmap):
            return tf.gather(array, index)
        # TensorFlow never releases functions of tf.numpy_function: a weak reference lets the file be closed.
        current: Any = weakref.ref(array)
        native = array.dtype.newbyteorder("=")

        def read_rows(index: np.ndarray) -> np.ndarray:
            return current()[index].astype(native, copy=False)

        found = tf.numpy_function(read_rows, [index], native, stateful=False)
        return as_tensor(tf.ensure_shape(found, [None, *array.shape[1:]]))

    @not_converted
    def gather(index: tf.Tensor) -> Any:
        return keras.tree.map_structure(lambda array: rows(array, index), arrays)

    return indices.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def in_batches(x: Any, batch_size: int | None) -> tuple[Any, int | None]:
    """Return samples with a memmap, which Keras would copy whole, as a data set; others with their batch size."""
    if not has_memmap(x):
        return x, batch_size
    rows = len(keras.tree.flatten(x)[0])
    # Samples alone: two inputs would be taken for samples and labels.
    samples = (keras.tree.lists_to_tuples(x),)
    return gathered(samples, tf.data.Dataset.range(rows).batch(batch_size or 32)), None


def as_tensor(array: Any) -> tf.Tensor:
    """Return an array as a tensor in the precision of the layers."""
    tensor = tf.convert_to_tensor(array)
    # As Keras does: double precision input becomes the precision that layers work in.
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype.is_floating else tensor


def element_spec(dataset: tf.data.Dataset) -> Any:
    """The specification of batches (x, y[, weights]), or an error."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise ValueError("a tf.data.Dataset must yield (x, label) or (x, latent), with or without weights")
    if any(leaf.shape.rank in (None, 0) for leaf in keras.tree.flatten(spec)):
        raise ValueError(f"a tf.data.Dataset must be batched and have tensors of known rank; found {spec}")
    return spec


def check_not_given_with_stream(**arguments: Any) -> None:
    """Raise ValueError for arguments that must not be given with a stream, whose batches hold them."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)} must not be given beside batches of (sample, label), which hold their own"
        )


# Checks

NOT_FINITE = "x must be finite; found NaN or infinity in a batch. Remove or repair such samples"


@contextmanager
def concise_graph_errors() -> Iterator[None]:
    """Replace TensorFlow's error about samples or labels of a batch, with a graph's trace, by a one-line ValueError."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if found := re.search(r"ValueError: (.*\b[xy] must .*)|(x must be finite.*?)(?= : Tensor|\n|$)", str(error)):
            raise ValueError(found[1] or found[2]) from None
        raise


def checked_stream(stream: Any, check_spec: Callable[[Any], None], check: Callable[[Any], None]) -> Any:
    """Return a stream of the same kind that checks its samples; ``check_spec`` checks a data set's specification."""
    if isinstance(stream, tf.data.Dataset):
        spec = stream.element_spec
        check_spec(spec[0] if isinstance(spec, tuple) else spec)

        @not_converted
        def element(*parts: Any) -> Any:
            x, *others = parts
            x = keras.tree.map_structure(checked_finite, x)
            return (x, *others) if isinstance(spec, tuple) else x

        return stream.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def checked(batch: Any) -> Any:
        x = keras.utils.unpack_x_y_sample_weight(batch)[0]
        check(x)
        return batch

    if isinstance(stream, keras.utils.PyDataset):
        return ObservedDataset(stream, checked)
    return (checked(batch) for batch in stream)


def checked_finite(tensor: Any) -> Any:
    """Return a tensor of samples with an assertion that it is finite."""
    if not tensor.dtype.is_floating:
        return tensor
    return tf.debugging.assert_all_finite(tensor, NOT_FINITE)
