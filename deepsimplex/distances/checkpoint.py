"""The state of a long search on disk: a search that was killed goes on where it was."""

import shutil
import time
import warnings
from pathlib import Path

from numpy.typing import NDArray

from deepsimplex._utils.atomic_files import check_writable, fingerprint, load_arrays, replacing, save_arrays
from deepsimplex._utils.stacklevel import callers_stacklevel
from deepsimplex.distances.search import Search

# The state of 60 000 samples and 10 classes is 10 MB, and with the coordinates of landmarks 400 MB for a while: written
# so often, it costs little.
SECONDS_BETWEEN = 20.0


class CheckpointWarning(UserWarning):
    """A file of a search's state is damaged or cannot be written; the search goes on without it."""


class Checkpoint:
    """Files in which a search keeps its state, or nothing at all.

    Parameters
    ----------
    folder : pathlib.Path or None
        Where they are, created if need be; None: the search keeps nothing.
    key : str
        Digest of all that the search depends on, part of the files' names: searches can share a folder.

    Raises
    ------
    OSError
        When the folder cannot be created.

    Examples
    --------
    >>> Checkpoint(None, "of a search that keeps nothing").load("search") is None
    True
    """

    def __init__(self, folder: Path | None, key: str) -> None:
        self.key = key
        self.folder = folder
        # The folder goes with the search if it came with it, or held nothing but the state of one.
        self._ours = folder is not None and (not folder.exists() or any(folder.glob(f"*-{key}.npz")))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._written = time.monotonic()

    @staticmethod
    def check(folder: Path, metric: str | None) -> None:
        """Say whether a search under a metric could keep its state in a folder, before any work; leave no trace.

        Raises
        ------
        ValueError
            When ``metric`` is None: it has no key.
        OSError
            When the folder cannot be written.
        """
        if metric is None:
            raise ValueError("checkpoint needs a metric that a key can name, such as a named one; set checkpoint=None")
        there = folder.exists()
        check_writable(folder, "checkpoint")
        if not there:
            folder.rmdir()

    @classmethod
    def of(cls, search: Search, metric: str | None) -> "Checkpoint":
        """The checkpoint of a search under a metric, whose key is part of it; ``check`` has seen both."""
        if search.checkpoint is None:
            return cls(None, "")
        arrays = search.x, search.y, search.queries, search.query_labels
        options = search.own_positive, search.classes, search.num_classes, search.k, search.block_bytes
        return cls(search.checkpoint, fingerprint(metric, *options, *arrays))

    def load(self, name: str) -> dict[str, NDArray] | None:
        """The arrays kept under a name; None where there are none, or none that can be trusted."""
        path = self._path(name)
        if path is None or not path.exists():
            return None
        try:
            return load_arrays(path, self.key)
        except Exception as error:  # a damaged archive may raise anything, from BadZipFile to MemoryError
            _warn(f"{path} cannot be resumed from ({type(error).__name__}: {error}); that work is done again")
            return None

    def save(self, name: str, arrays: dict[str, NDArray]) -> None:
        """Keep arrays under a name."""
        path = self._path(name)
        if path is None:
            return
        try:
            with replacing(path) as fresh:
                save_arrays(fresh, self.key, arrays)
        except OSError as error:
            _warn(f"the state of the search cannot be kept in {path} ({error}); it goes on, and cannot be resumed")
            self.folder = None

    def keep(self, name: str, arrays: dict[str, NDArray]) -> None:
        """As ``save``, if it is some time since the last."""
        if self.folder is not None and time.monotonic() - self._written >= SECONDS_BETWEEN:
            self.save(name, arrays)
            self._written = time.monotonic()

    def clear(self) -> None:
        """Remove the files of a search that is finished."""
        if self.folder is None:
            return
        for path in self.folder.glob(f"*-{self.key}.npz"):
            path.unlink()
        for unfinished in self.folder.glob(f".*-{self.key}.npz.*"):  # of a search that was killed as it wrote
            shutil.rmtree(unfinished, ignore_errors=True)
        if self._ours and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{name}-{self.key}.npz"


def _warn(message: str) -> None:
    warnings.warn(message, CheckpointWarning, stacklevel=callers_stacklevel())
