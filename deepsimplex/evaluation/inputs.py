"""The one place where labels and class probabilities are checked."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

SUM_TOLERANCE = 1e-3
"""How far the probabilities of one sample may sum from 1: room for a softmax computed in half precision."""


def check_probabilities(
    p: ArrayLike, name: str = "p", otherwise: str = "Give probabilities, not logits or scores"
) -> NDArray[np.floating]:
    """Return ``p`` as float32 (where it was) or float64 [N, n], or say why it does not hold class probabilities.

    ``name`` is the argument's in messages; ``otherwise`` says what to do where rows do not sum to 1.
    """
    probabilities = np.asarray(p)
    if probabilities.dtype != np.float32:
        probabilities = probabilities.astype(np.float64)
    if probabilities.ndim != 2 or probabilities.shape[1] < 2:
        raise ValueError(
            f"{name} must have shape [N, n] with n >= 2 classes; found shape {probabilities.shape}. "
            "Probabilities q of class 1 alone become np.column_stack([1 - q, q])"
        )
    if len(probabilities) == 0:
        raise ValueError(f"{name} must hold at least one sample; found none")
    finite = np.isfinite(probabilities).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(
            f"{name} must be finite; found NaN or infinity in {np.sum(~finite)} rows, the first is row {row}"
        )
    if probabilities.min() < 0:
        row = int(np.argmin(probabilities.min(axis=1)))
        raise ValueError(f"{name} must not be negative; found {probabilities.min():.6g} in row {row}")
    excess = np.abs(probabilities.sum(axis=1, dtype=np.float64) - 1)
    if excess.max() > SUM_TOLERANCE:
        row = int(np.argmax(excess))
        raise ValueError(
            f"every row of {name} must sum to 1 within {SUM_TOLERANCE}; row {row} sums to "
            f"{probabilities[row].sum(dtype=np.float64):.6g}. {otherwise}"
        )
    return probabilities


def check_labels(y: ArrayLike, samples: int, n: int, name: str = "y", table: str = "p") -> NDArray[np.int64]:
    """Return ``y`` [N] or [N, 1] as int64 [N], or say why it does not hold one class of 0..n-1 for every sample.

    ``name`` is the argument's in messages and ``table`` that of the probabilities beside it.
    """
    labels = np.asarray(y)
    if labels.shape not in ((samples,), (samples, 1)):
        raise ValueError(
            f"{name} must hold one label for each of the {samples} rows of {table}; found shape {labels.shape}. "
            f"One-hot labels become {name}.argmax(axis=1)"
        )
    labels = labels.reshape(samples)
    if labels.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must hold class numbers 0..{n - 1}; found dtype {labels.dtype}. "
            f"Names become numbers with np.unique({name}, return_inverse=True)"
        )
    outside = ~((labels >= 0) & (labels < n) & (labels == np.floor(labels)))
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(
            f"{name} must hold class numbers 0..{n - 1}, as {table} has {n} columns; found {labels[row]} in row {row}"
        )
    return labels.astype(np.int64)


def check_labels_and_probabilities(y: ArrayLike, p: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Check labels against class probabilities, as every function of this room does first.

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities: finite, not negative, each row summing to 1 within ``SUM_TOLERANCE``.

    Returns
    -------
    labels : ndarray, shape [N], int64
    probabilities : ndarray, shape [N, n]
        float32 where ``p`` was, else float64.

    Raises
    ------
    TypeError
        When ``y`` is not made of numbers.
    ValueError
        When a shape, a label or a row of ``p`` breaks the above, naming the first or worst row.

    Examples
    --------
    >>> labels, probabilities = check_labels_and_probabilities([[1], [0]], [[0.25, 0.75], [0.5, 0.5]])
    >>> labels, probabilities.shape
    (array([1, 0]), (2, 2))
    """
    probabilities = check_probabilities(p)
    samples, n = probabilities.shape
    return check_labels(y, samples, n), probabilities
