"""Cache neighbor distances on disk, under a key of everything they depend on; damaged files are replaced."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import load_arrays, save_arrays
from deepsimplex._utils.atomic_files import check_writable, locked, remove_leftovers, replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex.distances import Neighbors


class TargetCacheWarning(UserWarning):
    """A cache file was damaged and is replaced, or could not be written."""


_warn = partial(warn_caller, category=TargetCacheWarning)


class Distances(NamedTuple):
    """Distances to neighbors [N, n, k], the recall of the search, and whether they were read from the cache.

    ``from_cache`` is also True for an interrupted search that was resumed.
    """

    distances: NDArray[np.float64]
    recall: float
    from_cache: bool


def cached_search(
    cache_dir: Path, key: str, shape: tuple[int, ...], search: Callable[..., Neighbors], resumes: bool
) -> Distances:
    """Load the distances stored under ``key``, or search for neighbors and store them.

    Parameters
    ----------
    cache_dir : pathlib.Path
        The folder; created if needed.
    key : str
        Digest of everything the distances depend on.
    shape : tuple of int
        Shape of the distances.
    search : callable
        Searches with the argument ``checkpoint``, a folder for its state or None.
    resumes : bool
        Whether the search can be resumed after an interruption.

    Raises
    ------
    OSError
        When the folder cannot be written; raised before the distances are computed.

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
    with exclusive_folder(cache_dir / f"search-{key}") if resumes else nullcontext() as checkpoint:
        continued = checkpoint is not None and any(checkpoint.glob("*.npz"))
        neighbors = search(checkpoint=checkpoint)
    try:
        with replacing(path) as fresh:
            save_arrays(fresh, key, {"distances": neighbors.distances, "recall": np.array(neighbors.recall)})
    except OSError as error:
        _warn(f"the distances could not be kept in {path} ({error}); they are used, and computed again next time")
    return Distances(neighbors.distances, neighbors.recall, continued)


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[Path | None]:
    """Yield a folder for the state of a search, or None if another thread or process runs the same search.

    It is removed at the end, unless it holds the state of a search that was interrupted.
    """
    with ExitStack() as lock:
        acquired = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(locked(folder))
        except (BlockingIOError, FileExistsError, FileNotFoundError):  # the last two: it was removed meanwhile
            acquired = False
        try:
            yield folder if acquired else None
        finally:
            with suppress(OSError):
                if acquired:
                    folder.rmdir()


def _load(path: Path, key: str, shape: tuple[int, ...]) -> Distances:
    arrays = load_arrays(path, key)
    distances = arrays["distances"]
    if distances.shape != shape or distances.dtype != np.float64:
        raise ValueError(f"expected float64 {shape}, found {distances.dtype} {distances.shape}")
    return Distances(distances, float(arrays["recall"]), True)
