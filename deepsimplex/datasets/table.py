"""Tables of numbers with a column of labels, in CSV files."""

import csv
import os
from collections.abc import Iterable

import numpy as np

from deepsimplex.datasets.source import Source


def read_csv(path: str | os.PathLike[str], target_column: str | None) -> Source:
    """Read a comma-separated table with a header; every column but ``target_column`` holds finite numbers.

    Labels that are all whole numbers are class numbers; otherwise they are strings, numbered in sorted order.

    Raises
    ------
    ValueError
        Naming the column or line that breaks this.
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
    x = np.stack([_numbers(values, column, lines, path) for column, values in columns.items()], axis=1)
    try:
        return Source(x, labels.astype(np.int64))
    except ValueError:
        return Source(x, labels)


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
