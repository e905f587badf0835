"""Read CSV tables with a column of labels."""

import csv
import io
import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.messages import guided, listed, warn_caller
from deepsimplex.datasets.labeled import Source

DELIMITERS = ",;\t"
MISSING = ("", "nan", "na", "n/a", "<na>", "null", "?")
INDEX_NAMES = ("id", "index", "level_0")  # of columns that number the rows
BOOLEANS = {"true": 1.0, "false": 0.0}
LARGEST = float(np.finfo(np.float32).max)


class Table(NamedTuple):
    """Texts of a table: its header, and its rows by line number."""

    header: list[str]
    lines: dict[int, list[str]]

    def column(self, name: str, option: str, path: str | os.PathLike[str]) -> list[str]:
        """Return the values of a column; raise ValueError if there is none of that name, or a value is missing."""
        if name not in self.header:
            raise ValueError(f"{option} must name a column of {path}, one of {self.header}; found {name!r}")
        values = [row[self.header.index(name)] for row in self.lines.values()]
        missing = [line for line, value in zip(self.lines, values, strict=True) if value.strip().lower() in MISSING]
        if missing:
            value = self.lines[missing[0]][self.header.index(name)]
            raise ValueError(
                f"column {name!r} of {path} must have a value in every line; found {value!r} in line {listed(missing)}"
            )
        return values


def read_table(path: str | os.PathLike[str], target: str, least_columns: int = 2) -> Table:
    """Read the texts of a table with a header, in UTF-8, whose separator is recognized by the column ``target``."""
    try:
        table = Table(*_rows(Path(path).read_bytes().decode("utf-8-sig"), target))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a comma-separated table in UTF-8; {error}") from error
    header, lines = table
    if len(header) < least_columns:
        raise ValueError(f"{path} must start with a header of at least two different columns; found {header}")
    if wrong := [line for line, row in lines.items() if len(row) != len(header)]:
        raise ValueError(
            f"every line of {path} must have {len(header)} values, as the header; found {len(lines[wrong[0]])} in line "
            f"{listed(wrong)}"
        )
    if not lines:
        raise ValueError(f"{path} must hold rows under its header; found none")
    return table


def read_csv(
    path: str | os.PathLike[str], target_column: str | int | None, groups: Any = None, time: Any = None
) -> Source:
    """Read a table with a header; every column but ``target_column`` holds finite numbers, or true and false.

    ``groups`` and ``time`` name columns that are not features.

    Values are separated by commas, semicolons or tabs. Labels are names of classes, numbered in sorted order, which is
    that of the numbers if all are numbers.

    Raises
    ------
    ValueError
        If this does not hold; the message names all columns or lines with invalid values.

    Warns
    -----
    UserWarning
        When columns are left out: those without a name, and those named "index" or "id" that count the rows.
    """
    table = read_table(path, str(target_column))
    header, lines = table
    if target_column is None or str(target_column) not in header:
        raise ValueError(
            f"target_column must name the column of labels in {path}, one of {header}; found {target_column!r}"
        )
    given = {"groups": groups, "time": time}
    named = {name: option for name, option in given.items() if isinstance(option, str)}
    if str(target_column) in named.values():
        raise ValueError(f"groups and time must be other columns than target_column; found {target_column!r}")
    given |= {name: table.column(option, name, path) for name, option in named.items()}
    target = header.index(str(target_column))
    columns = dict(enumerate(zip(*lines.values(), strict=True)))
    labels = columns.pop(target)
    if missing := [line for line, label in zip(lines, labels, strict=True) if label.lower() in MISSING]:
        raise ValueError(
            f"column {header[target]!r} of {path} must name a class in every line; found {lines[missing[0]][target]!r} "
            f"in line {listed(missing)}. Fill it, delete such lines, or give the class another name"
        )
    columns = {k: values for k, values in columns.items() if header[k] not in named.values()}
    indices = [k for k, values in columns.items() if is_index(header[k], values)]
    names = [name for k, name in enumerate(header) if k in columns.keys() - indices or k == target]
    if len(names) < 2 or len({*names}) < len(names):
        raise ValueError(f"{path} must start with a header of at least two different columns; found {header}")
    if indices:
        left_out = listed(repr(header[k]) if header[k] else f"number {k + 1}" for k in indices)
        warn_caller(
            f"columns of {path} were left out, as they number the rows or have no name: {left_out}. Write tables with "
            "to_csv(index=False); a column that is to be used needs another name"
        )
    features = {header[k]: values for k, values in columns.items() if k not in indices}
    x = np.array([[number_of(value) for value in values] for values in features.values()]).T
    _check_finite(x, features, [*lines], path)
    numbers, class_names = _classes(labels)
    return Source(x, numbers, None, class_names, None, given["groups"], given["time"], tuple(features))


def _rows(text: str, target: str) -> tuple[list[str], dict[int, list[str]]]:
    """Return the header, and the rows by line number, split so that the header has the target, or else most names."""

    def reader(delimiter: str) -> Any:
        return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)

    def header(delimiter: str) -> list[str]:
        return [column.strip() for column in next(reader(delimiter), [])]

    delimiter = max(DELIMITERS, key=lambda delimiter: (target in header(delimiter), len(header(delimiter))))
    rows = reader(delimiter)
    next(rows, None)
    numbered = ((rows.line_num, [value.strip() for value in row]) for row in rows if any(map(str.strip, row)))
    return header(delimiter), dict(numbered)


def is_index(name: str, values: tuple[str, ...]) -> bool:
    """Return whether a column is the index that pandas and R write: without a name, or the numbers of the rows."""
    if not name or re.fullmatch(r"Unnamed: \d+(\.\d+)*", name):
        return True
    return name.lower() in INDEX_NAMES and any(
        values == tuple(map(str, range(start, start + len(values)))) for start in (0, 1)
    )


def number_of(value: str) -> float:
    """Return the number that a text holds, NaN for other texts and for numbers beyond single precision."""
    try:
        number = BOOLEANS[value.lower()] if value.lower() in BOOLEANS else float(value)
    except ValueError:
        return math.nan
    return math.nan if "_" in value or abs(number) > LARGEST else number


def decimal_hint(text: str) -> str:
    """Return the end of a message about a text that is no number: "" if it has no decimal comma."""
    has_comma = re.fullmatch(r"[+-]?[\d.]*,\d+", text)
    return "; write decimals with a point: it has a decimal comma" if has_comma else ""


def _check_finite(
    x: NDArray[np.float64], features: dict[str, tuple[str, ...]], lines: list[int], path: str | os.PathLike[str]
) -> None:
    wrong, hints = [], []
    for (name, values), column in zip(features.items(), x.T, strict=True):
        rows = np.flatnonzero(np.isnan(column))
        if len(rows):
            many = f" and {len(rows) - 1} other lines" if len(rows) > 1 else ""
            hints.append(decimal_hint(values[rows[0]]))
            wrong.append(f"{values[rows[0]]!r} in line {lines[rows[0]]}{many} of column {name!r}")
    if wrong:
        raise guided(
            "tables.md#text-categories-and-missing-values",
            f"every column of {path} but that of labels must hold finite numbers; found "
            f"{listed(wrong)}{max(hints)}. Encode names, fill missing values, or drop columns or lines",
        )


def _classes(labels: tuple[str, ...]) -> tuple[NDArray[np.int64], list[str]]:
    """Return class numbers [N], and the names of the classes: numbers without a fraction as whole ones."""
    values: list[Any]
    try:
        values = [_label_number(label) for label in labels]
        classes = sorted(set(values))
    except ValueError:
        values, classes = [*labels], sorted(set(labels))
    numbers = {value: number for number, value in enumerate(classes)}
    return np.array([numbers[value] for value in values]), [str(value) for value in classes]


def _label_number(label: str) -> int | float:
    if "_" in label or re.match(r"[+-]?0\d", label.strip()):
        raise ValueError("digits joined by underscores are a name, and those after a zero a code")
    try:
        return int(label)
    except ValueError:
        number = float(label)
        return int(number) if number.is_integer() else number
