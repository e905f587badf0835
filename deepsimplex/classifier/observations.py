"""From (image, label) or (image, latent) to what the classifier trains on: (image, {label, loc, scale})."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.validation import check_labels
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets import Target


class Samples(NamedTuple):
    """Samples ready for Keras: ``y`` is the dict of "label" and, where it has latents, "loc" and "scale"."""

    x: Any
    y: dict[str, Any]
    sample_weight: Any = None


def is_packed(y: Any) -> bool:
    """Whether ``y``, or the specification of it, went through this module already (Keras calls evaluate from fit)."""
    return isinstance(y, dict) and "label" in y


def as_arrays(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Samples and labels as arrays: lists of inputs become tuples, lists of numbers arrays.

    Raises
    ------
    ValueError
        When x holds no arrays, y is missing, or lengths differ; the message names them.
    """
    x = keras.tree.lists_to_tuples(x)
    leaves = keras.tree.flatten(x)
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in leaves):
        kind = type(x).__name__
        raise ValueError(f"x must be an array, a structure of arrays, or a batched tf.data.Dataset; found {kind}")
    if y is None:
        raise ValueError("y must be given beside arrays: labels, soft labels or latents")
    y = y if isinstance(y, LatentGaussian | dict) else np.asarray(y)
    sample_weight = None if sample_weight is None else np.asarray(sample_weight, keras.config.floatx())
    rows = num_rows(x)
    others = {"x": leaves, "y": keras.tree.flatten(y.as_dict() if isinstance(y, LatentGaussian) else y)}
    others["sample_weight"] = [] if sample_weight is None else [sample_weight]
    for name, arrays in others.items():
        for array in arrays:
            if np.ndim(array) == 0 or len(array) != rows:
                found = len(array) if np.ndim(array) else "a single number"
                raise ValueError(f"x and {name} must have the same number of samples; found {rows} and {found}")
    return x, y, sample_weight


def check_finite(x: Any) -> None:
    """Refuse NaN and infinite pixels before any work is spent on them."""
    for leaf in keras.tree.flatten(x):
        array = np.asarray(leaf)
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        wrong = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        raise ValueError(
            f"x must be finite; found NaN or infinity in {len(wrong)} of {len(array)} samples, the first at index "
            f"{wrong[0]}. Remove or repair these samples"
        )


def num_rows(x: Any) -> int:
    """Number of samples in arrays or a structure of arrays."""
    return len(keras.tree.flatten(x)[0])


def holds_latents(y: Any, num_classes: int, latent_dim: int) -> bool:
    """Whether ``y``, an array, a tensor or the specification of one, holds latents rather than labels.

    A ``LatentGaussian`` or a dict {"loc", "scale"} does; so do floats [N, L], unless L is the number of classes (their
    rows are soft labels) or one (a column of labels).
    """
    if isinstance(y, LatentGaussian | dict):
        return True
    floats = tf.as_dtype(y.dtype).is_floating
    return floats and len(y.shape) == 2 and y.shape[1] == latent_dim and 1 < latent_dim != num_classes


def holds_hard_labels(y: Any) -> bool:
    """Whether ``y``, an array, a tensor or the specification of one, holds one class per sample: [N] or a column."""
    return not isinstance(y, dict) and (len(y.shape) == 1 or y.shape[1:] == [1])


def as_latents(y: Any) -> LatentGaussian:
    """Latents as a LatentGaussian; floats [N, L] are observed without noise."""
    if isinstance(y, LatentGaussian | dict):
        return LatentGaussian.of(y).numpy()
    return LatentGaussian(y, np.zeros((len(y), 1), y.dtype))


def observe(target: Target, num_classes: int, x: Any, y: Any, fit: bool, needs_latents: bool = True) -> dict[str, Any]:
    """Latents of labels, or labels of latents, as the dict {label, loc, scale} of arrays.

    Parameters
    ----------
    target : Target
    num_classes : int
    x : array or structure of arrays
    y : labels [N], soft labels [N, n], LatentGaussian or dict {"loc", "scale"}
    fit : bool
        Whether these are the training samples, which the target is fitted to.
    needs_latents : bool
        Without them the dict is {label}, and the target is not asked.
    """
    if holds_latents(y, num_classes, target.latent_dim(num_classes)):
        latent = as_latents(y)
        label = np.argmax(latent.loc @ target.scores(num_classes).T, axis=-1)
    elif not needs_latents:
        latent, label = None, labels(y, num_classes)
    else:
        if target.needs_samples and not hasattr(x, "shape"):
            raise ValueError(
                "x must be a single array for a target of distances between samples; found several inputs. Compute the "
                "latents with target.fit_transform(one_of_them, y) and pass them as y"
            )
        label = labels(y, num_classes)
        own_samples = fit or not target.needs_samples
        latent = target.fit_transform(x, label, num_classes) if own_samples else target.transform(x, label)
    floatx = keras.config.floatx()
    if label.ndim == 2:
        label = label.astype(floatx)
    if latent is None or not needs_latents:
        return {"label": label}
    return {"label": label, "loc": latent.loc.astype(floatx), "scale": latent.scale.astype(floatx)}


def labels(y: Any, num_classes: int) -> np.ndarray:
    """Checked labels: hard [N] int64, or soft [N, n]."""
    return check_labels(y, num_classes, soft=True)[0]


def weights_by_class(class_weight: dict[int, float], num_classes: int) -> np.ndarray:
    """The weights of all classes [n]; 1 where the dict has none."""
    unknown = [key for key in class_weight if key not in range(num_classes)]
    if unknown:
        raise ValueError(f"class_weight must have keys 0 to {num_classes - 1}; found {unknown[0]!r}")
    return np.array([class_weight.get(k, 1.0) for k in range(num_classes)], dtype=keras.config.floatx())


def read_dataset(dataset: tf.data.Dataset) -> tuple[Any, Any, Any, int]:
    """Read a batched data set once, in order: x, y, sample weights or None, and its batch size."""
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "a tf.data.Dataset of labels must be finite for distance targets, which read it once to find neighbors. "
            "Pass it without repeat(); epochs repeat it anyway"
        )
    batches = [keras.utils.unpack_x_y_sample_weight(batch) for batch in dataset.as_numpy_iterator()]
    if not batches:
        raise ValueError("a tf.data.Dataset must hold samples; found an empty one")
    columns = [
        None if part[0] is None else keras.tree.map_structure(lambda *leaves: np.concatenate(leaves), *part)
        for part in zip(*batches, strict=True)
    ]
    return columns[0], columns[1], columns[2], num_rows(batches[0][0])


def training_latents(dataset: tf.data.Dataset, target: Target, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Latents [N, L] and labels that stand for a data set which streams.

    Hard labels: those of the classes, once each, since the latents of a label target differ by their class alone.
    Otherwise the data set is read once, and its images are dropped.
    """
    if holds_hard_labels(dataset.element_spec[1]):
        label = np.arange(num_classes)
        return target.fit_transform(None, label, num_classes).loc, label
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "a tf.data.Dataset of soft labels or latents must be finite for objective 'composition', which reads it "
            "once to scale the compositions. Pass it without repeat(); epochs repeat it anyway"
        )
    packed = LatentStream(target, num_classes).of(dataset).map(lambda x, y, *weight: (y["loc"], y["label"]))
    batches = list(packed.as_numpy_iterator())
    if not batches:
        raise ValueError("a tf.data.Dataset must hold samples; found an empty one")
    loc, label = (np.concatenate(column) for column in zip(*batches, strict=True))
    return loc, label


def check_dataset(dataset: tf.data.Dataset) -> None:
    """Refuse data sets that are not batches of (image, label or latent) with or without weights."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise ValueError("a tf.data.Dataset must yield (image, label) or (image, latent), with or without weights")
    if any(leaf.shape.rank in (None, 0) for leaf in keras.tree.flatten(spec)):
        raise ValueError(f"a tf.data.Dataset must be batched and have tensors of known rank; found {spec}")


@dataclass(frozen=True)
class LatentStream:
    """Maps batches of (image, label) or (image, latent) to (image, {label, loc, scale}[, weight]).

    Nothing is read ahead: the latents of a label target are a table of its classes, and given latents need no target.

    Parameters
    ----------
    target : Target
    num_classes : int
    class_weight : dict, optional
    needs_latents : bool
        Without them the batches become (image, {label}[, weight]), whatever the target.
    """

    target: Target
    num_classes: int
    class_weight: dict[int, float] | None = None
    needs_latents: bool = True

    def of(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The mapped data set; one that went through here already is left as it is."""
        if is_packed(dataset.element_spec[1]):
            return dataset
        return dataset.map(self._element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def _element(self, x: Any, y: Any, weight: Any = None) -> tuple[Any, ...]:
        x = keras.tree.map_structure(_checked_finite, x)
        packed = self._pack(y)
        if self.class_weight is not None:
            own = self._class_weight_of(packed["label"])
            weight = own if weight is None else own * tf.cast(weight, own.dtype)
        return (x, packed) if weight is None else (x, packed, weight)

    def _pack(self, y: Any) -> dict[str, Any]:
        packed = self._observed(y)
        return packed if self.needs_latents else {"label": packed["label"]}

    def _observed(self, y: Any) -> dict[str, Any]:
        n, latent_dim = self.num_classes, self.target.latent_dim(self.num_classes)
        if isinstance(y, dict):
            return self._given(y["loc"], y["scale"])
        if holds_latents(y, n, latent_dim):
            return self._given(y, tf.zeros_like(y[:, :1]))
        if holds_hard_labels(y):
            return self._looked_up(tf.reshape(y, [-1]))
        if len(y.shape) == 2 and y.shape[1] == n:
            return self._softly(y)
        raise ValueError(
            f"a tf.data.Dataset must yield labels [N], soft labels [N, {n}], latents [N, {latent_dim}] or dicts "
            f"{{'loc', 'scale'}} beside its images; found {y}"
        )

    def _looked_up(self, y: Any) -> dict[str, Any]:
        """Hard labels: rows of the target's table."""
        label = tf.cast(y, tf.int64)
        fits = (label >= 0) & (label < self.num_classes) & (tf.cast(label, y.dtype) == y)
        check = tf.debugging.Assert(
            tf.reduce_all(fits), [f"labels must be whole numbers from 0 to {self.num_classes - 1}:", y]
        )
        with tf.control_dependencies([check]):
            label = tf.identity(label)
        if not self.needs_latents:
            return {"label": label}
        table = self.target.fit_transform(None, np.arange(self.num_classes), self.num_classes)
        floatx = keras.config.floatx()
        loc, scale = (tf.gather(tf.constant(part, floatx), label) for part in (table.loc, table.scale))
        return {"label": label, "loc": loc, "scale": scale}

    def _softly(self, y: Any) -> dict[str, Any]:
        """Soft labels: the target's own formula, in NumPy."""
        floatx = keras.config.floatx()
        if not self.needs_latents:
            checked = tf.numpy_function(
                lambda rows: labels(rows, self.num_classes).astype(floatx), [y], floatx, stateful=False
            )
            return {"label": tf.ensure_shape(checked, y.shape)}

        def latents(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            latent = self.target.fit_transform(None, rows, self.num_classes)
            scale = np.broadcast_to(latent.scale, latent.loc.shape)  # one shape, whatever the target
            return latent.loc.astype(floatx), scale.astype(floatx)

        loc, scale = tf.numpy_function(latents, [y], (floatx, floatx), stateful=False)
        shape = [None, self.target.latent_dim(self.num_classes)]
        loc, scale = tf.ensure_shape(loc, shape), tf.ensure_shape(scale, shape)
        return {"label": tf.cast(y, floatx), "loc": loc, "scale": scale}

    def _given(self, loc: Any, scale: Any) -> dict[str, Any]:
        """Latents: their class is where they lie."""
        floatx = keras.config.floatx()
        loc, scale = tf.cast(loc, floatx), tf.cast(scale, floatx)
        scores = tf.constant(self.target.scores(self.num_classes), floatx)
        return {"label": tf.argmax(tf.matmul(loc, scores, transpose_b=True), axis=-1), "loc": loc, "scale": scale}

    def _class_weight_of(self, label: Any) -> Any:
        assert self.class_weight is not None
        per_class = tf.constant(weights_by_class(self.class_weight, self.num_classes))
        return tf.linalg.matvec(label, per_class) if len(label.shape) == 2 else tf.gather(per_class, label)


def _checked_finite(tensor: Any) -> Any:
    if not tensor.dtype.is_floating:
        return tensor
    return tf.debugging.assert_all_finite(tensor, "x must be finite; found NaN or infinity in a batch")
