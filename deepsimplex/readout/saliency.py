"""Saliency: how much each part of a sample adds to a value that a model gives it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.validation import check_finite_rows, check_whole, unmasked
from deepsimplex.readout.gradients import feature_gradients


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
    x = unmasked(x, "x")
    if x.dtype.kind != "f":
        raise TypeError(f"x must hold floats, since integers have no gradient; found dtype {x.dtype}")
    x = check_finite_rows(x, "x", x.dtype)
    steps, batch_size = check_whole(steps, "steps", 1), check_whole(batch_size, "batch_size", 1)
    try:
        origin = np.broadcast_to(np.asarray(baseline, x.dtype), x.shape[1:])
    except ValueError:
        raise ValueError(
            f"baseline must be a number or have the shape {x.shape[1:]} of a sample; found {np.shape(baseline)}"
        ) from None
    shares = ((np.arange(steps) + 0.5) / steps).astype(x.dtype).reshape(-1, *[1] * x.ndim)
    parts = []
    for rows in row_slices(len(x), max(1, batch_size // steps)):
        way = origin + shares * (x[rows] - origin)  # [steps, rows, ...]
        gradients = feature_gradients(function, way.reshape(-1, *x.shape[1:]), batch_size)
        parts.append(gradients.reshape(way.shape).mean(axis=0) * (x[rows] - origin))
    return np.concatenate(parts)
