"""Samples of every kind as one type: arrays, memory maps, h5py, frames, structures, tf.data, PyDatasets, generators."""

import copy
import functools
import hashlib
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

from deepsimplex._utils.batching import not_finite, num_rows, parts, row_slices, rows_at_once
from deepsimplex._utils.validation import check_array, check_finite_rows, check_sample_weight, unmasked
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples.class_labels import Labels
from deepsimplex.samples.reservoir import Draw, Reservoir, can_join, joined, smallest_keys, take

Columns = tuple[Any, ...]
# From labels, or labels and samples, to what replaces the labels, and to factors [N] of the sample weights, or None.
ReplaceLabels = Callable[..., tuple[Any, NDArray[Any] | None]]
# Order of an epoch: from a number of rows (or batches) to their permutation.
Order = Callable[[int], NDArray[np.int64]]
# Divides a data set among workers.
Divide = Callable[[tf.data.Dataset], tf.data.Dataset]

# AutoGraph caches the functions that it converts, and with them samples and model, until the process ends.
not_converted = tf.autograph.experimental.do_not_convert

# Most bytes of a stream that are read ahead, after the first epoch, in search of a batch that repeats earlier samples.
_READ_AHEAD = 2**30

NOT_FINITE = "x must be finite; found NaN or infinity in a batch. Remove or repair such samples"


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
            check_not_given_with_stream(y=y, sample_weight=sample_weight)
            stream: Stream
            if isinstance(x, tf.data.Dataset):
                stream = DatasetStream(x, name)
            elif isinstance(x, keras.utils.PyDataset):
                stream = PyDatasetStream(x, name)
            else:
                stream = GeneratorStream(x, name)
            if labeled:
                stream.check_labeled()
            return stream
        if labeled and y is None:
            raise ValueError("y must be given beside arrays: labels, soft labels or latents")
        samples = ArraySamples(*_checked_columns(x, y, sample_weight, name, precision))
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
    def in_memory(self, steps: int | None = None, argument: str = "steps") -> tuple["ArraySamples", int | None]:
        """Return the samples as arrays, and the size of the batches of a stream.

        A stream is read, in order, for ``steps`` batches or to its end; the argument is named in errors.
        """

    @abstractmethod
    def read_all(self) -> tuple[Any, Any, Any]:
        """Read all samples, labels and weights (None if not given), once and in order.

        Samples of a stream are a PyDataset of its batches if their shapes differ, else arrays.
        """

    @abstractmethod
    def collected(self, steps: int | None, epochs: int) -> tuple["ArraySamples", int | None]:
        """Return the samples of a training as arrays, and the size of the batches of a stream.

        Of a stream without ``steps`` these are the batches of one epoch. Else batches are read, at most all of
        ``epochs`` epochs of ``steps`` batches, until one holds only samples that were read before, with their labels.
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
        return self._blocks(_rows_at_once(self.spec[0]) if most is None else most)

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
    def draw(self, k: int | None, seed: int | np.random.Generator, by_class: bool = False) -> Draw:
        """Draw rows at random without replacement, the same from arrays and from a stream of the same rows.

        Parameters
        ----------
        k : int or None
            Number of rows; all if there are no more, or for None.
        seed : int or numpy.random.Generator
        by_class : bool
            Whether k rows of every class are drawn; the labels are then class numbers. Default False.
        """

    # For Keras: all rows, not mapped

    @abstractmethod
    def checked(self, check: Callable[[Any], None]) -> "Samples":
        """Check the samples, or their specification, with a function that raises; a stream checks every batch."""

    @abstractmethod
    def split(self, share: float) -> tuple["Samples", "Samples"]:
        """Cut a share of the rows of arrays off the end, as Keras does: (training, validation); streams raise."""

    @abstractmethod
    def read_ahead(self, steps: int | None = None, argument: str = "steps") -> Iterator[Columns]:
        """Read an epoch in order; a stream still yields every batch afterwards."""

    @abstractmethod
    def with_labels(self, function: ReplaceLabels, scores: NDArray[Any], example: Columns | None = None) -> "Samples":
        """Return samples with ``function(labels)`` in place of labels, and weights times its factors; streams lazily.

        ``scores`` are those of the target, for the labels that a data set may hold: see ``Labels.example``. With an
        ``example`` (samples, labels) of a stream, the function is called with labels and samples.
        """

    def held_batches(self, size: int) -> Iterable[Any] | None:
        """Return batches of the samples, as tensors, if they are held in memory; else None."""
        return None

    def epochs_per_pass(self, steps: int | None) -> int:
        """Number of epochs of ``steps`` batches that a pass over all batches takes, if Keras would not go on by itself.

        By default 1: arrays and data sets are read on where the last epoch ended.
        """
        return 1

    @abstractmethod
    def for_keras(
        self,
        batch_size: int | None = None,
        order: Order | None = None,
        divide: Divide | None = None,
        *,
        repeated: bool = False,
    ) -> Any:
        """Return batches for Keras: a data set of arrays, or a stream of the same kind.

        Arrays are copied once, into tensors, of which batches are cut or gathered. Memory maps are read in batches.

        Parameters
        ----------
        batch_size : int, optional
            Number of rows of arrays in a batch. Default 32.
        order : callable, optional
            Method of an object, which is referenced weakly, called with a number of rows as an epoch begins. For a
            PyDataset it is called with the number of batches and that of the pass, by every worker: equal calls in an
            epoch must give equal orders. Default None: rows in order. Data sets and generators have their own.
        divide : callable, optional
            Divides the row numbers of arrays, or the batches of a data set, among workers.
        repeated : bool
            Whether a PyDataset is read on after its last batch, for epochs that end elsewhere. Default False.
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
        return keras.tree.map_structure(_spec, self.columns)

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

    def draw(self, k: int | None, seed: int | np.random.Generator, by_class: bool = False) -> Draw:
        keys = np.random.default_rng(seed).random(self.num_rows)
        labels = take(self.columns[1], slice(None) if self._used is None else self._used) if by_class else None
        rows = smallest_keys(keys, 0, labels, k or 0) if by_class else smallest_keys(keys, k)
        return Draw(self._read(rows if len(rows) < self.num_rows else slice(None)), rows, self.num_rows)

    def in_memory(self, steps: int | None = None, argument: str = "steps") -> tuple["ArraySamples", int | None]:
        return self, None

    def read_all(self) -> tuple[Any, Any, Any]:
        x, y, weight = (*self.columns, None, None)[:3]
        return x, y, weight

    def collected(self, steps: int | None, epochs: int) -> tuple["ArraySamples", int | None]:
        return self, None

    def checked(self, check: Callable[[Any], None]) -> "ArraySamples":
        check(self.columns[0])
        return self

    def first(self) -> Columns:
        return self.columns

    def read_ahead(self, steps: int | None = None, argument: str = "steps") -> Iterator[Columns]:
        return iter([self.columns])

    def with_labels(
        self, function: ReplaceLabels, scores: NDArray[Any], example: Columns | None = None
    ) -> "ArraySamples":
        x, y, *weight = self._all_columns()
        replaced = ArraySamples(x, *_replaced(function, y, *weight))
        replaced.precision = self.precision
        return replaced

    def for_keras(
        self,
        batch_size: int | None = None,
        order: Order | None = None,
        divide: Divide | None = None,
        *,
        repeated: bool = False,
    ) -> tf.data.Dataset:
        size, rows, columns = batch_size or 32, self.num_rows, self._all_columns()
        if order is None and divide is None and not has_memmap(columns):  # no function is traced
            x, *others = columns
            tensors = (self._tensors(x), *keras.tree.map_structure(as_tensor, others))
            return tf.data.Dataset.from_tensor_slices(tensors).batch(size).prefetch(tf.data.AUTOTUNE)
        # TensorFlow never releases functions of tf.numpy_function: a weak reference lets the model be freed.
        current: Any = None if order is None else weakref.WeakMethod(order)

        @not_converted
        def this_epoch(_: Any) -> tf.data.Dataset:
            drawn = tf.numpy_function(lambda: current()(rows), [], tf.int64)
            return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(drawn, [rows]))

        numbers = tf.data.Dataset.range(rows) if order is None else tf.data.Dataset.from_tensors(0).flat_map(this_epoch)
        batches = numbers.batch(size).apply(tf.data.experimental.assert_cardinality(-(-rows // size)))
        batches = batches if divide is None else divide(batches)
        x, *others = columns
        x = keras.tree.map_structure(functools.partial(_row_reader, precision=self.precision), x)
        readers = (x, *keras.tree.map_structure(_row_reader, others))

        @not_converted
        def gather(rows: tf.Tensor) -> Columns:
            return keras.tree.map_structure(lambda read: read(rows), readers)

        return batches.map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)

    def held_batches(self, size: int) -> Iterable[Any] | None:
        x = self.columns[0]
        return None if has_memmap(x) else (self._tensors(take(x, rows)) for rows in row_slices(self.num_rows, size))

    def _tensors(self, x: Any) -> Any:
        return keras.tree.map_structure(lambda leaf: as_tensor(leaf, self.precision), x)

    def _all_columns(self) -> Columns:
        if self._used is not None or self._function is not None:
            raise ValueError("batches for Keras have all rows as they are: give it samples without map and used")
        return self.columns

    def _read(self, rows: Any) -> Columns:
        columns = take(self.columns, rows if self._used is None else self._used[rows])
        return columns if self._function is None else self._function(*columns)


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
        return keras.tree.map_structure(_spec, self.first())

    def check_labeled(self) -> None:
        """Raise ValueError unless batches hold samples and labels."""
        if len(self.spec) < 2:
            raise ValueError(f"a {self._kind} must yield (x, label) or (x, latent), with or without weights; found x")

    @abstractmethod
    def _batches(self, steps: int | None) -> Iterator[Any]:
        """Read the batches as they are, at most ``steps`` of them."""

    def read(self, steps: int | None = None, argument: str = "steps") -> Iterator[Columns]:
        """Read the batches of an epoch as arrays: ``steps`` of them, or all. The argument is named in errors."""
        if not self.is_finite and steps is None:
            raise ValueError(
                f"{self._name} must be a finite stream where all of it is read, for the neighbors of a distance "
                "target, the scale of compositions or a calibration: pass it without repeat(), or give "
                f"{argument}"
            )
        rows = number = 0
        batches = itertools.islice(self._batches(steps), steps)
        for batch_number in itertools.count():
            try:
                batch = next(batches)
                columns = _as_arrays(batch if self._convert is None else self._convert(batch))
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

    def in_memory(self, steps: int | None = None, argument: str = "steps") -> tuple[ArraySamples, int | None]:
        batches = self._all_batches(steps, argument)
        x, y, weight = (_joined_column(batches, column) for column in range(3))
        return ArraySamples(*_checked_columns(x, y, weight, self._name)), num_rows(batches[0])

    def read_all(self) -> tuple[Any, Any, Any]:
        batches = self._all_batches()
        if all(can_join(batch[0], batches[0][0]) for batch in batches):
            x, y, weight = (_joined_column(batches, column) for column in range(3))
            x, y, weight = (*_checked_columns(x, y, weight, self._name), None, None)[:3]
            return x, y, weight
        padded = [(*batch, None, None)[:3] for batch in batches]
        checked = [_checked_columns(x, y, weight, self._name) for x, y, weight in padded]
        return HeldBatches([batch[0] for batch in checked]), *(_joined_column(checked, column) for column in (1, 2))

    def _all_batches(self, steps: int | None = None, argument: str = "steps") -> list[Columns]:
        batches = [*self.read(steps, argument)]
        if not batches:
            raise ValueError(f"{self._name} must yield samples; found an empty stream")
        return batches

    def collected(self, steps: int | None, epochs: int) -> tuple[ArraySamples, int | None]:
        if steps is None:
            return self.in_memory(None, "steps_per_epoch")
        known: set[bytes] = set()
        batches: list[Columns] = []
        size = read = 0
        for number, batch in enumerate(self.read_ahead(steps * max(epochs, 1), "steps_per_epoch")):
            keys = {key: row for row, key in reversed([*enumerate(row_keys(batch[:2]))]) if key not in known}
            if not keys:
                break
            known.update(keys)
            size = size or num_rows(batch)
            batches.append(take(batch, np.array([*keys.values()])[::-1]))
            read += sum(leaf.nbytes for leaf in keras.tree.flatten(batches[-1]))
            if number >= steps and read > _READ_AHEAD:
                raise ValueError(
                    f"{self._name} must repeat its samples, whose neighbors a distance target finds; found new ones in "
                    f"each of {number + 1} batches, {read / 2**30:.1f} GiB. Pass a finite stream, without repeat(), "
                    "augment in the backbone by layers of Keras, or train with a target made from labels alone, such "
                    "as 'vertices'"
                )
        if not batches:
            raise ValueError(f"{self._name} must yield samples; found an empty stream")
        x, y, weight = (_joined_column(batches, column) for column in range(3))
        return ArraySamples(*_checked_columns(x, y, weight, self._name)), size

    def checked(self, check: Callable[[Any], None]) -> "Stream":
        def convert(batch: Any) -> Any:
            x, *_ = _checked_columns(_columns(batch)[0], None, None, self._name)
            check(x)
            return batch

        return self._converted(convert)

    def with_labels(self, function: ReplaceLabels, scores: NDArray[Any], example: Columns | None = None) -> "Stream":
        def convert(batch: Any) -> Any:
            x, y, weight = (*_columns(batch), None, None)[:3]
            if y is None:
                raise ValueError("y must be given beside arrays: labels, soft labels or latents")
            x, *labels = _checked_columns(x, y, weight, self._name)
            replace = function if example is None else functools.partial(function, x=x)
            return (x, *_replaced(replace, *labels))

        return self._converted(convert)

    def split(self, share: float) -> tuple["Samples", "Samples"]:
        raise ValueError("validation_split must not be given beside batches: give validation_data")

    def _converted(self, convert: Callable[[Any], Any]) -> Self:
        converted = copy.copy(self)
        converted._convert, converted.num_rows = convert, None
        return converted

    def read_ahead(self, steps: int | None = None, argument: str = "steps") -> Iterator[Columns]:
        return self.read(steps, argument)

    def blocks(self, most: int | None = None) -> Iterator[Columns]:
        if most is None and any(None in leaf.shape[1:] for leaf in keras.tree.flatten(self.spec[0])):
            most = _rows_at_once(self.first()[0])
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

    def draw(self, k: int | None, seed: int | np.random.Generator, by_class: bool = False) -> Draw:
        reservoir = Reservoir(0, seed, per_class=k or 0) if by_class else Reservoir(k, seed)
        for columns in self.read():
            reservoir.add(columns, columns[1] if by_class else None)
        return reservoir.drawn()


class DatasetStream(Stream):
    """Batches of a ``tf.data.Dataset``."""

    _kind = "tf.data.Dataset"

    def __init__(self, source: tf.data.Dataset, name: str = "x") -> None:
        super().__init__(source, name)
        self.is_finite = source.cardinality() != tf.data.INFINITE_CARDINALITY
        self.divides_files = divides_files(source)

    @functools.cached_property
    def spec(self) -> Columns:
        return _columns(self.source.element_spec)

    def check_labeled(self) -> None:
        spec = self.source.element_spec
        if not isinstance(spec, tuple) or len(spec) not in (2, 3):
            raise ValueError("a tf.data.Dataset must yield (x, label) or (x, latent), with or without weights")
        if any(leaf.shape.rank in (None, 0) for leaf in keras.tree.flatten(spec)):
            raise ValueError(f"a tf.data.Dataset must be batched and have tensors of known rank; found {spec}")

    def first(self) -> Columns:
        return _columns(next(iter(self.source)))

    def _batches(self, steps: int | None) -> Iterator[Any]:
        return iter(self.source)

    def checked(self, check: Callable[[Any], None]) -> "DatasetStream":
        check(self.spec[0])
        is_tuple = isinstance(self.source.element_spec, tuple)

        @not_converted
        def element(*columns: Any) -> Any:
            x, *others = columns
            x = keras.tree.map_structure(_checked_finite, x)
            return (x, *others) if is_tuple else x

        return self._mapped(element)

    def with_labels(
        self, function: ReplaceLabels, scores: NDArray[Any], example: Columns | None = None
    ) -> "DatasetStream":
        x, y = (None, Labels.example(self.spec[1], scores)) if example is None else example
        labels, factors = function(y) if example is None else function(y, x=x)
        names, parts = list(labels), [*labels.values(), *([] if factors is None else [factors])]
        dtypes = [tf.as_dtype(part.dtype) for part in parts]

        @not_converted
        def element(x: Any, y: Any, weight: Any = None) -> Columns:
            given = {"y": y} if example is None else {"y": y, "x": x}

            def in_numpy(*leaves: NDArray[Any]) -> list[NDArray[Any]]:
                columns = keras.tree.pack_sequence_as(given, leaves)
                labels, factors = function(columns.pop("y"), **columns)
                return [*(labels[name] for name in names), *([] if factors is None else [factors])]

            leaves = keras.tree.flatten(given)
            values = tf.numpy_function(in_numpy, leaves, dtypes, stateful=False)
            for value, part in zip(values, parts, strict=True):
                value.set_shape([*leaves[0].shape[:1], *part.shape[1:]])
            labels = dict(zip(names, values, strict=False))
            if factors is not None:
                weight = values[-1] if weight is None else values[-1] * tf.cast(weight, values[-1].dtype)
            x = keras.tree.map_structure(_checked_finite, x)
            return (x, labels) if weight is None else (x, labels, weight)

        return self._mapped(element)

    def _mapped(self, element: Callable[..., Any]) -> "DatasetStream":
        mapped = self.source.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return DatasetStream(mapped, self._name)

    def for_keras(
        self,
        batch_size: int | None = None,
        order: Order | None = None,
        divide: Divide | None = None,
        *,
        repeated: bool = False,
    ) -> tf.data.Dataset:
        return self.source if divide is None else divide(self.source)


class PyDatasetStream(Stream):
    """Batches of a ``keras.utils.PyDataset``."""

    _kind = "PyDataset"

    def __init__(self, source: keras.utils.PyDataset, name: str = "x") -> None:
        super().__init__(source, name)
        self.is_finite = source.num_batches is not None

    def first(self) -> Columns:
        return _as_arrays(self.source[0])

    def held_batches(self, size: int) -> Iterable[Any] | None:
        batches = self.source.batches if isinstance(self.source, HeldBatches) else None
        return batches and (keras.tree.map_structure(as_tensor, batch) for batch in batches)

    def _batches(self, steps: int | None) -> Iterator[Any]:
        return (self.source[index] for index in range(self.source.num_batches or steps or 0))

    def for_keras(
        self,
        batch_size: int | None = None,
        order: Order | None = None,
        divide: Divide | None = None,
        *,
        repeated: bool = False,
    ) -> keras.utils.PyDataset:
        if self._convert is None:
            return self.source
        return ConvertedPyDataset(self.source, self._convert, order, repeated)

    def epochs_per_pass(self, steps: int | None) -> int:
        batches = self.source.num_batches
        return -(-batches // steps) if batches and steps else 1


class ConvertedPyDataset(keras.utils.PyDataset):
    """A PyDataset with a function applied to its batches, in an order of every epoch, or of every pass if repeated.

    Nothing is drawn as an epoch begins: Keras' workers have started then, and those in processes see no change.
    """

    def __init__(
        self,
        dataset: keras.utils.PyDataset,
        convert: Callable[[Any], Any],
        order: Callable[..., NDArray[np.int64]] | None = None,
        repeated: bool = False,
    ) -> None:
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self.dataset, self.convert, self.order, self.repeated = dataset, convert, order, repeated

    @property
    def num_batches(self) -> int | None:
        """Number of batches of an epoch, None for an endless data set."""
        return None if self.repeated else self.dataset.num_batches

    def __getitem__(self, index: int) -> Any:
        batches = self.dataset.num_batches
        if batches is not None:
            number, index = divmod(index, batches)
            index = index if self.order is None else int(self.order(batches, number)[index])
        return self.convert(self.dataset[index])

    def on_epoch_begin(self) -> None:
        """Call the data set's own ``on_epoch_begin``."""
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Call the data set's own ``on_epoch_end``."""
        self.dataset.on_epoch_end()


class HeldBatches(keras.utils.PyDataset):
    """A PyDataset of batches that are held in memory."""

    def __init__(self, batches: list[Any]) -> None:
        super().__init__()
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class GeneratorStream(Stream):
    """Batches of a generator or another iterator."""

    _kind = "generator"
    is_repeatable = False

    def first(self) -> Columns:
        batch = next(self.source, None)
        if batch is None:
            raise ValueError(f"{self._name} must yield samples; found a generator that is exhausted")
        self.source = itertools.chain([batch], self.source)
        return _as_arrays(batch)

    def _batches(self, steps: int | None) -> Iterator[Any]:
        return self.source

    def read_ahead(self, steps: int | None = None, argument: str = "steps") -> Iterator[Columns]:
        if steps is None:
            raise ValueError(f"{argument} must be given with a generator whose first epoch is read before training")
        ahead = copy.copy(self)
        self.source, ahead.source = itertools.tee(self.source)
        return ahead.read(steps, argument)

    def for_keras(
        self,
        batch_size: int | None = None,
        order: Order | None = None,
        divide: Divide | None = None,
        *,
        repeated: bool = False,
    ) -> Iterator[Any]:
        convert = self._convert  # Keras takes generators, no other iterators
        return (batch if convert is None else convert(batch) for batch in self.source)


# Checks


def is_stream(x: Any) -> bool:
    """Return whether ``x`` yields batches: a tf.data.Dataset, a PyDataset or a generator.

    Examples
    --------
    >>> is_stream(np.zeros((3, 2))), is_stream(iter([np.zeros((3, 2))]))
    (False, True)
    """
    return isinstance(x, tf.data.Dataset | keras.utils.PyDataset) or (hasattr(x, "__next__") and hasattr(x, "__iter__"))


def check_not_stream(x: Any) -> None:
    """Raise ValueError for batches where arrays are needed."""
    if is_stream(x):
        raise ValueError(f"x must be an array, or a structure of arrays; found {type(x).__name__}")


def divides_files(dataset: tf.data.Dataset) -> bool:
    """Return whether workers divide the files of a data set, by its options."""
    policy = dataset.options().experimental_distribute.auto_shard_policy
    return policy == tf.data.experimental.AutoShardPolicy.FILE


def check_not_given_with_stream(**arguments: Any) -> None:
    """Raise ValueError for arguments that must not be given with a stream, whose batches hold them."""
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)} must not be given beside batches of (sample, label), which hold their own"
        )


def _checked_columns(x: Any, y: Any, sample_weight: Any, name: str, precision: str | None = None) -> Columns:
    """Check arrays: lists of inputs become tuples, lists of numbers arrays, a LatentGaussian its dict."""
    x = keras.tree.lists_to_tuples(x)
    leaves = keras.tree.flatten(x)
    if not leaves or not all(isinstance(leaf, tf.RaggedTensor) or hasattr(leaf, "__array__") for leaf in leaves):
        raise ValueError(
            f"{name} must be an array, a structure of arrays, a batched tf.data.Dataset, a PyDataset or a generator; "
            f"found {type(x).__name__}. A list of samples becomes numpy.array({name})"
        )
    x = keras.tree.map_structure(functools.partial(_sliceable, name=name), x)
    leaves = keras.tree.flatten(x)
    if len(lengths := {leaf.shape[0]: None for leaf in leaves if leaf.shape}) > 1:
        raise ValueError(
            f"the inputs of {name} must have the same number of samples; found {', '.join(map(str, lengths))}. A list "
            "or tuple holds an array for every input"
        )
    for leaf in leaves:
        if isinstance(leaf, tf.RaggedTensor):
            continue
        if np.ma.is_masked(leaf):
            unmasked(leaf, name)  # raises
        if not is_text(leaf) and (leaf.dtype.kind not in "biufV" or leaf.dtype.itemsize > 8):  # V: bfloat16
            raise TypeError(f"{name} must hold real numbers or text; found dtype {leaf.dtype}")
        if not leaf.shape or len(leaf) == 0:
            raise ValueError(f"{name} must hold at least one sample, shape [N, ...]; found shape {list(leaf.shape)}")
        dtype = precision or keras.config.floatx()
        if leaf.dtype.kind == "f" and not_finite(leaf, dtype):  # in blocks: it may be a file
            check_finite_rows(np.asarray(leaf), name, dtype)
    rows = num_rows(x)
    if y is None:
        return (x,)
    y = y.as_dict() if isinstance(y, LatentGaussian) else y
    y = keras.tree.map_structure(np.asarray, y) if isinstance(y, dict) else unmasked(y, "y")
    for array in keras.tree.flatten(y):
        if np.ndim(array) == 0 or len(array) != rows:
            value = len(array) if np.ndim(array) else "a single number"
            raise ValueError(f"{name} and y must have the same number of samples; found {rows} and {value}")
    return (x, y) if sample_weight is None else (x, y, _checked_weights(sample_weight, rows))


def _checked_weights(sample_weight: Any, rows: int) -> NDArray[Any]:
    weights = check_sample_weight(sample_weight, rows, all_zero=True)  # as those of a single batch may be
    return check_finite_rows(weights, "sample_weight", keras.config.floatx())


def _replaced(function: ReplaceLabels, y: Any, weight: Any = None) -> Columns:
    labels, factors = function(y)
    if factors is not None:
        weight = factors if weight is None else factors * weight
    return (labels,) if weight is None else (labels, weight)


def _checked_finite(tensor: Any) -> Any:
    """Return a tensor of samples with an assertion that it is finite."""
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.with_flat_values(_checked_finite(tensor.flat_values))
    return tf.debugging.assert_all_finite(tensor, NOT_FINITE) if tensor.dtype.is_floating else tensor


# Conversions


def has_memmap(arrays: Any) -> bool:
    """Return whether one of the arrays of a structure is a ``numpy.memmap``."""
    return any(isinstance(leaf, np.memmap) for leaf in keras.tree.flatten(arrays))


def as_tensor(array: Any, precision: str | None = None) -> tf.Tensor:
    """Return an array as a tensor; floating-point numbers in a precision, by default that of layers."""
    tensor = array if isinstance(array, tf.RaggedTensor) else tf.convert_to_tensor(array)
    # As Keras does: double precision input becomes the precision that layers work in.
    return tf.cast(tensor, precision or keras.config.floatx()) if tensor.dtype.is_floating else tensor


def row_keys(columns: Any) -> list[bytes]:
    """Return a digest of every row of a structure of arrays.

    Examples
    --------
    >>> one, other, again = row_keys((np.array([[1.0], [2.0], [1.0]]), np.array([0, 0, 0])))
    >>> one == again, one == other
    (True, False)
    """
    leaves = [np.ascontiguousarray(leaf) for leaf in keras.tree.flatten(columns)]
    return [
        hashlib.blake2b(b"".join(leaf.tobytes() for leaf in row), digest_size=16).digest()
        for row in zip(*leaves, strict=True)
    ]


def is_text(array: Any) -> bool:
    """Return whether an array, or the specification of one, holds text.

    Examples
    --------
    >>> is_text(np.array(["a"])), is_text(tf.TensorSpec([None], "string")), is_text(np.zeros(1))
    (True, True, False)
    """
    return array.dtype == tf.string if isinstance(array.dtype, tf.DType) else array.dtype.kind in "OSU"


def _sliceable(array: Any, name: str) -> Any:
    """Return an array as it is if it has NumPy's dtype and can be sliced by rows, else as a NumPy array.

    Arrays of Python's and NumPy's variable-length strings become arrays of objects, all of them text.
    """
    if isinstance(array, tf.RaggedTensor):
        return array
    is_sliceable = isinstance(getattr(array, "dtype", None), np.dtype) and hasattr(array, "__getitem__")
    array = array if is_sliceable and not hasattr(array, "iloc") else np.asarray(array)
    if array.dtype.kind not in "OT":
        return array
    values = np.asarray(array[:]).astype(object) if array.shape else np.asarray(array, dtype=object)
    is_string = np.array([isinstance(value, str | bytes) for value in values.flat], bool)
    if is_string.any() and not is_string.all():
        row = int(np.argmin(is_string)) * len(values) // values.size
        raise TypeError(
            f"{name} must hold text in every row; found {values.flat[np.argmin(is_string)]!r} in row {row}. Replace "
            f"missing text by ''; columns of numbers and of text become several inputs, a dict of arrays"
        )
    if not is_string.any() and any(np.ndim(value) for value in values.flat):
        raise ValueError(
            f"{name} must hold samples of one shape; found an array of objects. Resize or pad them, or pass batches, "
            "as a tf.data.Dataset, PyDataset or generator, each of samples of one shape"
        )
    return values if is_string.any() else check_array(values, name, finite=False, dtype="any")


def _rows_at_once(x: Any) -> int:
    return rows_at_once(sum(math.prod(leaf.shape[1:]) for leaf in keras.tree.flatten(x)))


def _spec(array: Any) -> Any:
    if isinstance(array, tf.RaggedTensor):
        return tf.type_spec_from_value(array)
    return tf.TensorSpec(array.shape, tf.string if array.dtype.kind in "OUSTMm" else array.dtype)


def _columns(batch: Any) -> Columns:
    """Return a batch as a tuple of samples, and labels and weights if given."""
    columns = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if len(columns) > 3:
        raise ValueError(f"a batch must be x, (x, y) or (x, y, sample_weight); found {len(columns)} parts")
    return columns


def _as_arrays(batch: Any) -> Columns:
    def as_array(leaf: Any) -> Any:
        return leaf if leaf is None or isinstance(leaf, tf.RaggedTensor) else np.asarray(leaf)

    columns = (leaf.as_dict() if isinstance(leaf, LatentGaussian) else leaf for leaf in _columns(batch))
    return tuple(keras.tree.map_structure(as_array, column) for column in columns if column is not None)


def _joined_column(batches: list[Columns], column: int) -> Any:
    return joined([batch[column] for batch in batches]) if len(batches[0]) > column else None


def _row_reader(array: Any, precision: str | None = None) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from row numbers to these rows; rows of memory maps are read from their files."""
    if not isinstance(array, np.memmap):
        return functools.partial(tf.gather, as_tensor(array, precision))
    # TensorFlow never releases functions of tf.numpy_function: a weak reference lets the file be closed.
    current: Any = weakref.ref(array)
    native = array.dtype.newbyteorder("=")

    def read(rows: tf.Tensor) -> tf.Tensor:
        values = tf.numpy_function(
            lambda rows: current()[rows].astype(native, copy=False), [rows], native, stateful=False
        )
        return as_tensor(tf.ensure_shape(values, [None, *shape]), precision)

    shape = array.shape[1:]
    return read
