"""Predict image files without labels, to a table."""

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.atomic_files import check_output, replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.validation import check_number
from deepsimplex.calibration.unknown_score import are_unknown
from deepsimplex.datasets.image_files import IMAGE_SUFFIXES, list_images, read_files, warn_of_others, warn_of_remarks
from deepsimplex.datasets.image_lists import FILE, check_files, listed_files
from deepsimplex.datasets.tables import read_table
from deepsimplex.experiments.image_reading import ImageReading, Model, load_classifier
from deepsimplex.experiments.training_run import BATCH

RISKY = ("=", "+", "-", "@", "\t", "\r", "\n", "'")  # beginnings of a cell that spreadsheets may run as a formula

# Outputs of a classifier, with the attributes that hold them.
_COLUMNS = {
    "probabilities": "probabilities",
    "prediction_set": "sets",
    "familiarity": "familiarity",
    "unknown": "unknown_score",
    "decision": "decision",
}


@dataclass(frozen=True, eq=False)
class FilePredictions:
    """Predictions of a classifier for image files, one row per file.

    Attributes
    ----------
    files : tuple of str, length N
        Paths below the folder, or as they were listed.
    class_names : tuple of str, length n
    probabilities : ndarray, shape [N, n]
        Class probabilities; NaN for files that cannot be read, as other columns of numbers.
    errors : tuple of str, length N
        Why a file cannot be read; "" for the others.
    sets : ndarray of bool, shape [N, n], optional
        Sets of classes, if the classifier has them: of ``conformalize``, without groups.
    familiarity : ndarray, shape [N], optional
        If the classifier has a density: of ``fit_density``.
    unknown_score, unknown : ndarray, shape [N], float and bool, optional
        If the classifier has a score of unknown samples: of ``fit_unknown``, or of a head in closed form.
    decision : tuple of str, length N, optional
        Class names by the classifier's rule, and "abstain"; if it has a rule.
    given : dict of str to tuple of str, optional
        Columns of a table whose rows were predicted that are no features, by name. ``files`` are then its lines.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [np.nan, np.nan]])
    >>> table = FilePredictions(("a.png", "b.png"), ("cat", "dog"), p, ("", "it is damaged, or no image"))
    >>> list(table.columns())
    ['file', 'class', 'probability_cat', 'probability_dog', 'error']
    """

    files: tuple[str, ...]
    class_names: tuple[str, ...]
    probabilities: NDArray[np.floating]
    errors: tuple[str, ...]
    sets: NDArray[np.bool_] | None = None
    familiarity: NDArray[np.floating] | None = None
    unknown_score: NDArray[np.floating] | None = None
    unknown: NDArray[np.bool_] | None = None
    decision: tuple[str, ...] | None = None
    given: Mapping[str, tuple[str, ...]] | None = None

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns of the table by name; values of files with an error are None.

        "file", "class", "probability_NAME" of every class, then as far as the classifier has them "set" (class names
        as JSON), "familiarity", "unknown_score", "unknown" and "decision", and "error". pandas.DataFrame takes it. Of a
        table "line" comes in place of "file", then the columns ``given``, as "table_NAME" if there is another NAME.
        """
        predicted = [not error for error in self.errors]

        def column(values: Iterable[Any]) -> list[Any]:
            return [value if known else None for value, known in zip(values, predicted, strict=True)]

        names = np.array(self.class_names, dtype=object)
        of_classes = {f"probability_{name}": p for name, p in zip(names, self.probabilities.T.tolist(), strict=True)}
        likeliest = np.nan_to_num(self.probabilities).argmax(axis=1)
        sets = None if self.sets is None else [json.dumps(names[row].tolist(), ensure_ascii=False) for row in self.sets]
        others = {
            "set": sets,
            **{
                name: None if (array := getattr(self, name)) is None else array.tolist()
                for name in ("familiarity", "unknown_score", "unknown")
            },
            "decision": self.decision,
        }
        predictions = {
            "class": column(names[likeliest]),
            **{name: column(values) for name, values in of_classes.items()},
            **{name: column(values) for name, values in others.items() if values is not None},
            "error": list(self.errors),
        }
        if self.given is None:
            return {"file": list(self.files), **predictions}
        copied: dict[str, list[Any]] = {}
        for name, values in self.given.items():
            while name in {"line", *predictions, *copied}:
                name = f"table_{name}"
            copied[name] = list(values)
        return {"line": list(self.files), **copied, **predictions}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV in UTF-8, atomically.

        Texts that begin with one of ``= + - @ '``, a tab or a line end get a leading ``'``, so that spreadsheets do not
        take them for formulas.
        """
        columns = self.columns()
        with (
            replacing(path) as fresh,
            fresh.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
        ):
            writer = csv.writer(file)  # its line ends, CRLF, have it quote both characters inside texts
            writer.writerow(map(_cell, columns))
            writer.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))


def _cell(value: Any) -> Any:
    """Return the text of a cell that no spreadsheet takes for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(RISKY) else value


def predict_files(
    model: Model,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    rejected: float = 0.05,
    image_size: int | Sequence[int] | None = None,
    color: str | None = None,
    pixel_scale: float | None = None,
    antialias: bool | None = None,
) -> FilePredictions:
    """Predict images in files that have no labels, read and scaled as in training.

    Parameters
    ----------
    model : path-like or SimplexClassifier
        A run folder, the folder of a name (its newest run with a model), a .keras file, or the classifier itself.
    files : path-like, or sequence of path-like
        A folder, whose images and those of folders in it are predicted; an image; a .csv file with a column "file" or a
        .txt file with a path in each line, relative to its folder; or paths.
    output : path-like, optional
        CSV file to write, as ``FilePredictions.write`` does. Default None: none.
    rejected : float
        Share of known samples that may be called unknown, as in ``predict_or_unknown``. Default 0.05.
    image_size : int or (height, width), optional
        Default: the input shape of the model, or if it takes any size that of its first training images. Images of
        another size are scaled by bilinear interpolation, which a warning counts.
    color : {"rgb", "grayscale"}, optional
        Default: by the channels of the model's input, or of its first training images.
    pixel_scale : float, optional
        What pixels 0..255 are divided by. Default: 255, or 1 for a model that was first fitted to pixels 0..255.
    antialias : bool, optional
        Whether images are antialiased as they are scaled. Default: as in training: False for a model that was first
        fitted to batches, as ``keras.utils.image_dataset_from_directory`` yields them; else True, as ``datasets.load``
        reads arrays.

    Returns
    -------
    FilePredictions

    Raises
    ------
    FileNotFoundError
        When there is no such model or folder.
    ValueError
        When there is no image, or the model does not take images or does not state their size. Files that cannot be
        read are no error: ``FilePredictions.errors`` says why.

    Warns
    -----
    UserWarning
        When images are scaled, transparent or animated, and when other files are left out.

    Examples
    --------
    >>> from PIL import Image
    >>> import deepsimplex as ds
    >>> (x, y), _ = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), num_classes=10)
    >>> model.compile()
    >>> history = model.fit(x, y, epochs=2, verbose=0)
    >>> Image.fromarray((255 * x[0]).astype("uint8")).save(folder / "new.png")
    >>> predict_files(model, folder / "new.png").probabilities.shape
    (1, 10)
    """
    check_number(rejected, "rejected", least=0, below=1)
    classifier, _ = load_classifier(model)
    reading = ImageReading.of(classifier, image_size, color, pixel_scale, antialias)
    names, paths = _named_files(files)
    if output is not None:
        check_output(output, ".csv", samples=files)
    blocks, errors, others = [], [], []
    for begin in range(0, len(paths), BATCH):
        block = paths[begin : begin + BATCH]
        results = read_files(block, reading.size, reading.color, reading.antialias)
        warn_of_remarks(dict(zip(block, results, strict=True)))
        readable = [result.pixels for result in results if result.pixels is not None]
        errors += ["" if result.size else result.remark for result in results]
        others += [result.size for result in results if result.size not in (None, reading.size)]
        if readable:
            blocks.append(predicted_columns(classifier, reading.samples(np.stack(readable)), rejected))
    if others:
        warn_caller(
            f"{len(others)} of {len(paths)} images, the first of {others[0][0]} x {others[0][1]} pixels, were {reading}"
        )
    classes = classifier.class_names
    table = FilePredictions(tuple(names), tuple(classes), **with_errors(blocks, errors, classes))
    if output is not None:
        table.write(output)
    return table


def _named_files(files: Any) -> tuple[list[str], list[Path]]:
    """Return the names of files for a table, and their paths."""
    if not isinstance(files, str | os.PathLike):
        paths = [Path(file) for file in files]
        names = [os.fspath(file) for file in files]
    elif (place := Path(files).expanduser()).is_dir():
        paths, others = list_images(place)
        warn_of_others(others)
        names = [path.relative_to(place).as_posix() for path in paths]
    elif check_files(place, "or a list of files").suffix.lower() == ".csv":
        table = read_table(place, FILE, least_columns=1)
        names, paths = table.column(FILE, "a list of files", place), listed_files(place, table)
    elif place.suffix.lower() == ".txt":
        lines = place.read_text(encoding="utf-8-sig").split("\n")  # read_text has turned other line ends into these
        names = [line for line in lines if line.strip()]
        paths = [place.parent / name for name in names]
    else:
        names, paths = [place.name], [place]
    if not paths:
        raise ValueError(f"files must hold images ({', '.join(IMAGE_SUFFIXES)}); found none in {files}")
    return names, paths


def predicted_columns(model: Any, x: NDArray[Any], rejected: float) -> dict[str, NDArray[Any]]:
    """Return the columns of samples that the classifier can give."""
    predicted = model.predict_all(x, **({"batch_size": BATCH} if isinstance(model, keras.Model) else {}))
    columns = {column: predicted[name] for name, column in _COLUMNS.items() if name in predicted}
    if "unknown" in predicted:
        columns["unknown"] = are_unknown(predicted["unknown"], rejected)
    return columns


def with_errors(blocks: list[dict[str, NDArray[Any]]], errors: list[str], classes: Sequence[str]) -> dict[str, Any]:
    """Return the columns of all files, or rows, those with an error included."""
    readable = np.array([not error for error in errors])
    columns: dict[str, Any] = {"probabilities": np.full((len(errors), len(classes)), np.nan, np.float32)}
    for name in blocks[0] if blocks else ():
        values = np.concatenate([block[name] for block in blocks])
        fill: Any = np.nan if values.dtype.kind == "f" else 0
        columns[name] = np.full((len(errors), *values.shape[1:]), fill, values.dtype)
        columns[name][readable] = values
    if "decision" in columns:
        names = [*classes, "abstain"]  # which -1 is the last of
        columns["decision"] = tuple(names[number] for number in columns["decision"])
    return {**columns, "errors": tuple(errors)}
