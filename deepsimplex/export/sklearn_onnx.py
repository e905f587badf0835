"""ONNX files of scikit-learn transformers and regressors, converted by skl2onnx, followed by one of our classifiers."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from deepsimplex._utils.atomic_files import check_writable, replacing
from deepsimplex.export.portable_formats import check_suffix


def export_pipeline(
    pipeline: Any,
    filepath: str | os.PathLike[str],
    X: Any = None,
    class_names: Sequence[str] | None = None,
    verbose: bool = False,
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
        float64 as float32. Default None: the pipeline was fitted to an array, and has the input "features" [N, d],
        float32.
    class_names : list of str, optional
        In the order of ``classes_``. Default None: those as text.
    verbose : bool
        Print Keras' summary of the endpoint. Default False.

    Notes
    -----
    The outputs are those of the classifier's ``export``. The steps compute in float32. A SavedModel cannot hold
    scikit-learn's transformers.

    Raises
    ------
    TypeError
        When the last step has no ``export``.
    ValueError
        For another ending, and for a step that skl2onnx cannot convert; nothing is written then.
    ImportError
        Without skl2onnx or tf2onnx: ``pip install "deepsimplex[onnx]"``.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from deepsimplex import GLVQ
    >>> pipeline = make_pipeline(MinMaxScaler(), GLVQ()).fit(*load_wine(return_X_y=True))
    >>> export_pipeline(pipeline, folder / "wine.onnx")
    """
    check_is_fitted(pipeline)
    classifier = pipeline[-1]
    if not hasattr(classifier, "export"):
        raise TypeError(f"pipeline must end in a classifier of deepsimplex, with export; found {classifier!r}")

    def export(path: Path) -> None:
        classifier.export(path, class_names, format="onnx", verbose=verbose)

    if len(pipeline) == 1:
        export(Path(filepath))
    else:
        write_behind(pipeline[:-1], filepath, export, pipeline.n_features_in_, X)


def write_behind(
    model: Any, filepath: str | os.PathLike[str], export: Callable[[Path], None], num_features: int, X: Any = None
) -> None:
    """Write the ONNX file of a fitted scikit-learn transformer or regressor, followed by another graph.

    Parameters
    ----------
    model, filepath, X
        See ``export_pipeline``.
    export : callable
        Writes the following graph to a path; its input is the output of the model.
    num_features : int
        Number of features d, used without X.
    """
    try:
        import onnx
        import skl2onnx
        from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, guess_data_type
    except ImportError as error:
        raise ImportError('format="onnx" needs skl2onnx: pip install "deepsimplex[onnx]"') from error
    path = Path(filepath).expanduser()
    check_suffix(path, "onnx")
    check_writable(path.absolute().parent, "filepath")
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder) / "behind.onnx")
        behind = onnx.load(Path(folder) / "behind.onnx")
    # Not double precision: onnxruntime lacks imputers, trees and support vector machines in it.
    single = FloatTensorType([None, num_features if X is None else 1])
    types = [("features", single)] if X is None else guess_data_type(X)
    types = [(name, single if isinstance(kind, DoubleTensorType) else kind) for name, kind in types]
    try:
        opsets = {each.domain: each.version for each in behind.opset_import} | {"ai.onnx.ml": 3}
        before = skl2onnx.to_onnx(model, initial_types=types, target_opset=opsets)
        before.ir_version = behind.ir_version
        for part in (before, behind):  # converters state the least versions
            del part.opset_import[:]
            part.opset_import.extend([onnx.helper.make_opsetid(*each) for each in opsets.items()])
        before = onnx.compose.add_prefix(before, "before_", rename_inputs=False)
        behind = onnx.compose.add_prefix(behind, "behind_", rename_outputs=False)
        link = before.graph.output[0].name, behind.graph.input[0].name
        joined = onnx.compose.merge_models(before, behind, [link])
        onnx.checker.check_model(joined)
    except Exception as error:  # converters raise anything
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"format='onnx' cannot hold {model!r}: {reason}") from error
    with replacing(path) as fresh:
        onnx.save(joined, fresh)
