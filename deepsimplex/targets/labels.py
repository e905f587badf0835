"""What counts as labels: checked here, once, for every target."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.geometry.vertices import check_num_classes

SUM_TOLERANCE = 1e-5  # of the rows of soft labels: what float32 softmax outputs need


def class_labels(y: ArrayLike, num_classes: int | None = None) -> tuple[NDArray[np.int64], int]:
    """Check labels that name one class per sample.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or [N, n]
        Whole numbers from 0 (floats that are whole are taken too), or rows of a one-hot matrix.
    num_classes : int, optional
        Number of classes n. None (default) takes the largest label plus one, or the columns of a one-hot matrix.

    Returns
    -------
    labels : ndarray, shape [N], int64
    num_classes : int

    Raises
    ------
    TypeError
        When y does not hold numbers.
    ValueError
        When y is empty, of another shape, not whole, negative, too large for ``num_classes``, or soft.

    Examples
    --------
    >>> class_labels([0, 2, 1])
    (array([0, 2, 1]), 3)
    """
    labels, n = any_labels(y, num_classes)
    if labels.ndim == 1:
        return labels, n
    if not np.all((labels == 0) | (labels == 1)):
        row = int(np.argmax(np.any((labels != 0) & (labels != 1), axis=1)))
        raise ValueError(
            f"y must name one class per sample for this target; found soft labels, row {row} is {labels[row]}. "
            "Pass y.argmax(axis=1), or use a target made from labels alone (ILR, Dirichlet, OneHot, Vertices)"
        )
    return np.argmax(labels, axis=1), n


def any_labels(y: ArrayLike, num_classes: int | None = None) -> tuple[NDArray[Any], int]:
    """Check labels that name one class per sample, or soft labels that spread each sample over the classes.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or [N, n]
        One class per sample as in ``class_labels``, or rows that are non-negative and sum to one.
    num_classes : int, optional
        Number of classes n. None (default) takes the largest label plus one, or the columns of soft labels.

    Returns
    -------
    labels : ndarray, shape [N] (int64) or [N, n] (float64)
    num_classes : int

    Raises
    ------
    TypeError, ValueError
        As ``class_labels``, except for soft labels.

    Examples
    --------
    >>> any_labels([[0.5, 0.5], [1, 0]])
    (array([[0.5, 0.5],
           [1. , 0. ]]), 2)
    """
    array = np.asarray(y)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"y must hold whole numbers from 0 or class probabilities; found dtype {array.dtype}. "
            "numpy.unique(y, return_inverse=True) numbers the classes of other labels"
        )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"y must have shape [N] or [N, n] with N >= 1; found shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError("y must be finite; found NaN or infinity")
    if num_classes is not None:
        check_num_classes(num_classes)
    return _hard(array, num_classes) if array.ndim == 1 else _soft(array, num_classes)


def _hard(y: NDArray[Any], num_classes: int | None) -> tuple[NDArray[np.int64], int]:
    labels = y.astype(np.int64)
    if np.any(labels != y):
        row = int(np.argmax(labels != y))
        raise ValueError(f"y must hold whole numbers; found {y[row]} at sample {row}")
    if labels.min() < 0:
        row = int(np.argmin(labels))
        raise ValueError(f"y must not be negative: classes are numbered from 0; found {labels[row]} at sample {row}")
    n = int(labels.max()) + 1 if num_classes is None else int(num_classes)
    if n < 2:
        raise ValueError("y must name at least 2 classes; found class 0 alone. Pass num_classes if there are more")
    if labels.max() >= n:
        row = int(np.argmax(labels))
        raise ValueError(f"y must lie in 0..{n - 1} for num_classes={n}; found {labels[row]} at sample {row}")
    return labels, n


def _soft(y: NDArray[Any], num_classes: int | None) -> tuple[NDArray[np.float64], int]:
    if num_classes is not None and y.shape[1] != num_classes:
        raise ValueError(f"soft labels y must have num_classes={num_classes} columns; found shape {y.shape}")
    memberships = y.astype(np.float64)
    sums = memberships.sum(axis=1)
    wrong = np.any(memberships < 0, axis=1) | (np.abs(sums - 1) > SUM_TOLERANCE)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise ValueError(
            f"rows of soft labels y must be non-negative and sum to one; found {memberships[row]} at sample {row}"
        )
    return memberships / sums[:, None], y.shape[1]


def check_lengths(x: Any, y: ArrayLike) -> None:
    """Refuse samples and labels of different number."""
    samples, labels = len(x), len(np.asarray(y))
    if samples != labels:
        raise ValueError(f"x and y must have the same number of samples; found {samples} and {labels}")


def check_class_sizes(labels: NDArray[np.int64], num_classes: int, *, attraction: bool, repulsion: bool) -> None:
    """Refuse classes too small for distances to them to exist.

    Parameters
    ----------
    labels : ndarray, shape [N], int64
    num_classes : int
    attraction : bool
        Whether a sample's own class is asked for neighbors: it then needs two samples.
    repulsion : bool
        Whether the other classes are asked for neighbors: each then needs one.

    Raises
    ------
    ValueError
        Naming the classes that are too small.
    """
    sizes = np.bincount(labels, minlength=num_classes)
    if repulsion and not np.all(sizes):
        raise ValueError(
            f"every class needs samples, since latents are repelled by distances to each; found none of class "
            f"{_listed(np.flatnonzero(sizes == 0))} among num_classes={num_classes}. Renumber the classes that are "
            "there, or use a target made from labels alone (ILR, Dirichlet, OneHot, Vertices)"
        )
    if attraction and np.any(sizes == 1):
        raise ValueError(
            "attraction needs at least two samples of a class; found a single one of class "
            f"{_listed(np.flatnonzero(sizes == 1))}. Add samples, or set attraction_strength=0 (gamma=1)"
        )


def _listed(classes: NDArray[np.int64], most: int = 10) -> str:
    shown = ", ".join(str(c) for c in classes[:most])
    return shown if len(classes) <= most else f"{shown} and {len(classes) - most} more"
