"""Export of a classifier, in any format."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import tensorflow as tf

from deepsimplex._utils.atomic_files import check_writable
from deepsimplex._utils.portable_operations import Format
from deepsimplex._utils.validation import check_choice, check_number
from deepsimplex.export.portable_formats import check_suffix, write_portable
from deepsimplex.export.saved_model import write_saved_model

FORMATS = ("tf_saved_model", "onnx", "litert")
INPUT_DTYPES = (
    *("bool", "float16", "float32", "float64", "string"),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
)


def export_model(
    resource: Any,
    filepath: str | os.PathLike[str],
    format: str = "tf_saved_model",
    *,
    latent: Callable[[Any], dict[str, Any]] | None,
    readout: Callable[[Any], Any],
    sample_shape: Sequence[int | None] | Mapping[str, Sequence[int | None]],
    class_names: Sequence[str],
    features: Callable[[Any], Any] | None = None,
    calibrated: Callable[[Any], Any] = lambda p: p,
    further_outputs: Callable[[Any, Any], dict[str, Any]] | None = None,
    input_name: str = "image",
    sample_dtype: str | Mapping[str, str] = "float32",
    input_dtype: str | Mapping[str, str] | None = None,
    pixel_scale: float = 255.0,
    verbose: bool = False,
    **litert: Any,
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
        Default "tf_saved_model". All of them take batches of any size.
    latent : callable or None
        From a tensor of samples [N, ...], or a dict of them by name, to the dict {"loc", "scale"}; from the
        output of ``features`` if that is given. None for a classifier without latents.
    readout : callable
        From that dict, or from the samples where there are no latents, to class probabilities [N, n].
    sample_shape : sequence of int or None, or dict
        Shape of one sample; of several inputs a dict of their shapes by name. The batch size is left open.
    class_names : list of str
        In label order; written beside a SavedModel, and as JSON under "class_names" in the metadata of ONNX.
    features : callable, optional
        From samples to the input of ``latent`` or, without latents, of ``readout``; computed once. Default None: they
        take samples.
    calibrated : callable, optional
        From class probabilities of ``readout`` to those that are served. By default they are as they are.
    further_outputs : callable, optional
        From class probabilities and the output of ``features`` (samples if that is None) to a dict of other outputs by
        name.
    input_name : str
        Name of the input in the serving signature, unless there are several.
    sample_dtype : str or dict
        Dtype of the samples that the functions take; of several inputs a dict by name, of which those that are left
        out are float32. Default "float32".
    input_dtype : str or dict, optional
        Dtype of the served inputs, as ``sample_dtype``. Default None: that one. The functions convert numbers
        themselves, but for "uint8" where samples are floats: pixels 0..255 are divided by ``pixel_scale`` first.
    pixel_scale : float
        255 (default) for a model of images in [0, 1], 1 for one that was trained on pixels 0..255, -1 for one that was
        trained on neither.
    verbose : bool
        Print Keras' summary of the endpoint.
    **litert
        Attributes of ``tf.lite.TFLiteConverter``, such as ``optimizations``, for format="litert"; without
        ``representative_dataset``, since integers of 8 bits do not hold latents and probabilities.

    Notes
    -----
    Served outputs: "class_probabilities" [N, n], "class_id" [N] int64, with latents "latent_mean" [N, L] and
    "latent_scale" as in ``LatentGaussian``, and ``further_outputs``. In a SavedModel, ``assets.extra/class_names.json``
    holds the names, ``assets.extra/checksums.json`` the SHA-256 of every file, which ``load_served`` checks.

    Raises
    ------
    ValueError
        For another format, ending or input_dtype, for an input_dtype that does not hold what the model takes (floats
        for identifiers, numbers for text), and for a model with operations that the format lacks; nothing is written
        then.
    TypeError
        For arguments of LiteRT with another format.
    ImportError
        For ONNX without tf2onnx: ``pip install '.[onnx]'`` in a checkout.
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
    check_suffix(Path(filepath), format)
    several = isinstance(sample_shape, Mapping)
    shapes: Any = sample_shape if several else {input_name: sample_shape}
    if litert and format != "litert":
        raise TypeError(f"{next(iter(litert))} must be given with format='litert' only; found format={format!r}")
    samples_are: Any = sample_dtype if isinstance(sample_dtype, Mapping) else dict.fromkeys(shapes, sample_dtype)
    asked: Any = input_dtype if isinstance(input_dtype, Mapping) else dict.fromkeys(shapes, input_dtype)
    dtypes = dict.fromkeys(shapes, "float32") | {name: dtype for name, dtype in samples_are.items() if dtype}
    specs, divisors = {}, {}
    for name in asked:
        check_choice(name, "a key of input_dtype", shapes)
    for name, dtype in dtypes.items():
        served = dtype if asked.get(name) is None else asked[name]
        _check_dtype(served, dtype, name)
        specs[name] = tf.TensorSpec((None, *shapes[name]), served, name)
        if served == "uint8" and tf.as_dtype(dtype).is_floating:
            if pixel_scale == -1:
                raise ValueError(
                    f"input_dtype must not be 'uint8' for the input {name!r}: the model was first fitted to samples "
                    "that are not pixels in [0, 1] or [0, 255]. Scale them in the backbone, as by "
                    "keras.layers.Rescaling, or give pixel_scale"
                )
            divisors[name] = check_number(pixel_scale, "pixel_scale", above=0)
    signature = specs if several else specs[input_name]

    def scaled(name: str, samples: Any) -> Any:
        return tf.cast(samples, dtypes[name]) / divisors[name] if name in divisors else samples

    def serve(samples: Any) -> dict[str, Any]:
        inputs = {name: scaled(name, samples[name]) for name in specs} if several else scaled(input_name, samples)
        if features is not None:
            inputs = features(inputs)
        gaussian = None if latent is None else latent(inputs)
        probabilities = calibrated(readout(inputs if gaussian is None else gaussian))
        outputs = {"class_probabilities": probabilities, "class_id": tf.argmax(probabilities, axis=-1)}
        if gaussian is not None:
            outputs |= {"latent_mean": gaussian["loc"], "latent_scale": gaussian["scale"]}
        return outputs if further_outputs is None else outputs | further_outputs(probabilities, inputs)

    path = Path(filepath).expanduser()
    check_writable(path.absolute().parent, "filepath")
    portable = partial(write_portable, format=cast(Format, format), options=litert)
    write = write_saved_model if format == "tf_saved_model" else portable
    write(resource, serve, signature, path, class_names, verbose)


def _check_dtype(dtype: str, sample_dtype: str, name: str) -> None:
    """Raise ValueError unless a served dtype holds all samples of the dtype that a model takes."""
    check_choice(dtype, "input_dtype", INPUT_DTYPES)
    served, taken = tf.as_dtype(dtype), tf.as_dtype(sample_dtype)
    rounds = served.is_floating and taken.is_integer and taken.size > 2
    if (served == tf.string) != (taken == tf.string) or rounds:
        wanted = "an integer dtype" if rounds else "another dtype"
        wanted = "'string'" if taken == tf.string else wanted
        raise ValueError(
            f"input_dtype must be {wanted} for the input {name!r}, which the model takes as {sample_dtype}; found "
            f"{dtype!r}"
        )
