"""Held-out samples of a Keras classifier, brought to what calibrations are fitted to."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from deepsimplex.calibration import Calibration
from deepsimplex.classifier import observations
from deepsimplex.latent import LatentGaussian


class HeldOut(NamedTuple):
    """Samples to calibrate with: x as it came, labels [N] int64, and weights [N] or None."""

    x: Any
    labels: np.ndarray
    sample_weight: np.ndarray | None

    @classmethod
    def of(cls, x: Any, y: Any, sample_weight: Any, num_classes: int) -> "HeldOut":
        """Checked samples of arrays, or of a ``tf.data.Dataset``, which is read once.

        Raises
        ------
        TypeError, ValueError
            For data that ``evaluate`` would refuse, and for soft labels and latents: calibration needs classes.
        """
        if isinstance(x, tf.data.Dataset):
            observations.check_dataset(x)
            if x.cardinality() == tf.data.INFINITE_CARDINALITY:
                raise ValueError("x must be a finite tf.data.Dataset; pass it without repeat()")
            x, y, sample_weight, _ = observations.read_dataset(x)
        x, y, sample_weight = observations.as_arrays(x, y, sample_weight)
        observations.check_finite(x)
        if isinstance(y, LatentGaussian | dict):
            raise ValueError("y must hold class labels for a calibration; found latents")
        labels = observations.labels(y, num_classes)
        if labels.ndim == 2:
            if not np.all(labels.max(axis=1) == 1):
                raise ValueError(
                    "y must name one class per sample for a calibration; found soft labels. y.argmax(axis=1)"
                )
            labels = labels.argmax(axis=1)
        return cls(x, labels, sample_weight)


def calibrated_latent(calibration: Calibration | None, latent: Any) -> Any:
    """Apply a calibration, if given, to latents."""
    return latent if calibration is None else calibration.apply_latent(latent)


def calibrated_probabilities(calibration: Calibration | None, p: Any) -> Any:
    """Apply a calibration, if given, to class probabilities."""
    return p if calibration is None else calibration.apply_probabilities(p)


def serialized(calibration: Calibration | None) -> Any:
    """A calibration, or None, as Keras writes its objects."""
    return None if calibration is None else keras.saving.serialize_keras_object(calibration)
