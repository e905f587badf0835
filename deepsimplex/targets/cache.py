"""Neighbour distances kept on disk: under a key of everything they depend on, and trusted only when whole."""

import hashlib
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex.files import check_writable, replacing

FORMAT = 1  # raise it when the meaning of the stored distances changes: older files then no longer match
HASH_BYTES = 1 << 24  # of samples that are made contiguous and hashed at a time


class TargetCacheWarning(UserWarning):
    """A cache file was damaged and is made again, or could not be written."""


def fingerprint(*parts: Any) -> str:
    """Digest (BLAKE2b, 128 bits) of arrays (their bytes, shapes and dtypes) and of anything whose repr tells it all.

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
    rows = max(1, HASH_BYTES * len(array) // max(array.nbytes, 1))
    for start in range(0, len(array), rows):
        # Slices become contiguous one by one: a strided view is not copied whole.
        digest.update(np.ascontiguousarray(array[start : start + rows]).data)


def cached(
    cache_dir: Path, key: str, shape: tuple[int, ...], compute: Callable[[], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Load the distances stored under ``key``, or compute and store them.

    Parameters
    ----------
    cache_dir : pathlib.Path
        The folder; created when needed.
    key : str
        Digest of everything the distances depend on.
    shape : tuple of int
        Their shape.
    compute : callable
        Makes them, float64.

    Returns
    -------
    ndarray, float64

    Raises
    ------
    OSError
        When they must be computed and the folder cannot be written: said before the work, not after it.

    Warns
    -----
    TargetCacheWarning
        When a stored file is damaged (it is replaced), and when storing fails after all, e.g. on a full disk: the
        result is returned nevertheless.
    """
    path = cache_dir / f"neighbours-{key}.npz"
    if path.exists():
        try:
            return _load(path, key, shape)
        except Exception as error:  # a damaged archive may raise anything, from BadZipFile to MemoryError
            _warn(f"the cached distances in {path} are damaged ({type(error).__name__}: {error}); making them again")
    check_writable(cache_dir, "cache_dir")
    distances = compute()
    try:
        with replacing(path) as fresh:
            _save(fresh, {"distances": distances, "digest": np.array(fingerprint(FORMAT, key, distances))})
    except OSError as error:
        _warn(f"the distances could not be kept in {path} ({error}); they are used, and computed again next time")
    return distances


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    # What numpy.savez does, with an archive that is closed whatever happens: numpy's is left to its destructor when the
    # disk fills up, which then prints a second error of its own.
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _load(path: Path, key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    # numpy leaves a file that it opens itself open when the archive is cut short.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        distances, digest = archive["distances"], str(archive["digest"])
    if distances.shape != shape or distances.dtype != np.float64:
        raise ValueError(f"expected float64 {shape}, found {distances.dtype} {distances.shape}")
    if digest != fingerprint(FORMAT, key, distances):
        raise ValueError("its checksum does not fit")
    return distances


def _warn(message: str) -> None:
    warnings.warn(message, TargetCacheWarning, stacklevel=2)
