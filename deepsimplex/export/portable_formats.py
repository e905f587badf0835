"""ONNX and LiteRT files, by Keras' exporters."""

import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.portable_operations import Format, portable_operations

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite"}


class _Served(keras.Model):
    """The served function as a Keras model, which Keras' exporters require."""

    def __init__(self, resource: Any, serve: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__(name="served", dtype="float32")
        self.resource, self.serve = resource, serve
        self.built = True

    def call(self, samples: Any) -> dict[str, Any]:
        outputs = self.serve(samples)
        captures = getattr(tf.compat.v1.get_default_graph(), "captures", ())
        self.constants = {inside.name: value for value, inside in captures if value.dtype != tf.resource}
        return outputs


def check_suffix(path: Path, format: Format) -> None:
    """Raise ValueError unless a path ends as files of a format do."""
    if path.suffix != SUFFIXES[format]:
        raise ValueError(f"filepath must end in {SUFFIXES[format]} for format={format!r}; found {path.name!r}")


def write_portable(
    resource: Any,
    serve: Callable[[Any], dict[str, Any]],
    signature: Any,
    path: Path,
    class_names: Sequence[str],
    verbose: bool,
    format: Format,
) -> None:
    """Write the ONNX or LiteRT file of a served function: see ``export_model``."""
    check_suffix(path, format)
    write = _write_onnx if format == "onnx" else _write_litert
    with replacing(path) as fresh, portable_operations(format):
        write(_Served(resource, serve), fresh, signature, list(class_names), verbose)


def _write_onnx(model: _Served, path: Path, signature: Any, class_names: list[str], verbose: bool) -> None:
    try:
        import onnx
        from tf2onnx.handler import tf_op
    except ImportError as error:
        raise ImportError('format="onnx" needs tf2onnx: pip install "deepsimplex[onnx]"') from error
    tf_op("SelectV2")(_Where)
    tf_op("Log")(_Log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of NumPy, for deprecated names that the converter uses
        model.export(path, format="onnx", input_signature=[signature], verbose=verbose)
    written = onnx.load(path)
    try:
        onnx.checker.check_model(written)  # the converter keeps operations that ONNX lacks, and only logs them
    except onnx.checker.ValidationError as error:
        raise ValueError(f"format='onnx' cannot hold this model: {str(error).splitlines()[0]}") from None
    # The converter turns constant tensors that are no weights, as in keras.layers.Normalization, into inputs.
    inputs = {value.name: value for value in written.graph.input}
    for name in inputs.keys() & model.constants.keys():
        written.graph.initializer.append(onnx.numpy_helper.from_array(model.constants[name].numpy(), name))
        written.graph.input.remove(inputs[name])
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


def _write_litert(model: _Served, path: Path, signature: Any, class_names: list[str], verbose: bool) -> None:
    one = keras.tree.map_structure(lambda spec: tf.TensorSpec((1, *spec.shape[1:]), spec.dtype, spec.name), signature)
    # LiteRT's builtin operations only: interpreters without TensorFlow have no others.
    builtins = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    try:
        model.export(path, format="litert", input_signature=[one], verbose=verbose, target_spec=builtins)
    except Exception as error:  # the converter's, which has no public name
        missing = re.findall(r"'(tf\.\w+)' op is neither", str(error))
        if not missing:
            raise
        operations = ", ".join(sorted(set(missing)))
        raise ValueError(f"format='litert' cannot hold this model: LiteRT has no {operations}") from None
