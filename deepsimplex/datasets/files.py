"""Read labeled samples from .npz archives, CSV tables, and folders of images with one subfolder per class."""

import csv
import io
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
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
    color = "rgb" if color is None else color
    check_choice(color, "color", MODES)
    parts = [root / "train", root / "test"] if (root / "train").is_dir() and (root / "test").is_dir() else [root]
    folders = [_class_folders(part) for part in parts]
    _check_different([place for part in folders for place in part])
    files = [{place.name: _files(place) for place in part} for part in folders]
    _warn_of_others([path for part in files for of_class in part.values() for path in of_class])
    found = [_images(part, of_class) for part, of_class in zip(parts, files, strict=True)]
    names = [[*classes] for classes in found]
    if names[0] != names[-1]:
        raise ValueError(f"train and test of {folder} must have the same classes; found {names[0]} and {names[1]}")
    size = None if image_size is None else _checked_size(image_size)
    (x, y), *test = _read_images(found, size, MODES[color])
    return Source(x, y, test[0] if test else None, names[0])


def _checked_size(image_size: Any) -> tuple[int, int]:
    """(height, width) of a tuple, or of a list as YAML files hold it."""
    given = tuple(image_size) if isinstance(image_size, list | tuple) else ()
    if len(given) != 2 or not all(isinstance(side, int | np.integer) and side >= 1 for side in given):
        raise ValueError(f"image_size must be (height, width) in pixels; found {image_size!r}")
    return given[0], given[1]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _class_folders(part: Path) -> list[Path]:
    """Folders of the classes of ``part``, sorted."""
    classes = sorted(place for place in part.iterdir() if place.is_dir() and not place.name.startswith("."))
    if len(classes) < 2:
        raise ValueError(
            f"{part} must hold one folder of images for each of at least two classes; "
            f"found {[place.name for place in classes]}"
        )
    return classes


def _images(part: Path, files: dict[str, list[Path]]) -> dict[str, list[Path]]:
    """Image files of every class; each must have one."""
    found = {name: [path for path in paths if path.suffix.lower() in IMAGE_SUFFIXES] for name, paths in files.items()}
    for name, images in found.items():
        if not images:
            raise ValueError(f"class folder {part / name} must hold images ({', '.join(IMAGE_SUFFIXES)}); found none")
    return found


def _check_different(classes: list[Path]) -> None:
    """Raise ValueError for class folders that are one folder, by links: images of two classes, or of both parts."""
    places: dict[str, Path] = {}
    for place in classes:
        if (same := places.setdefault(os.path.realpath(place), place)) is not place:
            raise ValueError(f"class folders must differ; found {same} and {place}, which are one folder by a link")


def _warn_of_others(paths: list[Path]) -> None:
    visible = [path for path in paths if path.suffix.lower() not in IMAGE_SUFFIXES and not path.name.startswith(".")]
    if visible:
        suffixes = ", ".join(sorted({path.suffix.lower() or "none" for path in visible}))
        warn_caller(
            f"{len(visible)} files were left out, the first is {visible[0]}: only {', '.join(IMAGE_SUFFIXES)} are "
            f"read, and these have the suffixes {suffixes}. Convert them if they belong to the data",
        )


def _read_images(
    parts: list[dict[str, list[Path]]], size: tuple[int, int] | None, mode: str
) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Images and class numbers of every part, scaled to ``size`` or, for None, all of the first image's size."""
    first = next(iter(parts[0].values()))[0]
    common = _read_image(first, None, mode).shape[:2] if size is None else size

    def read(path: Path) -> NDArray[np.uint8]:
        image = _read_image(path, size, mode)
        if image.shape[:2] != common:
            raise ValueError(
                f"image_size=(height, width) must be given, as sizes differ: {first} is {common}, "
                f"{path} is {image.shape[:2]}"
            )
        return image

    found = []
    with ThreadPoolExecutor() as pool:  # decoding releases the global interpreter lock
        for classes in parts:
            x = np.stack([*pool.map(read, [path for files in classes.values() for path in files])])
            found.append((x, np.repeat(np.arange(len(classes)), [len(files) for files in classes.values()])))
    return found


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
