"""From (image, label) or (image, latent) to what the classifier trains on: (image, {label, loc, scale})."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from deepsimplex.latent import LatentGaussian
from deepsimplex.targets import Target


class Samples(NamedTuple):
    """Samples ready for Keras: ``y`` is the dict of "label" and, where a latent loss can be had, "loc" and "scale"."""

    x: Any
    y: dict[str, Any]
    sample_weight: Any = None


def is_packed(y: Any) -> bool:
    """Whether ``y`` went through this module already (Keras calls evaluate from fit)."""
    return isinstance(y, dict) and "label" in y


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


def check_lengths(x: Any, y: Any, sample_weight: Any) -> None:
    """Refuse arrays of different lengths, naming them."""
    rows = num_rows(x)
    others = {"y": y.loc if isinstance(y, LatentGaussian) else y, "sample_weight": sample_weight}
    for name, value in others.items():
        for leaf in keras.tree.flatten(value) if value is not None else []:
            if len(leaf) != rows:
                raise ValueError(f"x and {name} must have the same number of samples; found {rows} and {len(leaf)}")
    if any(len(leaf) != rows for leaf in keras.tree.flatten(x)):
        raise ValueError("all arrays in x must have the same number of samples")


def as_labels(y: Any) -> np.ndarray:
    """Integer labels [N] or soft labels [N, n] as an array; a trailing axis of one, as Keras users give it, goes."""
    labels = np.asarray(y)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def as_latents(y: Any, num_classes: int, latent_dim: int) -> LatentGaussian | None:
    """The latents that ``y`` holds, or None where it holds labels.

    A ``LatentGaussian`` or a dict {"loc", "scale"} is latents; so is a float array [N, L] where L is not the number of
    classes (else its rows are soft labels).
    """
    if isinstance(y, LatentGaussian | dict):
        return LatentGaussian.of(y)
    shape = np.shape(y)
    if len(shape) == 2 and latent_dim != num_classes and shape[1] == latent_dim and np.asarray(y).dtype.kind == "f":
        return LatentGaussian(y, np.zeros((shape[0], 1), np.asarray(y).dtype))
    return None


def observe(target: Target, num_classes: int, x: Any, y: Any, fit: bool) -> dict[str, Any]:
    """Latents of labels, or labels of latents, as the dict {label, loc, scale} of float32 arrays.

    Parameters
    ----------
    target : Target
    num_classes : int
    x : array or structure of arrays
    y : labels [N], soft labels [N, n], LatentGaussian or dict {"loc", "scale"}
    fit : bool
        Whether these are the training samples, which the target is fitted to.
    """
    latent = as_latents(y, num_classes, target.latent_dim(num_classes))
    if latent is not None:
        label = np.argmax(np.asarray(latent.loc) @ target.scores(num_classes).T, axis=-1)
    else:
        label = as_labels(y)
        latent = (
            target.fit_transform(x, label, num_classes)
            if fit or not target.needs_samples
            else target.transform(x, label)
        )
    latent = latent.numpy()
    floatx = keras.config.floatx()
    if label.ndim == 2:
        label = label.astype(floatx)
    return {"label": label, "loc": latent.loc.astype(floatx), "scale": latent.scale.astype(floatx)}


def class_weights(label: Any, class_weight: dict[int, float], sample_weight: Any, num_classes: int) -> np.ndarray:
    """Sample weights [N] with the weight of each sample's class (for soft labels: its mean) multiplied in."""
    unknown = [key for key in class_weight if key not in range(num_classes)]
    if unknown:
        raise ValueError(f"class_weight must have keys 0 to {num_classes - 1}; found {unknown[0]!r}")
    per_class = np.array([class_weight.get(k, 1.0) for k in range(num_classes)], dtype=keras.config.floatx())
    weight = label @ per_class if label.ndim == 2 else per_class[label]
    return weight if sample_weight is None else weight * np.asarray(sample_weight, dtype=weight.dtype)


def read_dataset(dataset: tf.data.Dataset) -> tuple[Any, Any, Any, int]:
    """Read a batched data set once, in order: x, y, sample weights or None, and its batch size."""
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "x must be a finite tf.data.Dataset: distance targets read it once to find neighbours. Pass it without "
            "repeat(); fit repeats it every epoch"
        )
    batches = [keras.utils.unpack_x_y_sample_weight(batch) for batch in dataset.as_numpy_iterator()]
    if not batches:
        raise ValueError("x must hold samples; found an empty tf.data.Dataset")
    columns = [
        None if part[0] is None else keras.tree.map_structure(lambda *leaves: np.concatenate(leaves), *part)
        for part in zip(*batches, strict=True)
    ]
    return columns[0], columns[1], columns[2], num_rows(batches[0][0])


def stream(target: Target, num_classes: int, dataset: tf.data.Dataset, class_weight: Any = None) -> tf.data.Dataset:
    """Map a batched data set of (image, label) or (image, latent) to (image, {label, loc, scale}[, weight]).

    Nothing is read ahead: a label target is a table of its classes' latents, and given latents need no target.
    """
    scores = tf.constant(target.scores(num_classes), keras.config.floatx())
    floatx = scores.dtype
    latent_dim = target.latent_dim(num_classes)

    def looked_up(label: Any) -> dict[str, Any]:
        table = target.fit_transform(None, np.arange(num_classes), num_classes)
        inside = tf.debugging.Assert(
            tf.reduce_all((label >= 0) & (label < num_classes)), [f"labels must lie in 0 to {num_classes - 1}:", label]
        )
        with tf.control_dependencies([inside]):
            label = tf.identity(tf.cast(label, tf.int64))  # a cast to its own type would not wait for the check
        loc, scale = (tf.constant(part, floatx) for part in (table.loc, table.scale))
        return {"label": label, "loc": tf.gather(loc, label), "scale": tf.gather(scale, label)}

    def softly(label: Any) -> dict[str, Any]:
        def transform(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            latent = target.fit_transform(None, labels, num_classes)
            return latent.loc.astype(floatx.as_numpy_dtype), latent.scale.astype(floatx.as_numpy_dtype)

        loc, scale = tf.numpy_function(transform, [label], (floatx, floatx), stateful=False)
        width = target.fit_transform(None, np.eye(num_classes), num_classes).scale.shape[1]
        loc, scale = tf.ensure_shape(loc, [None, latent_dim]), tf.ensure_shape(scale, [None, width])
        return {"label": tf.cast(label, floatx), "loc": loc, "scale": scale}

    def given(latent: dict[str, Any]) -> dict[str, Any]:
        loc, scale = tf.cast(latent["loc"], floatx), tf.cast(latent["scale"], floatx)
        label = tf.argmax(tf.matmul(loc, scores, transpose_b=True), axis=-1)
        return {"label": label, "loc": loc, "scale": scale}

    def pack(y: Any) -> dict[str, Any]:
        if isinstance(y, dict):
            return given(y)
        if len(y.shape) == 2 and y.shape[1] == latent_dim != num_classes and y.dtype.is_floating:
            return given({"loc": y, "scale": tf.zeros_like(y[:, :1])})
        if len(y.shape) == 2 and y.shape[1] == num_classes:
            return softly(y)
        if y.dtype.is_integer and (len(y.shape) == 1 or y.shape[1:] == [1]):
            return looked_up(tf.reshape(y, [-1]))
        raise ValueError(
            f"data sets must yield integer labels [N], soft labels [N, {num_classes}], latents [N, {latent_dim}] or "
            f"dicts {{'loc', 'scale'}} beside their images, batched; found {y}"
        )

    def element(x: Any, y: Any, weight: Any = None) -> tuple[Any, ...]:
        packed = pack(y)
        if class_weight is not None:
            per_class = tf.constant(class_weights(np.arange(num_classes), class_weight, None, num_classes), floatx)
            label = packed["label"]
            own = tf.linalg.matvec(label, per_class) if len(label.shape) == 2 else tf.gather(per_class, label)
            weight = own if weight is None else own * tf.cast(weight, floatx)
        return (x, packed) if weight is None else (x, packed, weight)

    return dataset.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def yields_labels(dataset: tf.data.Dataset, num_classes: int, latent_dim: int) -> bool:
    """Whether a data set yields labels (hard or soft) beside its samples, rather than latents."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise ValueError("x must be a tf.data.Dataset of (image, label) or (image, latent), with or without weights")
    y = spec[1]
    if isinstance(y, dict):
        return False
    return not (len(y.shape) == 2 and y.shape[1] == latent_dim != num_classes and y.dtype.is_floating)
