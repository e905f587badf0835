"""Cache neighbor distances on disk, under a key of everything they depend on; damaged files are replaced."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.archives import load_arrays, save_arrays
from deepsimplex._utils.atomic_files import check_writable, remove_leftovers, replacing
from deepsimplex._utils.messages import warn_caller
from deepsimplex.distances import Neighbors


class TargetCacheWarning(UserWarning):
    """A cache file was damaged and is replaced, or could not be written."""


_warn = partial(warn_caller, category=TargetCacheWarning)


class Distances(NamedTuple):
    """Distances to neighbors [N, n, k], the recall of the search, and whether they were read from the cache."""

    distances: NDArray[np.float64]
    recall: float
    from_cache: bool


def cached_search(cache_dir: Path, key: str, shape: tuple[int, ...], search: Callable[[], Neighbors]) -> Distances:
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
        Finds the neighbors.

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
    neighbors = search()
    try:
        with replacing(path) as fresh:
            save_arrays(fresh, key, {"distances": neighbors.distances, "recall": np.array(neighbors.recall)})
    except OSError as error:
        _warn(f"the distances could not be kept in {path} ({error}); they are used, and computed again next time")
    return Distances(neighbors.distances, neighbors.recall, from_cache=False)


def _load(path: Path, key: str, shape: tuple[int, ...]) -> Distances:
    arrays = load_arrays(path, key)
    distances = arrays["distances"]
    if distances.shape != shape or distances.dtype != np.float64:
        raise ValueError(f"expected float64 {shape}, found {distances.dtype} {distances.shape}")
    return Distances(distances, float(arrays["recall"]), from_cache=True)
