"""How image files are read for a trained model: the size, color and scale of its training."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.atomic_files import check_writable
from deepsimplex._utils.validation import check_choice, check_number
from deepsimplex.classifier import SimplexClassifier
from deepsimplex.classifier.keras_files import load_model
from deepsimplex.datasets.image_files import MODES, check_size
from deepsimplex.experiments.finished_runs import trained_model

Model = str | os.PathLike[str] | SimplexClassifier
"""A run folder, the folder of a name (its newest run with a model), a .keras file, or a classifier itself."""


@dataclass(frozen=True)
class ImageReading:
    """How images are read for a classifier: (height, width), color, and what pixels 0..255 are divided by."""

    size: tuple[int, int]
    color: str
    pixel_scale: float

    @classmethod
    def of(
        cls,
        model: SimplexClassifier,
        image_size: Any = None,
        color: str | None = None,
        pixel_scale: float | None = None,
    ) -> "ImageReading":
        """Read size and color from the shape of a model's input, and the scale from what it was first fitted to."""
        shape = input_shape(model)
        if not is_image_shape(shape):
            raise ValueError(f"model must take images [N, H, W] or [N, H, W, C]; its input has the shape {shape}")
        channels = shape[3] if len(shape) == 4 else 1
        size = shape[1:3] if image_size is None else check_size(image_size)
        if color is None and channels in (1, 3):
            color = "rgb" if channels == 3 else "grayscale"
        if color is None or None in size:
            missing = "color" if color is None else "image_size"
            example = "rgb" if color is None else "[224, 224]"
            raise ValueError(
                f"{missing} must be given, such as {missing}={example}: the model's input {shape} has none"
            )
        check_choice(color, "color", MODES)
        if pixel_scale is None:
            pixel_scale = float(keras.ops.convert_to_numpy(model.class_probabilities.pixel_scale))
            if pixel_scale <= 0:
                raise ValueError(
                    "pixel_scale must be given, what pixels 0 to 255 are divided by: the model was fitted to other "
                    "numbers than pixels from 0 to 1 or from 0 to 255"
                )
        return cls((size[0], size[1]), color, check_number(pixel_scale, "pixel_scale", above=0))

    def samples(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Return pixels as the model takes them: float32, scaled, or bytes as they are."""
        return pixels if self.pixel_scale == 1 else np.divide(pixels, self.pixel_scale, dtype=np.float32)


def check_output(path: str | os.PathLike[str], suffix: str) -> Path:
    """Return the path of a file to write, before the work for it; raise an error for a folder or another suffix."""
    target = Path(path).expanduser()
    if target.suffix.lower() != suffix or target.is_dir():
        raise ValueError(f"output must be a file that ends in {suffix}; found {str(target)!r}")
    check_writable(target.parent, "the folder of output")
    return target


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
