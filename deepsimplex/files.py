"""Files that are written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a fresh path to write to; put it in the place of ``path`` only if the block ends without an error.

    Works for files and for folders. An earlier good file survives a full disk, a kill and any exception.

    Parameters
    ----------
    path : path-like
        The final place. Its parent folder is created.

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
    final = Path(path)
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
    """Create ``folder`` and prove that a file can be written there, before any work is spent on what goes into it.

    Raises
    ------
    OSError
        Naming ``argument`` and the folder, when it cannot be created or written.
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
