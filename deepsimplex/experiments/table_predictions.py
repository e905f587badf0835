"""Predict the rows of a table without labels, to a table."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepsimplex._utils.atomic_files import check_output
from deepsimplex._utils.messages import listed, warn_caller
from deepsimplex._utils.validation import check_number
from deepsimplex.datasets.tables import Table, decimal_hint, is_index, number_of, read_table
from deepsimplex.estimators.calibrated_classifier import CalibratedClassifier
from deepsimplex.estimators.saving import load
from deepsimplex.experiments.file_predictions import FilePredictions, predicted_columns, with_errors
from deepsimplex.experiments.image_reading import Model, input_shape, load_classifier

AnyModel = Model | CalibratedClassifier
"""A model as for images, the .npz file of a classifier's ``save``, or such a classifier."""


def predict_table(
    model: AnyModel,
    table: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    rejected: float = 0.05,
    target_column: str | None = None,
) -> FilePredictions:
    """Predict the rows of a .csv table.

    Parameters
    ----------
    model : path-like, SimplexClassifier or scikit-learn classifier of deepsimplex
        As in ``predict_files``, or the .npz file of a classifier's ``save``.
    table : path-like
        A table with a header, read as by ``datasets.load``. Columns are found by the names that the model was trained
        with, in any order; others are copied to the predictions, with a warning that names them.
    output : path-like, optional
        CSV file to write, as ``FilePredictions.write`` does. Default None: none.
    rejected : float
        As in ``predict_files``.
    target_column : str, optional
        A column that is no feature, if the model does not know the names of its columns: one that was fitted to an
        array. Columns are then taken in their order, with a warning. Default None.

    Returns
    -------
    FilePredictions
        Named by the lines of the table. ``given`` holds the columns that are copied.

    Raises
    ------
    FileNotFoundError
        When there is no such model or table.
    ValueError
        When columns are missing, or the model takes no table. Rows with other values than finite numbers are no error:
        ``FilePredictions.errors`` says why.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), _ = ds.datasets.load("digits")
    >>> ds.GMLVQ().fit(x[:300, 3], y[:300]).save(folder / "row.npz")
    >>> np.savetxt(folder / "new.csv", x[300:305, 3], delimiter=",", header="a,b,c,d,e,f,g,h", comments="")
    >>> with warnings.catch_warnings(action="ignore"):  # columns are taken in their order
    ...     print(predict_table(folder / "row.npz", folder / "new.csv").probabilities.shape)
    (5, 10)
    """
    check_number(rejected, "rejected", least=0, below=1)
    classifier, _ = load_any_classifier(model)
    names, count = features_of(classifier)
    place = Path(table).expanduser()
    if not place.is_file():
        raise FileNotFoundError(f"table must be a .csv file that exists; found {str(place)!r}")
    read = read_table(place, (names or [""])[0], least_columns=1)
    used = _used_columns(read, names, count, target_column, place)
    if output is not None:
        check_output(output, ".csv", samples=place)
    given = {}
    for k, name in enumerate(read.header):
        if k not in used:
            unnamed = f"column_{k + 1}" if "index" in read.header else "index"
            given[name or unnamed] = tuple(row[k] for row in read.lines.values())
    if given:
        warn_caller(f"columns of {place} that are no features were copied to the predictions: {listed(given)}")
    cells, header = [[row[k] for k in used] for row in read.lines.values()], [read.header[k] for k in used]
    X = np.array([[number_of(cell) for cell in row] for row in cells])
    errors = [_error(row, values, header) for row, values in zip(cells, X, strict=True)]
    readable = X[[not error for error in errors]]
    blocks = []
    if len(readable):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were checked
            samples = readable if isinstance(classifier, CalibratedClassifier) else readable.astype(np.float32)
            blocks.append(predicted_columns(classifier, samples, rejected))
    classes = class_names_of(classifier)
    predictions = FilePredictions(
        tuple(map(str, read.lines)), tuple(classes), **with_errors(blocks, errors, classes), given=given
    )
    if output is not None:
        predictions.write(output)
    return predictions


def load_any_classifier(model: AnyModel) -> tuple[Any, Path | None]:
    """Return the classifier of a path, a SimplexClassifier or one of scikit-learn's interface, and the path."""
    if isinstance(model, CalibratedClassifier):
        return model, None
    if isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".npz"):
        return load(model), Path(model).expanduser()
    return load_classifier(model)


def class_names_of(classifier: Any) -> list[str]:
    """Return the names of the classes as tables have them: numbers without a fraction as whole ones."""
    labels = classifier._class_labels()
    return [str(int(label) if isinstance(label, float) and label.is_integer() else label) for label in labels]


def features_of(classifier: Any) -> tuple[list[str] | None, int | None]:
    """Return the names of the columns that a classifier takes, and their number, as far as it knows them."""
    if isinstance(classifier, CalibratedClassifier):
        known = getattr(classifier, "feature_names_in_", None)
        known = getattr(getattr(classifier, "classifier", None), "feature_names_in_", known)
        return None if known is None else [str(name) for name in known], getattr(classifier, "n_features_in_", None)
    shape = input_shape(classifier)
    if not isinstance(shape, tuple) or (len(shape) != 2 and any(shape)):
        raise ValueError(f"model must take the rows of a table [N, d]; its input has the shape {shape}")
    return classifier.feature_names, shape[1]


def named_columns(header: Sequence[str], names: Sequence[str], path: str | os.PathLike[str]) -> list[int]:
    """Return the positions of a model's features among the columns of a table; raise ValueError for missing ones."""
    if missing := [name for name in names if header.count(name) != 1]:
        raise ValueError(
            f"{path} must have one column of each of the model's {len(names)} features; found "
            f"{header.count(missing[0])} of {listed(map(repr, missing))} among {listed(map(repr, header))}"
        )
    return [header.index(name) for name in names]


def check_count(columns: Sequence[str], count: int | None, path: str | os.PathLike[str]) -> None:
    """Raise ValueError if there are other than ``count`` columns of features."""
    if count not in (None, len(columns)):
        raise ValueError(
            f"{path} must have {count} columns of features, as many as the model takes; found {len(columns)}: "
            f"{listed(map(repr, columns))}. A column of labels is left out by target_column=NAME"
        )


def _used_columns(
    table: Table, names: Sequence[str] | None, count: int | None, target: str | None, path: Path
) -> list[int]:
    """Return the positions of the columns that are features, in the order of the classifier."""
    header = table.header
    if names is not None:
        return named_columns(header, names, path)
    if target is not None:
        table.column(target, "target_column", path)
    columns = zip(*table.lines.values(), strict=True)
    used = [k for k, values in enumerate(columns) if not is_index(header[k], values) and header[k] != target]
    check_count([header[k] for k in used], count, path)
    warn_caller(f"the model does not know the names of its columns: those of {path} were taken in their order")
    return used


def _error(texts: Sequence[str], values: Any, names: Sequence[str]) -> str:
    """Return why a row cannot be predicted; "" if it can."""
    wrong = np.flatnonzero(np.isnan(values))
    if not len(wrong):
        return ""
    text = texts[wrong[0]]
    return f"column {names[wrong[0]]!r} must hold a finite number; found {text!r}{decimal_hint(text)}"
