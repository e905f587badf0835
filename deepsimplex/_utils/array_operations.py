"""Formulas that are written once for tensors and arrays, and need no TensorFlow, which takes seconds, for arrays."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np


class LazyModule:
    """A module that is imported when one of its names is first needed.

    Examples
    --------
    >>> LazyModule("math").sqrt(4.0)
    2.0
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)  # looked up once
        return value


keras, tf = LazyModule("keras"), LazyModule("tensorflow")


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a TensorFlow object; does not import TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and (tensorflow.is_tensor(value) or isinstance(value, tensorflow.Variable))


def operations(value: Any) -> Any:
    """Return TensorFlow for a tensor; for an array those of its operations below, under the same names.

    Examples
    --------
    >>> operations(np.zeros(1)).nn.softmax(np.log([[0.2, 0.6]])).round(2)
    array([[0.25, 0.75]])
    """
    return tf if is_tensor(value) else _OF_ARRAYS


def numpy_dtype(value: Any) -> Any:
    """Return the dtype of an array or a tensor as NumPy's."""
    return getattr(value.dtype, "as_numpy_dtype", value.dtype)


def _log(x: Any) -> Any:
    with np.errstate(divide="ignore"):  # minus infinity
        return np.log(x)


def _softmax(z: Any) -> Any:
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _argsort(x: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False) -> Any:
    return np.argsort(-x if direction == "DESCENDING" else x, axis=axis, stable=True)


def _divide_no_nan(x: Any, y: Any) -> Any:
    return np.divide(x, y, out=np.zeros_like(x), where=y != 0)


_OF_ARRAYS = SimpleNamespace(
    **{name: getattr(np, name) for name in ("float32", "float64", "int32", "int64", "newaxis")},
    **{name: getattr(np, name) for name in ("argmax", "cumsum", "floor", "matmul", "maximum", "transpose", "where")},
    argsort=_argsort,
    cast=lambda x, dtype: np.asarray(x).astype(dtype, copy=False),
    clip_by_value=np.clip,
    concat=np.concatenate,
    constant=np.asarray,
    gather=lambda table, at, batch_dims: np.take_along_axis(table, at, axis=batch_dims),
    one_hot=lambda classes, depth, dtype: np.eye(depth, dtype=dtype)[classes],
    reduce_max=np.max,
    reduce_sum=np.sum,
    searchsorted=lambda table, x, side: np.stack(
        [np.searchsorted(row, values, side) for row, values in zip(table, x, strict=True)]
    ),
    sigmoid=lambda x: np.exp(-np.logaddexp(0.0, -x)),
    linalg=SimpleNamespace(matvec=lambda p, w: np.sum(p * w, axis=-1)),
    math=SimpleNamespace(log=_log, log_sigmoid=lambda x: -np.logaddexp(0.0, -x), divide_no_nan=_divide_no_nan),
    nn=SimpleNamespace(softmax=_softmax),
)
