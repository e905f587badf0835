"""Gradients of a model's predictions by its input features, at samples and integrated along the way to them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import is_tensor
from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.validation import check_array, check_finite_rows, check_whole, unmasked


def feature_gradients(function: Callable[[Any], Any], x: ArrayLike, batch_size: int = 32) -> NDArray[Any]:
    """Derivatives of a row-wise function, such as class probabilities, with respect to the features of every row.

    For any model that TensorFlow can differentiate, and any number of classes.

    Parameters
    ----------
    function : callable
        From a float tensor [rows, ...] to a tensor [rows] or [rows, n], computed with TensorFlow, each row from its
        own sample only: ``lambda x: model(x, training=False)``, ``lambda x: decision_function(model.latent(x), j, k)``,
        a GPflow predictor. Wrapped in ``tf.function`` it is traced once, which takes seconds, and is then
        faster.
    x : array_like or tensor, shape [N, ...]
        Samples, in floats.
    batch_size : int
        Rows that are differentiated together, which bounds the memory; it does not change the result. Default 32.

    Returns
    -------
    ndarray, shape [N, ...] or [N, n, ...]
        Of the dtype of ``x``. Entry [i, y] is the derivative of ``function(x)[i, y]`` by ``x[i]``.

    Raises
    ------
    TypeError
        When ``x`` does not hold floats, or ``function`` does not return a tensor of floats.
    ValueError
        When ``function`` returns another number of rows or another rank, or does not depend on ``x`` through
        TensorFlow operations.

    Notes
    -----
    [CASIMAC] B.3 and B.4 give the gradients of the probability of two classes (Eq. 36) and of the decision function
    (Eq. 40) in closed form. Here each class is one reverse pass over the sum of its column: since rows do not mix, the
    derivatives of that sum are those of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from deepsimplex.readout import argmax, decision_function
    >>> slopes = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> x = np.array([[0.3, 0.2]])
    >>> feature_gradients(lambda x: decision_function({"loc": x @ slopes, "scale": [[1.0]]}, 1, 2), x)
    array([[0., 2.]])
    >>> feature_gradients(lambda x: argmax({"loc": x @ slopes, "scale": [[1.0]]}), x).shape  # [N, n, features]
    (1, 3, 2)
    """
    x = _checked_samples(x)
    if not callable(function):
        raise TypeError(f"function must map tensors to tensors; found {function!r}")
    batch_size = check_whole(batch_size, "batch_size", 1)
    batches = [_batch_gradients(function, tf.convert_to_tensor(x[rows])) for rows in row_slices(len(x), batch_size)]
    return np.concatenate(batches)


def integrated_gradients(
    function: Callable[[Any], Any],
    x: ArrayLike,
    *,
    baseline: ArrayLike = 0.0,
    steps: int = 32,
    batch_size: int = 32,
) -> NDArray[Any]:
    """Share the difference of a value between every sample and a baseline out over the sample's parts.

    Parameters
    ----------
    function : callable
        From a float tensor [rows, ...] to a tensor [rows] of values, as for ``feature_gradients``.
    x : array_like, shape [N, ...]
        Samples, in floats.
    baseline : array_like
        A sample without content, which ``x``'s shape broadcasts: 0 (default), black; the mean image, for photographs.
    steps : int
        Points on the line from baseline to sample at which gradients are taken. Default 32; the difference between
        the sum of a sample's parts and that of its values tells whether they are enough.
    batch_size : int
        Rows that are differentiated together. Default 32.

    Returns
    -------
    ndarray, shape [N, ...]
        Parts, positive where a part raises the value. Over a sample they sum to its value minus that of the baseline.

    Raises
    ------
    TypeError, ValueError
        As ``feature_gradients``, and for a baseline of another shape.

    Notes
    -----
    Sundararajan, Taly, Yan: *Axiomatic Attribution for Deep Networks*, 2017: (x - b) times the mean gradient at
    b + (k + 1/2) / K (x - b). Gradients at the sample itself vanish where a probability is nearly 1; on the way they do
    not.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0, 0.0]])
    >>> integrated_gradients(lambda x: x[:, 0] * x[:, 1], x).round(2)
    array([[1., 1., 0.]])
    """
    x = _checked_samples(x)
    steps, batch_size = check_whole(steps, "steps", 1), check_whole(batch_size, "batch_size", 1)
    given = check_array(baseline, "baseline").astype(x.dtype)
    try:
        origin = np.broadcast_to(given, x.shape[1:])
    except ValueError:
        raise ValueError(
            f"baseline must be a number or have the shape {x.shape[1:]} of a sample; found shape {given.shape}"
        ) from None
    shares = ((np.arange(steps) + 0.5) / steps).astype(x.dtype).reshape(-1, *[1] * x.ndim)
    parts = []
    for rows in row_slices(len(x), max(1, batch_size // steps)):
        way = origin + shares * (x[rows] - origin)  # [steps, rows, ...]
        gradients = feature_gradients(function, way.reshape(-1, *x.shape[1:]), batch_size)
        if gradients.ndim != x.ndim:
            raise ValueError(
                "function must return one value of each sample, [N], as lambda x: model(x)[:, 0]; found "
                f"{gradients.shape[1]} values"
            )
        parts.append(gradients.reshape(way.shape).mean(axis=0) * (x[rows] - origin))
    return np.concatenate(parts)


def _checked_samples(x: ArrayLike) -> NDArray[Any]:
    x = unmasked(x, "x")
    if x.dtype.kind != "f":
        raise TypeError(f"x must hold floats, since integers have no gradient; found dtype {x.dtype}")
    if x.ndim == 0 or 0 in x.shape[1:]:
        raise ValueError(f"x must have shape [N, ...] and features; found shape {x.shape}")
    return check_finite_rows(x, "x", x.dtype)


def _batch_gradients(function: Callable[[Any], Any], x: tf.Tensor) -> NDArray[Any]:
    """Derivatives at the rows of one batch."""
    # Persistent: one reverse pass for every class.
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(x)
        values = function(x)
    _check_values(values, len(x))
    if len(values.shape) == 1:
        return _derivative(tape, values, x, tf.ones_like(values))
    columns = tf.eye(values.shape[1], dtype=values.dtype)
    by_class = [_derivative(tape, values, x, tf.zeros_like(values) + column) for column in columns]
    return np.stack(by_class, axis=1)


def _derivative(tape: tf.GradientTape, values: tf.Tensor, x: tf.Tensor, weights: tf.Tensor) -> NDArray[Any]:
    gradient = tape.gradient(values, x, output_gradients=weights)
    if gradient is None:
        raise ValueError(
            "function must depend on its argument through TensorFlow operations; found an answer without a path back "
            "to it, as after numpy() or model.predict(x)"
        )
    return tf.convert_to_tensor(gradient).numpy()


def _check_values(values: Any, rows: int) -> None:
    if not is_tensor(values) or not values.dtype.is_floating:
        kind = values.dtype.name if is_tensor(values) else type(values).__name__
        raise TypeError(
            f"function must return a tensor of floats: model(x, training=False), not model.predict(x); found {kind}"
        )
    if len(values.shape) not in (1, 2) or values.shape[0] != rows:
        raise ValueError(
            f"function must return a tensor of shape [N] or [N, n] with the N = {rows} rows it was given; "
            f"found {tuple(values.shape)}"
        )
