"""Data of the scikit-learn classifiers, checked in scikit-learn's words: features, labels and training samples."""

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from itertools import filterfalse
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d, validate_data

from deepsimplex._utils.batching import is_sliced_by_rows, not_finite, row_blocks
from deepsimplex._utils.messages import guided, listed, warn_caller
from deepsimplex._utils.validation import check_sample_weight, is_missing, label_array, unmasked
from deepsimplex.samples import ArraySamples, Labels, Samples, is_stream
from deepsimplex.samples.samples import check_not_given_with_stream

# Columns named in a message, at most.
_LISTED = 5


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Add the name of the argument to errors of scikit-learn's checks that lack it."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if re.search(rf"\b{argument}\b", str(error)):
            raise
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{argument}: {error}") from error


def checked_rows(estimator: Any, X: ArrayLike, finite: bool = True, **options: Any) -> NDArray[np.float64]:
    """Check X by scikit-learn's ``validate_data``; return it in double precision.

    Text, categories that are not numbers and dates are errors, which name the columns and the pipeline that encodes
    them; so are, if ``finite``, missing and infinite values.
    """
    if is_stream(X):
        raise TypeError("X must be an array; found a stream of batches, which only stochastic processes are fitted to")
    if issparse(X):
        raise TypeError(
            "X must be dense; found a sparse array. Use X.toarray(), in pipelines OneHotEncoder(sparse_output=False) "
            "and ColumnTransformer(sparse_threshold=0)"
        )
    if isinstance(X, np.ndarray):
        X = unmasked(X, "X")
        if X.dtype.kind in "USMmV":
            raise TypeError(f"X must hold real numbers; found dtype {X.dtype}. {_encoding(estimator, [])}")
    try:
        with naming("X"):
            dtypes = getattr(X, "dtypes", ()) if getattr(X, "ndim", 0) == 2 else ()
            if any(getattr(dtype, "kind", "") in ("M", "m") for dtype in dtypes):
                raise TypeError("dates and durations are not numbers")  # which NumPy would convert
            rows = validate_data(estimator, X, dtype=np.float64, ensure_all_finite=False, **options)
    except (TypeError, ValueError) as error:
        if "feature names" not in str(error):
            _check_values(estimator, X, error)
        raise
    if finite:
        _check_finite(estimator, rows)
    return rows


def readable_rows(estimator: Any, X: ArrayLike, **options: Any) -> Any:
    """Check X as ``checked_rows`` does; return it as it is if it can be read in blocks of rows, else as an array."""
    if not is_sliced_by_rows(X):
        return checked_rows(estimator, X, **options)
    features: Any = X
    checked_rows(estimator, features[:2], finite=False, **options)
    _check_finite(estimator, features)
    return features


def _check_values(estimator: Any, X: Any, cause: Exception) -> None:
    """Raise an error with the columns of a table whose values cannot be read as numbers, if it has any."""
    others: dict[Any, str] = {}
    missing: dict[Any, None] = {}
    for name, values in _object_columns(X):
        for value in filterfalse(_is_number, values):
            if not is_missing(value):
                others[name] = f"{str(value)!r} in column {name!r}"
                break
            missing[name] = None
    if others:
        raise TypeError(
            f"X must hold real numbers; found {listed(others.values(), _LISTED)}. {_encoding(estimator, [*others])}"
        ) from cause
    if missing:
        raise guided("tables.md#text-categories-and-missing-values", _missing(estimator, "NaN", [*missing])) from cause


def _object_columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield names and values of the columns of a table that have no dtype of numbers."""
    if hasattr(X, "iloc") and X.ndim == 2:  # a frame of pandas, column by column
        columns = X.items()
    else:
        table = np.asarray(X, dtype=object)
        columns = zip(getattr(X, "columns", range(table.shape[-1])), table.T, strict=True) if table.ndim == 2 else ()
    for name, column in columns:
        if np.asarray(column).dtype.kind not in "biuf":
            yield name, np.asarray(column, dtype=object)


def _is_number(value: Any) -> bool:
    """Return whether a value can be read as a number, or is complex or a container, which other errors are about."""
    try:
        float(value)
    except (TypeError, ValueError):
        return isinstance(value, complex) or not isinstance(value, Hashable)
    return True


def _check_finite(estimator: Any, X: Any) -> None:
    """Raise ValueError with the columns of X [N, d] that are not finite, in scikit-learn's words."""
    if where := not_finite(X):
        kind, test = ("NaN", np.isnan) if np.isnan(X[where[0]][where[1]]) else ("infinity", np.isinf)
        columns = np.flatnonzero(np.any([test(X[rows]).any(axis=0) for rows in row_blocks(X)], axis=0))
        names = getattr(estimator, "feature_names_in_", np.arange(X.shape[1]))[columns].tolist()
        raise guided(
            "tables.md#text-categories-and-missing-values",
            _missing(estimator, kind, names, f", first in row {where[0]}"),
        )


def _encoding(estimator: Any, columns: list[Any]) -> str:
    """Return the pipeline that makes numbers of these columns of a table."""
    names = ", ".join([*map(repr, columns[:_LISTED]), *(["..."] if not 0 < len(columns) <= _LISTED else [])])
    classifier = f"{type(estimator).__name__}()"
    return (
        "Encode such columns in a pipeline: make_pipeline(make_column_transformer((OneHotEncoder("
        f"handle_unknown='ignore', sparse_output=False), [{names}]), remainder=SimpleImputer()), {classifier}), or "
        f"skrub.tabular_pipeline({classifier})"
    )


def _missing(estimator: Any, kind: str, columns: list[Any], where: str = "") -> str:
    """Return the message about missing values, and the pipeline that fills them in."""
    filled = "impute them" if kind == "NaN" else "replace them by NaN and impute"
    return (
        f"Input X contains {kind} in column{'s' * (len(columns) > 1)} {listed(map(repr, columns), _LISTED)}"
        f"{where}. Leave such rows out, or {filled}: make_pipeline(SimpleImputer(), "
        f"{type(estimator).__name__}())"
    )


def column_ranges(X: Any) -> NDArray[np.float64]:
    """Return the smallest and the largest value of every column of X [N, d], read in blocks, shape [2, d].

    Examples
    --------
    >>> column_ranges(np.array([[1.0, 5.0], [3.0, 4.0]])).tolist()
    [[1.0, 4.0], [3.0, 5.0]]
    """
    blocks = (np.asarray(X[rows], dtype=np.float64) for rows in row_blocks(X))
    lower, upper = zip(*((block.min(axis=0), block.max(axis=0)) for block in blocks), strict=True)
    return np.stack([np.min(lower, axis=0), np.max(upper, axis=0)])


def checked_labels(y: ArrayLike, classes: Any, soft: bool = True) -> Labels:
    """Check hard labels [N] by scikit-learn's rules, or soft labels [N, n], and number the sorted classes.

    Parameters
    ----------
    y : array_like
    classes : array_like, shape [n], optional
        All classes, in any order, which is that of the columns of soft labels; None takes those of y (0 to n - 1 for
        soft labels). scikit-learn's scorers take ``classes_`` for sorted.
    soft : bool
        Whether soft labels are accepted. Default True; else rows [N, n] must be one-hot.

    Raises
    ------
    ValueError
        For labels that are masked or missing, and values that are no class labels.
    """
    y = label_array(y)
    if y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind not in "biuf":
        raise ValueError(
            f"y must have shape [N], or hold shares [N, n] of the classes; found shape {y.shape} and dtype {y.dtype}"
        )
    labels = Labels.of(y if y.ndim == 2 and y.shape[1] > 1 else _hard_labels(y), classes=classes, soft=soft)
    order = np.argsort(labels.classes, kind="stable")
    if (order == np.arange(len(order))).all():
        return labels
    return Labels(
        labels.classes[order], labels.values[:, order] if labels.is_soft else np.argsort(order)[labels.values]
    )


def fitted_labels(y: ArrayLike, classes: Any) -> Labels:
    """Check labels as ``checked_labels`` does; the message names the meta-estimators that renumber labels."""
    try:
        return checked_labels(y, classes)
    except ValueError as error:
        numbers, names = np.asarray(y, dtype=object), np.asarray(classes, dtype=object)
        known = range(len(names)) if names.ndim == 1 else ()
        if all(isinstance(value, int) and not isinstance(value, bool) and value in known for value in numbers.flat):
            raise ValueError(
                f"{error}. VotingClassifier, BaggingClassifier, StackingClassifier, OneVsRestClassifier and "
                "cross_val_predict number labels from 0 before they fit: leave classes out there, or number the labels "
                "yourself, with classes=range(n)"
            ) from error
        raise


def _hard_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels [N] or [N, 1] as [N], or raise an error for values that are not class labels."""
    if y.ndim == 2 and y.shape[1] == 1:
        warn_caller("A column-vector y was passed when a 1d array was expected: pass y.ravel()", DataConversionWarning)
    with naming("y"):
        if y.size == 0:
            raise ValueError(f"y must hold at least one label; found shape {y.shape}")
        y = column_or_1d(y)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
    return y


def training_samples(classifier: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Samples, Labels]:
    """Check the data of a Gaussian-process classifier's ``fit``, and set its ``classes_`` and ``n_features_in_``.

    Returns
    -------
    samples : Samples
        Features X [N, d], ``values`` of ``Labels``, and weights [N]; those of weight 0 are left out.
    labels : Labels
        Of all rows of arrays; of a stream one per class, so that memory does not grow with N.
    """
    if is_stream(X):
        return _streamed_samples(classifier, X, y, sample_weight)
    features, labels, weights = classifier._readable(X, y, sample_weight)
    used = weights > 0
    return ArraySamples(features, labels.values, weights, used=used), labels[used]


def _streamed_samples(classifier: Any, X: Any, y: None, sample_weight: None) -> tuple[Samples, Labels]:
    check_not_given_with_stream(y=y, sample_weight=sample_weight, batch_size=classifier.batch_size)
    stream: Any = Samples.of(X, name="X")
    _check_stream(stream)
    labels, is_first, soft = None, True, False
    ranges: list[NDArray[np.float64]] = []
    classes: NDArray[Any] = np.empty(0)

    def used(x: Any, y: Any, weights: Any = None) -> tuple[Any, ...]:
        nonlocal is_first, soft, classes
        features = checked_rows(classifier, x, reset=is_first)
        ranges[:] = [column_ranges(np.concatenate([features, *ranges]))]
        if len(y) != len(x):
            raise ValueError(f"X and y must have as many rows; found {len(x)} and {len(y)}")
        weights = check_sample_weight(weights, len(x), all_zero=True)
        rows = weights > 0
        y = (y[:, 0] if y.shape[1:] == (1,) else y)[rows]
        if y.dtype.kind == "O":  # TensorFlow's text
            y = np.char.decode(y.astype(np.bytes_))
        if labels is not None:
            y = checked_labels(y, classifier.classes if soft else labels.classes).values if len(y) else y
        elif len(y):
            is_first, soft = False, y.ndim == 2
            named = checked_labels(y, classifier.classes) if soft or classifier.classes is not None else None
            names = named.classes if named is not None and soft else np.unique(_hard_labels(y))
            classes = np.union1d(classes, names) if len(classes) else names
        return features[rows], y, weights[rows]

    samples = stream.map(used)
    for _ in samples.read():
        pass
    if samples.num_rows < 2:
        raise ValueError(f"X must yield at least 2 samples of a weight above 0; found {samples.num_rows}")
    labels = Labels(classes, np.arange(len(classes))) if soft else checked_labels(classes, classifier.classes)
    classifier.classes_, classifier.feature_range_ = labels.classes, ranges[0]
    return samples, labels


def _check_stream(samples: Any) -> None:
    """Raise an error unless a stream can be read repeatedly and yields batches of numeric features and labels."""
    if not (samples.is_finite and samples.is_repeatable):
        raise guided(
            "large_tables.md#rows-that-do-not-fit-into-memory",
            "X must be a finite tf.data.Dataset or PyDataset, all of which is read more than once: without repeat(), "
            "or dataset.take(k); a generator cannot be read again",
        )
    spec = samples.spec
    if len(spec) not in (2, 3) or not all(isinstance(part, tf.TensorSpec) for part in spec):
        raise ValueError(
            "X must be a tf.data.Dataset of batches (features, label) or (features, label, sample_weight), each a "
            f"tensor; found {spec}"
        )
    if not (spec[0].dtype.is_floating or spec[0].dtype.is_integer or spec[0].dtype.is_bool):
        raise TypeError(f"X must hold real numbers; found dtype {spec[0].dtype.name}")
    if spec[0].shape.rank != 2 or spec[1].shape.rank not in (1, 2):
        raise ValueError(
            "X must be a tf.data.Dataset of batches, features [N, d] and labels [N] or [N, n]: dataset.batch(512); "
            f"found shapes {spec[0].shape} and {spec[1].shape}"
        )
