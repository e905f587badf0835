"""Archives of arrays: their sizes checked before memory is asked for them, written and read with a checksum."""

import hashlib
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

FORMAT = 2  # raise it when the meaning of stored arrays changes: older files are then refused
HASH_BYTES = 1 << 24  # of samples that are made contiguous and hashed at a time

# Bytes that any archive may hold inflated, and how many times what is stored if that is more. Images and weights shrink
# to a half or a tenth; deflation can state a thousand times a file's size.
ALWAYS, TIMES = 1 << 30, 100


def check_archive(path: str | os.PathLike[str]) -> None:
    """Raise an error for an archive that states more than it can hold; what is no zip archive is left alone.

    Parameters
    ----------
    path : path-like
        A .npz or .keras file.

    Raises
    ------
    ValueError
        When the members are together more than 1 GiB and more than 100 times what is stored, and when the header of an
        array says another size than its member has.

    Examples
    --------
    >>> np.savez(folder / "numbers.npz", x=np.zeros(3))
    >>> check_archive(folder / "numbers.npz")
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        inflated, stored = (sum(getattr(each, size) for each in members) for size in ("file_size", "compress_size"))
        if inflated > max(ALWAYS, TIMES * stored):
            raise ValueError(
                f"it states {inflated} bytes inflated from {stored}; more than {ALWAYS} and {TIMES} times what is "
                "stored are refused"
            )
        for member in members:
            if member.filename.endswith(".npy"):
                _check_header(archive, member)


def _check_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError for an array whose header does not say what the member holds: memory for that is asked."""
    with archive.open(member) as content:
        version = read_magic(content)
        shape, _, dtype = (read_array_header_1_0 if version[0] == 1 else read_array_header_2_0)(content)
        stated = content.tell() + math.prod(shape) * dtype.itemsize
    if stated != member.file_size and not dtype.hasobject:
        raise ValueError(
            f"{member.filename} holds {member.file_size} bytes, and its header says {stated}: shape {shape}"
        )


def fingerprint(*parts: Any) -> str:
    """Return a digest (BLAKE2b, 128 bits) of arrays (bytes, shapes and dtypes) and of other objects (their repr).

    Parameters
    ----------
    *parts : ndarray or object
        Their order matters. Python objects in an array count by their addresses, which no other process knows again.

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    ValueError
        When NumPy gives no access to an array's bytes, as for dates and times.

    Examples
    --------
    >>> fingerprint(np.zeros(3), "euclidean") == fingerprint(np.zeros(3, np.float32), "euclidean")
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            _update(digest, part)
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _update(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    if array.ndim == 0:
        digest.update(array.tobytes())
        return
    rows = max(1, HASH_BYTES * len(array) // max(array.nbytes, 1))
    for start in range(0, len(array), rows):
        # Slices become contiguous one by one: a strided view is not copied whole.
        digest.update(np.ascontiguousarray(array[start : start + rows]).data)


def save_arrays(path: str | os.PathLike[str], key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to an .npz archive with a checksum of them and of ``key``.

    Parameters
    ----------
    path : path-like
    key : str
    arrays : mapping of str to ndarray

    Raises
    ------
    OSError
        When the file cannot be written.

    Examples
    --------
    >>> save_arrays(folder / "numbers.npz", "key", {"numbers": np.arange(3)})
    >>> load_arrays(folder / "numbers.npz", "key")["numbers"].tolist()
    [0, 1, 2]
    """
    digest = np.array(_digest(key, arrays))
    # What numpy.savez does, with an archive that is closed whatever happens: numpy's is left to its destructor when the
    # disk fills up, which then prints a second error of its own.
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in {**arrays, "digest": digest}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def load_arrays(path: str | os.PathLike[str], key: str) -> dict[str, NDArray[Any]]:
    """Read the arrays that ``save_arrays`` wrote under the same key.

    Parameters
    ----------
    path : path-like
    key : str

    Returns
    -------
    dict of str to ndarray
        By the names they were saved under.

    Raises
    ------
    OSError
        When the file is not there or cannot be read.
    ValueError
        When the file is another key's, or was changed, or states more than it holds. A damaged archive may raise
        anything else, from ``zipfile.BadZipFile`` to ``MemoryError``.

    Examples
    --------
    See ``save_arrays``.

    >>> load_arrays("nowhere.npz", "key")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.npz'
    """
    check_archive(path)
    # numpy leaves a file that it opens itself open when the archive is cut short.
    with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if str(arrays.pop("digest")) != _digest(key, arrays):
        raise ValueError("its checksum does not fit")
    return arrays


def _digest(key: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    return fingerprint(FORMAT, key, *(part for name, array in arrays.items() for part in (name, np.asarray(array))))
