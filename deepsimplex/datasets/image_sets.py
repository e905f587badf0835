"""MNIST, Fashion-MNIST and CIFAR-10 from copies on this machine, or downloaded through Keras."""

import gzip
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import keras
from deepsimplex.datasets.labeled import Source
from deepsimplex.datasets.npz_files import read_npz

ENVIRONMENT_VARIABLE = "DEEPSIMPLEX_DATA"
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
UNSIGNED_BYTE = 0x08
IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CIFAR_FILES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")
CIFAR_SIZE = 32


class ImageSet(NamedTuple):
    """A data set: its name in Keras' cache, its names as NAME.npz or a folder NAME/, and the files of such a folder."""

    in_cache: str
    names: tuple[str, ...]
    files: tuple[str, ...]
    read: Callable[[Path], Source]
    class_names: tuple[str, ...]


def read_image_set(name: str) -> Source:
    """Read the first copy of one of ``IMAGE_SETS`` found, or download one through Keras.

    Raises
    ------
    ValueError
        If the copy is damaged: the next one is not taken silently.
    OSError
        If no copy is found and the download fails; lists the paths searched.
    """
    images, places = IMAGE_SETS[name], _places(name)
    for place in places:
        if place.suffix == ".npz" and place.is_file():
            source = read_npz(place)
            break
        if all((place / file).is_file() for file in images.files):
            source = images.read(place)
            break
    else:
        source = _download(name, places)
    return Source(source.x, source.y, source.test, images.class_names)


def _places(name: str) -> list[Path]:
    """Return the paths to search, in order: .npz files and folders."""
    images = IMAGE_SETS[name]
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path("/tmp")  # as in Keras
    places = [Path(os.environ.get("KERAS_HOME", home / ".keras")).expanduser() / "datasets" / images.in_cache]
    if os.environ.get(ENVIRONMENT_VARIABLE):
        root = Path(os.environ[ENVIRONMENT_VARIABLE]).expanduser()
        places += [root / name for name in images.names] + [root / f"{name}.npz" for name in images.names]
        # MNIST and Fashion-MNIST have the same file names: only the folder's name identifies the data set.
        places += [root] if root.name in images.names else []
    if name == "fashion_mnist":
        places.append(DEBIAN_FASHION_MNIST)
    return places


def _download(name: str, places: list[Path]) -> Source:
    try:
        (x, y), test = getattr(keras.datasets, name).load_data()
    except Exception as error:  # Keras raises a bare Exception when a download fails
        images = IMAGE_SETS[name]
        raise OSError(
            f"{name} could not be downloaded ({error}), and no copy was found in {', '.join(map(str, places))}. Put "
            f"one there, or set {ENVIRONMENT_VARIABLE} to a folder that holds {name}.npz or {images.names[-1]}/ with "
            f"{', '.join(images.files)}"
        ) from error
    return Source(x, y, test)


def _read_idx_folder(folder: Path) -> Source:
    x, y, x_test, y_test = (read_idx(folder / file) for file in IDX_FILES)
    return Source(x, y, (x_test, y_test))


def read_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Read one gzipped idx file of unsigned bytes.

    The file starts with the bytes 0, 0, type code, number of dimensions; each dimension follows as a big-endian
    32-bit integer, then the values in C order.

    Raises
    ------
    ValueError
        When the file is not gzipped idx of unsigned bytes, or is cut short or too long.
    """
    try:
        with gzip.open(path, "rb") as file:
            content = file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged or cut short ({error}); delete it and get it again") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:
        raise ValueError(
            f"{path} must be an idx file of unsigned bytes, starting with 00 00 08; found {content[:4].hex(' ')}"
        )
    start = 4 + 4 * content[3]
    shape = tuple(int(size) for size in np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4"))
    if len(content) != start + math.prod(shape):
        raise ValueError(
            f"{path} must hold {start + math.prod(shape)} bytes for its shape {shape}; found {len(content)}. "
            "Delete it and get it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_cifar_folder(folder: Path) -> Source:
    *training, test = (read_records(folder / file) for file in CIFAR_FILES)
    x, y = (np.concatenate(arrays) for arrays in zip(*training, strict=True))
    return Source(x, y, test)


def read_records(path: str | os.PathLike[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a file of the binary version: images [N, 32, 32, 3] and labels [N].

    A record is a label, then the red, the green and the blue values, each in C order.

    Raises
    ------
    ValueError
        When the file does not end with a record.
    """
    content = np.fromfile(path, np.uint8)
    record = 1 + 3 * CIFAR_SIZE**2
    if not len(content) or len(content) % record:
        raise ValueError(
            f"{path} must hold records of {record} bytes; found {len(content)} bytes. Delete it and get it again"
        )
    records = content.reshape(-1, record)
    return records[:, 1:].reshape(-1, 3, CIFAR_SIZE, CIFAR_SIZE).transpose(0, 2, 3, 1).copy(), records[:, 0].copy()


IMAGE_SETS = {
    "mnist": ImageSet("mnist.npz", ("mnist",), IDX_FILES, _read_idx_folder, tuple("0123456789")),
    "fashion_mnist": ImageSet(
        "fashion-mnist",
        ("fashion_mnist", "fashion-mnist"),
        IDX_FILES,
        _read_idx_folder,
        (
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
    ),
    "cifar10": ImageSet(
        "cifar-10-batches-bin",
        ("cifar10", "cifar-10-batches-bin"),
        CIFAR_FILES,
        _read_cifar_folder,
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    ),
}
"""By the names of ``keras.datasets``."""
