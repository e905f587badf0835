"""Write files and folders atomically; store arrays with a checksum."""

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = 2  # raise it when the meaning of stored arrays changes: older files are then refused
HASH_BYTES = 1 << 24  # of samples that are made contiguous and hashed at a time


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path; move it to ``path`` if the block ends without an error.

    Works for files and for folders. An earlier good file survives a full disk, a kill and any exception.

    Parameters
    ----------
    path : path-like
        The final place, which may begin with ``~``. Its parent folder is created.

    Yields
    ------
    pathlib.Path
        A path of the same name in a temporary folder beside the final place, on the same file system.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "numbers.txt") as fresh:
    ...         written = fresh.write_text("1 2 3")
    ...     (Path(folder) / "numbers.txt").read_text()
    '1 2 3'
    """
    final = Path(path).expanduser()
    final.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    fresh = place / final.name
    try:
        yield fresh
        if fresh.is_dir() and final.is_dir():
            # A folder cannot be replaced in one step: the old one steps aside, and comes back if the new one cannot.
            aside = place / "earlier"
            os.replace(final, aside)
            try:
                os.replace(fresh, final)
            except BaseException:  # an interrupt must not lose both
                os.replace(aside, final)
                raise
        else:
            os.replace(fresh, final)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def check_writable(folder: str | os.PathLike[str], argument: str) -> Path:
    """Create ``folder`` and check that files can be written there, before the work whose result goes into it.

    Parameters
    ----------
    folder : path-like
        May begin with ``~``.
    argument : str
        The argument's name, for the message.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    OSError
        Naming ``argument`` and the folder, when it cannot be created or written.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as place:
    ...     check_writable(Path(place) / "new", "output").name
    'new'
    """
    place = Path(folder).expanduser()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"\0")
    except OSError as error:
        raise OSError(
            error.errno,
            f"{argument} is not a folder that can be written ({error.strerror}); give another one or free it",
            str(place),
        ) from error
    return place


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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_arrays(Path(folder) / "numbers.npz", "key", {"numbers": np.arange(3)})
    ...     load_arrays(Path(folder) / "numbers.npz", "key")["numbers"].tolist()
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
        When the file is another key's, or was changed. A damaged archive may raise anything else, from
        ``zipfile.BadZipFile`` to ``MemoryError``.

    Examples
    --------
    See ``save_arrays``.

    >>> load_arrays("nowhere.npz", "key")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.npz'
    """
    # numpy leaves a file that it opens itself open when the archive is cut short.
    with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if str(arrays.pop("digest")) != _digest(key, arrays):
        raise ValueError("its checksum does not fit")
    return arrays


def _digest(key: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    return fingerprint(FORMAT, key, *(part for name, array in arrays.items() for part in (name, np.asarray(array))))
