"""MNIST and Fashion-MNIST from copies on this machine, or downloaded through Keras."""

import gzip
import math
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex.datasets.files import read_npz
from deepsimplex.datasets.labeled import Source

ENVIRONMENT_VARIABLE = "DEEPSIMPLEX_DATA"
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
UNSIGNED_BYTE = 0x08
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion_mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}


def keras_cache() -> Path:
    """The folder in which ``keras.datasets`` keeps its downloads."""
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path("/tmp")
    return Path(os.environ.get("KERAS_HOME", home / ".keras")).expanduser() / "datasets"


def _places(name: str) -> list[Path]:
    """Return the paths to search for "mnist" or "fashion_mnist", in order: .npz files and folders of idx files."""
    spellings = (name, name.replace("_", "-")) if "_" in name else (name,)
    found = [keras_cache() / "mnist.npz" if name == "mnist" else keras_cache() / "fashion-mnist"]
    if os.environ.get(ENVIRONMENT_VARIABLE):
        root = Path(os.environ[ENVIRONMENT_VARIABLE]).expanduser()
        found += [root / spelling for spelling in spellings]
        found += [root / f"{spelling}.npz" for spelling in spellings]
        # MNIST and Fashion-MNIST have the same file names: only the folder's name identifies the data set.
        found += [root] if root.name in spellings else []
    if name == "fashion_mnist":
        found.append(DEBIAN_FASHION_MNIST)
    return found


def read_mnist_like(name: str) -> Source:
    """Read the first copy found, or download one through Keras.

    Raises
    ------
    ValueError
        If the copy is damaged: the next one is not taken silently.
    OSError
        If no copy is found and the download fails; lists the paths searched.
    """
    for place in _places(name):
        if place.suffix == ".npz" and place.is_file():
            source = read_npz(place)
            break
        if all((place / file).is_file() for file in FILES):
            x, y, x_test, y_test = (read_idx(place / file) for file in FILES)
            source = Source(x, y, (x_test, y_test))
            break
    else:
        source = download(name, _places(name), f"{name}/ with {', '.join(FILES)}")
    return Source(source.x, source.y, source.test, CLASS_NAMES[name])


def download(name: str, places: Sequence[Path], folder: str) -> Source:
    """Read the data set of ``keras.datasets``, which downloads it once; ``folder`` names another copy for the error.

    Raises
    ------
    OSError
        If the download fails; lists the ``places`` searched.
    """
    try:
        (x, y), test = getattr(keras.datasets, name).load_data()
    except Exception as error:  # Keras raises a bare Exception when a download fails
        raise OSError(
            f"{name} could not be downloaded ({error}), and no copy was found in {', '.join(map(str, places))}. Put "
            f"one there, or set {ENVIRONMENT_VARIABLE} to a folder that holds {name}.npz or {folder}"
        ) from error
    return Source(x, y, test)


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
