"""Use a trained model on new data: predictions of image files as a table, and evaluation on other labeled data."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.atomic_files import check_writable, replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.validation import check_choice, check_number
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.classifier.keras_files import load_model
from deepsimplex.datasets.image_files import (
    IMAGE_SUFFIXES,
    MODES,
    check_size,
    list_images,
    read_files,
    warn_of_others,
    warn_of_remarks,
)
from deepsimplex.datasets.image_lists import FILE, listed_files
from deepsimplex.datasets.loading import load_tested
from deepsimplex.datasets.tables import read_table
from deepsimplex.experiments.finished_runs import trained_model
from deepsimplex.experiments.run_results import scores_of
from deepsimplex.experiments.saved_predictions import save_predictions
from deepsimplex.experiments.training_run import BATCH

RISKY = ("=", "+", "-", "@", "\t", "\r", "\n", "'")  # beginnings of a cell that spreadsheets may run as a formula
Model = str | os.PathLike[str] | SimplexClassifier


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

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns of the table by name; values of files with an error are None.

        "file", "class", "probability_NAME" of every class, then as far as the classifier has them "set" (class names
        as JSON), "familiarity", "unknown_score", "unknown" and "decision", and "error". pandas.DataFrame takes it.
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
        return {
            "file": list(self.files),
            "class": column(names[likeliest]),
            **{name: column(values) for name, values in of_classes.items()},
            **{name: column(values) for name, values in others.items() if values is not None},
            "error": list(self.errors),
        }

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
            writer.writerow(columns)
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
    image_size: Sequence[int] | None = None,
    color: str | None = None,
    pixel_scale: float | None = None,
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
    image_size : (height, width), optional
        Default: the input shape of the model. Images of another size are scaled, which a warning counts.
    color : {"rgb", "grayscale"}, optional
        Default: by the channels of the model's input.
    pixel_scale : float, optional
        What pixels 0..255 are divided by. Default: 255, or 1 for a model that was first fitted to pixels 0..255.

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
    classifier, _ = _loaded(model)
    reading = ImageReading.of(classifier, image_size, color, pixel_scale)
    names, paths = _named_files(files)
    if output is not None:
        check_writable(Path(output).expanduser().parent, "the folder of output")
    blocks, errors, others = [], [], []
    for begin in range(0, len(paths), BATCH):
        block = paths[begin : begin + BATCH]
        results = read_files(block, reading.size, reading.color)
        warn_of_remarks(dict(zip(block, results, strict=True)))
        readable = [result.pixels for result in results if result.pixels is not None]
        errors += ["" if result.size else result.remark for result in results]
        others += [result.size for result in results if result.size not in (None, reading.size)]
        if readable:
            blocks.append(_predicted(classifier, reading.samples(np.stack(readable)), rejected))
    if others:
        height, width = reading.size
        warn_caller(
            f"{len(others)} of {len(paths)} images have other sizes than {height} x {width}, such as {others[0][0]} x "
            f"{others[0][1]}, and were scaled, as the model takes that size"
        )
    table = FilePredictions(tuple(names), tuple(classifier.class_names), **_rows(blocks, errors, classifier))
    if output is not None:
        table.write(output)
    return table


@dataclass(frozen=True)
class ImageReading:
    """How images are read for a classifier: (height, width), color, and what pixels 0..255 are divided by."""

    size: tuple[int, int]
    color: str
    pixel_scale: float

    @classmethod
    def of(
        cls,
        model: SimplexClassifier,
        image_size: Any = None,
        color: str | None = None,
        pixel_scale: float | None = None,
    ) -> "ImageReading":
        """Read size and color from the shape of a model's input, and the scale from what it was first fitted to."""
        shape = _input_shape(model)
        if not _is_image(shape):
            raise ValueError(f"model must take images [N, H, W] or [N, H, W, C]; its input has the shape {shape}")
        channels = shape[3] if len(shape) == 4 else 1
        size = shape[1:3] if image_size is None else check_size(image_size)
        if color is None and channels in (1, 3):
            color = "rgb" if channels == 3 else "grayscale"
        if color is None or None in size:
            missing = "color" if color is None else "image_size"
            example = "rgb" if color is None else "[224, 224]"
            raise ValueError(
                f"{missing} must be given, such as {missing}={example}: the model's input {shape} has none"
            )
        check_choice(color, "color", MODES)
        if pixel_scale is None:
            pixel_scale = float(keras.ops.convert_to_numpy(model.class_probabilities.pixel_scale))
            if pixel_scale <= 0:
                raise ValueError(
                    "pixel_scale must be given, what pixels 0 to 255 are divided by: the model was fitted to other "
                    "numbers than pixels from 0 to 1 or from 0 to 255"
                )
        return cls((size[0], size[1]), color, check_number(pixel_scale, "pixel_scale", above=0))

    def samples(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Return pixels as the model takes them: float32, scaled, or bytes as they are."""
        return pixels if self.pixel_scale == 1 else np.divide(pixels, self.pixel_scale, dtype=np.float32)


def _input_shape(model: SimplexClassifier) -> Any:
    try:
        return model.input_shape
    except AttributeError:  # of a backbone that states no input
        return (None, None, None, None)


def _is_image(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) in (3, 4)


def _loaded(model: Model) -> tuple[SimplexClassifier, Path | None]:
    """Return the classifier of a path, and the path."""
    path = None if isinstance(model, keras.Model) else trained_model(model)
    classifier = model if path is None else load_model(path)
    if not isinstance(classifier, SimplexClassifier):
        raise ValueError(
            f"model must be a SimplexClassifier or the path of one; found {type(classifier).__name__}"
            f"{'' if path is None else f' in {path}'}"
        )
    return classifier, path


def _named_files(files: Any) -> tuple[list[str], list[Path]]:
    """Return the names of files for a table, and their paths."""
    if not isinstance(files, str | os.PathLike):
        paths = [Path(file) for file in files]
        names = [os.fspath(file) for file in files]
    elif (place := Path(files).expanduser()).is_dir():
        paths, others = list_images(place)
        warn_of_others(others)
        names = [path.relative_to(place).as_posix() for path in paths]
    elif not place.exists():
        raise FileNotFoundError(
            f"files must be a folder of images, an image, or a list of files; found no {str(place)!r}"
        )
    elif place.suffix.lower() == ".csv":
        table = read_table(place, FILE, least_columns=1)
        names, paths = table.column(FILE, "a list of files", place), listed_files(place, table)
    elif place.suffix.lower() == ".txt":
        names = [line for line in place.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        paths = [place.parent / name for name in names]
    else:
        names, paths = [place.name], [place]
    if not paths:
        raise ValueError(f"files must hold images ({', '.join(IMAGE_SUFFIXES)}); found none in {files}")
    return names, paths


def _predicted(model: SimplexClassifier, x: NDArray[Any], rejected: float) -> dict[str, NDArray[Any]]:
    """Return the columns of samples that the classifier can give."""
    p = model.predict_proba(x, batch_size=BATCH)
    columns = {"probabilities": p}
    if model.prediction_sets is not None and not len(model.prediction_sets.groups_):
        columns["sets"] = model.prediction_sets.predict(p)
    if model.density is not None:
        columns["familiarity"] = model.familiarity(x, batch_size=BATCH)
    if model.unknown is not None:
        columns["unknown_score"] = model.unknown_score(x, batch_size=BATCH)
        columns["unknown"] = columns["unknown_score"] > 1.0 - rejected
    if getattr(model, "decision_rule", None) is not None:
        columns["decision"] = np.asarray(model.decide(x))
    return columns


def _rows(blocks: list[dict[str, NDArray[Any]]], errors: list[str], model: SimplexClassifier) -> dict[str, Any]:
    """Return the columns of all files, those with an error included."""
    readable = np.array([not error for error in errors])
    columns: dict[str, Any] = {"probabilities": np.full((len(errors), model.num_classes), np.nan, np.float32)}
    for name in blocks[0] if blocks else ():
        values = np.concatenate([block[name] for block in blocks])
        fill: Any = np.nan if values.dtype.kind == "f" else 0
        columns[name] = np.full((len(errors), *values.shape[1:]), fill, values.dtype)
        columns[name][readable] = values
    if "decision" in columns:
        names = [*model.class_names, "abstain"]  # which -1 is the last of
        columns["decision"] = tuple(names[number] for number in columns["decision"])
    return {**columns, "errors": tuple(errors)}


def evaluate_on(
    model: Model,
    data: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    pixel_scale: float | None = None,
    announce: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a trained model on other labeled data, such as those of another clinic.

    Parameters
    ----------
    model : path-like or SimplexClassifier
        As in ``predict_files``.
    data : path-like
        As in ``datasets.load``. All samples count, or those of a test part if the data have one. Their classes are
        matched with the model's by name: some may be missing, and others are left out with a warning. Images are read
        and scaled as in training; those that cannot be read are left out with a warning.
    output : path-like, optional
        JSON file of the scores, beside which an .npz file of the same name gets the predictions, for
        ``write_report``. Default: "evaluation_DATA.json" beside the file of the model; none for a model in memory.
    pixel_scale : float, optional
        As in ``predict_files``.
    announce : callable
        Called with the report and the paths written, such as ``print``. Default: nothing is shown.
    **options
        Of ``datasets.load``: image_size, color, target_column, ...

    Returns
    -------
    dict
        The scores of ``evaluation.report``, "samples_of_class", and as far as the model has a density or a score of
        unknown samples "unfamiliar_share" and "unknown_share".

    Raises
    ------
    FileNotFoundError, ValueError
        When model or data cannot be loaded, or have no class in common.

    Examples
    --------
    >>> import deepsimplex as ds
    >>> (x, y), _ = ds.datasets.load("digits")
    >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), num_classes=10)
    >>> model.compile()
    >>> history = model.fit(x, y, epochs=2, verbose=0)
    >>> evaluate_on(model, "digits")["samples"]
    1797
    """
    classifier, path = _loaded(model)
    source = Path(data)
    is_files = source.is_dir() or source.suffix.lower() == ".csv"
    reading = None
    if _is_image(_input_shape(classifier)):
        reading = ImageReading.of(classifier, options.pop("image_size", None), options.pop("color", None), pixel_scale)
    if is_files and reading is not None:
        options = {"image_size": reading.size, "color": reading.color, "on_error": "skip", **options}
    as_bytes = reading is not None and (is_files or reading.pixel_scale == 1)
    loaded = load_tested(data, classifier.class_names, dtype="uint8" if as_bytes else "float32", **options)
    x = reading.samples(loaded.x) if reading is not None and as_bytes else loaded.x
    p = classifier.predict_proba(x, batch_size=BATCH)
    report, scores = scores_of(classifier, x, loaded.y, p)
    counts = dict(
        zip(classifier.class_names, np.bincount(loaded.y, minlength=classifier.num_classes).tolist(), strict=True)
    )
    scores |= {"samples_of_class": counts, "data": os.fspath(data)}
    if missing := [name for name, count in counts.items() if not count]:
        announce(f"no sample of class {', '.join(missing)} in {data}")
    announce(str(report))
    if output is None and path is not None:
        output = path.parent / f"evaluation_{source.resolve().stem}.json"
    if output is not None:
        target = Path(output).expanduser()
        with replacing(target) as fresh:
            fresh.write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
        images = x if x.ndim >= 3 and reading is not None and reading.pixel_scale in (1, 255) else None
        predictions = target.with_suffix(".npz")
        save_predictions(predictions, loaded.y, p, images=images, class_names=classifier.class_names)
        announce(f"scores in {target}, predictions in {predictions}")
    return scores
