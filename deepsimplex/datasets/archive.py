"""NumPy's .npz archives."""

import os
import zipfile
import zlib

import numpy as np

from deepsimplex.datasets.source import Source

KEYS = ("x_train", "y_train", "x_test", "y_test", "x", "y", "class_names")


def read_npz(path: str | os.PathLike[str]) -> Source:
    """Read x_train, y_train, x_test, y_test, or x and y alone, in any case, and class_names where they are there.

    Raises
    ------
    ValueError
        When the file is damaged, holds pickled objects or other keys.
    """
    with open(path, "rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it is a single array, not an archive of several")
            found = archive.files
            arrays = {key.lower(): archive[key] for key in found if key.lower() in KEYS}
        # A changed byte can also ask for a negative position (OSError) or a password (RuntimeError).
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError) as error:
            raise ValueError(
                f"{path} cannot be read as a .npz archive without pickled objects ({error}); write it again with "
                "numpy.savez_compressed"
            ) from error
    class_names = [str(name) for name in arrays["class_names"]] if "class_names" in arrays else None
    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        return Source(arrays["x_train"], arrays["y_train"], (arrays["x_test"], arrays["y_test"]), class_names)
    if {"x", "y"} <= arrays.keys():
        return Source(arrays["x"], arrays["y"], None, class_names)
    raise ValueError(f"{path} must hold x_train, y_train, x_test and y_test, or x and y; found {found}")
