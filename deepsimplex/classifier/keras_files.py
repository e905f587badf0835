"""Load files of Keras models, with errors that name the problem, and replace them safely."""

import importlib.util
import io
import os
import tempfile
import weakref
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.archives import check_archive, naming_damage, other_kind


def load_model(filepath: str | os.PathLike[str], **kwargs: Any) -> keras.Model:
    """Load a ``.keras`` file, after checking that it is whole.

    ``keras.models.load_model`` works too once deepsimplex is imported, with less specific errors for truncated files.

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
        When the file is damaged or truncated, declares more data than it contains, or holds no model that can be
        rebuilt: invalid parts, or weights that do not fit or are not finite. Keras' own error is its cause.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.save(folder / "model.keras")
    >>> load_model(folder / "model.keras").output_shape
    (None, 1)
    """
    path = Path(filepath).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"filepath: there is no model at {str(path)!r}")
    place, otherwise = f"filepath: {str(path)!r}", "is damaged or cut short, or no model that can be loaded here"
    with naming_damage(path, "metadata.json", otherwise, "save the model again or restore a copy", place):
        check_archive(path)
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise ValueError(f"in {damaged!r}")
    try:
        model = keras.models.load_model(path, **kwargs)
        not_finite = [weight.path for weight in model.weights if not _is_finite(weight)]
    except Exception as error:  # Keras', of any type
        if "keras_hub" in str(error) and importlib.util.find_spec("keras_hub") is None:
            raise ImportError(f"{place} needs KerasHub; in a checkout: pip install '.[keras-hub]'") from error
        what = f"holds no model that can be made again ({type(error).__name__}: {error})"
        raise ValueError(f"{place} {other_kind(path, 'metadata.json') or what}") from error
    if not_finite:
        raise ValueError(
            f"{place} holds weights that are NaN or infinite, in {', '.join(not_finite)}: training "
            "diverged, or the file was changed. keras.models.load_model loads it nevertheless"
        )
    return model


def _is_finite(weight: keras.Variable) -> bool:
    value = keras.ops.convert_to_numpy(weight)
    return value.dtype.kind in "biuUS" or bool(np.isfinite(value.astype(np.float64)).all())


def model_bytes(model: keras.Model) -> bytes:
    """Return the bytes of a model's ``.keras`` file."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder) / "model.keras")
        return path.read_bytes()


def model_of_bytes(content: bytes) -> keras.Model:
    """Load the model of ``model_bytes``, in safe mode."""
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "model.keras").write_bytes(content)
        return load_model(path)


def check_overwrite(filepath: str | os.PathLike[str], overwrite: bool) -> None:
    """Raise FileExistsError if there is a file that must not be replaced."""
    if not overwrite and os.path.exists(os.path.expanduser(filepath)):
        raise FileExistsError(f"filepath {os.fspath(filepath)!r} exists; pass overwrite=True to replace it")


class FileInMemory(io.BytesIO):
    """In-memory file for the HDF5 that Keras writes, named by its path, since Keras checks the ending.

    HDF5 crashes (segmentation fault) when it closes a file on a full disk.
    """

    def __init__(self, filepath: str | os.PathLike[str]) -> None:
        super().__init__()
        self._filepath = os.fspath(filepath)

    def __str__(self) -> str:
        return self._filepath


class CheckpointState(tf.train.experimental.PythonState):
    """What is fitted beside the weights of a network, for ``tf.train.Checkpoint``."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self._network: Any = weakref.ref(network)

    def serialize(self) -> bytes:
        """Return the arrays as bytes."""
        file, network = io.BytesIO(), self._network()
        np.savez(file, **network._fitted_arrays())
        return file.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Restore the arrays."""
        network = self._network()
        with np.load(io.BytesIO(string_value), allow_pickle=False) as arrays:
            if "after_training" not in arrays:
                network.after_training.remove("restore")
            network._load_fitted_arrays(dict(arrays))
        network._retraced()
