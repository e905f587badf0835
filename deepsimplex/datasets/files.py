"""Read labeled samples from .npz archives and CSV tables."""

import csv
import os
import zipfile
import zlib
from collections.abc import Iterable

import numpy as np

from deepsimplex._utils.archives import check_archive
from deepsimplex.datasets.labeled import Source, check_written

KEYS = ("x_train", "y_train", "x_test", "y_test", "x", "y", "class_names")


def read_npz(path: str | os.PathLike[str]) -> Source:
    """Read x_train, y_train, x_test, y_test, or x and y alone, in upper or lower case, and class_names if given.

    Raises
    ------
    ValueError
        When the file is damaged, holds pickled objects or other keys.
    """
    with open(path, "rb") as file:
        try:
            check_archive(path)
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it is a single array, not an archive of several")
            found = archive.files
            arrays = {key.lower(): archive[key] for key in found if key.lower() in KEYS}
        # A corrupt archive may also hold a negative position (OSError) or seem encrypted (RuntimeError).
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError) as error:
            raise ValueError(
                f"{path} cannot be read as a .npz archive without pickled objects ({error}); write it again with "
                "numpy.savez_compressed"
            ) from error
    class_names = None
    if "class_names" in arrays:
        if arrays["class_names"].ndim != 1:
            raise ValueError(f"class_names in {path} must have shape [n]; found shape {arrays['class_names'].shape}")
        class_names = check_written(arrays["class_names"], f"class_names in {path}")
        kind = arrays["class_names"].dtype.kind
        if kind not in "USiu" or not all(class_names) or len({*class_names}) < len(class_names):
            raise ValueError(f"class_names in {path} must be different names; found {arrays['class_names'].tolist()}")
    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        return Source(arrays["x_train"], arrays["y_train"], (arrays["x_test"], arrays["y_test"]), class_names)
    if {"x", "y"} <= arrays.keys():
        return Source(arrays["x"], arrays["y"], None, class_names)
    raise ValueError(f"{path} must hold x_train, y_train, x_test and y_test, or x and y; found {found}")


def read_csv(path: str | os.PathLike[str], target_column: str | None) -> Source:
    """Read a comma-separated table with a header; every column but ``target_column`` holds finite numbers.

    Labels that are all whole numbers are class numbers; otherwise they are strings, numbered in sorted order.

    Raises
    ------
    ValueError
        If this does not hold; the message names the column or line.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [column.strip() for column in next(reader, [])]
            numbered = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a comma-separated table in UTF-8; {error}") from error
    if len(header) < 2 or len(set(header)) != len(header):
        raise ValueError(f"{path} must start with a header of at least two different columns; found {header}")
    if target_column not in header:
        raise ValueError(
            f"target_column must name the column of labels in {path}, one of {header}; found {target_column!r}"
        )
    for line, row in numbered:
        if len(row) != len(header):
            raise ValueError(f"line {line} of {path} must have {len(header)} values, as the header; found {len(row)}")
    if not numbered:
        raise ValueError(f"{path} must hold rows under its header; found none")
    lines, rows = zip(*numbered, strict=True)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    labels = np.array([label.strip() for label in columns.pop(target_column)])
    for label, line in zip(labels, lines, strict=True):
        if label.lower() in ("", "nan"):
            raise ValueError(
                f"column {target_column!r} of {path} must name a class in every line; found {str(label)!r} in line "
                f"{line}"
            )
    x = np.stack([_numbers(values, column, lines, path) for column, values in columns.items()], axis=1)
    try:
        return Source(x, labels.astype(np.int64))
    except ValueError:
        return Source(x, labels)
    except OverflowError as error:
        label, line = next(pair for pair in zip(labels, lines, strict=True) if abs(int(pair[0])) >= 2**63)
        raise ValueError(
            f"column {target_column!r} of {path} must hold class numbers of 64 bits, or names; found {label} in line "
            f"{line}"
        ) from error


def _numbers(values: tuple[str, ...], column: str, lines: Iterable[int], path: str | os.PathLike[str]) -> np.ndarray:
    """One column as float64."""
    for value, line in zip(values, lines, strict=True):
        try:
            finite = bool(np.isfinite(float(value)))
        except ValueError:
            finite = False
        if not finite:
            raise ValueError(
                f"column {column!r} of {path} must hold finite numbers; found {value!r} in line {line}. "
                "Encode or drop it"
            )
    return np.array(values, dtype=np.float64)
