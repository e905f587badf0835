"""Data adapter: convert the data given to ``fit`` to batches (x, observation[, weight])."""

import math
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.batching import not_finite, num_rows
from deepsimplex._utils.validation import (
    check_finite_rows,
    check_labels,
    check_number,
    check_sample_weight,
    check_whole,
    unmasked,
)
from deepsimplex.classifier.several_workers import Workers, divided_among_workers
from deepsimplex.classifier.streams import (
    ObservedDataset,
    SeededEpochs,
    as_tensor,
    checked_finite,
    element_spec,
    gathered,
    has_memmap,
    is_observed,
    is_stream,
    not_converted,
    read,
    read_batches,
)
from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import ClassifierLoss
from deepsimplex.targets import Target


class Samples(NamedTuple):
    """Arrays ready for training: ``observation`` holds "label", and "loc", "scale", "composition" where needed."""

    x: Any
    observation: dict[str, np.ndarray]
    sample_weight: np.ndarray | None = None


@dataclass(frozen=True)
class DataAdapter:
    """Convert samples and labels to the batches that ``SimplexClassifier`` is trained and evaluated on.

    Parameters
    ----------
    target : Target
    num_classes : int
    loss : ClassifierLoss, optional
        Training loss, which determines whether observations contain latents. Default None: labels only.
    workers : Workers, optional
        Workers that train together; the chief computes the latents for all.
    """

    target: Target
    num_classes: int
    loss: ClassifierLoss | None = None
    workers: Workers = field(default_factory=Workers)

    @property
    def needs_latents(self) -> bool:
        """Whether observations hold the target's latents."""
        return self.loss is not None and self.loss.needs_latents

    # Arrays

    def arrays(self, x: Any, y: Any, sample_weight: Any, class_weight: Any = None, fit: bool = False) -> Samples:
        """Check arrays and observe their labels; with ``fit`` the target is fitted to them.

        Raises
        ------
        ValueError
            If lengths differ, samples are not finite, labels do not fit, or the target cannot use them.
        """
        x, y, sample_weight = check_arrays(x, y, sample_weight)
        check_samples(x)
        observation = self.observe(x, y, fit)
        return Samples(x, observation, self._weights(observation["label"], sample_weight, class_weight))

    def observe(self, x: Any, y: Any, fit: bool = False) -> dict[str, np.ndarray]:
        """Return the observation of labels or latents ``y`` as a dict of arrays.

        Parameters
        ----------
        x : array or structure of arrays
        y : labels [N], soft labels [N, n], LatentGaussian, dict {"loc", "scale"} or latents [N, L]
        fit : bool
            Whether these are all of the training samples: the target is fitted to them, and the loss adapted.
        """
        floatx = keras.config.floatx()
        latent: LatentGaussian | None
        if self.holds_latents(y):
            latent = as_latents(y)
            label = np.argmax(latent.loc @ self.target.scores(self.num_classes).T, axis=-1)
        else:
            label = check_labels(y, self.num_classes, soft=True)[0]
            latent = self._latents(x, label, fit) if self.needs_latents else None
        observation = {"label": label.astype(floatx if label.ndim == 2 else np.int64)}
        if self.loss is not None and self.needs_latents and latent is not None:
            observation |= {"loc": latent.loc.astype(floatx), "scale": latent.scale.astype(floatx)}
            if fit:
                self._adapt_to(latent.loc, label)
            more = self.loss.observe(latent.loc, self.target.scores(self.num_classes))
            observation |= {name: part.astype(floatx) for name, part in more.items()}
        return observation

    def _latents(self, x: Any, label: np.ndarray, fit: bool) -> LatentGaussian:
        if not self.target.needs_samples:
            table = self.target.table(self.num_classes)
            if label.ndim == 1 and table is not None:
                return table[label]
            return self.target.fit_transform(None, label, self.num_classes)
        target, n = self.target, self.num_classes
        found = self.workers.from_chief(
            lambda: (target.fit_transform(x, label, n) if fit else target.transform(x, label)).as_dict()
        )
        if fit and not self.workers.is_chief:
            target.fit(x, label, n)  # only ``is_fitted`` is read on these workers
        return LatentGaussian.of(found)

    def holds_latents(self, y: Any) -> bool:
        """Return whether ``y``, an array or the specification of one, holds latents rather than labels.

        A LatentGaussian or a dict does; so do floats [N, L], unless L is the number of classes (their rows are soft
        labels) or one (a column of labels).
        """
        if isinstance(y, LatentGaussian | dict):
            return True
        latent_dim = self.target.latent_dim(self.num_classes)
        floats = tf.as_dtype(y.dtype).is_floating
        return floats and len(y.shape) == 2 and y.shape[1] == latent_dim and 1 < latent_dim != self.num_classes

    def _weights(self, label: np.ndarray, sample_weight: Any, class_weight: Any) -> np.ndarray | None:
        if class_weight is None:
            return sample_weight
        unknown = [key for key in class_weight if key not in range(self.num_classes)]
        if unknown:
            raise ValueError(f"class_weight must have keys 0 to {self.num_classes - 1}; found {unknown[0]!r}")
        per_class = np.array([class_weight.get(k, 1.0) for k in range(self.num_classes)], keras.config.floatx())
        own = label @ per_class if label.ndim == 2 else per_class[label]
        return own if sample_weight is None else own * sample_weight

    # Streams

    def must_read(self, stream: Any, labels: Any) -> bool:
        """Return whether a stream must be read before training, because its latents depend on all of its samples."""
        reads = self.needs_latents and self.target.needs_samples and not self.holds_latents(labels)
        return reads and not is_observed(stream)

    def stream(self, stream: Any, class_weight: Any = None, epochs: SeededEpochs | None = None) -> Any:
        """Return a stream of the same kind with observations in place of its labels; nothing is read ahead.

        The batches of a PyDataset come in the order that ``epochs`` draws.
        """
        if is_observed(stream):
            return stream

        def observe(batch: Any) -> tuple[Any, ...]:
            x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
            if isinstance(y, dict) and "label" in y:  # Keras calls evaluate from fit
                return batch
            samples = self.arrays(x, y, weight, class_weight)
            return samples[:2] if samples.sample_weight is None else tuple(samples)

        if isinstance(stream, keras.utils.PyDataset):
            return ObservedDataset(stream, observe, None if epochs is None else epochs.order)
        if isinstance(stream, tf.data.Dataset):
            return self._dataset(stream, class_weight)
        return (observe(batch) for batch in stream)  # Keras takes generators, no other iterators

    def _dataset(self, dataset: tf.data.Dataset, class_weight: Any) -> tf.data.Dataset:
        spec = element_spec(dataset)[1]
        example = self.observe(None, self._example(spec))
        names, weighted = list(example), class_weight is not None
        dtypes = [tf.as_dtype(part.dtype) for part in example.values()]
        weight_dtype = tf.as_dtype(keras.config.floatx())

        def in_numpy(*leaves: np.ndarray) -> list[np.ndarray | None]:
            y = dict(zip(("loc", "scale"), leaves, strict=True)) if isinstance(spec, dict) else leaves[0]
            observation = self.observe(None, y)
            parts: list[np.ndarray | None] = [observation[name] for name in names]
            return [*parts, self._weights(observation["label"], None, class_weight)] if weighted else parts

        @not_converted
        def element(x: Any, y: Any, weight: Any = None) -> tuple[Any, ...]:
            x = keras.tree.map_structure(checked_finite, x)
            leaves = [y["loc"], y["scale"]] if isinstance(y, dict) else [y]
            parts = tf.numpy_function(in_numpy, leaves, [*dtypes, weight_dtype] if weighted else dtypes, stateful=False)
            rows = leaves[0].shape[:1]
            for part, known in zip(parts, example.values(), strict=False):
                part.set_shape([*rows, *known.shape[1:]])
            if weighted:
                own = tf.ensure_shape(parts[-1], rows)
                weight = own if weight is None else own * tf.cast(weight, own.dtype)
            observation = dict(zip(names, parts, strict=False))
            return (x, observation) if weight is None else (x, observation, weight)

        observed = dataset.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return divided_among_workers(observed)

    def _example(self, spec: Any) -> Any:
        """Return the labels or latents of one sample that match a specification."""
        if isinstance(spec, dict):
            return {"loc": np.zeros((1, spec["loc"].shape[1])), "scale": np.ones((1, *spec["scale"].shape[1:]))}
        if _is_hard(spec):
            return np.zeros(1, np.int64)
        if spec.shape[1] == self.num_classes:
            return np.eye(self.num_classes)[:1]
        if self.holds_latents(spec):
            return np.zeros((1, spec.shape[1]))
        n, latent_dim = self.num_classes, self.target.latent_dim(self.num_classes)
        raise ValueError(
            f"a tf.data.Dataset must yield labels [N], soft labels [N, {n}], latents [N, {latent_dim}] or dicts "
            f"{{'loc', 'scale'}} beside its samples; found {spec}"
        )

    def adapts_by_reading(self, labels: Any) -> bool:
        """Return whether the loss must read a stream of these labels; if the classes' latents suffice, adapt it."""
        if self.loss is None or not self.loss.needs_adapt:
            return False
        table = self.target.table(self.num_classes)
        if table is None or self.holds_latents(labels) or not _is_hard(labels):
            return True
        self._adapt_to(table.loc, np.arange(self.num_classes))
        return False

    def adapt_loss(self, stream: Any, steps: int | None = None) -> None:
        """Adapt the loss to the latents of a stream, whose samples are dropped."""
        assert self.loss is not None
        observations = [self.observe(None, y) for _, y, _ in read_batches(stream, steps, "steps_per_epoch")]
        loc, label = (np.concatenate([part[name] for part in observations]) for name in ("loc", "label"))
        self._adapt_to(loc, label)

    def _adapt_to(self, loc: np.ndarray, label: np.ndarray) -> None:
        assert self.loss is not None
        loss = self.loss

        def adapted() -> dict[str, Any]:
            loss.adapt(loc, label, self.target.scores(self.num_classes), self.target.neighbor_error())
            return loss.state()

        if loss.needs_adapt:
            state = self.workers.from_chief(adapted)
            if not self.workers.is_chief:
                loss.load_state(state)

    def classes(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Return held-out samples, their classes [N] and weights, of arrays or of a stream, which is read once.

        Raises
        ------
        ValueError
            For soft labels and latents: calibration needs classes.
        """
        if is_stream(x):
            x, y, sample_weight, _ = read(x)
        x, y, sample_weight = check_arrays(x, y, sample_weight)
        if isinstance(y, LatentGaussian | dict):
            raise ValueError("y must hold class labels for a calibration; found latents")
        label, _ = check_labels(y, self.num_classes)
        return x, label, sample_weight


# Batches of arrays


def check_lengths(epochs: int = 1, batch_size: int | None = None, validation_split: float | None = None) -> None:
    """Raise ValueError for an invalid number of epochs, batch size or validation split."""
    check_whole(epochs, "epochs", 0)
    if batch_size is not None:
        check_whole(batch_size, "batch_size", 1)
    if validation_split is not None:
        check_number(validation_split, "validation_split", least=0, below=1)


def batches(
    samples: Samples, batch_size: int | None = None, epochs: SeededEpochs | None = None, workers: Workers | None = None
) -> tf.data.Dataset:
    """Return batches of arrays, in the order drawn by ``epochs``, if given; with several ``workers``, this one's part.

    Arrays are copied once, into tensors, of which batches are cut or gathered. A ``numpy.memmap`` is read in batches.
    """
    check_lengths(batch_size=batch_size)
    rows, batch_size = num_rows(samples.x, "x"), batch_size or 32
    arrays = samples[:2] if samples.sample_weight is None else tuple(samples)
    divided = workers is not None and workers.count > 1
    if epochs is None and not divided and not has_memmap(arrays):  # no function is traced
        tensors = keras.tree.map_structure(as_tensor, arrays)
        return tf.data.Dataset.from_tensor_slices(tensors).batch(batch_size).prefetch(tf.data.AUTOTUNE)

    # TensorFlow never releases functions of tf.numpy_function: a weak reference lets the model be freed.
    current: Any = None if epochs is None else weakref.ref(epochs)

    @not_converted
    def this_epoch(_: Any) -> tf.data.Dataset:
        order = tf.numpy_function(lambda: current().order(rows), [], tf.int64)
        return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(order, [rows]))

    order = tf.data.Dataset.range(rows) if epochs is None else tf.data.Dataset.from_tensors(0).flat_map(this_epoch)
    indices = order.batch(batch_size).apply(tf.data.experimental.assert_cardinality(-(-rows // batch_size)))
    return gathered(arrays, indices if workers is None else workers.local_part(indices))


def split(x: Any, y: Any, sample_weight: Any, share: float) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Cut a share of the samples off the end, as Keras does: (training, validation)."""
    rows = num_rows(x, "x")
    cut = math.floor(rows * (1.0 - share))
    if not 0 < cut < rows:
        raise ValueError(f"validation_split must leave samples on both sides; {share!r} of {rows} does not")

    def part(rows_of: slice) -> tuple[Any, Any, Any]:
        labels = y[rows_of] if isinstance(y, LatentGaussian) else _rows(y, rows_of)
        return _rows(x, rows_of), labels, None if sample_weight is None else sample_weight[rows_of]

    return part(slice(None, cut)), part(slice(cut, None))


def check_arrays(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return samples and labels as arrays: lists of inputs become tuples, lists of numbers arrays.

    Raises
    ------
    ValueError
        If x holds no arrays, y is missing, or lengths differ.
    """
    x = keras.tree.lists_to_tuples(x)
    leaves = keras.tree.flatten(x)
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in leaves):
        raise ValueError(
            "x must be an array, a structure of arrays, a batched tf.data.Dataset, a PyDataset or a generator; found "
            f"{type(x).__name__}"
        )
    if y is None:
        raise ValueError("y must be given beside arrays: labels, soft labels or latents")
    y = y if isinstance(y, LatentGaussian | dict) else unmasked(y, "y")
    # A frame of pandas has a dtype for every column.
    x = keras.tree.map_structure(lambda leaf: leaf if hasattr(leaf, "dtype") else np.asarray(leaf), x)
    rows = num_rows(x, "x")
    others = {"x": leaves, "y": keras.tree.flatten(y.as_dict() if isinstance(y, LatentGaussian) else y)}
    for name, arrays in others.items():
        for array in arrays:
            if np.ndim(array) == 0 or len(array) != rows:
                found = len(array) if np.ndim(array) else "a single number"
                raise ValueError(f"x and {name} must have the same number of samples; found {rows} and {found}")
    if sample_weight is not None:  # all weights of a single batch may be zero
        sample_weight = check_sample_weight(sample_weight, rows, all_zero=True)
        sample_weight = check_finite_rows(sample_weight, "sample_weight", keras.config.floatx())
    return x, y, sample_weight


def check_samples(x: Any) -> None:
    """Raise an error for arrays that are not numbers, hold no sample or are not finite in the precision of layers."""
    leaves = keras.tree.flatten(x)
    if not leaves or isinstance(x, range):
        raise TypeError(f"x must be an array or a structure of arrays; found {x!r}")
    if len(lengths := {len(leaf): None for leaf in leaves if np.ndim(leaf)}) > 1:
        raise ValueError(f"the inputs of x must have the same number of samples; found {', '.join(map(str, lengths))}")
    for leaf in leaves:
        array = unmasked(leaf, "x")
        if array.dtype.kind not in "biufV" or array.dtype.itemsize > 8:  # V: bfloat16
            raise TypeError(f"x must hold real numbers; found dtype {array.dtype}")
        if array.ndim == 0 or len(array) == 0:
            raise ValueError(f"x must hold at least one sample, shape [N, ...]; found shape {list(array.shape)}")
        if array.dtype.kind == "f" and not_finite(array, keras.config.floatx()):  # in blocks: it may be a file
            check_finite_rows(array, "x", keras.config.floatx())


def as_latents(y: Any) -> LatentGaussian:
    """Return latents as a LatentGaussian; floats [N, L] are observed without noise."""
    if isinstance(y, LatentGaussian | dict):
        return LatentGaussian.of(y).numpy()
    return LatentGaussian(y, np.zeros((len(y), 1), y.dtype))


def _is_hard(spec: Any) -> bool:
    return not isinstance(spec, dict) and (len(spec.shape) == 1 or spec.shape[1:] == [1])


def _rows(arrays: Any, rows_of: slice) -> Any:
    return keras.tree.map_structure(lambda leaf: leaf[rows_of], arrays)
