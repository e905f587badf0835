"""Read image files with Pillow, and list those of a folder."""

import io
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.messages import listed, warn_caller
from deepsimplex._utils.validation import check_choice

MODES = {"rgb": "RGB", "grayscale": "L"}
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
MOST_PIXELS = 2**26  # 8192 x 8192; a small file may claim to be larger than all memory
SYSTEM_NAMES = ("__macosx", "@eadir", "desktop.ini", "thumbs.db")  # written by operating systems, not hidden by a dot
MOST_NAMED = 100  # unreadable files in one message


class ImageFile(NamedTuple):
    """Pixels [H, W] or [H, W, 3] of a file, a remark on them or, without pixels, its error; and its (height, width)."""

    pixels: NDArray[np.uint8] | None
    remark: str
    size: tuple[int, int] | None = None


def visible(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, sorted, without hidden files and those that operating systems write."""
    return sorted(path for path in paths if path.name[0] != "." and path.name.lower() not in SYSTEM_NAMES)


def is_image(path: Path) -> bool:
    """Return whether a file has the suffix of an image."""
    return path.suffix.lower() in IMAGE_SUFFIXES and (path.is_file() or path.is_symlink())


def list_images(place: Path) -> tuple[list[Path], list[Path]]:
    """Return the image files of a folder and of the folders in it, and other files and links to folders."""
    images: list[Path] = []
    others: list[Path] = []
    for folder, folders, files in os.walk(place):
        folders[:] = [path.name for path in visible(Path(folder, name) for name in folders)]
        paths = visible(Path(folder, name) for name in files)
        images += filter(is_image, paths)
        others += [path for path in paths if not is_image(path)]
        others += [path for name in folders if (path := Path(folder, name)).is_symlink()]  # which are not entered
    return sorted(images), others


def warn_of_others(others: Sequence[Path]) -> None:
    """Warn of files in a folder of images that are not read."""
    if others:
        kinds = {"links" if path.is_dir() else path.suffix.lower() or "without suffix" for path in others}
        warn_caller(
            f"{len(others)} files were left out, the first is {min(others)}: only {', '.join(IMAGE_SUFFIXES)} are "
            f"read, and these are {', '.join(sorted(kinds))}. Convert or copy them if they belong to the data"
        )


def check_size(image_size: Any) -> tuple[int, int]:
    """(height, width) of a tuple, of a list as YAML files hold it, or of one number for both."""
    sides = tuple(image_size) if isinstance(image_size, list | tuple) else (image_size, image_size)
    if len(sides) != 2 or any(
        isinstance(side, bool) or not isinstance(side, int | np.integer) or side < 1 for side in sides
    ):
        raise ValueError(f"image_size must be (height, width) in pixels, or a number for both; found {image_size!r}")
    return int(sides[0]), int(sides[1])


def read_files(
    paths: Sequence[Path], image_size: int | Sequence[int] | None, color: str | None, antialias: bool = True
) -> list[ImageFile]:
    """Read files in parallel, scaled to ``image_size`` if given; color "rgb" if None."""
    mode = MODES["rgb" if color is None else check_choice(color, "color", MODES)]
    size = None if image_size is None else check_size(image_size)
    with ThreadPoolExecutor() as pool:  # decoding releases the global interpreter lock
        return list(pool.map(partial(_read_file, size=size, mode=mode, antialias=antialias), paths))


def read_images(
    paths: Sequence[Path],
    image_size: int | Sequence[int] | None,
    color: str | None,
    on_error: str = "raise",
    antialias: bool = True,
) -> dict[Path, NDArray[np.uint8]]:
    """Read images of one size, by path.

    Parameters
    ----------
    paths : sequence of pathlib.Path
    image_size : int or (height, width), optional
        Size to scale all images to, by bilinear interpolation. None: the size that all of them have.
    color : {"rgb", "grayscale"}, optional
        None is "rgb".
    on_error : {"raise", "skip"}
        Whether images that cannot be read raise an error, which is the default, or are left out with a warning.
    antialias : bool
        Whether a smaller image averages over all pixels, which is the default, or interpolates between four of them, as
        ``keras.utils.image_dataset_from_directory`` does, which leaves the noise of photographs in.

    Raises
    ------
    ValueError
        When sizes differ; with the names of all images that are damaged, have 16 bits a pixel or more than 2^26 pixels.

    Warns
    -----
    UserWarning
        When files are left out, images have transparent pixels or are animated.
    """
    check_choice(on_error, "on_error", ("raise", "skip"))
    results = dict(zip(paths, read_files(paths, image_size, color, antialias), strict=True))
    if problems := {path: result.remark for path, result in results.items() if result.pixels is None}:
        reasons = "; ".join(f"{listed(same, MOST_NAMED)} ({problem})" for problem, same in _by_text(problems).items())
        text = f"{len(problems)} of {len(results)} files cannot be read as images: {reasons}"
        if on_error == "raise":
            raise ValueError(f'{text}. Delete them or write them again; on_error="skip" leaves them out')
        warn_caller(f"{text}. They were left out")
    warn_of_remarks(results)
    images = {path: pixels for path, (pixels, *_) in results.items() if pixels is not None}
    sizes = {pixels.shape[:2]: path for path, pixels in reversed(images.items())}
    if len(sizes) > 1:
        (common, first), (size, other) = sorted(sizes.items(), key=lambda item: item[1])[:2]
        raise ValueError(
            f"image_size=(height, width) must be given, as sizes differ: {first} is {common}, {other} is {size}"
        )
    return images


def warn_of_remarks(results: Mapping[Path, ImageFile]) -> None:
    """Warn once of every remark on images that were read."""
    for remark, same in _by_text({path: result.remark for path, result in results.items() if result.size}).items():
        if remark:
            warn_caller(f"{len(same)} of {len(results)} images {remark}; the first is {same[0]}")


def _by_text(texts: Mapping[Path, str]) -> dict[str, list[str]]:
    """Return the files that share a text, by text."""
    names = defaultdict(list)
    for path, text in texts.items():
        names[text].append(str(path))
    return names


def _read_file(path: Path, size: tuple[int, int] | None, mode: str, antialias: bool) -> ImageFile:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        content = path.read_bytes()
        if content.startswith(b"\x89PNG") and content[24:25] == b"\x10":
            return ImageFile(
                None,
                "it has 16 bits a pixel, of which 8 would be lost; scale such images to float32 in [0, 1] and store "
                "them as an .npz file with x and y",
            )
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MOST_PIXELS:
                return ImageFile(None, f"it has {image.width} x {image.height} pixels, more than {MOST_PIXELS}")
            # Further frames of a .jpg are previews and maps of depth.
            animated = image.format in ("GIF", "PNG") and getattr(image, "is_animated", False)
            remark = "are animated: the first picture of each is read" if animated else ""
            upright = ImageOps.exif_transpose(image)
            if "A" in upright.mode or "transparency" in upright.info:
                upright = upright.convert("RGBA")
                if np.asarray(upright)[..., 3].min() < 255:
                    remark = "have transparent pixels, whose hidden colors are read"
            pixels = upright.convert(mode)
            before = (pixels.height, pixels.width)
            if size is not None and not antialias:
                return ImageFile(_interpolated(np.asarray(pixels), size), remark, before)
            if size is not None:
                pixels = pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return ImageFile(np.asarray(pixels), remark, before)
    except UnidentifiedImageError:
        return ImageFile(None, "it is damaged, or no image")
    except Exception as error:  # a damaged file may raise anything, from OSError to SyntaxError
        return ImageFile(None, str(error) or type(error).__name__)


def _interpolated(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Scale pixels [H, W] or [H, W, 3] by bilinear interpolation as ``tf.image.resize`` does, without antialiasing."""
    values: NDArray[Any] = pixels
    for axis, length in enumerate(size):
        before = values.shape[axis]
        position = np.clip((np.arange(length) + 0.5) * before / length - 0.5, 0, before - 1)
        lower = position.astype(np.int64)
        share = (position - lower).astype(np.float32).reshape(-1, *[1] * (values.ndim - axis - 1))
        upper = np.minimum(lower + 1, before - 1)
        values = np.take(values, lower, axis) * (1 - share) + np.take(values, upper, axis) * share
    return np.rint(values).astype(np.uint8)
