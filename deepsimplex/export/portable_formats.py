"""ONNX and LiteRT files by Keras' exporters, ONNX files of scikit-learn pipelines by skl2onnx."""

import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from sklearn.utils.validation import check_is_fitted

from deepsimplex._utils.atomic_files import check_writable, replacing
from deepsimplex._utils.portable_operations import Format, portable_operations
from deepsimplex._utils.validation import check_choice
from deepsimplex.export.rounding import warn_of_rounding

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite"}
SORTED_INPUTS = r"[\s\S]*The structure of `inputs` doesn't match"
"""Keras' warning about the signature that it adds for a tracked model, which sorts the inputs."""


class _Served(keras.Model):
    """The served function as a Keras model, which Keras' exporters require."""

    def __init__(self, resource: Any, serve: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__(name="served", dtype="float32", autocast=False)  # double precision stays
        self.resource, self.serve = resource, serve
        self.built = True

    def call(self, samples: Any) -> dict[str, Any]:
        outputs = self.serve(samples)
        captures = getattr(tf.compat.v1.get_default_graph(), "captures", ())
        self.constants = {inside.name: value for value, inside in captures if value.dtype != tf.resource}
        return outputs


def check_suffix(path: Path, format: str) -> None:
    """Raise ValueError unless a path ends as files of a format do, and a SavedModel's folder as no file of another."""
    if format in SUFFIXES and path.suffix != SUFFIXES[format]:
        raise ValueError(f"filepath must end in {SUFFIXES[format]} for format={format!r}; found {path.name!r}")
    for other, suffix in SUFFIXES.items():
        if format not in SUFFIXES and path.suffix == suffix:
            raise ValueError(
                f"filepath must be a folder for format={format!r}; for {path.name!r} give format={other!r}"
            )


def write_portable(
    resource: Any,
    serve: Callable[[Any], dict[str, Any]],
    signature: Any,
    path: Path,
    class_names: Sequence[str],
    verbose: bool,
    format: Format,
    options: dict[str, Any],
) -> None:
    """Write the ONNX or LiteRT file of a served function: see ``export_model``."""
    write = _write_onnx if format == "onnx" else _write_litert
    with replacing(path) as fresh, portable_operations(format), warnings.catch_warnings():
        warnings.filterwarnings("ignore", SORTED_INPUTS, UserWarning)
        write(_Served(resource, serve), fresh, signature, list(class_names), verbose, **options)


def _write_onnx(model: _Served, path: Path, signature: Any, class_names: list[str], verbose: bool) -> None:
    try:
        import onnx
        from tf2onnx.constants import ONNX_DOMAIN
        from tf2onnx.handler import tf_op
    except ImportError as error:
        raise ImportError("format='onnx' needs tf2onnx; in a checkout: pip install '.[onnx]'") from error
    handlers = {"SelectV2": _Where, "Log": _Log}
    for name, handler in handlers.items():
        tf_op(name)(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of NumPy, for deprecated names that the converter uses
            model.export(path, format="onnx", input_signature=[signature], verbose=verbose)
    except KeyError as error:  # of a dtype that the converter does not know
        raise ValueError(f"format='onnx' cannot hold this model: ONNX has no {error.args[0]}") from None
    finally:  # other exports of this process get tf2onnx's again
        for name in handlers:
            del tf_op.get_opsets()[ONNX_DOMAIN][14][name]
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


def _write_litert(
    model: _Served, path: Path, signature: Any, class_names: list[str], verbose: bool, **options: Any
) -> None:
    # LiteRT's builtin operations only: interpreters without TensorFlow have no others.
    target = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS], **options.pop("target_spec", {})}
    if "representative_dataset" in options:
        raise ValueError(
            "representative_dataset must not be given: head and readout would be computed in integers of 8 bits, with "
            "wrong probabilities. optimizations alone stores the weights in 8 bits"
        )
    chosen = options.get("optimizations", [])
    if not isinstance(chosen, list | tuple | set) or not all(isinstance(one, tf.lite.Optimize) for one in chosen):
        raise TypeError(f"optimizations must be a list, such as [tf.lite.Optimize.DEFAULT]; found {chosen!r}")
    try:
        model.export(path, format="litert", input_signature=[signature], verbose=verbose, target_spec=target, **options)
    except (OSError, TypeError, ValueError):
        raise
    except Exception as error:  # the converter's, which has no public name
        reason = str(error).strip().splitlines()[0]
        if missing := re.findall(r"'(tf\.\w+)' op is neither", str(error)):
            reason = f"LiteRT has no {', '.join(sorted(set(missing)))}"
        elif wrong := re.search(r"'\w+\.\w+' op .*|Failed to convert .*", str(error)):
            reason = wrong[0]
        if any(variable.dtype == "int8" for variable in model.resource.variables):
            reason += ". Weights are integers after quantize(): export before it, with optimizations="
        elif "xf16>" in str(error):  # a type in the converter's intermediate language
            reason += " in float16: export a model that was made under the policy float32, with these weights"
        raise ValueError(f"format='litert' cannot hold this model: {reason}") from None


def export_pipeline(
    pipeline: Any,
    filepath: str | os.PathLike[str],
    X: Any = None,
    class_names: Sequence[str] | None = None,
    verbose: bool = False,
    input_dtype: str = "float32",
) -> None:
    """Write a fitted scikit-learn pipeline that ends in one of our classifiers as an ONNX file.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline
        Transformers that skl2onnx converts (scalers, PCA, encoders, imputers, ``ColumnTransformer``, ...), and a
        classifier of ``deepsimplex.estimators``.
    filepath : path-like
        Ends in .onnx, may begin with ``~``; replaced whole or not at all.
    X : pandas.DataFrame, optional
        Data frame with the columns that the pipeline was fitted to: each becomes an input [N, 1] of its name and dtype,
        float64 as ``input_dtype``, categories as the text or numbers that they are. Default None: the pipeline was
        fitted to an array, and has the input "features" [N, d] of ``input_dtype``.
    class_names : list of str, optional
        In the order of ``classes_``. Default None: those as text.
    verbose : bool
        Print Keras' summary of the endpoint. Default False.
    input_dtype : {"float32", "float64"}
        Dtype of features, in which the steps compute. Default "float32", in which onnxruntime has all of scikit-learn's
        steps; it rounds times in seconds and other large numbers that differ little. "float64" has scalers, PCA and
        linear models, not imputers and support vector machines.

    Notes
    -----
    The outputs are those of the classifier's ``export``. A SavedModel cannot hold scikit-learn's transformers.

    Raises
    ------
    TypeError
        When the last step has no ``export``.
    ValueError
        For another ending, and for a step or a dtype that skl2onnx cannot convert; nothing is written then.
    ImportError
        Without skl2onnx or tf2onnx: ``pip install '.[onnx]'`` in a checkout.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from deepsimplex import GLVQ
    >>> pipeline = make_pipeline(MinMaxScaler(), GLVQ()).fit(*load_wine(return_X_y=True))
    >>> export_pipeline(pipeline, folder / "wine.onnx")
    >>> (folder / "wine.onnx").is_file()
    True
    """
    if not hasattr(pipeline, "steps"):
        raise TypeError(
            f"pipeline must be a Pipeline that ends in a classifier of deepsimplex; found {type(pipeline).__name__}. "
            "AfterTraining around a Pipeline has export(filepath, format='onnx', X=frame)"
        )
    check_is_fitted(pipeline)
    classifier = pipeline[-1]
    if not hasattr(classifier, "export"):
        raise TypeError(f"pipeline must end in a classifier of deepsimplex, with export; found {classifier!r}")

    def export(path: Path) -> None:
        classifier.export(path, class_names, format="onnx", verbose=verbose, input_dtype=input_dtype)

    if len(pipeline) == 1:
        export(Path(filepath))
    else:
        if input_dtype == "float32":
            warn_of_rounded_columns(pipeline[:-1], X)
        write_behind(pipeline[:-1], filepath, export, pipeline.n_features_in_, X, input_dtype)


def warn_of_rounded_columns(model: Any, X: Any) -> None:
    """Warn if single precision rounds columns of a frame X, or those that scalers of a pipeline were fitted to."""
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    for ranges in _ranges(steps, X):
        warn_of_rounding(*ranges, ", or export with input_dtype='float64'", None if X is None else list(X))


def _ranges(steps: Sequence[Any], X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield smallest and largest values of features: of a frame X, else about those that scalers were fitted to."""
    if X is not None:
        _check_frame(X)
        numbers = [X[name] if X[name].dtype == np.float64 else np.zeros(1) for name in X]
        yield [column.min() for column in numbers], [column.max() for column in numbers]
        return
    for step in steps:
        center, scale = getattr(step, "mean_", getattr(step, "center_", None)), getattr(step, "scale_", None)
        if hasattr(step, "data_min_"):
            yield step.data_min_, step.data_max_
        elif center is not None and scale is not None:
            yield center - 2.0 * scale, center + 2.0 * scale


def _check_frame(X: Any) -> None:
    """Raise TypeError for what has no columns with names and dtypes."""
    if not hasattr(X, "columns"):
        raise TypeError(
            f"X must be a data frame, whose columns become inputs; found {type(X).__name__}. Leave X out for a model "
            "that was fitted to an array"
        )


def write_behind(
    model: Any,
    filepath: str | os.PathLike[str],
    export: Callable[[Path], None],
    num_features: int,
    X: Any = None,
    input_dtype: str = "float32",
) -> None:
    """Write the ONNX file of a fitted scikit-learn transformer, regressor or classifier, followed by another graph.

    Parameters
    ----------
    model, filepath, X, input_dtype
        See ``export_pipeline``.
    export : callable
        Writes the following graph to a path; its input, of ``input_dtype``, is the output of the model: class
        probabilities of a classifier.
    num_features : int
        Number of features d, used without X.
    """
    try:
        import onnx
        import skl2onnx
        from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, guess_data_type
    except ImportError as error:
        raise ImportError("format='onnx' needs skl2onnx; in a checkout: pip install '.[onnx]'") from error
    path = Path(filepath).expanduser()
    check_suffix(path, "onnx")
    check_writable(path.absolute().parent, "filepath")
    if X is not None:
        _check_frame(X)
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder) / "behind.onnx")
        behind = onnx.load(Path(folder) / "behind.onnx")
    # By default not double precision: onnxruntime lacks imputers, trees and support vector machines in it.
    kind_of = {"float32": FloatTensorType, "float64": DoubleTensorType}
    floats = kind_of[check_choice(input_dtype, "input_dtype", kind_of)]([None, num_features if X is None else 1])
    try:
        types = [("features", floats)] if X is None else guess_data_type(_without_categories(X))
        types = [(name, floats if isinstance(kind, DoubleTensorType) else kind) for name, kind in types]
        opsets = {each.domain: each.version for each in behind.opset_import} | {"ai.onnx.ml": 3}
        is_classifier = hasattr(model, "predict_proba")
        choices = {id(model): {"zipmap": False}} if is_classifier else None  # an array, not dicts by class
        with np.errstate(over="raise"):  # constants that single precision does not hold
            before = skl2onnx.to_onnx(model, initial_types=types, target_opset=opsets, options=choices)
        if is_classifier:
            del before.graph.output[0]  # labels
        before.ir_version = behind.ir_version
        for part in (before, behind):  # converters state the least versions
            del part.opset_import[:]
            part.opset_import.extend([onnx.helper.make_opsetid(*each) for each in opsets.items()])
        before = onnx.compose.add_prefix(before, "before_", rename_inputs=False)
        _restore_names(before.graph, [name for name, _ in types])
        behind = onnx.compose.add_prefix(behind, "behind_", rename_outputs=False)
        output, wanted = before.graph.output[0], behind.graph.input[0].type.tensor_type.elem_type
        if output.type.tensor_type.elem_type != wanted:  # encoders give float32
            before.graph.node.append(onnx.helper.make_node("Cast", [output.name], ["before_cast"], to=wanted))
            output.name, output.type.tensor_type.elem_type = "before_cast", wanted
        given, taken = (each.type.tensor_type.shape.dim[-1].dim_value for each in (output, behind.graph.input[0]))
        if given and taken and given != taken:  # 0 if unknown
            raise ValueError(
                f"skl2onnx converts {given} of {taken} columns: no indicators of SimpleImputer, for example"
            )
        link = output.name, behind.graph.input[0].name
        joined = onnx.compose.merge_models(before, behind, [link])
        onnx.checker.check_model(joined)
        if input_dtype == "float64":
            _check_runs(joined)
    except Exception as error:  # converters raise anything
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"format='onnx' cannot hold {' '.join(repr(model).split())}: {reason}") from error
    with replacing(path) as fresh:
        onnx.save(joined, fresh)


def _restore_names(graph: Any, names: Sequence[str]) -> None:
    """Give inputs their columns' names, of which skl2onnx changes spaces and other characters into "_"."""
    names_by_input = {each.name: name for each, name in zip(graph.input, names, strict=True)}
    for each in graph.input:
        each.name = names_by_input[each.name]
    for node in graph.node:
        node.input[:] = [names_by_input.get(name, name) for name in node.input]


def _without_categories(X: Any) -> Any:
    """Return a data frame whose columns of categories have the dtype of these."""
    return X.astype({name: X[name].cat.categories.dtype for name in X if hasattr(X[name], "cat")})


def _check_runs(model: Any) -> None:
    """Raise an error if onnxruntime is installed and lacks an operation of a model in double precision."""
    try:
        import onnxruntime
    except ImportError:
        return
    onnxruntime.InferenceSession(model.SerializeToString())
