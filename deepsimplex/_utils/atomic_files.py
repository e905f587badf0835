"""Write files and folders atomically; one error for full disks."""

import ctypes
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

EARLIER = "earlier"  # name of an existing folder that is moved aside while it is replaced
_LIBC = ctypes.CDLL(None) if os.name == "posix" else None
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux' renameat2
_NO_ROOM = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)}


class DiskFullError(OSError):
    """The disk is full, or a quota or the largest size of a file is reached."""


@contextmanager
def disk_full_at(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of a full disk inside the block into one that names ``path``.

    TensorFlow (OutOfRangeError, ResourceExhaustedError) and HDF5 raise other errors, which are recognized by the
    system's message; Python's often name no file.

    Raises
    ------
    DiskFullError
        An OSError with the system's errno, and ``path`` as its filename.

    Examples
    --------
    >>> try:
    ...     with disk_full_at("events"):
    ...         raise RuntimeError("tmp/events.1; No space left on device")
    ... except OSError as error:
    ...     print(error)
    [Errno 28] No space left on device; make room, or give another path: 'events'
    """
    try:
        yield
    except DiskFullError:  # which names the file already
        raise
    except Exception as error:
        for code, words in _NO_ROOM.items():
            if getattr(error, "errno", None) == code or words in str(error):
                raise DiskFullError(code, f"{words}; make room, or give another path", os.fspath(path)) from error
        raise


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

    Raises
    ------
    DiskFullError
        When the disk is full, whatever error the writer raises for it: an OSError with the final path.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "numbers.txt") as fresh:
    ...         written = fresh.write_text("1 2 3")
    ...     (Path(folder) / "numbers.txt").read_text()
    '1 2 3'
    """
    final = Path(os.path.realpath(Path(path).expanduser()))  # a symbolic link is kept: its target is replaced
    with disk_full_at(final), ExitStack() as lock:
        final.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(final)
        place = _locked_folder(final.parent, _prefix(final), lock)
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
    """Replace a folder by another: atomically if the system can exchange two paths."""
    if _exchange(fresh, final):
        return
    os.replace(final, aside)  # if killed before the next step, neither exists: the next writer restores it
    try:
        os.replace(fresh, final)
    except BaseException:  # an interrupt must not lose both
        os.replace(aside, final)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths atomically, and return whether the system supports it: Linux does on most file systems."""
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


def _prefix(final: Path) -> str:
    """Prefix of a file's temporary folders: a hash of fixed length, since the name may have the maximum length."""
    return f".{hashlib.blake2b(final.name.encode(), digest_size=6).hexdigest()}."


def remove_leftovers(final: Path) -> None:
    """Remove temporary folders of killed writers, and restore a folder that one of them had moved aside.

    ``replacing`` calls it first; readers of files that are written only once call it, too.
    """
    for place in final.parent.glob(f"{_prefix(final)}*"):
        # Without locks they cannot be distinguished from those of running writers.
        with suppress(OSError), locked(place) as held:
            if held and (place / EARLIER).exists() and not final.exists():
                os.replace(place / EARLIER, final)
            if held:
                shutil.rmtree(place, ignore_errors=True)


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[bool]:
    """Lock a folder inside the block. The lock also ends with the process, even if that is killed.

    Yields
    ------
    bool
        False if the system or the file system has no locks: others are not kept out.

    Raises
    ------
    BlockingIOError
        When another process or thread holds the lock.
    FileNotFoundError
        When there is no such folder, or no longer.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder, locked(folder):
    ...     pass
    """
    if fcntl is None:  # Windows, where folders cannot be opened either
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        held = _flock(descriptor)
        if not os.fstat(descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "removed by another process", os.fspath(folder))
        yield held
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


def check_path(value: Any, name: str) -> Path:
    """Return a path with "~" expanded; raise a TypeError that names the argument if ``value`` is no path."""
    try:
        return Path(value).expanduser()
    except TypeError:
        raise TypeError(f"{name} must be a path; found {value!r}") from None


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


def check_place(folder: str | os.PathLike[str], argument: str) -> None:
    """Raise what ``check_writable`` would for a folder that cannot be made, without making it.

    Examples
    --------
    >>> check_place("new/folder", "output")
    """
    place = Path(folder).expanduser().absolute()
    above = next(parent for parent in (place, *place.parents) if parent.exists())
    if above.is_dir() and os.access(above, os.W_OK):
        return
    code = errno.EACCES if above.is_dir() else errno.ENOTDIR
    raise OSError(code, f"{argument} is not a folder that can be written; give another one or free it", str(place))


def check_output(
    path: str | os.PathLike[str], suffix: str | None, argument: str = "output", name: str = "", samples: Any = None
) -> Path:
    """Return the path of a file to write, before the work for it; raise an error for a folder or another suffix.

    For a folder the error proposes a file of this ``name`` in it. The file of ``samples``, if these are one, is an
    error, too: it would be replaced.

    Examples
    --------
    >>> check_output("predictions.txt", ".csv")
    Traceback (most recent call last):
    ValueError: output must be a file that ends in .csv; found 'predictions.txt'
    """
    target = Path(path).expanduser()
    if (suffix and target.suffix.lower() != suffix) or target.is_dir():
        wanted = f" that ends in {suffix}" if suffix else ""
        wanted += f", such as {target / name}" if name and target.is_dir() else ""
        raise ValueError(f"{argument} must be a file{wanted}; found {str(target)!r}{', a folder' * target.is_dir()}")
    if isinstance(samples, str | os.PathLike) and target.resolve() == Path(samples).expanduser().resolve():
        raise ValueError(f"{argument} must not be the file of samples, which it would replace; found {str(target)!r}")
    check_writable(target.parent, f"the folder of {argument}")
    return target
