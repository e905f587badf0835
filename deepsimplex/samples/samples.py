"""Samples of every kind as one type: arrays, memory maps, h5py, frames, structures, tf.data, PyDatasets, generators."""

import copy
import functools
import itertools
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import num_rows, parts, row_slices
from deepsimplex._utils.messages import guided
from deepsimplex._utils.validation import check_whole
from deepsimplex.samples.class_labels import Labels
from deepsimplex.samples.columns import (
    Columns,
    as_tensor,
    batch_columns,
    block_rows,
    checked_columns,
    checked_finite,
    columns_of,
    has_memmap,
    row_keys,
    row_reader,
    spec,
)
from deepsimplex.samples.py_datasets import ConvertedPyDataset, HeldBatches
from deepsimplex.samples.reservoir import Draw, Reservoir, can_join, joined, smallest_keys, take

# From labels, and samples if these are arrays, to what replaces the labels, and to factors [N] of the weights, or None.
ReplaceLabels = Callable[..., tuple[Any, NDArray[Any] | None]]
# Order of an epoch: from a number of rows (or batches, and the number of the pass) to their permutation.
Order = Callable[..., NDArray[np.int64]]
# Divides row numbers among workers.
Divide = Callable[[tf.data.Dataset], tf.data.Dataset]

# AutoGraph caches the functions that it converts, and with them samples and model, until the process ends.
not_converted = tf.autograph.experimental.do_not_convert


def is_stream(x: Any) -> bool:
    """Return whether ``x`` yields batches: a tf.data.Dataset, a PyDataset or a generator.

    Examples
    --------
    >>> is_stream(np.zeros((3, 2))), is_stream(iter([np.zeros((3, 2))]))
    (False, True)
    """
    return isinstance(x, tf.data.Dataset | keras.utils.PyDataset) or (hasattr(x, "__next__") and hasattr(x, "__iter__"))


def check_not_given_with_stream(**arguments: Any) -> None:
    """Raise ValueError for arguments that must not be given with a stream, whose batches hold them."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)} must not be given beside batches of (sample, label), which hold their own"
        )


class Samples(ABC):
    """Samples, with labels and sample weights if they were given, that are read in blocks, minibatches and epochs.

    A read gives a tuple of columns: samples, labels, weights, each an array or a structure of arrays with as many rows.

    Attributes
    ----------
    num_rows : int or None
        Number of rows N. None for a stream that has not been read to its end.
    is_stream : bool
        Whether these are batches, which are read in their order, rather than arrays.
    is_repeatable : bool
        Whether they can be read more than once; a generator cannot.
    columns : tuple
        The arrays as they are; empty for a stream.
    divides_files : bool
        Whether workers that train together divide the files of a data set, by its options.
    precision : str or None
        Dtype of the tensors that floating-point samples in arrays become for Keras. Default None: that of layers.

    Examples
    --------
    >>> samples = Samples.of(np.eye(3), [0, 1, 1])
    >>> [y.tolist() for x, y in samples.map(lambda x, y: (x, 10 * y)).blocks(2)]
    [[0, 10], [10]]
    """

    is_stream: ClassVar[bool]
    is_repeatable: bool = True
    num_rows: Any = None  # int | None
    columns: Columns = ()
    divides_files = False
    precision: str | None = None
    _function: Callable[..., Columns] | None = None

    @staticmethod
    def of(
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        labeled: bool = False,
        arrays: bool = False,
        name: str = "x",
        precision: str | None = None,
    ) -> "Samples":
        """Check what a user passed, once.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, keras.utils.PyDataset or generator
            Samples, numbers or text, or batches of samples, (samples, labels) or (samples, labels, weights). Memory
            maps and h5py data sets are read in blocks, streams not at all but for a first batch.
        y : labels of any kind or latents, optional
        sample_weight : array, shape [N], optional
        labeled : bool
            Whether labels are required. Default False.
        arrays : bool
            Whether streams are rejected. Default False.
        name : str
            Name of the argument x in errors.
        precision : {"float32", "float64"}, optional
            See ``Samples``; that of the model's inputs.

        Raises
        ------
        TypeError, ValueError
            For arrays of neither numbers nor text, without samples, or not finite in their precision, for different
            numbers of samples, labels and weights, and for labels beside a stream, whose batches hold them.
        """
        if is_stream(x):
            if arrays:
                raise ValueError(f"{name} must be an array, or a structure of arrays; found {type(x).__name__}")
            check_not_given_with_stream(y=y, sample_weight=sample_weight)
            is_py_dataset = isinstance(x, keras.utils.PyDataset)
            other: type[Stream] = PyDatasetStream if is_py_dataset else GeneratorStream
            stream = (DatasetStream if isinstance(x, tf.data.Dataset) else other)(x, name)
            if labeled:
                stream.check_labeled()
            return stream
        if labeled and y is None:
            raise ValueError("y must be given beside arrays: labels, soft labels or latents")
        samples = ArraySamples(*checked_columns(x, y, sample_weight, name, precision))
        samples.precision = precision
        return samples

    @property
    @abstractmethod
    def spec(self) -> Columns:
        """Specifications of the columns before ``map``: ``tf.TensorSpec``, or structures of them."""

    @abstractmethod
    def first(self) -> Columns:
        """Return all columns of arrays, or those of the first batch of a stream; a stream still yields it."""

    @abstractmethod
    def in_memory(
        self, batch_size: int | None = None, steps: int | None = None, *, repeated: bool = False
    ) -> tuple["ArraySamples", int | None, int | None]:
        """Return the samples as arrays, with the batch size and the number of steps of an epoch for Keras.

        Parameters
        ----------
        batch_size : int, optional
            That of arrays; a stream has its own.
        steps : int, optional
            Number of batches of a stream that are read. Default None: all.
        repeated : bool
            Whether the samples stand for every epoch of a training: then all of a stream is read, and once more, since
            it must yield the same samples again; ``steps`` is that of the epochs. Default False.
        """

    @abstractmethod
    def read_all(self) -> tuple[Any, Any, Any]:
        """Read all samples, labels and weights (None if not given), once and in order.

        Samples of a stream are a PyDataset of its batches if their shapes differ, else arrays.
        """

    # In blocks, minibatches and random draws, for heads, Gaussian processes, densities and figures

    def map(self, function: Callable[..., Columns]) -> Self:
        """Return these samples with a function of the columns applied to every read.

        Reads are those in blocks and minibatches, ``whole`` and ``draw``; batches for Keras are not mapped. The
        function may drop rows of a stream that has not been read yet; later ones do not see batches without rows.
        """
        mapped, before = copy.copy(self), self._function

        def both(*columns: Any) -> Columns:
            kept = columns if before is None else before(*columns)
            return function(*kept) if num_rows(kept) else kept

        mapped._function = both
        return mapped

    def blocks(self, most: int | None = None) -> Iterator[Columns]:
        """Read all rows once, in order, at most ``most`` at a time. Default: 8 MiB of samples in double precision."""
        return self._blocks(block_rows(self.spec[0]) if most is None else most)

    @abstractmethod
    def _blocks(self, most: int) -> Iterator[Columns]:
        """Read all rows once, in order, at most ``most`` at a time."""

    def whole(self) -> Columns:
        """Read all rows into arrays."""
        return joined([*self._blocks(self.num_rows or 2**62)])

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Columns]:
        """Read the minibatches of an epoch: shuffled rows of arrays; the batches of a stream as they are."""

    @abstractmethod
    def num_batches(self, size: int) -> int:
        """Number of minibatches of an epoch."""

    @abstractmethod
    def draw(self, k: int | None, seed: int | np.random.Generator) -> Draw:
        """Draw rows at random without replacement, the same from arrays and from a stream of the same rows.

        Parameters
        ----------
        k : int or None
            Number of rows; all if there are no more, or for None.
        seed : int or numpy.random.Generator
        """

    # For Keras: all rows, not mapped

    @abstractmethod
    def checked(self, check: Callable[[Any], None]) -> "Samples":
        """Check the samples, or their specification, with a function that raises; a stream checks every batch."""

    @abstractmethod
    def split(self, share: float) -> tuple["Samples", "Samples"]:
        """Cut a share of the rows of arrays off the end, as Keras does: (training, validation); streams raise."""

    @abstractmethod
    def read_ahead(self, steps: int | None = None, argument: str | None = None) -> Iterator[Columns]:
        """Read an epoch in order; a stream still yields every batch afterwards."""

    def recur(self, keys: set[bytes], steps: int | None = None) -> bool:
        """Return whether several of an epoch's first samples are among as many of the next: augmented ones are not.

        ``keys`` are their ``row_keys``. True for arrays, and for generators, which cannot be read again.
        """
        return True

    @abstractmethod
    def with_labels(self, function: ReplaceLabels, scores: NDArray[Any]) -> "Samples":
        """Return samples with ``function(labels)`` in place of labels, and weights times its factors; streams lazily.

        Of arrays the function gets the samples too. ``scores`` are those of the target, for the labels that a data set
        may hold: see ``Labels.example``.
        """

    def held_batches(self, batch_size: int | None) -> Iterable[Any] | None:
        """Return batches of the samples, as tensors, if they are held in memory; else None."""
        return None

    @abstractmethod
    def for_keras(
        self,
        batch_size: int | None = None,
        order: Order | None = None,
        divide: Divide | None = None,
        steps: int | None = None,
    ) -> Any:
        """Return batches for Keras: a data set of arrays, or a stream of the same kind.

        Arrays are copied once, into tensors, of which batches are cut or gathered. Memory maps are read in batches.

        Parameters
        ----------
        batch_size : int, optional
            Number of rows of arrays in a batch. Default 32.
        order : callable, optional
            Method of an object, which is referenced weakly, called with a number of rows as an epoch begins. For a
            PyDataset it is called with the number of batches and, if passes end elsewhere than epochs, that of the
            pass, by every worker: equal calls in an epoch must give equal orders. Default None: rows in order. Data
            sets and generators have their own.
        divide : callable, optional
            Divides the row numbers of arrays among workers. Those of a data set divide its batches, so that an epoch
            equals that of one process; every worker reads all of it, unless the workers divide its files.
        steps : int, optional
            Number of batches of an epoch. Default None: all.
        """


class ArraySamples(Samples):
    """Samples in arrays, memory maps and other objects that can be sliced by rows, as they are.

    Minibatches are shuffled in every epoch. Rows left over after the last whole one are skipped, different ones in
    every epoch.

    Parameters
    ----------
    *columns : array or structure of arrays, shape [N, ...]
    used : ndarray of bool, shape [N], optional
        Rows that are used. Default None: all.
    """

    is_stream = False
    num_rows: int

    def __init__(self, *columns: Any, used: NDArray[np.bool_] | None = None) -> None:
        self.columns = columns
        self._used = None if used is None or used.all() else np.flatnonzero(used)
        self.num_rows = num_rows(columns) if self._used is None else len(self._used)

    @property
    def spec(self) -> Columns:
        return keras.tree.map_structure(spec, self.columns)

    def part(self, rows: NDArray[np.int64] | slice) -> Self:
        """Return some of the rows, by their positions among those used, in order."""
        some = copy.copy(self)
        if isinstance(rows, slice) and self._used is None:
            some.columns = take(self.columns, rows)
            some.num_rows = num_rows(some.columns)
        else:
            some._used = np.arange(self.num_rows)[rows] if self._used is None else self._used[rows]
            some.num_rows = len(some._used)
        return some

    def split(self, share: float) -> tuple[Self, Self]:
        cut = math.floor(self.num_rows * (1.0 - share))
        if not 0 < cut < self.num_rows:
            raise ValueError(
                f"validation_split must leave samples on both sides; {share!r} of {self.num_rows} does not"
            )
        return self.part(slice(None, cut)), self.part(slice(cut, None))

    def _blocks(self, most: int) -> Iterator[Columns]:
        for rows in row_slices(self.num_rows, most):
            yield self._read(rows)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Columns]:
        order = rng.permutation(self.num_rows)
        for rows in parts(slice(0, size * self.num_batches(size)), size):
            yield self._read(order[rows])

    def num_batches(self, size: int) -> int:
        return self.num_rows // size

    def draw(self, k: int | None, seed: int | np.random.Generator) -> Draw:
        rows = smallest_keys(np.random.default_rng(seed).random(self.num_rows), k)
        return Draw(self._read(rows if len(rows) < self.num_rows else slice(None)), rows, self.num_rows)

    def _read(self, rows: Any) -> Columns:
        columns = take(self.columns, rows if self._used is None else self._used[rows])
        return columns if self._function is None else self._function(*columns)

    def first(self) -> Columns:
        return self.columns

    def in_memory(
        self, batch_size: int | None = None, steps: int | None = None, *, repeated: bool = False
    ) -> tuple["ArraySamples", int | None, int | None]:
        return self, batch_size, steps

    def read_all(self) -> tuple[Any, Any, Any]:
        x, y, weight = (*self.columns, None, None)[:3]
        return x, y, weight

    def read_ahead(self, steps: int | None = None, argument: str | None = None) -> Iterator[Columns]:
        return iter([self.columns])

    def checked(self, check: Callable[[Any], None]) -> "ArraySamples":
        check(self.columns[0])
        return self

    def with_labels(self, function: ReplaceLabels, scores: NDArray[Any]) -> "ArraySamples":
        x, y, *weight = self._all_columns()
        replaced = ArraySamples(x, *_replaced(function(y, x), *weight))
        replaced.precision = self.precision
        return replaced

    def for_keras(self, batch_size: Any = None, order: Any = None, divide: Any = None, steps: Any = None) -> Any:
        size = 32 if batch_size is None else check_whole(batch_size, "batch_size", 1)
        rows, columns = self.num_rows, self._all_columns()
        if order is None and divide is None and not has_memmap(columns):  # no function is traced
            x, *others = columns
            tensors = (self._tensors(x), *keras.tree.map_structure(as_tensor, others))
            return tf.data.Dataset.from_tensor_slices(tensors).batch(size).prefetch(tf.data.AUTOTUNE)
        # TensorFlow never releases functions of tf.numpy_function: a weak reference lets the model be freed.
        current: Any = None if order is None else weakref.WeakMethod(order)

        @not_converted
        def this_epoch(_: Any) -> tf.data.Dataset:
            drawn = tf.range(rows, dtype=tf.int64)
            if current is not None:
                drawn = tf.ensure_shape(tf.numpy_function(lambda: current()(rows), [], tf.int64), [rows])
            # Batches are sliced: a data set of rows would put every one of them through the pipeline.
            part = not_converted(lambda first: drawn[first : first + size])
            return tf.data.Dataset.range(0, rows, size).map(part)

        batches = tf.data.Dataset.from_tensors(0).flat_map(this_epoch)
        batches = batches.apply(tf.data.experimental.assert_cardinality(-(-rows // size)))
        batches = batches if divide is None else divide(batches)
        x, *others = columns
        x = keras.tree.map_structure(functools.partial(row_reader, precision=self.precision), x)
        readers = (x, *keras.tree.map_structure(row_reader, others))

        @not_converted
        def gather(rows: tf.Tensor) -> Columns:
            return keras.tree.map_structure(lambda read: read(rows), readers)

        return batches.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)

    def held_batches(self, batch_size: int | None) -> Iterable[Any] | None:
        x, size = self.columns[0], 32 if batch_size is None else check_whole(batch_size, "batch_size", 1)
        return None if has_memmap(x) else (self._tensors(x, rows) for rows in row_slices(self.num_rows, size))

    def _tensors(self, x: Any, rows: slice = slice(None)) -> Any:
        return keras.tree.map_structure(functools.partial(as_tensor, precision=self.precision, rows=rows), x)

    def _all_columns(self) -> Columns:
        if self._used is not None or self._function is not None:
            raise ValueError("batches for Keras have all rows as they are: give it samples without map and used")
        return self.columns


class Stream(Samples):
    """Batches of samples, which are read in their order; Python converts and checks them, batch by batch, for Keras.

    After the first pass ``num_rows`` is known, and later passes must give as many rows.

    Parameters
    ----------
    source : tf.data.Dataset, keras.utils.PyDataset or generator
    name : str
        Name of the argument in errors.
    """

    is_stream = True
    is_finite = True
    _kind = "stream"
    _num_batches = 0
    _convert: Callable[[Any], Any] | None = None

    def __init__(self, source: Any, name: str = "x") -> None:
        self.source, self._name = source, name

    @functools.cached_property
    def spec(self) -> Columns:
        return keras.tree.map_structure(spec, self.first())

    def check_labeled(self) -> None:
        """Raise ValueError unless batches hold samples and labels."""
        if len(self.spec) < 2:
            raise ValueError(f"a {self._kind} must yield (x, label) or (x, latent), with or without weights; found x")

    def split(self, share: float) -> tuple["Samples", "Samples"]:
        raise ValueError("validation_split must not be given beside batches: give validation_data")

    # Reads

    @abstractmethod
    def _batches(self, steps: int | None) -> Iterator[Any]:
        """Read the batches as they are, at most ``steps`` of them."""

    def read(self, steps: int | None = None, argument: str | None = None) -> Iterator[Columns]:
        """Read the batches of an epoch as arrays: ``steps`` of them, or all. The argument is named in errors."""
        if not self.is_finite and steps is None:
            raise guided(
                "data.md#streams-that-are-read-before-training",
                f"{self._name} must be a finite stream where all of it is read, for the neighbors of a distance "
                "target, the scale of compositions or a calibration: pass it without repeat()"
                f"{f', or give {argument}' if argument else ''}",
            )
        rows = number = 0
        batches = itertools.islice(self._batches(steps), steps)
        for batch_number in itertools.count():
            try:
                batch = next(batches)
                columns = batch_columns(batch if self._convert is None else self._convert(batch))
                if self._function is not None:
                    columns = self._function(*columns)
            except StopIteration:
                break
            except (TypeError, ValueError, tf.errors.OpError) as error:
                message = str(error.message if isinstance(error, tf.errors.OpError) else error).strip()
                line = (message or type(error).__name__).splitlines()[0]
                error_type = TypeError if isinstance(error, TypeError) else ValueError
                raise error_type(f"{line} (in batch {batch_number} of the {self._kind} {self._name})") from error
            count = num_rows(columns)
            if count:
                rows, number = rows + count, number + 1
                yield columns
        if steps is None:
            if self.num_rows not in (None, rows):
                raise ValueError(
                    f"{self._name} must yield the same rows whenever it is read, as a tf.data.Dataset of arrays or "
                    f"files does; found {self.num_rows} rows at first and then {rows}. from_generator needs a function "
                    "that begins anew"
                )
            self.num_rows, self._num_batches = rows, number

    def read_ahead(self, steps: int | None = None, argument: str | None = None) -> Iterator[Columns]:
        return self.read(steps, argument)

    def recur(self, keys: set[bytes], steps: int | None = None) -> bool:
        # Under a seed tf.data draws the same noise for the k-th sample of every epoch: about one is the same again.
        read, same, by_chance = 0, 0, min(5, len(keys) // 2)
        for x, *_ in self.read(steps, "steps_per_epoch") if self.is_repeatable else ():
            again = row_keys(x)
            read, same = read + len(again), same + sum(key in keys for key in again)
            if same > by_chance or read >= len(keys):
                return same > by_chance
        return not self.is_repeatable

    def blocks(self, most: int | None = None) -> Iterator[Columns]:
        if most is None and any(None in leaf.shape[1:] for leaf in keras.tree.flatten(self.spec[0])):
            most = block_rows(self.first()[0])
        return super().blocks(most)

    def _blocks(self, most: int) -> Iterator[Columns]:
        held: list[Columns] = []
        count = 0  # of the rows held
        for batch in self.read():
            for rows in row_slices(num_rows(batch), most):
                part = take(batch, rows)
                if held and (count + num_rows(part) > most or not can_join(part[0], held[0][0])):
                    yield joined(held)
                    held, count = [], 0
                held.append(part)
                count += num_rows(part)
        if held:
            yield joined(held)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Columns]:
        return self.read()

    def num_batches(self, size: int) -> int:
        return self._num_batches

    def draw(self, k: int | None, seed: int | np.random.Generator) -> Draw:
        reservoir = Reservoir(k, seed)
        for columns in self.read():
            reservoir.add(columns)
        return reservoir.drawn()

    # Into memory

    def in_memory(
        self, batch_size: int | None = None, steps: int | None = None, *, repeated: bool = False
    ) -> tuple[ArraySamples, int | None, int | None]:
        if repeated and (not self.is_finite or (steps is not None and not self.is_repeatable)):
            raise guided(
                "data.md#streams-that-are-read-before-training",
                f"{self._name} must be a finite stream, all of which a distance target reads before training: pass it "
                f"without repeat(), or a generator without steps_per_epoch. {_LABELS_ALONE}",
            )
        batches = self._all_batches(None if repeated else steps, "steps")
        samples = self._arrays(batches)
        if repeated and self.is_repeatable:
            passes = (batches, self._next_epoch())
            first, again = (sorted(key for batch in read for key in row_keys(batch)) for read in passes)
            if first != again:
                raise ValueError(
                    f"{self._name} must yield the same samples whenever it is read, among which a distance target "
                    "finds neighbors; found others in a second pass, as of an augmentation, or of drop_remainder after "
                    f"shuffle. Augment in the backbone, by layers of Keras. {_LABELS_ALONE}"
                )
        return samples, num_rows(batches[0]), steps if repeated else None

    def _next_epoch(self) -> Iterator[Columns]:
        return self.read()

    def read_all(self) -> tuple[Any, Any, Any]:
        batches = self._all_batches()
        if all(can_join(batch[0], batches[0][0]) for batch in batches):
            return self._arrays(batches).read_all()
        samples, *others = zip(*(self._arrays([batch]).read_all() for batch in batches), strict=True)
        y, weight = (None if parts[0] is None else joined([*parts]) for parts in others)
        return HeldBatches([*samples]), y, weight

    def _all_batches(self, steps: int | None = None, argument: str | None = None) -> list[Columns]:
        batches = [*self.read(steps, argument)]
        if not batches:
            raise ValueError(f"{self._name} must yield samples; found an empty stream")
        return batches

    def _arrays(self, batches: list[Columns]) -> ArraySamples:
        x, y, weight = (*map(joined, map(list, zip(*batches, strict=True))), None, None)[:3]
        return ArraySamples(*checked_columns(x, y, weight, self._name))

    # For Keras

    def checked(self, check: Callable[[Any], None]) -> "Stream":
        def convert(batch: Any) -> Any:
            x, *_ = checked_columns(columns_of(batch)[0], None, None, self._name)
            check(x)
            return batch

        return self._converted(convert)

    def with_labels(self, function: ReplaceLabels, scores: NDArray[Any]) -> "Stream":
        def convert(batch: Any) -> Any:
            x, y, weight = (*columns_of(batch), None, None)[:3]
            if y is None:
                raise ValueError("y must be given beside arrays: labels, soft labels or latents")
            x, labels, *weights = checked_columns(x, y, weight, self._name)
            return (x, *_replaced(function(labels), *weights))

        return self._converted(convert)

    def _converted(self, convert: Callable[[Any], Any]) -> Self:
        converted = copy.copy(self)
        converted._convert, converted.num_rows = convert, None
        return converted


class DatasetStream(Stream):
    """Batches of a ``tf.data.Dataset``."""

    _kind = "tf.data.Dataset"

    def __init__(self, source: tf.data.Dataset, name: str = "x") -> None:
        super().__init__(source, name)
        self.is_finite = source.cardinality() != tf.data.INFINITE_CARDINALITY
        policy = tf.data.experimental.AutoShardPolicy
        self.divides_files = source.options().experimental_distribute.auto_shard_policy == policy.FILE

    @functools.cached_property
    def spec(self) -> Columns:
        return columns_of(self.source.element_spec)

    def check_labeled(self) -> None:
        spec = self.source.element_spec
        if not isinstance(spec, tuple) or len(spec) not in (2, 3):
            raise ValueError("a tf.data.Dataset must yield (x, label) or (x, latent), with or without weights")
        if any(leaf.shape.rank in (None, 0) for leaf in keras.tree.flatten(spec)):
            raise ValueError(f"a tf.data.Dataset must be batched and have tensors of known rank; found {spec}")

    def first(self) -> Columns:
        return columns_of(next(iter(self.source)))

    def _batches(self, steps: int | None) -> Iterator[Any]:
        return iter(self.source)

    def checked(self, check: Callable[[Any], None]) -> "DatasetStream":
        check(self.spec[0])
        is_tuple = isinstance(self.source.element_spec, tuple)

        @not_converted
        def element(*columns: Any) -> Any:
            x, *others = columns
            x = keras.tree.map_structure(checked_finite, x)
            return (x, *others) if is_tuple else x

        return self._mapped(element)

    def with_labels(self, function: ReplaceLabels, scores: NDArray[Any]) -> "DatasetStream":
        labels, factors = function(Labels.example(self.spec[1], scores))
        names, parts = list(labels), [*labels.values(), *([] if factors is None else [factors])]

        @not_converted
        def element(x: Any, y: Any, weight: Any = None) -> Columns:
            def in_numpy(*leaves: NDArray[Any]) -> list[NDArray[Any]]:
                labels, factors = function(keras.tree.pack_sequence_as(y, leaves))
                return [*(labels[name] for name in names), *([] if factors is None else [factors])]

            leaves = keras.tree.flatten(y)
            dtypes = [tf.as_dtype(part.dtype) for part in parts]
            values = tf.numpy_function(in_numpy, leaves, dtypes, stateful=False)
            for value, part in zip(values, parts, strict=True):
                value.set_shape([*leaves[0].shape[:1], *part.shape[1:]])
            labels = dict(zip(names, values, strict=False))
            if factors is not None:
                weight = values[-1] if weight is None else values[-1] * tf.cast(weight, values[-1].dtype)
            x = keras.tree.map_structure(checked_finite, x)
            return (x, labels) if weight is None else (x, labels, weight)

        return self._mapped(element)

    def _mapped(self, element: Callable[..., Any]) -> "DatasetStream":
        mapped = self.source.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return DatasetStream(mapped, self._name)

    def for_keras(self, batch_size: Any = None, order: Any = None, divide: Any = None, steps: Any = None) -> Any:
        options = tf.data.Options()
        if not self.divides_files:
            options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return self.source.with_options(options)


class PyDatasetStream(Stream):
    """Batches of a ``keras.utils.PyDataset``."""

    _kind = "PyDataset"

    def __init__(self, source: keras.utils.PyDataset, name: str = "x") -> None:
        super().__init__(source, name)
        self.is_finite = source.num_batches is not None

    def first(self) -> Columns:
        return batch_columns(self.source[0])

    def held_batches(self, batch_size: int | None) -> Iterable[Any] | None:
        batches = self.source.batches if isinstance(self.source, HeldBatches) else None
        return batches and (keras.tree.map_structure(as_tensor, batch) for batch in batches)

    def _batches(self, steps: int | None) -> Iterator[Any]:
        return (self.source[index] for index in range(self.source.num_batches or steps or 0))

    def _next_epoch(self) -> Iterator[Columns]:
        self.source.on_epoch_end()
        self.source.on_epoch_begin()
        return self.read()

    def for_keras(self, batch_size: Any = None, order: Any = None, divide: Any = None, steps: Any = None) -> Any:
        if self._convert is None:
            return self.source
        batches = self.source.num_batches
        goes_on = bool(batches and steps and steps < batches)  # where Keras would begin anew in every epoch
        return ConvertedPyDataset(self.source, self._convert, order, repeated=goes_on)


class GeneratorStream(Stream):
    """Batches of a generator or another iterator."""

    _kind = "generator"
    is_repeatable = False

    def first(self) -> Columns:
        batch = next(self.source, None)
        if batch is None:
            raise ValueError(f"{self._name} must yield samples; found a generator that is exhausted")
        self.source = itertools.chain([batch], self.source)
        return batch_columns(batch)

    def _batches(self, steps: int | None) -> Iterator[Any]:
        return self.source

    def read_ahead(self, steps: int | None = None, argument: str | None = None) -> Iterator[Columns]:
        if steps is None:
            raise ValueError(f"{argument} must be given with a generator whose first epoch is read before training")
        ahead = copy.copy(self)
        self.source, ahead.source = itertools.tee(self.source)
        return ahead.read(steps, argument)

    def for_keras(self, batch_size: Any = None, order: Any = None, divide: Any = None, steps: Any = None) -> Any:
        convert = self._convert  # Keras takes generators, no other iterators
        return (batch if convert is None else convert(batch) for batch in self.source)


_LABELS_ALONE = "Targets made from labels alone, such as 'vertices', take any stream"


def _replaced(replaced: tuple[Any, NDArray[Any] | None], weight: Any = None) -> Columns:
    labels, factors = replaced
    if factors is not None:
        weight = factors if weight is None else factors * weight
    return (labels,) if weight is None else (labels, weight)
