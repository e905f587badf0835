"""Folders of images, one subfolder per class."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.datasets.source import Source

COLORS = ("rgb", "grayscale")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
BATCH = 64


def read_folder(folder: str | os.PathLike[str], image_size: Sequence[int] | None, color: str | None) -> Source:
    """Read FOLDER/CLASS/image files, or FOLDER/train/CLASS/ and FOLDER/test/CLASS/, through Keras.

    Parameters
    ----------
    folder : path-like
    image_size : (height, width), optional
        Size to scale all images to. None: the size that all of them have.
    color : {"rgb", "grayscale"}, optional
        None is "rgb".

    Returns
    -------
    Source
        Images uint8, [N, H, W, 3] or, in gray, [N, H, W]; values between those of uint8 are rounded.

    Raises
    ------
    ValueError
        When classes differ between train and test, a class has no image, sizes differ, or an image is damaged.
    """
    root = Path(folder)
    color = "rgb" if color is None else color
    if color not in COLORS:
        raise ValueError(f"color must be one of {', '.join(COLORS)}; found {color!r}")
    parts = [root / "train", root / "test"] if (root / "train").is_dir() and (root / "test").is_dir() else [root]
    names = [_class_names(part) for part in parts]
    if names[0] != names[-1]:
        raise ValueError(f"train and test of {folder} must have the same classes; found {names[0]} and {names[1]}")
    size = _common_size(parts) if image_size is None else _checked_size(image_size)
    (x, y), *test = (_read(part, names[0], size, color) for part in parts)
    return Source(x, y, test[0] if test else None, names[0])


def _checked_size(image_size: Any) -> tuple[int, int]:
    """(height, width) of a tuple, or of a list as YAML files hold it."""
    given = tuple(image_size) if isinstance(image_size, list | tuple) else ()
    if len(given) != 2 or not all(isinstance(side, int | np.integer) and side >= 1 for side in given):
        raise ValueError(f"image_size must be (height, width) in pixels; found {image_size!r}")
    return given[0], given[1]


def _image_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def _class_names(part: Path) -> list[str]:
    """Names of the class folders of ``part``, sorted; each must hold an image."""
    classes = sorted(place for place in part.iterdir() if place.is_dir() and not place.name.startswith("."))
    if len(classes) < 2:
        raise ValueError(
            f"{part} must hold one folder of images for each of at least two classes; "
            f"found {[place.name for place in classes]}"
        )
    for place in classes:
        if not _image_files(place):
            raise ValueError(f"class folder {place} must hold images ({', '.join(SUFFIXES)}); found none")
    return [place.name for place in classes]


def _common_size(parts: list[Path]) -> tuple[int, int]:
    """Height and width that all images have, from their headers."""
    from PIL import Image, UnidentifiedImageError

    common: tuple[tuple[int, int], Path] | None = None
    for path in (path for part in parts for path in _image_files(part)):
        try:
            with Image.open(path) as image:
                size = (image.height, image.width)
        except UnidentifiedImageError as error:
            raise ValueError(f"{path} cannot be read as an image; delete it or write it again") from error
        if common is None:
            common = size, path
        elif size != common[0]:
            raise ValueError(
                f"image_size=(height, width) must be given, as sizes differ: {common[1]} is {common[0]}, "
                f"{path} is {size}"
            )
    assert common is not None  # every class holds an image
    return common[0]


def _read(part: Path, class_names: list[str], size: tuple[int, int], color: str) -> tuple[NDArray, NDArray]:
    """All images of ``part`` and their class numbers."""
    import keras
    import tensorflow as tf

    dataset = keras.utils.image_dataset_from_directory(
        part,
        label_mode="int",
        class_names=class_names,
        color_mode=color,
        batch_size=BATCH,
        image_size=size,
        shuffle=False,
        verbose=False,
    )
    x = np.empty((len(dataset.file_paths), *size, 3 if color == "rgb" else 1), np.uint8)
    y = np.empty(len(x), np.int64)
    done = 0
    _refuse_deep_pixels(dataset.file_paths)
    try:
        for images, labels in dataset.as_numpy_iterator():
            x[done : done + len(images)] = np.rint(images)
            y[done : done + len(images)] = labels
            done += len(images)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            f"{_first_damaged(dataset.file_paths)} cannot be read as an image ({error.message})"
        ) from error
    return (x if color == "rgb" else x[..., 0]), y


def _refuse_deep_pixels(paths: list[str]) -> None:
    """Refuse PNG files of 16 bits a pixel, which the reader would cut to 8."""
    for path in paths:
        with open(path, "rb") as file:
            header = file.read(25)
        if header.startswith(b"\x89PNG") and header[24:25] == b"\x10":
            raise ValueError(
                f"{path} has 16 bits a pixel, of which 8 would be lost; scale such images to float32 in [0, 1] and "
                "store them as an .npz file with x and y"
            )


def _first_damaged(paths: list[str]) -> str:
    """The first file that TensorFlow cannot decode; called once reading has failed."""
    import tensorflow as tf

    for path in paths:
        try:
            tf.io.decode_image(tf.io.read_file(path), expand_animations=False)
        except tf.errors.InvalidArgumentError:
            return path
    return "an image"
