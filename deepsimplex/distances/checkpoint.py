"""Checkpoints of a long search on disk, to resume it after an interruption."""

import shutil
import time
from functools import partial
from pathlib import Path

from numpy.typing import NDArray

from deepsimplex._utils.archives import load_arrays, save_arrays
from deepsimplex._utils.atomic_files import check_writable, replacing
from deepsimplex._utils.messages import warn_caller

# The state of 60 000 samples and 10 classes is 10 MB: written this often, it costs little.
SECONDS_BETWEEN = 20.0


class CheckpointWarning(UserWarning):
    """The file with a search's state is damaged or cannot be written; the search continues without it."""


_warn = partial(warn_caller, category=CheckpointWarning)


class Checkpoint:
    """A file that keeps the state of a search.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the file, created if needed.
    key : str
        Digest of everything that the search depends on, part of the file's name: searches can share a folder.

    Raises
    ------
    OSError
        If the folder cannot be created.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.key, self.path = key, folder / f"search-{key}.npz"
        # A folder that did not exist, or holds the state of this search, is removed with it.
        self._remove_folder = not folder.exists() or self.path.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._written, self._writable = time.monotonic(), True

    @staticmethod
    def check(folder: Path, distance_key: str | None) -> None:
        """Raise an error if a search could not keep its state in a folder, before any work.

        Raises
        ------
        ValueError
            If ``distance_key`` is None.
        OSError
            If the folder cannot be written.
        """
        if distance_key is None:
            raise ValueError("checkpoint needs a distance that a key can name, not a function; set checkpoint=None")
        existed = folder.exists()
        check_writable(folder, "checkpoint")
        if not existed:
            folder.rmdir()

    def load(self) -> dict[str, NDArray] | None:
        """Load the state; None if it is missing or damaged."""
        if not self.path.exists():
            return None
        try:
            return load_arrays(self.path, self.key)
        except Exception as error:  # a damaged archive may raise anything, from BadZipFile to MemoryError
            _warn(f"{self.path} cannot be resumed from ({type(error).__name__}: {error}); that work is done again")
            return None

    def keep(self, state: dict[str, NDArray]) -> None:
        """Save the state if it was last saved at least ``SECONDS_BETWEEN`` ago."""
        if not self._writable or time.monotonic() - self._written < SECONDS_BETWEEN:
            return
        try:
            with replacing(self.path) as fresh:
                save_arrays(fresh, self.key, state)
        except OSError as error:
            _warn(f"the state of the search cannot be kept in {self.path} ({error}); it cannot be resumed")
            self._writable = False
        self._written = time.monotonic()

    def clear(self) -> None:
        """Remove the state of a search that is finished."""
        self.path.unlink(missing_ok=True)
        for unfinished in self.path.parent.glob(f".{self.path.name}.*"):  # of a search that was killed while it wrote
            shutil.rmtree(unfinished, ignore_errors=True)
        if self._remove_folder and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()
