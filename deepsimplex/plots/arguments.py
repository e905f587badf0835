"""What the figures of classifiers are given, checked; a classifier is anything that has ``predict_proba``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.validation import check_probabilities

BLOCK_ROWS, BLOCK_VALUES = 4096, 2**23
"""Rows, and numbers, that a classifier is asked about at once."""


def real_array(values: ArrayLike, name: str) -> NDArray[np.floating]:
    """``values`` as float32 (where they were) or float64, finite, or an error that names them.

    Examples
    --------
    >>> real_array([[1.0, float("nan")]], "X")
    Traceback (most recent call last):
    ValueError: X must be finite; found nan at [0, 1]
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers; found dtype {array.dtype}")
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        where = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise ValueError(f"{name} must be finite; found {array[tuple(where)]} at {where}")
    return array


def check_names(names: Sequence[str] | None, count: int, argument: str, of: str) -> list[str] | None:
    """``names`` as a list of ``count`` strings, or None, or an error."""
    if names is None:
        return None
    found = [str(name) for name in names]
    if isinstance(names, str) or len(found) != count:
        raise ValueError(f"{argument} must hold one name for each of the {count} {of}; found {names!r}")
    return found


def check_levels(levels: ArrayLike, argument: str, low: float, high: float) -> NDArray[np.floating]:
    """Levels of contours in rising order, between two bounds that are none, or an error."""
    array = np.unique(real_array(levels, argument))
    if np.ndim(levels) != 1 or np.any((array <= low) | (array >= high)):
        bounds = f"between {low:g} and {high:g}" if high < np.inf else f"above {low:g}"
        raise ValueError(f"{argument} must be a list of numbers {bounds}; found {levels!r}")
    return array


def class_numbers(labels: ArrayLike, classes: Sequence[Any], count: int, argument: str) -> NDArray[np.int64]:
    """The place in ``classes`` of every label.

    Examples
    --------
    >>> class_numbers(["dog", "cat"], ["cat", "dog"], 2, "y").tolist()
    [1, 0]
    >>> class_numbers(["dog", "cut"], ["cat", "dog"], 2, "y")
    Traceback (most recent call last):
    ValueError: y must hold classes of the classifier, ['cat', 'dog']; found 'cut' in row 1; did you mean 'cat'?
    """
    array = np.asarray(labels)
    if array.shape not in ((count,), (count, 1)):
        raise ValueError(f"{argument} must hold one class for each of {count} rows; found shape {array.shape}")
    places = {label: k for k, label in enumerate(classes)}
    found = array.reshape(count).tolist()
    for row, label in enumerate(found):
        if label not in places:
            shown = list(classes) if len(classes) <= 10 else [*classes[:9], "..."]
            hint = did_you_mean(label, [str(name) for name in classes]) if isinstance(label, str) else ""
            raise ValueError(
                f"{argument} must hold classes of the classifier, {shown}; found {label!r} in row {row}{hint}"
            )
    return np.array([places[label] for label in found], dtype=np.int64)


@dataclass(frozen=True)
class Asked:
    """A classifier that is asked about rows of features, block by block.

    Attributes
    ----------
    classifier : object
        Has ``predict_proba``.
    shape : tuple of int
        Of the features of one sample, as the classifier takes them.
    dtype : dtype
        Of features, as the classifier takes them.
    """

    classifier: Any
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def about(cls, classifier: Any, X: NDArray[np.floating]) -> "Asked":
        """A classifier of features like X [N, ...]."""
        if not callable(getattr(classifier, "predict_proba", None)):
            raise TypeError(
                f"classifier must have predict_proba(X) that gives probabilities [N, n]; found "
                f"{type(classifier).__name__}, which has none. decision_regions draws any object that has the method"
            )
        return cls(classifier, X.shape[1:], X.dtype)

    def _blocks(self, rows: NDArray) -> list[NDArray]:
        size = int(min(BLOCK_ROWS, max(64, BLOCK_VALUES // rows.shape[1])))
        return [
            rows[start : start + size].reshape(-1, *self.shape).astype(self.dtype)
            for start in range(0, len(rows), size)
        ]

    def probabilities(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Class probabilities [M, n] of rows [M, d]."""
        answers = [np.asarray(self.classifier.predict_proba(block)) for block in self._blocks(rows)]
        try:
            p = check_probabilities(np.concatenate(answers))
        except ValueError as error:
            raise ValueError(
                f"{type(self.classifier).__name__}.predict_proba gives no probabilities: {error}"
            ) from error
        if len(p) != len(rows):
            raise ValueError(
                f"{type(self.classifier).__name__}.predict_proba must give one row for each of its {len(rows)} "
                f"samples; found {len(p)}"
            )
        return p.astype(np.float64)

    def variance(self, rows: NDArray[np.floating], variance: Any) -> NDArray[np.float64]:
        """Variance [M] at rows [M, d], as a callable gives it or, where it is True, ``predict_latent``."""
        function = variance
        if variance is True:
            if not callable(getattr(self.classifier, "predict_latent", None)):
                raise TypeError(
                    f"variance=True asks for a classifier with predict_latent(X); {type(self.classifier).__name__} has "
                    "none. Give a callable X -> [N]"
                )
            function = self._latent_variance
        elif not callable(variance):
            raise TypeError(f"variance must be True or a callable X -> [N]; found {variance!r}")
        blocks = self._blocks(rows)
        found = [np.asarray(function(block)) for block in blocks]
        for values, block in zip(found, blocks, strict=True):
            if values.shape not in ((len(block),), (len(block), 1)):
                raise ValueError(
                    f"variance must give one number for each of {len(block)} rows; found shape {values.shape}"
                )
        values = real_array(np.concatenate([part.reshape(-1) for part in found]), "what variance gives")
        if values.min() < 0:
            raise ValueError(f"what variance gives must not be negative; found {values.min():.6g}")
        return values.astype(np.float64)

    def _latent_variance(self, block: NDArray) -> NDArray:
        scale = np.asarray(self.classifier.predict_latent(block).scale)
        dimensions = scale.shape[1]
        return np.sum(np.square(scale), axis=tuple(range(1, scale.ndim))) / dimensions
