"""Pretrained networks as backbones: of KerasHub, by the names of their presets, and of files."""

import importlib
from typing import Any

import keras

from deepsimplex._utils.validation import check_choice

PREFIX, SUFFIX = "keras_hub:", ".keras"
_POOLING = ("avg", "max", "token")


def pretrained(
    name: str,
    image_shape: tuple[int | None, ...] | None = None,
    pooling: str = "avg",
    trainable: bool = False,
    **options: Any,
) -> keras.Model:
    """Load a preset of KerasHub as a backbone from images, or tokens, to features [N, d].

    Parameters
    ----------
    name : str
        "keras_hub:" and a preset: "keras_hub:resnet_18_imagenet", "keras_hub:hf://user/model" or the path of a folder.
    image_shape : tuple of int or None, optional
        Shape of one image, whose pixels are 0 to 255. Images are resized and scaled as the preset asks. Default None:
        that of the preset, with any size if it takes any.
    pooling : {"avg", "max", "token"}
        Of feature maps [N, H, W, d] and of sequences [N, T, d], of which "token" takes the first. Default "avg". Text
        encoders, whose inputs are the dict that their preprocessor makes, have a pooled output of their own.
    trainable : bool
        Default False: frozen, so that a classifier is solved in closed form.
    **options
        Of ``keras_hub.models.Backbone.from_preset``, such as ``load_weights`` and ``dtype``.

    Raises
    ------
    ImportError
        Without KerasHub: ``pip install '.[keras-hub]'`` in a checkout.
    ValueError
        For a preset that does not exist, has no preprocessing of images or has several outputs.

    Examples
    --------
    >>> backbone = pretrained("keras_hub:resnet_18_imagenet")  # doctest: +SKIP
    >>> backbone.output_shape  # doctest: +SKIP
    (None, 512)
    """
    check_choice(pooling, "pooling", _POOLING)
    preset = name.removeprefix(PREFIX)
    try:
        hub = importlib.import_module("keras_hub")
    except ImportError as error:
        raise ImportError(
            f"backbone {name!r} needs KerasHub; in a checkout: pip install '.[keras-hub]' ({error})"
        ) from error
    try:
        network = hub.models.Backbone.from_preset(preset, **options)
    except (ValueError, OSError) as error:
        raise ValueError(f"backbone {name!r} cannot be loaded: {_first_line(error)}") from error
    inputs = network.input
    samples = inputs
    if isinstance(inputs, dict):
        if image_shape is not None:
            raise ValueError(f"image_shape must be None for {name!r}, which takes {', '.join(inputs)}")
    else:
        try:
            converter = hub.layers.ImageConverter.from_preset(preset)
        except (ValueError, OSError) as error:
            raise ValueError(
                f"backbone {name!r} has no preprocessing of images ({_first_line(error)}): load it by "
                "keras_hub.models.Backbone.from_preset, and scale its images"
            ) from error
        inputs = keras.Input(image_shape or inputs.shape[1:], name="image")
        # Layers of Keras alone, which every format of export knows.
        samples = converter.resizing(inputs) if converter.image_size else inputs
        one, zero = 1.0 if converter.scale is None else converter.scale, converter.offset or 0.0
        samples = keras.layers.Rescaling(one, zero)(samples)
    model = keras.Model(inputs, _pooled(network(samples), pooling, name), name=network.name)
    # The preset's layers may come frozen; files keep what the whole model is.
    network.trainable = model.trainable = trainable
    return model


def saved(name: str, trainable: bool = False) -> keras.Model:
    """Load a .keras file as a backbone, frozen unless it is ``trainable``."""
    try:
        model: keras.Model = keras.saving.load_model(name, compile=False)
    except (ValueError, TypeError, OSError) as error:
        raise ValueError(f"backbone {name!r} cannot be loaded: {_first_line(error)}") from error
    if len(model.output_shape) != 2:
        raise ValueError(f"backbone {name!r} must give features [N, d]; its output has the shape {model.output_shape}")
    model.trainable = trainable
    return model


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _pooled(outputs: Any, pooling: str, name: str) -> Any:
    """Return features [N, d] of the outputs of a network."""
    if isinstance(outputs, dict):
        if "pooled_output" not in outputs:
            raise ValueError(f"backbone {name!r} must have one output, or 'pooled_output'; found {', '.join(outputs)}")
        outputs = outputs["pooled_output"]
    axes = len(outputs.shape) - 2
    if axes == 0:
        return outputs
    if pooling == "token":
        if axes != 1:
            raise ValueError(f"pooling must be 'avg' or 'max' for {name!r}, whose outputs are maps; found 'token'")
        return outputs[:, 0]
    layers = {"avg": keras.layers.GlobalAveragePooling1D, "max": keras.layers.GlobalMaxPooling1D}
    if axes == 2:
        layers = {"avg": keras.layers.GlobalAveragePooling2D, "max": keras.layers.GlobalMaxPooling2D}
    return layers[pooling]()(outputs)
