"""TensorFlow operations that every exported file supports, or that depend on where they run."""

import contextvars
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import is_tensor, keras, operations, tf

Format = Literal["onnx", "litert"]
portable_format: contextvars.ContextVar[Format | None] = contextvars.ContextVar("portable_format", default=None)
"""The format whose operations graphs are traced from, inside of ``portable_operations``; else None."""
# Degrees of the polynomial of erfc: relative errors below 1e-8 and 1e-14.
_DEGREE = {"float32": 14, "float64": 30}
# Columns that are sorted or left out together.
_GROUP = 50


@contextmanager
def portable_operations(format: Format) -> Iterator[None]:
    """Inside the block, trace graphs from operations that the format supports, with the current weights as constants.

    Examples
    --------
    >>> with portable_operations("onnx"):
    ...     round(float(erfc(tf.constant(1.0))), 6)
    0.157299
    """
    token = portable_format.set(format)
    try:
        yield
    finally:
        portable_format.reset(token)


def erfc(x: Any) -> Any:
    """Complementary error function, to relative accuracy in its upper tail.

    The portable form is t exp(P(t) - x^2) with t = 2 / (2 + |x|) and a polynomial P.
    """
    if portable_format.get() is None:
        return tf.math.erfc(x)
    distance = tf.abs(x)
    t = 2.0 / (2.0 + distance)
    place = 2.0 * t - 1.0
    exponent = functools.reduce(lambda value, coefficient: value * place + coefficient, _erfc_polynomial(x.dtype.name))
    upper = t * tf.exp(exponent - tf.square(distance))
    return tf.where(x < 0, 2.0 - upper, upper)


@functools.cache
def _erfc_polynomial(dtype: str) -> list[float]:
    from scipy.special import erfcx

    def logarithm(place: Any) -> Any:
        t = 0.5 + 0.5 * place
        return np.log(erfcx(2.0 / t - 2.0) / t)

    fit = np.polynomial.Chebyshev.interpolate(logarithm, _DEGREE[dtype])
    return fit.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist()


def log1p(x: Any) -> Any:
    """log(1 + x), accurate for small x."""
    if portable_format.get() is None:
        return tf.math.log1p(x)
    u = 1.0 + x
    rounded = tf.equal(u, 1.0)
    return tf.where(rounded, x, tf.math.log(u) * x / tf.where(rounded, tf.ones_like(u), u - 1.0))


def log_sigmoid(x: Any) -> Any:
    """log 1 / (1 + exp(-x))."""
    return -softplus(-x) if portable_format.get() and is_tensor(x) else operations(x).math.log_sigmoid(x)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)). LiteRT's own overflows from 89 on."""
    return tf.maximum(x, 0.0) + log1p(tf.exp(-tf.abs(x))) if portable_format.get() else tf.math.softplus(x)


def diag_part(matrix: Any) -> Any:
    """Diagonals of square matrices [..., n, n]."""
    if portable_format.get() is None:
        return tf.linalg.diag_part(matrix)
    return tf.reduce_sum(matrix * np.eye(matrix.shape[-1], dtype=matrix.dtype.as_numpy_dtype), axis=-1)


def expm1(x: Any) -> Any:
    """exp(x) - 1, accurate for small x."""
    return tf.tanh(0.5 * x) * (tf.exp(x) + 1.0) if portable_format.get() else tf.math.expm1(x)


def count_at_most(table: NDArray[Any], x: Any) -> Any:
    """Count the numbers of a row of ``table`` [m, K], which ascends, that are at most x [m, N]."""
    if portable_format.get() is None or not is_tensor(x):
        return operations(x).searchsorted(table, x, side="right")
    return tf.reduce_sum(tf.cast(table[:, np.newaxis, :] <= x[:, :, tf.newaxis], tf.int32), axis=-1)


def smallest_normal(dtype: Any) -> float:
    """Smallest normal number of a float dtype."""
    return float(np.finfo(getattr(dtype, "as_numpy_dtype", dtype)).tiny)


def precise_dtype() -> str:
    """Return float64, or float32 in the graph of a format that has no arithmetic of float64."""
    return "float32" if portable_format.get() == "litert" and not tf.executing_eagerly() else "float64"


def solve_lower(factor: Callable[[], Any], B: Any) -> Any:
    """Return L^-1 B for lower-triangular L [M, M] = ``factor()``, which depends on weights alone, and B [M, N].

    The portable form holds L^-1 as a constant: the formats have neither Cholesky factorizations nor triangular solves.
    """
    if portable_format.get() is None:
        return tf.linalg.triangular_solve(factor(), B)
    with tf.init_scope():
        L = factor()
        inverse = tf.linalg.triangular_solve(L, tf.eye(L.shape[0], dtype=L.dtype)).numpy()
    return tf.matmul(tf.constant(inverse, B.dtype), B)


def batch_normalization(**options: Any) -> Any:
    """Make batch normalization whose moving averages keep up with short trainings.

    In the scope of a ``tf.distribute`` strategy it is over the samples of all replicas. Without one Keras'
    ``synchronized`` would compute variances as E[x^2] - E[x]^2, which rounds more.
    """
    return keras.layers.BatchNormalization(momentum=0.9, synchronized=tf.distribute.has_strategy(), **options)


def kth_largest(values: Any, k: int) -> Any:
    """The k-th largest of every row of values [N, m], with m known when the graph is built.

    The k largest of many are in the k groups with the largest maxima, so that few need to be sorted.

    Examples
    --------
    >>> kth_largest(tf.constant([[3.0, 5.0, 4.0]]), 2).numpy().tolist()
    [4.0]
    """
    m = values.shape[1]
    if m > 2 * k * _GROUP:
        missing = -m % _GROUP
        values = tf.pad(values, [[0, 0], [0, missing]], constant_values=values.dtype.min) if missing else values
        groups = tf.reshape(values, [-1, (m + missing) // _GROUP, _GROUP])
        chosen = tf.math.top_k(tf.reduce_max(groups, axis=2), k).indices
        values = tf.reshape(tf.gather(groups, chosen, axis=1, batch_dims=1), [-1, k * _GROUP])
    return tf.math.top_k(values, k).values[:, -1]
