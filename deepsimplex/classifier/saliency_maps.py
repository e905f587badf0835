"""Which parts of a sample a classifier's answer depends on: integrated gradients, gradients and Grad-CAM."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.messages import guided, warn_caller
from deepsimplex._utils.validation import check_choice
from deepsimplex.calibration.after_training import FittedComponents, TrainedClassifier
from deepsimplex.classifier.given_features import inner_layers
from deepsimplex.readout import feature_gradients, integrated_gradients

SaliencyMethod = Literal["integrated_gradients", "gradients", "grad_cam"]
Explained = Literal["probability", "familiarity"]
# Added to probabilities whose logarithm is differentiated.
_LEAST = 1e-30
# Samples of a class whose parts are compared with the difference of values.
_CHECKED = 64


def saliency_maps(
    after_training: FittedComponents,
    network: keras.Model | None,
    probabilities: Callable[[Any], Any],
    x: Any,
    samples: Any,
    of: Explained = "probability",
    labels: Any = None,
    method: SaliencyMethod = "integrated_gradients",
    layer: str | None = None,
    baseline: ArrayLike = 0.0,
    steps: int = 32,
    batch_size: int = 32,
) -> NDArray[Any]:
    """Compute the maps of a classifier's ``saliency``, which documents the other arguments.

    Parameters
    ----------
    after_training : FittedComponents
        Of the classifier: its density is fitted to the output of ``network``.
    network : keras.Model or None
        From samples to what ``probabilities`` takes, which may have a convolution; None if that takes samples.
    probabilities : callable
        From a tensor to class probabilities [N, n].
    x : array_like
        Samples as the classifier predicts them.
    samples : ndarray, shape [N, ...]
        The same as an array of numbers.
    """
    check_choice(of, "of", get_args(Explained))
    check_choice(method, "method", get_args(SaliencyMethod))
    if not isinstance(samples, np.ndarray) or samples.dtype.kind not in "fiu":
        raise TypeError(f"x must be one array of numbers, for a network of one input; found {type(samples).__name__}")
    if layer is not None and method != "grad_cam":
        raise ValueError(f"layer is for method='grad_cam' only; found layer={layer!r} with method={method!r}")
    samples = samples.astype(np.float64 if samples.dtype == np.float64 else np.float32)
    density, numbers = after_training.density, None
    if of == "probability":
        numbers = _class_numbers(after_training.classifier, x, labels, len(samples))
    elif density is None:
        raise guided("decisions.md#flag-the-unfamiliar", "of='familiarity' needs fit_density first")
    elif labels is not None:
        raise ValueError(f"labels are for of='probability' only; found labels={labels!r} with of='familiarity'")
    features = _of_floats(network)

    def value(x: Any, numbers: Any) -> Any:
        """Return log-probabilities [N] of classes, one or [N], or without them the scores of typical features."""
        if density is not None and numbers is None:
            return density.scores(features(x))
        p = probabilities(features(x))
        return tf.math.log(tf.reduce_sum(p * tf.one_hot(numbers, p.shape[1], dtype=p.dtype), axis=1) + _LEAST)

    if method == "grad_cam":
        return _grad_cam(network, features, value, samples, numbers, layer, batch_size)
    maps = np.empty_like(samples)
    sums: list[NDArray[Any]] = []
    differences: list[NDArray[Any]] = []
    for number in [None] if numbers is None else np.unique(numbers).tolist():
        rows = slice(None) if number is None else numbers == number
        function = partial(value, numbers=number)
        if method == "gradients":
            maps[rows] = np.abs(feature_gradients(function, samples[rows], batch_size))
        else:
            maps[rows] = integrated_gradients(
                function, samples[rows], baseline=baseline, steps=steps, batch_size=batch_size
            )
            parts = maps[rows][:_CHECKED]
            sums.append(parts.reshape(len(parts), -1).sum(axis=1))
            differences.append(_differences(function, samples[rows][:_CHECKED], baseline))
    if sums:
        _check_sums(np.concatenate(sums), np.concatenate(differences))
    return maps.sum(axis=-1) if maps.ndim == 4 else maps


def _differences(function: Callable[[Any], Any], samples: NDArray[Any], baseline: ArrayLike) -> NDArray[Any]:
    """Return the differences [N] of values of samples from those of the baseline."""
    start = np.broadcast_to(np.asarray(baseline, samples.dtype), samples.shape)
    return np.asarray(function(tf.constant(samples)) - function(tf.constant(start)))


def _check_sums(sums: NDArray[Any], differences: NDArray[Any]) -> None:
    """Warn of integrated gradients that sum to almost nothing of the differences, as where values jump."""
    if np.median(np.abs(sums)) < 0.1 * np.median(np.abs(differences)):
        warn_caller(
            f"maps sum to {np.median(sums):.2g}, while values differ by {np.median(differences):.2g} from that of the "
            "baseline (medians): values jump there, as those of features that are scaled to length one do at zero. "
            "Pass another baseline, such as the mean of the samples"
        )


def _of_floats(network: keras.Model | None) -> Callable[[Any], Any]:
    """Return the function of a network, without the rounding of an input of integers."""
    if network is None:
        return lambda x: x
    inputs = getattr(network, "inputs", None) or []
    if not all("float" in each.dtype for each in inputs):
        floats = [keras.Input(each.shape[1:], dtype="float32") for each in inputs]
        # Its layers are those of the network.
        network = keras.models.clone_model(network, input_tensors=floats, clone_function=lambda layer: layer)
    return lambda x: network(x, training=False)


def _class_numbers(classifier: TrainedClassifier, x: Any, labels: Any, rows: int) -> NDArray[np.int64]:
    """Return the class of every sample whose probability is explained: by default the likeliest."""
    if labels is None:
        return classifier.predict_proba(x).argmax(axis=1)
    is_one = isinstance(labels, str) or not np.iterable(labels)
    return classifier._class_numbers([labels] * rows if is_one else labels, rows)


def _grad_cam(
    network: keras.Model | None,
    features: Callable[[Any], Any],
    value: Callable[[Any, Any], Any],
    samples: NDArray[Any],
    numbers: NDArray[np.int64] | None,
    layer: str | None,
    batch_size: int,
) -> NDArray[Any]:
    """Weigh the channels of a convolution by the gradients at each place, and scale the sum to the images' size.

    Draelos, Carin: *Use HiResCAM instead of Grad-CAM for faithful explanations of convolutional neural networks*, 2021:
    Grad-CAM (Selvaraju et al. 2017) takes the mean gradient of a channel. Both are equal where channels are averaged.
    """
    if samples.ndim not in (3, 4):
        raise ValueError(f"method='grad_cam' needs images [N, H, W] or [N, H, W, C]; found x of shape {samples.shape}")
    layers = inner_layers(network)
    if layer is None:
        chosen = _last_convolution(features, layers, samples[:1])
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
            explained = value(x, None if numbers is None else numbers[rows])
        activations = calls[-1][1] if calls else None
        if activations is None or not _is_map(activations):
            raise ValueError(f"layer must have an output [N, h, w, c]; found {layer!r} of another")
        gradient = tape.gradient(explained, activations)
        if gradient is None:
            raise ValueError(f"layer must come before the features that are used; found {chosen.name!r}")
        heat = tf.nn.relu(tf.reduce_sum(gradient * activations, axis=-1, keepdims=True))
        drawn.append(tf.image.resize(heat, samples.shape[1:3])[..., 0].numpy())
    return np.concatenate(drawn)


def _last_convolution(
    features: Callable[[Any], Any], layers: Sequence[keras.layers.Layer], sample: NDArray[Any]
) -> keras.layers.Layer:
    """Return the layer whose output is that of the last convolution after its normalization and activation."""
    with _recorded_calls(layers) as calls:
        features(tf.convert_to_tensor(sample))
    maps = [(layer, output.shape[1:3]) for layer, output in calls if _is_map(output)]
    last = max((i for i, (layer, _) in enumerate(maps) if hasattr(layer, "kernel_size")), default=None)
    if last is None:
        raise ValueError("method='grad_cam' needs a convolution, or layer=NAME; the network has no layer of that kind")
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
