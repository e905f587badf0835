"""Which parts of a sample a classifier's answer depends on: integrated gradients, gradients and Grad-CAM."""

from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.validation import check_choice
from deepsimplex.classifier.network import SimplexNetwork
from deepsimplex.readout import feature_gradients, integrated_gradients

SaliencyMethod = Literal["integrated_gradients", "gradients", "grad_cam"]
Explained = Literal["probability", "familiarity"]
# Added to probabilities whose logarithm is differentiated.
_LEAST = 1e-30


def saliency_maps(
    model: SimplexNetwork,
    x: Any,
    of: Explained = "probability",
    labels: ArrayLike | None = None,
    method: SaliencyMethod = "integrated_gradients",
    layer: str | None = None,
    baseline: ArrayLike = 0.0,
    steps: int = 32,
    batch_size: int = 32,
) -> NDArray[Any]:
    """Compute the maps of ``SimplexClassifier.saliency``, which documents the arguments."""
    check_choice(of, "of", get_args(Explained))
    check_choice(method, "method", get_args(SaliencyMethod))
    (samples,) = model._checked(x, arrays=True).columns[:1]
    if not isinstance(samples, np.ndarray) or samples.dtype.kind not in "fiu":
        raise TypeError(f"x must be one array of numbers, for a backbone of one input; found {type(samples).__name__}")
    if layer is not None and method != "grad_cam":
        raise ValueError(f"layer is for method='grad_cam' only; found layer={layer!r} with method={method!r}")
    samples = samples.astype(np.float64 if samples.dtype == np.float64 else np.float32)
    numbers = None if of == "familiarity" else _class_numbers(model, samples, labels, batch_size)
    if of == "familiarity" and model.after_training.density is None:
        raise ValueError("of='familiarity' needs fit_density first")
    if method == "grad_cam":
        return _grad_cam(model, samples, numbers, layer, batch_size)
    maps = np.empty_like(samples)
    for number in [None] if numbers is None else np.unique(numbers).tolist():

        def value(x: Any, number: int | None = number) -> Any:
            return _value(model, model.features(x), number)

        rows = slice(None) if number is None else numbers == number
        if method == "gradients":
            maps[rows] = np.abs(feature_gradients(value, samples[rows], batch_size))
        else:
            maps[rows] = integrated_gradients(
                value, samples[rows], baseline=baseline, steps=steps, batch_size=batch_size
            )
    return maps.sum(axis=-1) if maps.ndim == 4 else maps


def _class_numbers(
    model: SimplexNetwork, samples: NDArray[Any], labels: ArrayLike | None, batch_size: int
) -> NDArray[np.int64]:
    """Return the class of every sample whose probability is explained."""
    if labels is None:
        return model.predict(samples, batch_size=batch_size, verbose=0).argmax(axis=1)
    values = np.broadcast_to(np.asarray(labels), len(samples))
    known = {name: k for k, name in enumerate(model.class_names)} if values.dtype.kind in "US" else {}
    numbers = np.array([known.get(value, value) for value in values.tolist()])
    if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= model.num_classes:
        raise ValueError(f"labels must be among {', '.join(model.class_names)}, or their numbers; found {labels!r}")
    return numbers


def _value(model: SimplexNetwork, features: Any, numbers: Any) -> Any:
    """Return the log-probabilities [N] of classes, one or [N], or without them the scores of typical features."""
    if numbers is None:
        density: Any = model.after_training.density
        return density.scores(features)
    latent = model.predictive_latent(model.latent_of_features(features), calibrated=True)
    p = model.probabilities(latent)
    return tf.math.log(tf.reduce_sum(p * tf.one_hot(numbers, model.num_classes, dtype=p.dtype), axis=1) + _LEAST)


def _grad_cam(
    model: SimplexNetwork, samples: NDArray[Any], numbers: NDArray[np.int64] | None, layer: str | None, batch_size: int
) -> NDArray[Any]:
    """Weigh the channels of a convolution by their mean gradients (Selvaraju et al. 2017), at the images' size."""
    backbone = model.backbone
    if samples.ndim != 4 or not isinstance(backbone, keras.Model) or not getattr(backbone, "inputs", None):
        raise ValueError(
            "method='grad_cam' needs images [N, H, W, C] and a functional or sequential backbone; found x of shape "
            f"{samples.shape} and {type(backbone).__name__}"
        )
    maps = [each for each in backbone.layers if isinstance(shape := _output_shape(each), tuple) and len(shape) == 4]
    if layer is None and not maps:
        raise ValueError("method='grad_cam' needs a layer whose output has shape [N, h, w, c]; the backbone has none")
    chosen = maps[-1] if layer is None else backbone.get_layer(layer)
    if chosen not in maps:
        raise ValueError(f"layer must be one of {', '.join(each.name for each in maps)}; found {layer!r}")
    both = keras.Model(backbone.inputs, [chosen.output, backbone.outputs[0]])
    drawn = []
    for rows in row_slices(len(samples), batch_size):
        x = tf.convert_to_tensor(samples[rows])
        with tf.GradientTape() as tape:
            tape.watch(x)
            activations, features = both(x, training=False)
            value = _value(model, features, None if numbers is None else numbers[rows])
        weights = tf.reduce_mean(tape.gradient(value, activations), axis=(1, 2), keepdims=True)
        heat = tf.nn.relu(tf.reduce_sum(weights * activations, axis=-1, keepdims=True))
        drawn.append(tf.image.resize(heat, samples.shape[1:3])[..., 0].numpy())
    return np.concatenate(drawn)


def _output_shape(layer: keras.layers.Layer) -> Any:
    """Return the shape of a layer's output; None if it has none, or several."""
    output = getattr(layer, "output", None)
    return tuple(output.shape) if isinstance(output, keras.KerasTensor) else None
