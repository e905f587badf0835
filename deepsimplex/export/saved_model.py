"""SavedModels with checksums, and the loader that verifies them."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.validation import check_array, check_finite_rows
from deepsimplex.export.portable_formats import SORTED_INPUTS
from deepsimplex.samples import Samples

CLASS_NAMES = Path("assets.extra") / "class_names.json"
CHECKSUMS = Path("assets.extra") / "checksums.json"


def write_saved_model(
    resource: Any,
    serve: Callable[[Any], dict[str, Any]],
    signature: Any,
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
    with replacing(folder) as fresh, warnings.catch_warnings():
        warnings.filterwarnings("ignore", SORTED_INPUTS, UserWarning)
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
    inputs : dict of str to tf.TensorSpec
        Shapes and dtypes of the inputs by name.

    Examples
    --------
    >>> served = ServedModel("served")  # doctest: +SKIP
    >>> served.predict(images)["class_probabilities"].round(2)  # doctest: +SKIP
    array([[0.97, 0.03],
           [0.15, 0.85]])
    """

    def __init__(self, filepath: str | os.PathLike[str]) -> None:
        folder = Path(filepath).expanduser()
        _check_whole(folder)
        self.class_names: list[str] = json.loads((folder / CLASS_NAMES).read_text(encoding="utf-8"))
        self._model = tf.saved_model.load(os.fspath(folder))
        self._signature = self._model.signatures["serving_default"]
        self.inputs: dict[str, tf.TensorSpec] = self._signature.structured_input_signature[1]

    def predict(self, samples: Any) -> dict[str, np.ndarray]:
        """Return the served outputs as a dict of arrays.

        Parameters
        ----------
        samples : array, shape [N, ...], or dict
            Of the dtype in ``inputs``; numbers of the same kind are cast to it. A last axis of length one may be
            missing. Of several inputs a dict of arrays by name.

        Raises
        ------
        TypeError, ValueError
            For samples of another shape or dtype, no samples, values that are not finite, and other names of inputs.
        """
        single = len(self.inputs) == 1 and not isinstance(samples, Mapping)
        arrays = dict.fromkeys(self.inputs, samples) if single else samples
        if not isinstance(arrays, Mapping) or arrays.keys() != self.inputs.keys():
            given = list(arrays) if isinstance(arrays, Mapping) else type(arrays).__name__
            raise ValueError(f"samples must be a dict of the inputs {list(self.inputs)}, as exported; found {given}")
        checked = {
            name: _checked(arrays[name], "samples" if single else f"samples[{name!r}]", spec)
            for name, spec in self.inputs.items()
        }
        rows = [len(array) for array in checked.values()]
        if len(set(rows)) > 1:
            raise ValueError(f"samples must have as many rows in every input; found {rows}")
        outputs = self._signature(**{name: tf.constant(array) for name, array in checked.items()})
        return {name: value.numpy() for name, value in outputs.items()}


def _checked(samples: Any, name: str, spec: tf.TensorSpec) -> np.ndarray:
    """Check the samples of an input and convert them to its dtype."""
    wanted, dtype = [*spec.shape[1:]], spec.dtype
    if dtype == tf.string:
        array = Samples.of(samples if hasattr(samples, "shape") else np.asarray(samples), name=name).columns[0]
    else:
        array = check_array(samples, name, "[N, ...]", least=1, finite=False, dtype="any")
    if array.ndim == len(wanted) and wanted[-1] == 1:
        array = array[..., np.newaxis]  # as Keras does
    if array.ndim - 1 != len(wanted) or any(b not in (None, a) for a, b in zip(array.shape[1:], wanted, strict=True)):
        raise ValueError(f"{name} must have shape {['N', *wanted]}, as exported; found shape {list(array.shape)}")
    kinds = "OSU" if dtype == tf.string else "f" if dtype.is_floating else "biu" if dtype.is_integer else "b"
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} must be of dtype {dtype.name}, as exported; found {array.dtype}")
    if dtype.is_integer and not dtype.min <= array.min() <= array.max() <= dtype.max:
        wanted_numbers = "pixels 0 to 255" if dtype == tf.uint8 else f"of dtype {dtype.name}, as exported"
        raise ValueError(f"{name} must be {wanted_numbers}; found {array.min()} to {array.max()}")
    return array if dtype == tf.string else check_finite_rows(array, name, dtype.name)


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
    checksums = _checksums(folder)
    wrong = sorted(name for name, digest in expected.items() if checksums.get(name) != digest)
    if wrong:
        raise ValueError(
            f"filepath: {str(folder)!r} is damaged: {', '.join(wrong)} missing, truncated or altered; export it again"
        )
