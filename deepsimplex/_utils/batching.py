"""Split ranges of rows into batches, and read arrays in blocks of rows."""

import math
from typing import Any

import keras
import numpy as np


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
    return len(first)


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
    """Return the number of rows of a block that is read at once: 8 MiB in double precision, or a single row.

    Examples
    --------
    >>> rows_at_once(2**19)
    2
    """
    return max(1, 2**20 // max(1, columns))


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
    for rows in row_blocks(X):
        with np.errstate(over="ignore"):  # numbers beyond single precision become infinite
            finite = np.isfinite(X[rows] if dtype is None else X[rows].astype(dtype, copy=False))
        if not finite.all():
            row, *others = np.argwhere(~finite)[0].tolist()
            return rows.start + row, *others
    return None
