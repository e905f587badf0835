"""Write and read .npz archives with a checksum, and check their sizes before memory is allocated."""

import codecs
import hashlib
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from deepsimplex._utils.messages import listed

FORMAT = 2  # raise it when the meaning of stored arrays changes: older files are then refused
HASH_BYTES = 1 << 24  # of an array that are made contiguous and hashed at a time

# Limits on the uncompressed size of an archive: so many bytes, or so many times the compressed size if that is more.
# Images and weights compress to a half or a tenth; a zip bomb expands a thousandfold.
ALWAYS, TIMES = 1 << 30, 100

# Beginnings of files other than archives, and a member of each kind of archive: what it is, and what takes it.
_BEGINNINGS = {
    b"\x80": ("a pickle, no file of deepsimplex", "joblib.load reads what joblib.dump wrote"),
    b"\x89HDF": ("an HDF5 file", "keras.models.load_model reads those of Keras"),
    b"\x93NUMPY": ("a single array", "numpy.load reads it"),
}
_MEMBERS = {
    "about.npy": (
        "a saved classifier",
        "deepsimplex.load loads it, 'deepsimplex evaluate FILE --data TABLE' scores it",
    ),
    "stream_p.npy": ("a state of deepsimplex monitor", "give it as --state"),
    "classes.npy": (
        "what was fitted after training, without its classifier",
        "AfterTraining.load(FILE, classifier) loads it",
    ),
    "p.npy": ("a file of predictions", "'deepsimplex report FILE' shows them"),
    "metadata.json": (
        "a Keras model",
        "deepsimplex.load loads it, 'deepsimplex evaluate FILE --data DATA' scores it",
    ),
}


def check_archive(path: str | os.PathLike[str]) -> None:
    """Raise an error for a zip archive whose stated size is implausibly large; ignore other files.

    Parameters
    ----------
    path : path-like
        A .npz or .keras file.

    Raises
    ------
    ValueError
        When the uncompressed size is more than 1 GiB and more than 100 times the compressed size, or when the size in
        an array's header is not that of its member.

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
                f"the archive states {inflated} bytes inflated from {stored}; more than {ALWAYS} and {TIMES} times "
                "the stored ones are refused"
            )
        for member in members:
            if member.filename.endswith(".npy"):
                _check_header(archive, member)


def _check_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError if an array's header states another size than its member has: NumPy allocates what it states."""
    with archive.open(member) as content:
        version = read_magic(content)
        shape, _, dtype = (read_array_header_1_0 if version[0] == 1 else read_array_header_2_0)(content)
        stated = content.tell() + math.prod(shape) * dtype.itemsize
    if stated != member.file_size and not dtype.hasobject:
        raise ValueError(
            f"{member.filename} holds {member.file_size} bytes, and its header says {stated}: shape {shape}"
        )


def other_kind(path: str | os.PathLike[str], member: str) -> str | None:
    """Return what a file is, if it is whole and of another kind than the archives that have a certain member.

    Parameters
    ----------
    path : path-like
    member : str
        "about.npy" for saved classifiers, "p.npy" for predictions, ...

    Returns
    -------
    str or None
        Begins with "is"; None if the file is damaged, or of that kind.

    Examples
    --------
    >>> np.savez(folder / "coin.npz", p=np.zeros(3))
    >>> other_kind(folder / "coin.npz", "about.npy")
    "is a file of predictions: 'deepsimplex report FILE' shows them"
    >>> other_kind(folder / "coin.npz", "p.npy") is None
    True
    """
    kind = None
    with suppress(Exception):  # a damaged archive may raise anything
        with Path(path).open("rb") as file:
            content = file.read(1 << 12)
        if zipfile.is_zipfile(path):
            check_archive(path)
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                first = next((name for name in _MEMBERS if name in names), None)
                if first != member and archive.testzip() is None:
                    kind = _MEMBERS.get(first or "")
                    if kind is None and "digest.npy" not in names and all(name.endswith(".npy") for name in names):
                        kind = f"an archive of {listed(names, most=5)}", "no file of deepsimplex holds these alone"
        elif {".joblib", ".pkl", ".pickle"} & {*Path(path).suffixes}:  # which may be compressed
            kind = _BEGINNINGS[b"\x80"]
        elif not (kind := next((about for begin, about in _BEGINNINGS.items() if content.startswith(begin)), None)):
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(content)
            is_text = all(character.isprintable() or character.isspace() for character in text)
            if text and is_text and not text.startswith("PK"):  # which begins archives, cut short or not
                kind = "a text file", "it holds no arrays"
    return kind and f"is {kind[0]}: {kind[1]}"


@contextmanager
def naming_damage(path: Path, member: str, otherwise: str, remedy: str = "", place: str = "") -> Iterator[None]:
    """Raise ValueError for what reading a damaged archive raises, or one of another kind.

    Errors of files that are missing or may not be read stay as they are.

    Parameters
    ----------
    path : pathlib.Path
    member : str
        As for ``other_kind``.
    otherwise : str
        What a file of no other kind is; the error follows.
    remedy : str
        What to do then. Default "": not said.
    place : str
        The file, as the message calls it. Default "": by its path.

    Examples
    --------
    >>> with naming_damage(Path("coin.npz"), "p.npy", "is damaged", "write it again"):
    ...     raise zipfile.BadZipFile("no end")
    Traceback (most recent call last):
    ValueError: coin.npz is damaged (BadZipFile: no end); write it again
    """
    try:
        yield
    except Exception as error:  # a damaged archive raises anything, from BadZipFile to MemoryError
        if isinstance(error, OSError) and error.filename is not None:  # of opening the file, not of reading it
            raise
        what = other_kind(path, member) or f"{otherwise} ({type(error).__name__}: {error}){remedy and f'; {remedy}'}"
        raise ValueError(f"{place or path} {what}") from error


def fingerprint(*parts: Any) -> str:
    """Return a digest (BLAKE2b, 128 bits) of arrays (bytes, shapes and dtypes) and of other objects (their repr).

    Parameters
    ----------
    *parts : ndarray or object
        Their order matters. Python objects in an array are hashed by their addresses, which differ between processes.

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
    # As numpy.savez, but the archive is always closed: when the disk fills up, NumPy leaves that to the destructor,
    # which then prints a second error.
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
        When the file was saved under another key, was changed, or fails ``check_archive``. A damaged archive may raise
        anything else, from ``zipfile.BadZipFile`` to ``MemoryError``.

    Examples
    --------
    See ``save_arrays``.

    >>> load_arrays("nowhere.npz", "key")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.npz'
    """
    check_archive(path)
    # NumPy does not close a file that it opened itself if the archive is truncated.
    with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if str(arrays.pop("digest", None)) != _digest(key, arrays):
        raise ValueError("its checksum does not fit")
    return arrays


def _digest(key: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    return fingerprint(FORMAT, key, *(part for name, array in arrays.items() for part in (name, np.asarray(array))))


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, by the rest of their names.

    Examples
    --------
    >>> with_prefix({"loss_tau": np.ones(1), "other": np.ones(1)}, "loss_")
    {'tau': array([1.])}
    """
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
