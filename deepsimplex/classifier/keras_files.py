"""Load saved classifiers, and say so when a file is damaged."""

import os
import zipfile
from pathlib import Path
from typing import Any

import keras


def load_model(filepath: str | os.PathLike[str], **kwargs: Any) -> keras.Model:
    """Load a ``.keras`` file, after checking that it is whole.

    ``keras.models.load_model`` does as well once deepsimplex is imported; it says less when a file is cut short.

    Parameters
    ----------
    filepath : path-like
        May begin with ``~``.
    **kwargs
        As in keras.models.load_model. Safe mode stays on: no code is unpickled.

    Returns
    -------
    keras.Model

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When the file is damaged or cut short.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.save(folder / "model.keras")
    >>> load_model(folder / "model.keras").output_shape
    (None, 1)
    """
    path = Path(filepath).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"filepath: there is no model at {str(path)!r}")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(
            f"filepath: {str(path)!r} is damaged or cut short ({error}); save the model again or restore a copy"
        ) from error
    if damaged is not None:
        raise ValueError(f"filepath: {str(path)!r} is damaged (in {damaged!r}); save it again or restore a copy")
    return keras.models.load_model(path, **kwargs)
