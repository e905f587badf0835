"""Read images whose files, labels and groups are listed in a CSV table."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepsimplex.datasets.image_files import read_images
from deepsimplex.datasets.labeled import Source, check_written
from deepsimplex.datasets.tables import Table, read_table

FILE, LABEL, GROUP, SPLIT = "file", "label", "group", "split"  # columns of a list
HALVES = ("train", "test")


def is_image_list(path: str | os.PathLike[str]) -> bool:
    """Return whether a CSV table is a list of images: its header has a column named "file"."""
    with open(path, "rb") as file:
        header = file.readline(2**16).decode("utf-8-sig", "replace")
    return FILE in [name.strip().strip('"') for name in header.replace(";", ",").replace("\t", ",").split(",")]


def is_table(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a .csv file of columns of numbers, and no list of images."""
    place = Path(path).expanduser()
    return place.suffix.lower() == ".csv" and place.is_file() and not is_image_list(place)


def check_files(path: str | os.PathLike[str], others: str) -> Path:
    """Return the path of files to predict; raise FileNotFoundError, which names other kinds, if there is nothing."""
    place = Path(path).expanduser()
    if not place.exists():
        raise FileNotFoundError(f"files must be a folder of images, an image, {others}; found no {str(place)!r}")
    return place


def listed_files(path: str | os.PathLike[str], table: Table) -> list[Path]:
    """Return the files of a list; relative ones lie in the folder of the list, or below."""
    return [Path(path).parent / name for name in table.column(FILE, "file", path)]


def read_list(
    path: str | os.PathLike[str],
    image_size: int | Sequence[int] | None,
    color: str | None,
    on_error: str = "raise",
    target_column: str | int | None = None,
    groups: Any = None,
    time: Any = None,
    antialias: bool = True,
) -> Source:
    """Read the images of a CSV table with the columns "file" and "label", and perhaps "group" and "split".

    Parameters
    ----------
    path : path-like
        Files are relative to its folder. "split" holds "train" or "test".
    image_size, color, on_error, antialias
        As in ``read_images``.
    target_column, groups, time : str, optional
        Columns of labels, groups and times. Defaults "label", "group" if there is such a column, and no times.

    Raises
    ------
    ValueError
        As ``read_images``; when a column is missing, a value is empty or a file is listed twice.
    """
    label = LABEL if target_column is None else str(target_column)
    table = read_table(path, FILE)
    labels = table.column(label, "target_column", path)
    files = listed_files(path, table)
    if len({*files}) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise ValueError(f"{path} must list every file once; found {twice} twice")
    images = read_images(files, image_size, color, on_error, antialias)
    if not images:
        raise ValueError(f"{path} must list images that can be read; found none")
    if groups is None and GROUP in table.header and label != GROUP:
        groups = GROUP
    columns = {
        name: table.column(option, name, path) if isinstance(option, str) else option
        for name, option in (("groups", groups), ("time", time))
    }
    halves = table.column(SPLIT, "split", path) if SPLIT in table.header else None
    if halves is not None and {*halves} != {*HALVES}:
        raise ValueError(f"column 'split' of {path} must hold 'train' and 'test'; found {sorted({*halves})}")
    kept = [row for row, file in enumerate(files) if file in images]
    rows = [row for row in kept if halves is None or halves[row] == "train"]
    tested = [row for row in kept if row not in {*rows}]

    def part(rows: list[int]) -> tuple[Any, Any]:
        if not rows:
            raise ValueError(f"{path} must list images that can be read in both halves; found none in one of them")
        return np.stack([images[files[row]] for row in rows]), np.array([labels[row] for row in rows])

    check_written(labels, f"labels of {path}")
    ordered = [*rows, *tested]
    by_row: Any = (None if values is None else np.asarray(values)[ordered] for values in columns.values())
    return Source(
        *part(rows),
        None if halves is None else part(tested),
        None,
        [str(files[row]) for row in ordered].__getitem__,
        *by_row,
    )
