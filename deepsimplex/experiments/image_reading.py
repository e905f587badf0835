"""How image files are read for a trained model: the size, color and scale of its training."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.validation import check_choice, check_flag, check_number
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.classifier.keras_files import load_model
from deepsimplex.datasets.image_files import MODES, check_size
from deepsimplex.experiments.finished_runs import trained_model

Model = str | os.PathLike[str] | SimplexClassifier
"""A run folder, the folder of a name (its newest run with a model), a .keras file, or a classifier itself."""


@dataclass(frozen=True)
class ImageReading:
    """How images are read for a classifier.

    Attributes
    ----------
    size : tuple of int
        Height and width.
    color : {"rgb", "grayscale"}
    pixel_scale : float
        What pixels 0..255 are divided by.
    antialias : bool
        Whether images of other sizes are antialiased as they are scaled: see ``datasets.image_files.read_images``.
    """

    size: tuple[int, int]
    color: str
    pixel_scale: float
    antialias: bool

    @classmethod
    def of(
        cls,
        model: SimplexClassifier,
        image_size: Any = None,
        color: str | None = None,
        pixel_scale: float | None = None,
        antialias: bool | None = None,
    ) -> "ImageReading":
        """Take size and color from a model's input or, where it takes any, and the rest from its first samples."""
        shape = input_shape(model)
        if not is_image_shape(shape):
            raise ValueError(f"model must take images [N, H, W] or [N, H, W, C]; its input has the shape {shape}")
        first = model.class_probabilities
        fitted = [int(side) or None for side in keras.ops.convert_to_numpy(first.image_shape)]
        *sides, channels = [side or known for side, known in zip((*shape[1:], 1), fitted, strict=False)]
        size: Any = sides if image_size is None else check_size(image_size)
        if color is None and channels in (1, 3):
            color = "rgb" if channels == 3 else "grayscale"
        if color is None or None in size:
            missing = "color" if color is None else "image_size"
            example = "rgb" if color is None else "[224, 224]"
            raise ValueError(
                f"{missing} must be given, such as {missing}={example}: the model's input {shape} and its first "
                "training samples have none"
            )
        check_choice(color, "color", MODES)
        if pixel_scale is None:
            pixel_scale = float(keras.ops.convert_to_numpy(first.pixel_scale))
            if pixel_scale <= 0:
                raise ValueError(
                    "pixel_scale must be given, what pixels 0 to 255 are divided by: the model was fitted to other "
                    "numbers than pixels from 0 to 1 or from 0 to 255"
                )
        antialias = bool(keras.ops.convert_to_numpy(first.antialias) >= 0) if antialias is None else antialias
        scale = check_number(pixel_scale, "pixel_scale", above=0)
        return cls((size[0], size[1]), color, scale, check_flag(antialias, "antialias"))

    def __str__(self) -> str:
        height, width = self.size
        how, reader, other = (
            ("with", "datasets.load", "false if training had none")
            if self.antialias
            else ("without", "keras.utils.image_dataset_from_directory", "true if training had it")
        )
        return f"scaled to {height} x {width} {how} antialiasing, as by {reader}; antialias={other}"

    def samples(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Return pixels as the model takes them: float32, scaled, or bytes as they are."""
        return pixels if self.pixel_scale == 1 else np.divide(pixels, self.pixel_scale, dtype=np.float32)


def input_shape(model: SimplexClassifier) -> Any:
    try:
        return model.input_shape
    except AttributeError:  # of a backbone that states no input
        return (None, None, None, None)


def is_image_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) in (3, 4)


def load_classifier(model: Model) -> tuple[SimplexClassifier, Path | None]:
    """Return the classifier of a path, and the path."""
    path = None if isinstance(model, keras.Model) else trained_model(model)
    classifier = model if path is None else load_model(path)
    if not isinstance(classifier, SimplexClassifier):
        raise ValueError(
            f"model must be a SimplexClassifier or the path of one; found {type(classifier).__name__}"
            f"{'' if path is None else f' in {path}'}"
        )
    return classifier, path
