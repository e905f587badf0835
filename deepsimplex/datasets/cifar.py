"""CIFAR-10 from copies on this machine, or downloaded through Keras."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepsimplex.datasets.files import read_npz
from deepsimplex.datasets.labeled import Source
from deepsimplex.datasets.mnist import ENVIRONMENT_VARIABLE, download, keras_cache

FOLDER = "cifar-10-batches-bin"
TRAINING_FILES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
TEST_FILE = "test_batch.bin"
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIZE = 32


def _places() -> list[Path]:
    """Return the paths to search, in order: .npz files and folders of the binary version."""
    found = [keras_cache() / FOLDER]
    if os.environ.get(ENVIRONMENT_VARIABLE):
        root = Path(os.environ[ENVIRONMENT_VARIABLE]).expanduser()
        found += [root / FOLDER, root / "cifar10.npz", root]
    return found


def read_cifar10() -> Source:
    """Read the first copy found, or the one that Keras has or downloads.

    Raises
    ------
    ValueError
        If the copy is damaged: the next one is not taken silently.
    OSError
        If no copy is found and the download fails; lists the paths searched.
    """
    for place in _places():
        if place.suffix == ".npz" and place.is_file():
            source = read_npz(place)
            break
        if all((place / file).is_file() for file in (*TRAINING_FILES, TEST_FILE)):
            parts = [read_records(place / file) for file in TRAINING_FILES]
            x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            source = Source(x, y, read_records(place / TEST_FILE))
            break
    else:
        source = download("cifar10", _places(), f"{FOLDER}/ of the binary version")
    return Source(source.x, source.y, source.test, CLASS_NAMES)


def read_records(path: str | os.PathLike[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a file of the binary version: images [N, 32, 32, 3] and labels [N].

    A record is a label, then the red, the green and the blue values, each in C order.

    Raises
    ------
    ValueError
        When the file does not end with a record.
    """
    content = np.fromfile(path, np.uint8)
    record = 1 + 3 * _SIZE**2
    if not len(content) or len(content) % record:
        raise ValueError(
            f"{path} must hold records of {record} bytes; found {len(content)} bytes. Delete it and get it again"
        )
    records = content.reshape(-1, record)
    return records[:, 1:].reshape(-1, 3, _SIZE, _SIZE).transpose(0, 2, 3, 1).copy(), records[:, 0].copy()
