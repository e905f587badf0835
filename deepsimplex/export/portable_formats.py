"""Export to ONNX and LiteRT files, by Keras' exporters, with the outputs and names of the SavedModel."""

import json
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import keras
import tensorflow as tf

from deepsimplex._utils.atomic_files import check_writable, replacing
from deepsimplex._utils.portable_operations import Format, portable_operations
from deepsimplex._utils.validation import check_choice
from deepsimplex.export.saved_model import serving_function

EXPORT_FORMATS = ("tf_saved_model", "onnx", "litert")
SUFFIXES = {"onnx": ".onnx", "litert": ".tflite"}


class _Served(keras.Model):
    """The function that is served, as the model that Keras' exporters want."""

    def __init__(self, resource: Any, serve: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__(name="served", dtype="float32")
        self.resource, self.serve = resource, serve
        self.built = True

    def call(self, samples: Any) -> dict[str, Any]:
        return self.serve(samples)


def export_portable(
    resource: Any,
    filepath: str | os.PathLike[str],
    format: str,
    *,
    latent: Callable[[Any], dict[str, Any]],
    readout: Callable[[dict[str, Any]], Any],
    sample_shape: Sequence[int | None],
    class_names: Sequence[str],
    input_name: str = "image",
    input_dtype: str = "float32",
    pixel_scale: float = 255.0,
    verbose: bool = False,
) -> None:
    """Write an ONNX or LiteRT file with the input and the outputs of ``export_saved_model``.

    Parameters
    ----------
    resource : keras.Model
        Holds the variables that the two functions use; the file holds their values.
    filepath : path-like
        File to write, ending in .onnx or .tflite, which may begin with ``~``; replaced whole or not at all.
    format : {"onnx", "litert"}
        ONNX takes batches of any size. LiteRT plans its memory before: it takes one sample at a time.
    latent, readout, sample_shape, input_name, input_dtype, pixel_scale, verbose
        See ``export_saved_model``.
    class_names : sequence of str
        ONNX holds them as JSON under "class_names" in the metadata of the model; LiteRT does not.

    Raises
    ------
    ValueError
        For another format or ending, and for a model with operations that the format has not; nothing is written then.
    ImportError
        For ONNX without tf2onnx: ``pip install "deepsimplex[onnx]"``.

    Examples
    --------
    ``SimplexClassifier.export`` calls it:

    >>> model.export("digits.onnx", format="onnx")  # doctest: +SKIP
    """
    check_choice(format, "format", SUFFIXES)
    path = Path(filepath).expanduser()
    if path.suffix != SUFFIXES[format]:
        raise ValueError(f"filepath must end in {SUFFIXES[format]} for format={format!r}; found {path.name!r}")
    check_writable(path.absolute().parent, "filepath")
    served = _Served(resource, serving_function(latent, readout, input_dtype, pixel_scale))
    signature = tf.TensorSpec((None, *sample_shape), input_dtype, name=input_name)
    write = _write_onnx if format == "onnx" else _write_litert
    with replacing(path) as fresh, portable_operations(cast(Format, format)):
        write(served, fresh, signature, list(class_names), verbose)


def _write_onnx(model: _Served, path: Path, signature: tf.TensorSpec, class_names: list[str], verbose: bool) -> None:
    try:
        import onnx
        from tf2onnx.handler import tf_op
    except ImportError as error:
        raise ImportError('format="onnx" needs tf2onnx: pip install "deepsimplex[onnx]"') from error
    tf_op("SelectV2")(_Where)
    tf_op("Log")(_Log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of NumPy, about names that the converter looks for
        model.export(path, format="onnx", input_signature=[signature], verbose=verbose)
    written = onnx.load(path)
    try:
        onnx.checker.check_model(written)  # the converter keeps what ONNX has not, and says so in its log alone
    except onnx.checker.ValidationError as error:
        raise ValueError(f"format='onnx' cannot hold this model: {str(error).splitlines()[0]}") from None
    onnx.helper.set_model_props(written, {"class_names": json.dumps(class_names, ensure_ascii=False)})
    onnx.save(written, path)


class _Where:
    """Conversion of tf.where. That of tf2onnx adds both branches times 0 or 1: NaN where the other one is infinite."""

    @classmethod
    def version_14(cls, graph: Any, node: Any, **_: Any) -> None:  # above their version
        node.type = "Where"


class _Log:
    """Conversion of tf.math.log. That of tf2onnx goes through float32."""

    @classmethod
    def version_14(cls, graph: Any, node: Any, **_: Any) -> None:
        node.type = "Log"


def _write_litert(model: _Served, path: Path, signature: tf.TensorSpec, class_names: list[str], verbose: bool) -> None:
    one = tf.TensorSpec((1, *signature.shape[1:]), signature.dtype, signature.name)
    # Its own operations alone: interpreters without TensorFlow's have no others.
    builtins = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    try:
        model.export(path, format="litert", input_signature=[one], verbose=verbose, target_spec=builtins)
    except Exception as error:  # the converter's, which has no public name
        missing = re.findall(r"'(tf\.\w+)' op is neither", str(error))
        if not missing:
            raise
        operations = ", ".join(sorted(set(missing)))
        raise ValueError(f"format='litert' cannot hold this model: LiteRT has no {operations}") from None
