"""Labels that are names of classes, turned into the numbers of their columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.inputs import check_labels, unmasked


def check_classes(classes: Sequence[Any] | None, n: int, table: str = "membership") -> tuple[Any, ...]:
    """The names of the n columns of ``table``, 0..n-1 unless given, or an error."""
    if classes is None:
        return tuple(range(n))
    if isinstance(classes, str):
        raise ValueError(f"classes must be a sequence of one name per column; found the text {classes!r}")
    names = tuple(name.item() if isinstance(name, np.generic) else name for name in classes)
    if len(names) != n or len(set(names)) != n:
        raise ValueError(
            f"classes must name each of the {n} columns of {table} once; found {len(names)} names, "
            f"{len(set(names))} of them different"
        )
    return names


def check_named_labels(
    y: ArrayLike, name: str, classes: Sequence[Any] | None, shape: tuple[int, ...], table: str = "membership"
) -> NDArray[np.int64]:
    """Class numbers [N] of labels that are class numbers or, where ``classes`` is given, names of classes."""
    samples, n = shape
    if classes is None:
        otherwise = f"For other labels give classes=, the labels in the order of the columns of {table}"
        return check_labels(y, samples, n, name, table, otherwise)
    # Objects: NumPy would turn the 2 of ["x", 2] into text.
    labels = np.asarray(y, dtype=object) if isinstance(y, list | tuple) else unmasked(y, name)
    if labels.shape not in ((samples,), (samples, 1)):
        raise ValueError(
            f"{name} must hold one label for each of the {samples} rows of {table}; found shape {labels.shape}"
        )
    numbers = {label: number for number, label in enumerate(check_classes(classes, n, table))}
    found = labels.reshape(samples).tolist()
    for row, label in enumerate(found):
        if label not in numbers:
            raise ValueError(
                f"{name} must hold labels that classes names, {', '.join(map(repr, numbers))}; "
                f"found {label!r} in row {row}"
            )
    return np.array([numbers[label] for label in found], np.int64)
