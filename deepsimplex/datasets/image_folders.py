"""Read images from folders with one subfolder per class."""

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.messages import listed, warn_caller
from deepsimplex.datasets.image_files import IMAGE_SUFFIXES, is_image, list_images, read_images, visible, warn_of_others
from deepsimplex.datasets.labeled import Source, check_written

PARTS = ("dev", "test", "testing", "train", "training", "val", "valid", "validation")


def read_folder(
    folder: str | os.PathLike[str],
    image_size: int | Sequence[int] | None,
    color: str | None,
    on_error: str = "raise",
    groups: Any = None,
    time: Any = None,
    class_names: Collection[str] | None = None,
    antialias: bool = True,
) -> Source:
    """Read FOLDER/CLASS/image files, or FOLDER/train/CLASS/ and FOLDER/test/CLASS/, with Pillow.

    Hidden files and folders are left out. Images are turned upright by their EXIF orientation.

    Parameters
    ----------
    folder : path-like
    image_size, color, on_error, antialias
        As in ``read_images``.
    groups, time : str, optional
        Regular expression whose one group, in parentheses, is found in the path of every image below ``folder``;
        "folder" is the name of the folder inside the class folder that the image lies in.
    class_names : collection of str, optional
        Known classes, some of which may have no folder or no image; other folders are not read. By default every folder
        is a class, there must be two, and each must hold images.

    Returns
    -------
    Source
        Images uint8, [N, H, W, 3] or, in gray, [N, H, W].

    Raises
    ------
    ValueError
        As ``read_images``, and when classes differ between train and test or are one folder by links, a class has no
        image, or a path has no group or time.

    Warns
    -----
    UserWarning
        As ``read_images``, and when files or folders are left out.
    """
    root = Path(folder)
    classes = class_folders(root, class_names)
    names = [check_written((place.name for place in part), f"class folders of {folder}") for part in classes]
    if names[0] != names[-1]:
        raise ValueError(f"train and test of {folder} must have the same classes; found {names[0]} and {names[1]}")
    files = {place: list_images(place) for part in classes for place in part}
    if empty := [place for place, (paths, _) in files.items() if not paths and class_names is None]:
        raise ValueError(f"class folder {empty[0]} must hold images ({', '.join(IMAGE_SUFFIXES)}); found none")
    warn_of_others([path for _, others in files.values() for path in others])
    listing = [path for paths, _ in files.values() for path in paths]
    readable = read_images(listing, image_size, color, on_error, antialias)
    images = {place: [path for path in paths if path in readable] for place, (paths, _) in files.items()}
    empty = [place for place, paths in images.items() if not paths]
    if empty and (class_names is None or not readable):
        raise ValueError(f"class folders must hold images that can be read; found none in {listed(empty)}")

    def read_part(part: list[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        paths = [path for place in part for path in images[place]]
        if not paths:
            raise ValueError(f"train and test of {root} must both hold images that can be read; found none in one")
        return np.stack([readable[path] for path in paths]), np.repeat(
            np.arange(len(part)), [len(images[place]) for place in part]
        )

    (x, y), *test = map(read_part, classes)
    places = {path: place for place, paths in images.items() for path in paths}  # in the order of the samples
    return Source(
        x,
        y,
        test[0] if test else None,
        names[0],
        [*map(str, places)].__getitem__,
        _in_paths(places, groups, "groups", root),
        _in_paths(places, time, "time", root),
    )


def _in_paths(places: dict[Path, Path], pattern: Any, option: str, root: Path) -> NDArray[Any] | None:
    """Return what a pattern finds in the paths of images, by their class folder, as text [N]."""
    if pattern is None:
        return None
    try:
        groups = 1 if isinstance(pattern, str) and pattern == "folder" else re.compile(pattern).groups
    except (re.error, TypeError) as error:
        given = pattern if isinstance(pattern, str) else type(pattern).__name__
        raise ValueError(
            f"{option} of a folder must be 'folder' or a regular expression; found {given!r} ({error})"
        ) from None
    if groups != 1:
        raise ValueError(
            f"{option} of a folder must have one group in parentheses such as '(patient[0-9]+)', or be 'folder'; "
            f"found {pattern!r}"
        )

    def value(path: Path, place: Path) -> str | None:
        if pattern == "folder":
            first, *rest = path.relative_to(place).parts
            return first if rest else None
        match = re.search(pattern, path.relative_to(root).as_posix())
        return match[1] if match else None

    values = {path: value(path, place) for path, place in places.items()}
    if without := [path for path, text in values.items() if not text]:
        raise ValueError(
            f"{option} {pattern!r} must be found in the path of every image; {len(without)} of {len(values)} lack it, "
            f"the first is {without[0]}"
        )
    return np.array([*values.values()])


def class_folders(root: Path, class_names: Collection[str] | None) -> list[list[Path]]:
    """Return the folders of the classes of each part of a folder: train and test, or itself."""
    classes = [_class_folders(part, class_names) for part in _parts(root)]
    _check_different([place for part in classes for place in part])
    return classes


def _parts(root: Path) -> list[Path]:
    """Return [root/train, root/test], in any case, or [root] where the folders are classes."""
    folders = {place.name.lower(): place for place in visible(filter(Path.is_dir, root.iterdir()))}
    if {"train", "test"} <= folders.keys():
        others = [str(place) for name, place in folders.items() if name not in ("train", "test")]
        if others:
            warn_caller(f"{listed(others)}: left out, as only train and test are read where both are there")
        parts = [folders["train"], folders["test"]]
    elif folders and folders.keys() <= {*PARTS}:
        raise ValueError(
            f"{root} must hold a folder for each class, or train and test with such folders; found {sorted(folders)}"
        )
    else:
        parts = [root]
    loose = [str(path) for part in {root, *parts} for path in visible(part.iterdir()) if is_image(path)]
    if loose:
        warn_caller(f"images that lie in no folder of a class were left out: {listed(loose)}")
    return parts


def _class_folders(part: Path, class_names: Collection[str] | None) -> list[Path]:
    """Folders of the classes of ``part``, sorted."""
    folders = visible(filter(Path.is_dir, part.iterdir()))
    names = [place.name for place in folders]
    if class_names is None and len(folders) < 2:
        raise ValueError(f"{part} must hold one folder of images for each of at least two classes; found {names}")
    if class_names is None:
        return folders
    known = [place for place in folders if place.name in class_names]
    if not known:
        raise ValueError(f"{part} must hold folders of the classes {listed(class_names)}; found {names}")
    if others := [name for name in names if name not in class_names]:
        warn_caller(f"folders of {part} that are none of the classes were left out: {listed(others)}")
    return known


def _check_different(classes: list[Path]) -> None:
    """Raise ValueError for class folders that are one folder, by links: images of two classes, or of both parts."""
    places: dict[str, Path] = {}
    for place in classes:
        if (same := places.setdefault(os.path.realpath(place), place)) is not place:
            raise ValueError(f"class folders must differ; found {same} and {place}, which are one folder by a link")
