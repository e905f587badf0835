"""Which parts of a sample a classifier's answer depends on: integrated gradients, gradients and Grad-CAM."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.messages import guided
from deepsimplex._utils.validation import check_choice, check_labels
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
    if of == "familiarity" and model.after_training.density is None:
        raise guided("decisions.md#flag-the-unfamiliar", "of='familiarity' needs fit_density first")
    if of == "familiarity" and labels is not None:
        raise ValueError(f"labels are for of='probability' only; found labels={labels!r} with of='familiarity'")
    numbers = None if of == "familiarity" else _class_numbers(model, samples, labels, batch_size)
    if method == "grad_cam":
        return _grad_cam(model, samples, numbers, layer, batch_size)
    maps, features = np.empty_like(samples), _features_of_floats(model)
    for number in [None] if numbers is None else np.unique(numbers).tolist():

        def value(x: Any, number: int | None = number) -> Any:
            return _value(model, features(x), number)

        rows = slice(None) if number is None else numbers == number
        if method == "gradients":
            maps[rows] = np.abs(feature_gradients(value, samples[rows], batch_size))
        else:
            maps[rows] = integrated_gradients(
                value, samples[rows], baseline=baseline, steps=steps, batch_size=batch_size
            )
    return maps.sum(axis=-1) if maps.ndim == 4 else maps


def _features_of_floats(model: SimplexNetwork) -> Callable[[Any], Any]:
    """Return the function from samples to features, without the rounding of an input of integers."""
    inputs = getattr(model.backbone, "inputs", None) or []
    if all("float" in each.dtype for each in inputs):
        return model.features
    floats = [keras.Input(each.shape[1:], dtype="float32") for each in inputs]
    # Its layers are those of the backbone.
    network = keras.models.clone_model(model.backbone, input_tensors=floats, clone_function=lambda layer: layer)
    return lambda x: network(x, training=False)


def _class_numbers(
    model: SimplexNetwork, samples: NDArray[Any], labels: ArrayLike | None, batch_size: int
) -> NDArray[np.int64]:
    """Return the class of every sample whose probability is explained."""
    if labels is None:
        return model.predict(samples, batch_size=batch_size, verbose=0).argmax(axis=1)
    given: Any = [labels] * len(samples) if np.ndim(labels) == 0 else labels
    names = model.class_names if any(isinstance(label, str) for label in np.ravel(given)[:1]) else None
    return check_labels(given, model.num_classes, name="labels", rows=len(samples), classes=names)[0]


def _value(model: SimplexNetwork, features: Any, numbers: Any) -> Any:
    """Return the log-probabilities [N] of classes, one or [N], or without them the scores of typical features."""
    if numbers is None:
        density: Any = model.after_training.density
        return density.scores(features)
    latent = model.predictive_latent(model.latent_of_features(features), calibrated=True)
    p = model.unweighted_readout.unweighted(model.readout(latent))
    for part in model.after_training.probability_maps:
        if getattr(part, "has_gradient", True):
            p = part.apply_probabilities(p)
    return tf.math.log(tf.reduce_sum(p * tf.one_hot(numbers, model.num_classes, dtype=p.dtype), axis=1) + _LEAST)


def _grad_cam(
    model: SimplexNetwork, samples: NDArray[Any], numbers: NDArray[np.int64] | None, layer: str | None, batch_size: int
) -> NDArray[Any]:
    """Weigh the channels of a convolution by the gradients at each place, and scale the sum to the images' size.

    Draelos, Carin: *Use HiResCAM instead of Grad-CAM for faithful explanations of convolutional neural networks*, 2021:
    Grad-CAM (Selvaraju et al. 2017) takes the mean gradient of a channel. Both are equal where channels are averaged.
    """
    if samples.ndim not in (3, 4):
        raise ValueError(f"method='grad_cam' needs images [N, H, W] or [N, H, W, C]; found x of shape {samples.shape}")
    layers = _inner_layers(model.backbone)
    if layer is None:
        chosen = _last_convolution(model, layers, samples[:1])
    else:
        named = [each for each in layers if each.name == layer]
        if not named:
            raise ValueError(f"layer must be one of {', '.join(each.name for each in layers)}; found {layer!r}")
        chosen = named[-1]
    drawn = []
    for rows in row_slices(len(samples), batch_size):
        with tf.GradientTape() as tape, _recorded_calls([chosen]) as calls:
            # Watched, since frozen layers have nothing else to record.
            tape.watch(x := tf.convert_to_tensor(samples[rows]))
            value = _value(model, model.features(x), None if numbers is None else numbers[rows])
        activations = calls[-1][1] if calls else None
        if activations is None or not _is_map(activations):
            raise ValueError(f"layer must have an output [N, h, w, c]; found {layer!r} of another")
        gradient = tape.gradient(value, activations)
        if gradient is None:
            raise ValueError(f"layer must come before the features that are used; found {chosen.name!r}")
        heat = tf.nn.relu(tf.reduce_sum(gradient * activations, axis=-1, keepdims=True))
        drawn.append(tf.image.resize(heat, samples.shape[1:3])[..., 0].numpy())
    return np.concatenate(drawn)


def _inner_layers(network: Any) -> list[keras.layers.Layer]:
    """Return the layers of a network in their order, those of networks inside it in place of these."""
    return [inner for each in getattr(network, "layers", ()) for inner in _inner_layers(each) or [each]]


def _last_convolution(
    model: SimplexNetwork, layers: Sequence[keras.layers.Layer], sample: NDArray[Any]
) -> keras.layers.Layer:
    """Return the layer whose output is that of the last convolution after its normalization and activation."""
    with _recorded_calls(layers) as calls:
        model.features(tf.convert_to_tensor(sample))
    maps = [(layer, output.shape[1:3]) for layer, output in calls if _is_map(output)]
    last = max((i for i, (layer, _) in enumerate(maps) if hasattr(layer, "kernel_size")), default=None)
    if last is None:
        raise ValueError("method='grad_cam' needs a convolution, or layer=NAME; the backbone has no layer of that kind")
    return [layer for layer, size in maps[last:] if size == maps[last][1]][-1]


@contextmanager
def _recorded_calls(layers: Sequence[keras.layers.Layer]) -> Iterator[list[tuple[keras.layers.Layer, Any]]]:
    """Collect the outputs of layers, in the order of their calls inside the block."""
    calls: list[tuple[keras.layers.Layer, Any]] = []

    def recording(layer: keras.layers.Layer, call: Any) -> Any:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            output = call(*args, **kwargs)
            calls.append((layer, output))
            return output

        return recorded

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(delattr, layer, "call")
            layer.call = recording(layer, layer.call)
        yield calls


def _is_map(output: Any) -> bool:
    return tf.is_tensor(output) and len(output.shape) == 4
