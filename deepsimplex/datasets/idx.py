"""The idx format in which MNIST and its like are published (gzipped, unsigned bytes)."""

import gzip
import math
import os
import zlib

import numpy as np
from numpy.typing import NDArray

from deepsimplex.datasets.source import Source

UNSIGNED_BYTE = 0x08
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


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


def read_idx_folder(folder: str | os.PathLike[str]) -> Source:
    """Read the four files of a data set published as MNIST is."""
    x, y, x_test, y_test = (read_idx(os.path.join(folder, file)) for file in FILES)
    return Source(x, y, (x_test, y_test))
