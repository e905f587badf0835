"""Read images from folders with one subfolder per class."""

import io
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.messages import listed, warn_caller
from deepsimplex._utils.validation import check_choice
from deepsimplex.datasets.labeled import Source, check_written

MODES = {"rgb": "RGB", "grayscale": "L"}
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
MOST_PIXELS = 2**26  # 8192 x 8192; a small file may claim to be larger than all memory
SYSTEM_NAMES = ("__macosx", "@eadir", "desktop.ini", "thumbs.db")  # written by operating systems, not hidden by a dot
PARTS = ("dev", "test", "testing", "train", "training", "val", "valid", "validation")
MOST_NAMED = 100  # unreadable files in one message


def read_folder(
    folder: str | os.PathLike[str], image_size: Sequence[int] | None, color: str | None, on_error: str = "raise"
) -> Source:
    """Read FOLDER/CLASS/image files, or FOLDER/train/CLASS/ and FOLDER/test/CLASS/, with Pillow.

    Hidden files and folders are left out. Images are turned upright by their EXIF orientation.

    Parameters
    ----------
    folder : path-like
    image_size : (height, width), optional
        Size to scale all images to, by antialiased bilinear interpolation. None: the size that all of them have.
    color : {"rgb", "grayscale"}, optional
        None is "rgb".
    on_error : {"raise", "skip"}
        Whether images that cannot be read raise an error, which is the default, or are left out with a warning.

    Returns
    -------
    Source
        Images uint8, [N, H, W, 3] or, in gray, [N, H, W].

    Raises
    ------
    ValueError
        When classes differ between train and test or are one folder by links, a class has no image, or sizes differ;
        with the names of all images that are damaged, have 16 bits a pixel or more than 2^26 pixels.

    Warns
    -----
    UserWarning
        When files or folders are left out, images have transparent pixels or are animated.
    """
    root = Path(folder)
    mode = MODES["rgb" if color is None else check_choice(color, "color", MODES)]
    size = None if image_size is None else _checked_size(image_size)
    check_choice(on_error, "on_error", ("raise", "skip"))
    parts = _parts(root)
    classes = [_class_folders(part) for part in parts]
    _check_different([place for part in classes for place in part])
    names = [check_written((place.name for place in part), f"class folders of {folder}") for part in classes]
    if names[0] != names[-1]:
        raise ValueError(f"train and test of {folder} must have the same classes; found {names[0]} and {names[1]}")
    files = {place: _files(place) for part in classes for place in part}
    _warn_of_others([path for _, others in files.values() for path in others])
    images = {place: paths for place, (paths, _) in files.items()}
    paths = [path for part in images.values() for path in part]
    with ThreadPoolExecutor() as pool:  # decoding releases the global interpreter lock
        results = dict(zip(paths, pool.map(partial(_read_image, size=size, mode=mode), paths), strict=True))

    if problems := {path: remark for path, (pixels, remark) in results.items() if pixels is None}:
        reasons = "; ".join(f"{listed(same, MOST_NAMED)} ({problem})" for problem, same in _by_text(problems).items())
        text = f"{len(problems)} of {len(paths)} files cannot be read as images: {reasons}"
        if on_error == "raise":
            raise ValueError(f'{text}. Delete them or write them again; on_error="skip" leaves them out')
        warn_caller(f"{text}. They were left out")
    readable = {path: pixels for path, (pixels, _) in results.items() if pixels is not None}
    for remark, same in _by_text({path: results[path][1] for path in readable}).items():
        if remark:
            warn_caller(f"{len(same)} of {len(paths)} images {remark}; the first is {same[0]}")
    images = {place: [path for path in part if path in readable] for place, part in images.items()}
    if empty := [str(place) for place, part in images.items() if not part]:
        raise ValueError(f"class folders must hold images that can be read; found none in {listed(empty)}")
    first, common = next((path, pixels.shape[:2]) for path, pixels in readable.items())
    if other := next((path for path, pixels in readable.items() if pixels.shape[:2] != common), None):
        raise ValueError(
            f"image_size=(height, width) must be given, as sizes differ: {first} is {common}, {other} is "
            f"{readable[other].shape[:2]}"
        )

    def read_part(part: list[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        x = np.stack([readable[path] for place in part for path in images[place]])
        return x, np.repeat(np.arange(len(part)), [len(images[place]) for place in part])

    (x, y), *test = map(read_part, classes)
    return Source(x, y, test[0] if test else None, names[0], [*map(str, readable)].__getitem__)


def _checked_size(image_size: Any) -> tuple[int, int]:
    """(height, width) of a tuple, or of a list as YAML files hold it."""
    sides = tuple(image_size) if isinstance(image_size, list | tuple) else ()
    if len(sides) != 2 or not all(isinstance(side, int | np.integer) and side >= 1 for side in sides):
        raise ValueError(f"image_size must be (height, width) in pixels; found {image_size!r}")
    return sides[0], sides[1]


def _visible(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, sorted, without hidden files and those that operating systems write."""
    return sorted(path for path in paths if path.name[0] != "." and path.name.lower() not in SYSTEM_NAMES)


def _parts(root: Path) -> list[Path]:
    """Return [root/train, root/test], in any case, or [root] where the folders are classes."""
    folders = {place.name.lower(): place for place in _visible(filter(Path.is_dir, root.iterdir()))}
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
    loose = [str(path) for part in {root, *parts} for path in _visible(part.iterdir()) if _is_image(path)]
    if loose:
        warn_caller(f"images that lie in no folder of a class were left out: {listed(loose)}")
    return parts


def _class_folders(part: Path) -> list[Path]:
    """Folders of the classes of ``part``, sorted."""
    classes = _visible(filter(Path.is_dir, part.iterdir()))
    if len(classes) < 2:
        raise ValueError(
            f"{part} must hold one folder of images for each of at least two classes; "
            f"found {[place.name for place in classes]}"
        )
    return classes


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and (path.is_file() or path.is_symlink())


def _files(place: Path) -> tuple[list[Path], list[Path]]:
    """Return the image files of a class folder and of the folders in it, and other files and links to folders."""
    images: list[Path] = []
    others: list[Path] = []
    for folder, folders, files in os.walk(place):
        folders[:] = [path.name for path in _visible(Path(folder, name) for name in folders)]
        paths = _visible(Path(folder, name) for name in files)
        images += filter(_is_image, paths)
        others += [path for path in paths if not _is_image(path)]
        others += [path for name in folders if (path := Path(folder, name)).is_symlink()]  # which are not entered
    if not images:
        raise ValueError(f"class folder {place} must hold images ({', '.join(IMAGE_SUFFIXES)}); found none")
    return sorted(images), others


def _warn_of_others(others: list[Path]) -> None:
    if others:
        kinds = {"links" if path.is_dir() else path.suffix.lower() or "without suffix" for path in others}
        warn_caller(
            f"{len(others)} files were left out, the first is {min(others)}: only {', '.join(IMAGE_SUFFIXES)} are "
            f"read, and these are {', '.join(sorted(kinds))}. Convert or copy them if they belong to the data"
        )


def _check_different(classes: list[Path]) -> None:
    """Raise ValueError for class folders that are one folder, by links: images of two classes, or of both parts."""
    places: dict[str, Path] = {}
    for place in classes:
        if (same := places.setdefault(os.path.realpath(place), place)) is not place:
            raise ValueError(f"class folders must differ; found {same} and {place}, which are one folder by a link")


def _by_text(texts: dict[Path, str]) -> dict[str, list[str]]:
    """Return the files that share a text, by text."""
    names = defaultdict(list)
    for path, text in texts.items():
        names[text].append(str(path))
    return names


def _read_image(path: Path, size: tuple[int, int] | None, mode: str) -> tuple[NDArray[np.uint8] | None, str]:
    """Return the pixels and a remark on them that users should know, or None and what is wrong with the file."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        content = path.read_bytes()
        if content.startswith(b"\x89PNG") and content[24:25] == b"\x10":
            return None, (
                "it has 16 bits a pixel, of which 8 would be lost; scale such images to float32 in [0, 1] and store "
                "them as an .npz file with x and y"
            )
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MOST_PIXELS:
                return None, f"it has {image.width} x {image.height} pixels, more than {MOST_PIXELS}"
            # Further frames of a .jpg are previews and maps of depth.
            animated = image.format in ("GIF", "PNG") and getattr(image, "is_animated", False)
            remark = "are animated: the first picture of each is read" if animated else ""
            upright = ImageOps.exif_transpose(image)
            if "A" in upright.mode or "transparency" in upright.info:
                upright = upright.convert("RGBA")
                if np.asarray(upright)[..., 3].min() < 255:
                    remark = "have transparent pixels, whose hidden colors are read"
            pixels = upright.convert(mode)
            if size is not None:
                pixels = pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return np.asarray(pixels), remark
    except UnidentifiedImageError:
        return None, "it is damaged, or no image"
    except Exception as error:  # a damaged file may raise anything, from OSError to SyntaxError
        return None, str(error) or type(error).__name__
