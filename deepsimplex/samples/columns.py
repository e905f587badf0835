"""Columns of samples, labels and weights: arrays and structures of arrays, checked, described and made tensors."""

import functools
import hashlib
import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import not_finite, num_rows, rows_at_once
from deepsimplex._utils.messages import guided
from deepsimplex._utils.validation import check_array, check_finite_rows, check_sample_weight, label_array, unmasked
from deepsimplex.latent import LatentGaussian

Columns = tuple[Any, ...]


def checked_columns(x: Any, y: Any, sample_weight: Any, name: str, precision: str | None = None) -> Columns:
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
    y = keras.tree.map_structure(np.asarray, y) if isinstance(y, dict) else label_array(y)
    for array in keras.tree.flatten(y):
        if np.ndim(array) == 0 or len(array) != rows:
            value = len(array) if np.ndim(array) else "a single number"
            hint = f". A list of samples becomes numpy.array({name})" if value == len(leaves) > 1 else ""
            raise ValueError(f"{name} and y must have the same number of samples; found {rows} and {value}{hint}")
    return (x, y) if sample_weight is None else (x, y, _checked_weights(sample_weight, rows))


def column_names(x: Any) -> list[str] | None:
    """Return the names of a frame's columns; None for other samples, and if they are not different strings."""
    names: Any = getattr(x, "columns", None)
    if not (hasattr(x, "__array__") and hasattr(names, "__iter__") and len(getattr(x, "shape", ())) == 2):
        return None
    known = [*names]
    return known if len({*known}) == len(known) and all(isinstance(name, str) for name in known) else None


def check_columns(x: Any, names: Sequence[str]) -> None:
    """Raise ValueError for a frame whose columns have other names, or another order.

    Examples
    --------
    >>> import pandas
    >>> check_columns(pandas.DataFrame({"b": [0.0], "a": [1.0]}), ["a", "b"])
    Traceback (most recent call last):
    ValueError: x must have the columns of fit, in their order; found 'b' in place of 'a'. Pass x[model.feature_names]
    """
    known = column_names(x)
    if known is None or known == [*names]:
        return
    found, wanted = next(pair for pair in itertools.zip_longest(known, names) if pair[0] != pair[1])
    place = "" if None in (found, wanted) else f" in place of {wanted!r}"
    first = f"no column {wanted!r}" if found is None else f"{found!r}{place}"
    hint = ". Pass x[model.feature_names]" if {*known} >= {*names} else ""
    raise ValueError(f"x must have the columns of fit, in their order; found {first}{hint}")


def _checked_weights(sample_weight: Any, rows: int) -> NDArray[Any]:
    weights = check_sample_weight(sample_weight, rows, all_zero=True)  # as those of a single batch may be
    return check_finite_rows(weights, "sample_weight", keras.config.floatx())


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
        raise guided(
            "data.md#what-fit-takes",
            f"{name} must hold text in every row; found {values.flat[np.argmin(is_string)]!r} in row {row}. Replace "
            f"missing text by ''; columns of numbers and of text become several inputs, a dict of arrays",
            TypeError,
        )
    if not is_string.any() and any(np.ndim(value) for value in values.flat):
        raise guided(
            "data.md#what-fit-takes",
            f"{name} must hold samples of one shape; found an array of objects. Resize or pad them, or pass batches, "
            "as a tf.data.Dataset, PyDataset or generator, each of samples of one shape",
        )
    return values if is_string.any() else check_array(values, name, finite=False, dtype="any")


def checked_finite(tensor: Any) -> Any:
    """Return a tensor of samples with an assertion that it is finite."""
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.with_flat_values(checked_finite(tensor.flat_values))
    message = "x must be finite; found NaN or infinity in a batch. Remove or repair such samples"
    return tf.debugging.assert_all_finite(tensor, message) if tensor.dtype.is_floating else tensor


def is_text(array: Any) -> bool:
    """Return whether an array, or the specification of one, holds text.

    Examples
    --------
    >>> is_text(np.array(["a"])), is_text(tf.TensorSpec([None], "string")), is_text(np.zeros(1))
    (True, True, False)
    """
    return array.dtype == tf.string if isinstance(array.dtype, tf.DType) else array.dtype.kind in "OSU"


def spec(array: Any) -> Any:
    if isinstance(array, tf.RaggedTensor):
        return tf.type_spec_from_value(array)
    return tf.TensorSpec(array.shape, tf.string if array.dtype.kind in "OUSTMm" else array.dtype)


def block_rows(x: Any) -> int:
    return rows_at_once(sum(math.prod(leaf.shape[1:]) for leaf in keras.tree.flatten(x)))


def columns_of(batch: Any) -> Columns:
    """Return a batch as a tuple of samples, and labels and weights if given."""
    columns = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if len(columns) > 3:
        raise ValueError(f"a batch must be x, (x, y) or (x, y, sample_weight); found {len(columns)} parts")
    return columns


def batch_columns(batch: Any) -> Columns:
    def as_array(leaf: Any) -> Any:
        return leaf if leaf is None or isinstance(leaf, tf.RaggedTensor) else np.asarray(leaf)

    columns = (leaf.as_dict() if isinstance(leaf, LatentGaussian) else leaf for leaf in columns_of(batch))
    return tuple(keras.tree.map_structure(as_array, column) for column in columns if column is not None)


def row_keys(columns: Any) -> list[bytes]:
    """Return a digest of every row of a structure of arrays.

    Examples
    --------
    >>> one, other, again = row_keys((np.array([[1.0], [2.0], [1.0]]), np.array([0, 0, 0])))
    >>> one == again, one == other
    (True, False)
    """
    leaves = [np.asarray(leaf) for leaf in keras.tree.flatten(columns)]
    leaves = [np.ascontiguousarray(leaf.astype(str) if leaf.dtype == object else leaf) for leaf in leaves]
    return [
        hashlib.blake2b(b"".join(leaf.tobytes() for leaf in row), digest_size=16).digest()
        for row in zip(*leaves, strict=True)
    ]


def as_tensor(array: Any, precision: str | None = None, rows: slice | None = None) -> tf.Tensor:
    """Return an array, or some rows, as a tensor; floating-point numbers in a precision, by default that of layers."""
    array = array if rows is None else array[rows]
    tensor = array if isinstance(array, tf.RaggedTensor) else tf.convert_to_tensor(array)
    # As Keras does: double precision input becomes the precision that layers work in.
    return tf.cast(tensor, precision or keras.config.floatx()) if tensor.dtype.is_floating else tensor


def has_ragged(x: Any) -> bool:
    """Return whether samples hold rows of several lengths."""
    return any(isinstance(leaf, tf.RaggedTensor) for leaf in keras.tree.flatten(x))


def has_memmap(arrays: Any) -> bool:
    """Return whether one of the arrays of a structure is a ``numpy.memmap``."""
    return any(isinstance(leaf, np.memmap) for leaf in keras.tree.flatten(arrays))


def row_reader(array: Any, precision: str | None = None) -> Callable[[tf.Tensor], tf.Tensor]:
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
