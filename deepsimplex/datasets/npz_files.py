"""Read labeled samples from .npz archives."""

import os
import re
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepsimplex._utils.archives import check_archive
from deepsimplex.datasets.labeled import Source, check_written

KEYS = ("x_train", "y_train", "x_test", "y_test", "x", "y", "class_names")


def read_npz(path: str | os.PathLike[str], groups: Any = None, time: Any = None) -> Source:
    """Read x_train, y_train, x_test, y_test, or x and y alone, in upper or lower case, and class_names if given.

    ``groups`` and ``time`` name arrays of the samples; beside x_train, NAME_train and NAME_test.

    Raises
    ------
    ValueError
        When the file is damaged, holds pickled objects or other keys.
    """
    with open(path, "rb") as file:
        try:
            check_archive(path)
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it is a single array, not an archive of several")
            names = archive.files
            columns = [option for option in (groups, time) if isinstance(option, str)]
            arrays = {key.lower(): archive[key] for key in names if key.lower() in KEYS}
            arrays |= {key: archive[key] for key in names if re.sub("_(train|test)$", "", key) in columns}
        # A corrupt archive may also hold a negative position (OSError) or seem encrypted (RuntimeError).
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError) as error:
            raise ValueError(
                f"{path} cannot be read as a .npz archive without pickled objects ({error}); write it again with "
                "numpy.savez_compressed"
            ) from error
    class_names = None
    if "class_names" in arrays:
        if arrays["class_names"].ndim != 1:
            raise ValueError(f"class_names in {path} must have shape [n]; found shape {arrays['class_names'].shape}")
        class_names = check_written(arrays["class_names"], f"class_names in {path}")
        kind = arrays["class_names"].dtype.kind
        if kind not in "USiu" or not all(class_names) or len({*class_names}) < len(class_names):
            raise ValueError(f"class_names in {path} must be different names; found {arrays['class_names'].tolist()}")

    def column(option: Any, parts: Sequence[str]) -> Any:
        if not isinstance(option, str):
            return option
        if missing := [option + part for part in parts if option + part not in arrays]:
            raise ValueError(f"groups and time must name arrays of {path}; found no {missing[0]!r} among {names}")
        return np.concatenate([np.atleast_1d(arrays[option + part]) for part in parts])

    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        test = arrays["x_test"], arrays["y_test"]
        samples = len(arrays["y_train"]) if arrays["y_train"].ndim else 0

        def name(k: int) -> str:
            return f"x_train[{k}]" if k < samples else f"x_test[{k - samples}]"

        both = [column(option, ("_train", "_test")) for option in (groups, time)]
        return Source(arrays["x_train"], arrays["y_train"], test, class_names, name, *both)
    if {"x", "y"} <= arrays.keys():
        each = [column(option, ("",)) for option in (groups, time)]
        return Source(arrays["x"], arrays["y"], None, class_names, "x[{}]".format, *each)
    raise ValueError(f"{path} must hold x_train, y_train, x_test and y_test, or x and y; found {names}")
