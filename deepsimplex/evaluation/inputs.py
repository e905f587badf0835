"""The one place where labels and class probabilities are checked."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SUM_TOLERANCE = 1e-3
"""How far the probabilities of one sample may sum from 1: room for a softmax computed in half precision."""


ROUNDING = 1e-6
"""How far a probability may lie below 0 and count as 0: 1 - q of a q that single precision rounded above 1."""


def unmasked(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return ``values`` as an array, or an error where NumPy would uncover what a mask hides."""
    if np.ma.is_masked(values):
        hidden = np.ma.getmaskarray(values)
        raise ValueError(
            f"{name} must not be masked; found {hidden.sum()} masked values, the first in row "
            f"{int(np.argwhere(hidden)[0, 0])}. Leave such samples out"
        )
    return np.asarray(values)


def check_probabilities(
    p: ArrayLike, name: str = "p", otherwise: str = "Give probabilities, not logits or scores", *, partial: bool = False
) -> NDArray[np.floating]:
    """Return ``p`` as float32 (where it was) or float64 [N, n], or say why it does not hold class probabilities.

    ``name`` is the argument's in messages; ``otherwise`` says what to do where rows do not sum to 1. ``partial`` lets
    rows sum to less than 1.
    """
    probabilities = unmasked(p, name)
    if probabilities.dtype.kind not in "biufO":
        raise TypeError(f"{name} must hold real numbers; found dtype {probabilities.dtype}")
    if probabilities.dtype != np.float32:
        try:
            probabilities = probabilities.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must hold real numbers; found objects: {error}") from error
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
    least = probabilities.min()
    if least < -ROUNDING:
        row = int(np.argmin(probabilities.min(axis=1)))
        raise ValueError(f"{name} must not be negative; found {least:.6g} in row {row}")
    if least < 0:
        probabilities = np.maximum(probabilities, 0)
    sums = probabilities.sum(axis=1, dtype=np.float64)
    excess = sums - 1 if partial else np.abs(sums - 1)
    if excess.max() > SUM_TOLERANCE:
        row = int(np.argmax(excess))
        wanted = "to no more than 1" if partial else "to 1"
        raise ValueError(
            f"every row of {name} must sum {wanted} within {SUM_TOLERANCE}; row {row} sums to {sums[row]:.6g}. "
            f"{otherwise}"
        )
    return probabilities


def check_labels(
    y: ArrayLike, samples: int, n: int, name: str = "y", table: str = "p", otherwise: str | None = None
) -> NDArray[np.int64]:
    """Return ``y`` [N] or [N, 1] as int64 [N], or say why it does not hold one class of 0..n-1 for every sample.

    ``name`` is the argument's in messages and ``table`` that of the probabilities beside it; ``otherwise`` says what
    to do with labels that are no numbers.
    """
    labels = unmasked(y, name)
    if labels.shape not in ((samples,), (samples, 1)):
        raise ValueError(
            f"{name} must hold one label for each of the {samples} rows of {table}; found shape {labels.shape}. "
            f"One-hot labels become {name}.argmax(axis=1)"
        )
    labels = labels.reshape(samples)
    if labels.dtype.kind == "O" and all(isinstance(label, Real) for label in labels):
        labels = labels.astype(np.float64)  # a column of a table with mixed types
    if labels.dtype.kind not in "biuf":
        # Not np.unique(y, return_inverse=True): it misnumbers where a class has no sample.
        hint = otherwise or (
            f"Names become numbers with [names.index(label) for label in {name}], where names lists the classes in the "
            f"order of the columns of {table}: list(model.classes_)"
        )
        raise TypeError(f"{name} must hold class numbers 0..{n - 1}; found dtype {labels.dtype}. {hint}")
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
        Class probabilities: finite, each row summing to 1 within ``SUM_TOLERANCE``, not negative but for rounding:
        what lies above -1e-6 counts as 0.

    Returns
    -------
    labels : ndarray, shape [N], int64
    probabilities : ndarray, shape [N, n]
        float32 where ``p`` was, else float64.

    Raises
    ------
    TypeError
        When ``y`` or ``p`` is not made of real numbers.
    ValueError
        When a shape, a label or a row of ``p`` breaks the above, or is masked, naming the first or worst row.

    Examples
    --------
    >>> labels, probabilities = check_labels_and_probabilities([[1], [0]], [[0.25, 0.75], [0.5, 0.5]])
    >>> labels, probabilities.shape
    (array([1, 0]), (2, 2))
    """
    probabilities = check_probabilities(p)
    samples, n = probabilities.shape
    return check_labels(y, samples, n), probabilities
