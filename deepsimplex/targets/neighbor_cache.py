"""Cache neighbor distances on disk, under a key of everything they depend on; damaged files are made again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import load_arrays, save_arrays
from deepsimplex._utils.atomic_files import check_writable, locked, remove_leftovers, replacing
from deepsimplex._utils.warning import warn_caller


class TargetCacheWarning(UserWarning):
    """A cache file was damaged and is made again, or could not be written."""


_warn = partial(warn_caller, category=TargetCacheWarning)


def cached(
    cache_dir: Path, key: str, shape: tuple[int, ...], compute: Callable[[], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Load the distances stored under ``key``, or compute and store them.

    Parameters
    ----------
    cache_dir : pathlib.Path
        The folder; created if needed.
    key : str
        Digest of everything the distances depend on.
    shape : tuple of int
        Their shape.
    compute : callable
        Returns them, float64.

    Returns
    -------
    ndarray, float64

    Raises
    ------
    OSError
        When the folder cannot be written: before the distances are computed.

    Warns
    -----
    TargetCacheWarning
        When a stored file is damaged (it is replaced), and when storing fails, e.g. on a full disk: the result is
        returned nevertheless.
    """
    path = cache_dir / f"neighbors-{key}.npz"
    if path.exists():
        remove_leftovers(path)
        try:
            return _load(path, key, shape)
        except Exception as error:  # a damaged archive may raise anything, from BadZipFile to MemoryError
            _warn(f"the cached distances in {path} are damaged ({type(error).__name__}: {error}); making them again")
    check_writable(cache_dir, "cache_dir")
    distances = compute()
    try:
        with replacing(path) as fresh:
            save_arrays(fresh, key, {"distances": distances})
    except OSError as error:
        _warn(f"the distances could not be kept in {path} ({error}); they are used, and computed again next time")
    return distances


@contextmanager
def own_folder(folder: Path) -> Iterator[Path | None]:
    """Yield a folder for the state of a search, or None if another thread or process is at the same search.

    It is removed at the end, unless it holds the state of a search that was interrupted.
    """
    with ExitStack() as lock:
        own = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(locked(folder))
        except (BlockingIOError, FileExistsError, FileNotFoundError):  # the last two: it was removed meanwhile
            own = False
        try:
            yield folder if own else None
        finally:
            with suppress(OSError):
                if own:
                    folder.rmdir()


def _load(path: Path, key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    distances = load_arrays(path, key)["distances"]
    if distances.shape != shape or distances.dtype != np.float64:
        raise ValueError(f"expected float64 {shape}, found {distances.dtype} {distances.shape}")
    return distances
