"""Read arrays in blocks of rows, and apply row-wise TensorFlow functions to batches of rows that bound the memory."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deepsimplex._utils.array_operations import keras, tf
from deepsimplex._utils.portable_operations import portable_format

# Numbers in the largest tensor of a block of rows. Small blocks stay in the processor's cache.
_BUDGET = 2**20


def parts(whole: slice, length: int) -> list[slice]:
    """Split a slice, with start and stop, into slices of at most ``length``; an empty slice gives an empty list.

    Examples
    --------
    >>> parts(slice(2, 7), 3)
    [slice(2, 5, None), slice(5, 7, None)]
    >>> parts(slice(2, 2), 3)
    []
    """
    return [slice(begin, min(begin + length, whole.stop)) for begin in range(whole.start, whole.stop, length)]


def row_slices(rows: int, most: int) -> list[slice]:
    """Split rows into slices of at most ``most``; zero rows give one empty slice, so that results keep their shape.

    Examples
    --------
    >>> row_slices(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    >>> row_slices(0, 3)
    [slice(0, 0, None)]
    """
    return [slice(begin, min(begin + most, rows)) for begin in range(0, rows, most)] or [slice(0, 0)]


def num_rows(samples: Any, name: str = "samples") -> int:
    """Return the number of samples in an array or a structure of arrays [N, ...], called ``name`` in errors.

    Examples
    --------
    >>> num_rows({"a": np.zeros((3, 2)), "b": np.zeros(3)})
    3
    """
    first = keras.tree.flatten(samples)[0]
    shape = first.shape if hasattr(first, "shape") else np.shape(first)
    if len(shape) == 0:
        raise ValueError(f"{name} must hold at least one sample, shape [N, ...]; found a single number")
    return int(shape[0])


def is_sliced_by_rows(X: Any) -> bool:
    """Return whether X [N, d] holds real numbers and can be read in blocks of rows without a copy of the whole.

    True for NumPy arrays and memory maps, and for objects with ``shape``, ``dtype`` and slicing, as h5py data sets.

    Examples
    --------
    >>> is_sliced_by_rows(np.zeros((3, 2), "float32")), is_sliced_by_rows([[0.0, 0.0]])
    (True, False)
    """
    dtype, shape = getattr(X, "dtype", None), getattr(X, "shape", ())
    numbers = isinstance(dtype, np.dtype) and dtype.kind in "biuf" and len(shape) == 2 and hasattr(X, "__getitem__")
    return numbers and not isinstance(X, np.ma.MaskedArray) and not hasattr(X, "nnz")  # which sparse arrays have


def rows_at_once(columns: int) -> int:
    """Return the number of rows of a block that is read or computed at once: 8 MiB in double precision, or one row.

    ``columns`` are the numbers of a row, in the largest tensor that is computed of it.

    Examples
    --------
    >>> rows_at_once(2**19)
    2
    """
    return max(1, _BUDGET // max(1, columns))


def row_blocks(X: Any) -> list[slice]:
    """Split the rows of X [N, ...] into blocks that are read at once.

    Examples
    --------
    >>> row_blocks(np.zeros((3, 2**19)))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    return row_slices(len(X), rows_at_once(math.prod(X.shape[1:])))


def not_finite(X: Any, dtype: Any = None) -> tuple[int, ...] | None:
    """Return the index of the first number of X [N, ...] that is not finite, read in blocks; None if all are.

    With a ``dtype``, numbers are checked after conversion to it.

    Examples
    --------
    >>> not_finite(np.array([[0.0, 1.0], [np.nan, 2.0]]))
    (1, 0)
    """
    most = rows_at_once(math.prod(X.shape[1:]))
    for first in range(0, len(X), most):
        block = X[first : first + most]
        with np.errstate(over="ignore"):  # numbers beyond single precision become infinite
            finite = np.isfinite(block if dtype is None else block.astype(dtype, copy=False))
        if not finite.all():
            row, *others = np.argwhere(~finite)[0].tolist()
            return first + row, *others
    return None


def in_row_batches(compute: Callable[[Any, Any], Any], loc: Any, scale: Any, most: int) -> Any:
    """Apply a row-wise ``compute(loc, scale) -> [rows, n]`` to at most ``most`` rows at a time and join the results.

    The gradient computes them again, batch by batch.
    """
    rows = loc.shape[0]
    # LiteRT's loops need shapes that are known when the file is written.
    if (rows is not None and rows <= most) or portable_format.get() == "litert":
        return compute(loc, scale)

    def apply(function: Callable[..., Any], signature: Any, *arguments: Any) -> Any:
        def batches() -> Any:
            return in_batches(function, signature, most, *arguments)

        if rows is not None:
            return batches()
        # Even a loop of one iteration is slow.
        return tf.cond(tf.shape(arguments[0])[0] <= most, lambda: function(*arguments), batches)

    @tf.custom_gradient
    def run(loc: Any, scale: Any) -> tuple[Any, Any]:
        # Not recorded by an outer gradient tape, which would keep every tensor of every batch in eager mode.
        result = apply(compute, loc.dtype, tf.stop_gradient(loc), tf.stop_gradient(scale))

        # Computed again, batch by batch: memory stays bounded, and nothing passes from branch to branch.
        def gradient(upstream: Any) -> Any:
            product = partial(vector_jacobian_product, compute)
            return apply(product, (loc.dtype, scale.dtype), loc, scale, upstream)

        return result, gradient

    return run(loc, scale)


def vector_jacobian_product(compute: Callable[[Any, Any], Any], loc: Any, scale: Any, upstream: Any) -> tuple[Any, ...]:
    """Derivatives by ``loc`` and ``scale`` of the sum of ``upstream`` times ``compute(loc, scale)``."""
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        result = compute(loc, scale)
    gradients = tape.gradient(result, [loc, scale], upstream)
    if any(gradient is None for gradient in gradients):
        raise ValueError("probabilities counted among draws have no derivatives: take another method")
    return tuple(gradients)


def in_batches(compute: Callable[..., Any], signature: Any, most: int, *arguments: Any) -> Any:
    """Apply a row-wise function to at most ``most`` rows at a time, in a TensorFlow loop, and join the results.

    Parameters
    ----------
    compute : callable
        (arguments...) -> tensor, or structure of tensors, whose rows depend on those of the arguments alone.
    signature : tf.DType, or structure of such
        Dtypes of the results.
    most : int
        Rows at a time.
    *arguments : tensor, shape [N, ...]
        N may be unknown in a graph.
    """
    # Python numbers where the number of rows is known: XLA requires the shapes of a loop to be constants.
    static = arguments[0].shape[0]
    rows = tf.shape(arguments[0])[0] if static is None else static
    batches = -(-rows // most) if static is not None else tf.maximum(1, -(-rows // most))
    size = -(-rows // batches)
    padding = batches * size - rows

    def split(tensor: Any) -> Any:
        trailing = list(tensor.shape[1:])
        # Ones: a padded row must be an ordinary Gaussian, since its gradient is computed too.
        padded = tf.pad(tensor, [[0, padding]] + [[0, 0]] * len(trailing), constant_values=1.0)
        return tf.reshape(padded, [batches, size, *trailing])

    def join(tensor: Any) -> Any:
        rest = tensor.shape[2:]
        return tf.ensure_shape(tf.reshape(tensor, [batches * size, *rest])[:rows], [static, *rest])

    split_arguments = tuple(split(argument) for argument in arguments)
    result = tf.map_fn(
        lambda batch: compute(*batch), split_arguments, fn_output_signature=signature, parallel_iterations=1
    )
    return tf.nest.map_structure(join, result)
