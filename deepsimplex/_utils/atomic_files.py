"""Write files and folders atomically; store arrays with a checksum."""

import ctypes
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

EARLIER = "earlier"  # what a folder is called that stepped aside
_LIBC = ctypes.CDLL(None) if os.name == "posix" else None
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux' renameat2
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
    final = Path(os.path.realpath(Path(path).expanduser()))  # a link stays one: what it leads to is replaced
    final.parent.mkdir(parents=True, exist_ok=True)
    # Of one length: names of files may already be as long as the file system allows.
    prefix = f".{hashlib.blake2b(final.name.encode(), digest_size=6).hexdigest()}."
    _remove_leftovers(final, prefix)
    with ExitStack() as lock:
        place = _locked_folder(final.parent, prefix, lock)
        fresh = place / final.name
        try:
            yield fresh
            if fresh.is_dir() and final.is_dir():
                _replace_folder(fresh, final, place / EARLIER)
            else:
                os.replace(fresh, final)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _replace_folder(fresh: Path, final: Path, aside: Path) -> None:
    """Put a folder in the place of another: in one step where the system can exchange two."""
    if _exchange(fresh, final):
        return
    os.replace(final, aside)  # from here to the next step a kill leaves neither: the next writer brings it back
    try:
        os.replace(fresh, final)
    except BaseException:  # an interrupt must not lose both
        os.replace(aside, final)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths atomically, and return whether the system could: Linux can on most file systems."""
    if _LIBC is None or not hasattr(_LIBC, "renameat2"):
        return False
    return _LIBC.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _locked_folder(parent: Path, prefix: str, lock: ExitStack) -> Path:
    """Make a temporary folder, and lock it until ``lock`` is closed or this process ends."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Another writer may take it for a leftover before it is locked.
        with suppress(BlockingIOError, FileNotFoundError):
            lock.enter_context(locked(place))
            if place.exists():
                return place


def _remove_leftovers(final: Path, prefix: str) -> None:
    """Remove temporary folders of writers that were killed; a folder that one had taken aside comes back."""
    for place in final.parent.glob(f"{prefix}*"):
        # Without locks they cannot be told from those of writers that are at work.
        with suppress(OSError), locked(place) as held:
            if held and (place / EARLIER).exists() and not final.exists():
                os.replace(place / EARLIER, final)
            if held:
                shutil.rmtree(place, ignore_errors=True)


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold a folder for the block, or until this process ends, however it does.

    Yields
    ------
    bool
        False where the system or the file system has no locks: nobody is kept out.

    Raises
    ------
    BlockingIOError
        When another process holds it.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder, locked(folder):
    ...     pass
    """
    if fcntl is None:  # nor can folders be opened there
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield _flock(descriptor)
    finally:
        os.close(descriptor)


def _flock(descriptor: int) -> bool:
    """Lock an open folder, and return whether its file system has locks; raise BlockingIOError if it is held."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


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
