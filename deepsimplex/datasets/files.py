"""Read labeled samples from .npz archives, CSV tables, and folders of images with one subfolder per class."""

import csv
import io
import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import check_archive
from deepsimplex._utils.messages import warn_caller
from deepsimplex._utils.validation import check_choice
from deepsimplex.datasets.labeled import Source, check_written

KEYS = ("x_train", "y_train", "x_test", "y_test", "x", "y", "class_names")
MODES = {"rgb": "RGB", "grayscale": "L"}
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
MOST_PIXELS = 2**26  # 8192 x 8192; a small file may claim to be larger than all memory


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
            names = archive.files
            arrays = {key.lower(): archive[key] for key in names if key.lower() in KEYS}
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
    raise ValueError(f"{path} must hold x_train, y_train, x_test and y_test, or x and y; found {names}")


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
    target = header.index(target_column)
    labels = np.array([row.pop(target).strip() for _, row in numbered])
    for label, (line, _) in zip(labels, numbered, strict=True):
        if label.lower() in ("", "nan"):
            raise ValueError(
                f"column {target_column!r} of {path} must name a class in every line; found {str(label)!r} in line "
                f"{line}"
            )
    columns = [column for column in header if column != target_column]
    x = np.array([[_number(*pair, line, path) for pair in zip(columns, row, strict=True)] for line, row in numbered])
    try:
        return Source(x, np.array([int(label) for label in labels]))
    except ValueError:
        return Source(x, labels)


def _number(column: str, value: str, line: int, path: str | os.PathLike[str]) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"column {column!r} of {path} must hold finite numbers; found {value!r} in line {line}. Encode or drop it"
        )
    return number


def read_folder(folder: str | os.PathLike[str], image_size: Sequence[int] | None, color: str | None) -> Source:
    """Read FOLDER/CLASS/image files, or FOLDER/train/CLASS/ and FOLDER/test/CLASS/, with Pillow.

    Parameters
    ----------
    folder : path-like
    image_size : (height, width), optional
        Size to scale all images to, by antialiased bilinear interpolation. None: the size that all of them have.
    color : {"rgb", "grayscale"}, optional
        None is "rgb".

    Returns
    -------
    Source
        Images uint8, [N, H, W, 3] or, in gray, [N, H, W].

    Raises
    ------
    ValueError
        When classes differ between train and test or are one folder by links, a class has no image, sizes differ, or
        an image is damaged, has 16 bits a pixel or more than 2^26 pixels.

    Warns
    -----
    UserWarning
        Once, when files with other suffixes are left out.
    """
    root = Path(folder)
    mode = MODES["rgb" if color is None else check_choice(color, "color", MODES)]
    size = None if image_size is None else _checked_size(image_size)
    parts = [root / "train", root / "test"] if (root / "train").is_dir() and (root / "test").is_dir() else [root]
    classes = [_class_folders(part) for part in parts]
    _check_different([place for part in classes for place in part])
    files = {place: sorted(filter(Path.is_file, place.rglob("*"))) for part in classes for place in part}
    _warn_of_others([path for paths in files.values() for path in paths])
    images = {place: _images(place, paths) for place, paths in files.items()}
    names = [[place.name for place in part] for part in classes]
    if names[0] != names[-1]:
        raise ValueError(f"train and test of {folder} must have the same classes; found {names[0]} and {names[1]}")
    first = images[classes[0][0]][0]
    common = _read_image(first, None, mode).shape[:2] if size is None else size

    def read(path: Path) -> NDArray[np.uint8]:
        pixels = _read_image(path, size, mode)
        if pixels.shape[:2] != common:
            raise ValueError(
                f"image_size=(height, width) must be given, as sizes differ: {first} is {common}, "
                f"{path} is {pixels.shape[:2]}"
            )
        return pixels

    def read_part(part: list[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        x = np.stack([*pool.map(read, [path for place in part for path in images[place]])])
        return x, np.repeat(np.arange(len(part)), [len(images[place]) for place in part])

    with ThreadPoolExecutor() as pool:  # decoding releases the global interpreter lock
        (x, y), *test = map(read_part, classes)
    return Source(x, y, test[0] if test else None, names[0])


def _checked_size(image_size: Any) -> tuple[int, int]:
    """(height, width) of a tuple, or of a list as YAML files hold it."""
    sides = tuple(image_size) if isinstance(image_size, list | tuple) else ()
    if len(sides) != 2 or not all(isinstance(side, int | np.integer) and side >= 1 for side in sides):
        raise ValueError(f"image_size must be (height, width) in pixels; found {image_size!r}")
    return sides[0], sides[1]


def _class_folders(part: Path) -> list[Path]:
    """Folders of the classes of ``part``, sorted."""
    classes = sorted(place for place in part.iterdir() if place.is_dir() and not place.name.startswith("."))
    if len(classes) < 2:
        raise ValueError(
            f"{part} must hold one folder of images for each of at least two classes; "
            f"found {[place.name for place in classes]}"
        )
    return classes


def _images(place: Path, paths: list[Path]) -> list[Path]:
    """Image files among the files of a class folder, which must have one."""
    images = [path for path in paths if path.suffix.lower() in IMAGE_SUFFIXES]
    if not images:
        raise ValueError(f"class folder {place} must hold images ({', '.join(IMAGE_SUFFIXES)}); found none")
    return images


def _check_different(classes: list[Path]) -> None:
    """Raise ValueError for class folders that are one folder, by links: images of two classes, or of both parts."""
    places: dict[str, Path] = {}
    for place in classes:
        if (same := places.setdefault(os.path.realpath(place), place)) is not place:
            raise ValueError(f"class folders must differ; found {same} and {place}, which are one folder by a link")


def _warn_of_others(paths: list[Path]) -> None:
    others = [path for path in paths if path.suffix.lower() not in IMAGE_SUFFIXES and not path.name.startswith(".")]
    if others:
        suffixes = ", ".join(sorted({path.suffix.lower() or "none" for path in others}))
        warn_caller(
            f"{len(others)} files were left out, the first is {others[0]}: only {', '.join(IMAGE_SUFFIXES)} are "
            f"read, and these have the suffixes {suffixes}. Convert them if they belong to the data",
        )


def _read_image(path: Path, size: tuple[int, int] | None, mode: str) -> NDArray[np.uint8]:
    from PIL import Image

    content = path.read_bytes()
    if content.startswith(b"\x89PNG") and content[24:25] == b"\x10":
        raise ValueError(
            f"{path} has 16 bits a pixel, of which 8 would be lost; scale such images to float32 in [0, 1] and "
            "store them as an .npz file with x and y"
        )
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, more than {MOST_PIXELS}")
            pixels = image.convert(mode)
            return np.asarray(pixels if size is None else pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR))
    except Exception as error:  # a damaged file may raise anything, from OSError to SyntaxError
        raise ValueError(f"{path} cannot be read as an image ({error}); delete it or write it again") from error
