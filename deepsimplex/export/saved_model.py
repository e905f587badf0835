"""SavedModels with checksums, and the loader that verifies them."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.validation import check_array, check_finite_rows

CLASS_NAMES = Path("assets.extra") / "class_names.json"
CHECKSUMS = Path("assets.extra") / "checksums.json"


def write_saved_model(
    resource: Any,
    serve: Callable[[Any], dict[str, Any]],
    signature: tf.TensorSpec,
    folder: Path,
    class_names: Sequence[str],
    verbose: bool,
) -> None:
    """Write the SavedModel of a served function: see ``export_model``."""
    _check_replaceable(folder)
    archive = keras.export.ExportArchive()
    archive.track(resource)
    # Compiled: Keras calls it twice, once for its variables, once to write it.
    archive.add_endpoint("serve", tf.function(serve, autograph=False), input_signature=[signature])
    with replacing(folder) as fresh:
        archive.write_out(fresh, verbose=verbose)
        (fresh / CLASS_NAMES).parent.mkdir(exist_ok=True)
        (fresh / CLASS_NAMES).write_text(json.dumps(list(class_names), indent=1, ensure_ascii=False), encoding="utf-8")
        (fresh / CHECKSUMS).write_text(json.dumps(_checksums(fresh), indent=1), encoding="utf-8")


def _check_replaceable(folder: Path) -> None:
    """Raise unless the path is free, an empty folder or a SavedModel."""
    replaceable = folder.is_dir() and (not any(folder.iterdir()) or (folder / "saved_model.pb").exists())
    if folder.exists() and not replaceable:
        raise FileExistsError(
            f"filepath: {str(folder)!r} exists and is no SavedModel; use a new folder, since its content would be lost"
        )


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class ServedModel:
    """A SavedModel written by ``export_model``, called with arrays.

    Any TensorFlow runtime can serve the folder; this class needs the package, and checks the files first.

    Parameters
    ----------
    filepath : path-like
        Folder of the SavedModel, which may begin with ``~``.

    Raises
    ------
    FileNotFoundError
        When there is no such folder.
    ValueError
        When a file is missing, truncated or altered.

    Attributes
    ----------
    class_names : list of str
    input_name : str
    input_dtype : str

    Examples
    --------
    >>> served = ServedModel("served")  # doctest: +SKIP
    >>> served.predict(images)["class_probabilities"]  # doctest: +SKIP
    """

    def __init__(self, filepath: str | os.PathLike[str]) -> None:
        folder = Path(filepath).expanduser()
        _check_whole(folder)
        self.class_names: list[str] = json.loads((folder / CLASS_NAMES).read_text(encoding="utf-8"))
        self._model = tf.saved_model.load(os.fspath(folder))
        self._signature = self._model.signatures["serving_default"]
        ((self.input_name, spec),) = self._signature.structured_input_signature[1].items()
        self.input_dtype: str = spec.dtype.name
        self._sample_shape: tuple[int | None, ...] = tuple(spec.shape[1:])

    def predict(self, samples: Any) -> dict[str, np.ndarray]:
        """Return the served outputs as a dict of arrays.

        Parameters
        ----------
        samples : array, shape [N, ...]
            Of ``input_dtype``; floats are cast to float32.

        Raises
        ------
        TypeError, ValueError
            For samples of another shape or dtype, none, and those that are not finite.
        """
        array = check_array(samples, "samples", "[N, ...]", least=1, finite=False, dtype="any")
        wanted = [*self._sample_shape]
        if array.ndim - 1 != len(wanted) or any(
            b not in (None, a) for a, b in zip(array.shape[1:], wanted, strict=True)
        ):
            raise ValueError(f"samples must have shape {['N', *wanted]}, as exported; found shape {list(array.shape)}")
        if self.input_dtype == "uint8" and not 0 <= array.min() <= array.max() <= 255:
            raise ValueError(f"samples must be pixels 0 to 255; found {array.min()} to {array.max()}")
        if (array.dtype.kind == "f") != (self.input_dtype == "float32"):
            raise ValueError(f"samples must be of dtype {self.input_dtype}, as exported; found {array.dtype}")
        array = check_finite_rows(array, "samples", self.input_dtype)
        outputs = self._signature(**{self.input_name: tf.constant(array, self.input_dtype)})
        return {name: value.numpy() for name, value in outputs.items()}


def load_served(filepath: str | os.PathLike[str]) -> ServedModel:
    """Load an exported SavedModel after verifying its checksums: see ``ServedModel``.

    Examples
    --------
    >>> load_served("served").class_names  # doctest: +SKIP
    ['cat', 'dog']
    """
    return ServedModel(filepath)


def _check_whole(folder: Path) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(f"filepath: there is no SavedModel folder at {str(folder)!r}")
    try:
        expected = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"filepath: {str(folder)!r} has no readable {CHECKSUMS.as_posix()} ({error}); export the model again"
        ) from error
    found = _checksums(folder)
    wrong = sorted(name for name, digest in expected.items() if found.get(name) != digest)
    if wrong:
        raise ValueError(
            f"filepath: {str(folder)!r} is damaged: {', '.join(wrong)} missing, truncated or altered; export it again"
        )
