"""Export of a classifier, in any format."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import tensorflow as tf

from deepsimplex._utils.atomic_files import check_writable
from deepsimplex._utils.portable_operations import Format
from deepsimplex._utils.validation import check_choice
from deepsimplex.export.portable_formats import write_portable
from deepsimplex.export.saved_model import write_saved_model

FORMATS = ("tf_saved_model", "onnx", "litert")
INPUT_DTYPES = ("float32", "uint8")


def export_model(
    resource: Any,
    filepath: str | os.PathLike[str],
    format: str = "tf_saved_model",
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
    """Write a function from samples to class probabilities and the latent Gaussian, as a SavedModel, ONNX or LiteRT.

    Parameters
    ----------
    resource : keras.Model or tf.Module
        Holds the variables that the two functions use.
    filepath : path-like
        Folder of the SavedModel, or file that ends in .onnx or .tflite, which may begin with ``~``. An earlier one is
        replaced once the new one is complete.
    format : {"tf_saved_model", "onnx", "litert"}
        Default "tf_saved_model". ONNX, too, takes batches of any size; LiteRT plans its memory before, and takes one
        sample at a time.
    latent : callable
        From a float tensor of samples [N, ...] to the dict {"loc", "scale"}.
    readout : callable
        From that dict to class probabilities [N, n].
    sample_shape : sequence of int or None
        Shape of one sample. The batch size is left open.
    class_names : list of str
        In label order; written beside a SavedModel, and as JSON under "class_names" in the metadata of ONNX.
    input_name : str
        Name of the input in the serving signature.
    input_dtype : {"float32", "uint8"}
        "uint8" takes pixels 0..255, which the model sees divided by ``pixel_scale``.
    pixel_scale : float
        255 (default) for a model of images in [0, 1], 1 for one that was trained on pixels 0..255.
    verbose : bool
        Print Keras' summary of the endpoint.

    Notes
    -----
    Served outputs: "class_probabilities" [N, n], "class_id" [N] int64, "latent_mean" [N, L], "latent_scale" as in
    ``LatentGaussian``. In a SavedModel, ``assets.extra/class_names.json`` holds the names,
    ``assets.extra/checksums.json`` the SHA-256 of every file, which ``load_served`` checks.

    Raises
    ------
    ValueError
        For another format, ending or input_dtype, and for a model with operations that the format has not; nothing is
        written then.
    ImportError
        For ONNX without tf2onnx: ``pip install "deepsimplex[onnx]"``.
    FileExistsError
        When the folder exists and holds something other than a SavedModel.
    OSError
        When the folder cannot be written; an earlier SavedModel is kept.

    Examples
    --------
    ``SimplexClassifier.export`` calls it; for other models:

    >>> import keras
    >>> import numpy as np
    >>> from deepsimplex.export import load_served
    >>> head = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> export_model(
    ...     head,
    ...     folder / "served",
    ...     latent=lambda x: {"loc": head(x), "scale": tf.ones_like(x[:, :1])},
    ...     readout=lambda latent: tf.nn.softmax(latent["loc"]),
    ...     sample_shape=(4,),
    ...     class_names=["cat", "dog"],
    ... )
    >>> sorted(load_served(folder / "served").predict(np.zeros((3, 4))))
    ['class_id', 'class_probabilities', 'latent_mean', 'latent_scale']
    """
    check_choice(format, "format", FORMATS)
    serve = _serving_function(latent, readout, input_dtype, pixel_scale)
    signature = tf.TensorSpec((None, *sample_shape), input_dtype, name=input_name)
    path = Path(filepath).expanduser()
    check_writable(path.absolute().parent, "filepath")
    write = write_saved_model if format == "tf_saved_model" else partial(write_portable, format=cast(Format, format))
    write(resource, serve, signature, path, class_names, verbose)


def _serving_function(
    latent: Callable[[Any], dict[str, Any]],
    readout: Callable[[dict[str, Any]], Any],
    input_dtype: str,
    pixel_scale: float,
) -> Callable[[Any], dict[str, Any]]:
    """Make the function from samples to the served outputs: see ``export_model``."""
    check_choice(input_dtype, "input_dtype", INPUT_DTYPES)

    def serve(samples: Any) -> dict[str, Any]:
        if input_dtype == "uint8":
            samples = tf.cast(samples, tf.float32) / pixel_scale
        gaussian = latent(samples)
        probabilities = readout(gaussian)
        return {
            "class_probabilities": probabilities,
            "class_id": tf.argmax(probabilities, axis=-1),
            "latent_mean": gaussian["loc"],
            "latent_scale": gaussian["scale"],
        }

    return serve
