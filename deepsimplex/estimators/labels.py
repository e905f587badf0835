"""Checked features and labels of the scikit-learn classifiers: names of any kind, or soft labels."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from deepsimplex._utils.batching import is_sliced_by_rows, not_finite
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.validation import check_class_names, check_labels, unmasked


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Add the name of the argument to errors of scikit-learn's checks that lack it."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if re.search(rf"\b{argument}\b", str(error)):
            raise
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{argument}: {error}") from error


def checked_rows(estimator: Any, X: ArrayLike, **options: Any) -> NDArray[np.float64]:
    """Check X by scikit-learn's ``validate_data``; return it in double precision. Text and dates are rejected."""
    if isinstance(X, tf.data.Dataset):
        raise TypeError("X must be an array; found a tf.data.Dataset, which only stochastic processes are fitted to")
    if isinstance(X, np.ndarray):
        X = unmasked(X, "X")
        if X.dtype.kind in "USMmV":
            raise TypeError(f"X must hold real numbers; found dtype {X.dtype}")
    with naming("X"):
        return validate_data(estimator, X, dtype=np.float64, **options)


def readable_rows(estimator: Any, X: ArrayLike, **options: Any) -> Any:
    """Check X as ``checked_rows`` does; return it as it is if it can be read in blocks of rows, else as an array."""
    if not is_sliced_by_rows(X):
        return checked_rows(estimator, X, **options)
    features: Any = X
    checked_rows(estimator, features[:2], ensure_all_finite=False, **options)
    check_finite(features)
    return features


def check_finite(X: Any) -> None:
    """Raise ValueError with the first number of X [N, d] that is not finite, in scikit-learn's words."""
    if where := not_finite(X):
        row, column = where
        kind = "NaN" if np.isnan(X[row][column]) else "infinity"
        raise ValueError(f"Input X contains {kind} in row {row}, column {column}. Leave such rows out, or impute")


@dataclass(frozen=True)
class Labels:
    """Labels of training samples.

    Attributes
    ----------
    classes : ndarray, shape [n]
        Names of the classes, in the order of the columns of predicted probabilities.
    memberships : ndarray, shape [N] (int64) or [N, n] (float64)
        Numbers of the classes, or soft labels.
    """

    classes: NDArray[Any]
    memberships: NDArray[Any]

    @classmethod
    def of(cls, y: ArrayLike, classes: Any) -> "Labels":
        """Number the classes of hard labels y [N], or name the columns of soft ones [N, n].

        Parameters
        ----------
        y : array_like
        classes : array_like, shape [n], optional
            All classes; None takes those of y, sorted (0 to n - 1 for soft labels).
        """
        y = unmasked(y, "y")
        if y.ndim == 2 and y.shape[1] > 1:
            shares, n = check_labels(y, soft=True)
            check_class_names(classes, n, of="soft labels y")
            return cls(np.arange(n) if classes is None else np.asarray(classes), shares)
        y = hard_labels(y)
        with naming("y"):
            found = np.unique(y)
        names = found if classes is None else unmasked(classes, "classes")
        if names.ndim != 1:
            raise ValueError(f"classes must have shape [n]; found shape {names.shape}")
        check_class_names(names.tolist(), len(names), of="probabilities")
        numbers = class_numbers(y, names)
        if len(names) < 2:
            raise ValueError(
                f"y must name at least 2 classes; found one class alone, {names[0]!r}. Name the others in classes"
            )
        return cls(names, numbers)

    def __getitem__(self, rows: Any) -> "Labels":
        """The labels of some samples."""
        return Labels(self.classes, self.memberships[rows])

    @property
    def hard(self) -> NDArray[np.int64]:
        """The number of the likeliest class of every sample."""
        return self.memberships if self.memberships.ndim == 1 else np.argmax(self.memberships, axis=1)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Memberships [N, n]: one-hot rows of hard labels."""
        return np.eye(len(self.classes))[self.memberships] if self.memberships.ndim == 1 else self.memberships


def hard_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels [N] or [N, 1] as [N], or raise an error for values that are not class labels."""
    if y.ndim == 2 and y.shape[1] == 1:
        warn_caller(
            "A column-vector y was passed when a 1d array was expected: pass y.ravel()",
            DataConversionWarning,
        )
    with naming("y"):
        if y.size == 0:
            raise ValueError(f"y must hold at least one label; found shape {y.shape}")
        y = column_or_1d(y)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
    return y


def class_numbers(y: NDArray[Any], names: NDArray[Any]) -> NDArray[np.int64]:
    """Return the positions [N] of hard labels y [N] among the names of the classes."""
    unknown = np.setdiff1d(y, names)
    if len(unknown):
        row = int(np.argmax(np.isin(y, unknown)))
        raise ValueError(
            f"y holds labels that classes={names.tolist()} does not: {unknown.tolist()}, the first in row {row}"
        )
    order = np.argsort(names)
    return order[np.searchsorted(names, y, sorter=order)].astype(np.int64)
