"""Everything between what a user passes to fit or evaluate and what Keras trains on."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from deepsimplex.classifier import observations
from deepsimplex.classifier.observations import LatentStream, Samples, holds_latents
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets import Target


@dataclass(frozen=True)
class Preparation:
    """Gives samples their latents.

    Parameters
    ----------
    target : Target
    num_classes : int
    needs_latents : bool
        Without them samples get their checked labels alone, and the target is not asked.
    """

    target: Target
    num_classes: int
    needs_latents: bool = True

    def training_arrays(self, x: Any, y: Any, sample_weight: Any, class_weight: Any) -> Samples:
        """Training samples; the target is fitted to them."""
        return self._observed(x, y, sample_weight, class_weight, fit=True)

    def needs_reading(self, dataset: tf.data.Dataset) -> bool:
        """Whether a data set must be read before its latents can be had: labels under a target of distances."""
        observations.check_dataset(dataset)
        y = dataset.element_spec[1]
        if observations.is_packed(y) or not (self.needs_latents and self.target.needs_samples):
            return False
        return not holds_latents(y, self.num_classes, self.target.latent_dim(self.num_classes))

    def stream(self, dataset: tf.data.Dataset, class_weight: Any = None) -> tf.data.Dataset:
        """A data set that need not be read, with latents beside its labels."""
        return LatentStream(self.target, self.num_classes, class_weight, self.needs_latents).of(dataset)

    def others(self, data: Any) -> Any:
        """Validation or test samples, arrays or a data set, with latents found among the training samples.

        Where the target has no training samples (a loaded model), the label alone, with a warning.
        """
        if isinstance(data, tf.data.Dataset):
            if not self.needs_reading(data):
                return self.stream(data)
            *data, _ = observations.read_dataset(data)
        x, y, sample_weight = observations.as_arrays(*keras.utils.unpack_x_y_sample_weight(tuple(data)))
        given = holds_latents(y, self.num_classes, self.target.latent_dim(self.num_classes))
        if given or self.target.is_fitted or not (self.needs_latents and self.target.needs_samples):
            return self._observed(x, y, sample_weight, None, fit=False)
        warnings.warn(
            "the latent loss needs the target's training samples, which a loaded model does not carry: it is given as "
            "NaN. Call model.target.fit(x_train, y_train) first to have it; class metrics do not need it",
            stacklevel=3,
        )
        observations.check_finite(x)
        return Samples(x, {"label": observations.labels(y, self.num_classes)}, sample_weight)

    def _observed(self, x: Any, y: Any, sample_weight: Any, class_weight: Any, fit: bool) -> Samples:
        x, y, sample_weight = observations.as_arrays(x, y, sample_weight)
        observations.check_finite(x)
        packed = observations.observe(self.target, self.num_classes, x, y, fit=fit, needs_latents=self.needs_latents)
        if class_weight is not None:
            per_class = observations.weights_by_class(class_weight, self.num_classes)
            label = packed["label"]
            own = label @ per_class if label.ndim == 2 else per_class[label]
            sample_weight = own if sample_weight is None else own * sample_weight
        return Samples(x, packed, sample_weight)


def split(x: Any, y: Any, sample_weight: Any, share: float) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Cut a share of the samples off the end, as Keras does: (training, validation)."""
    x, y, sample_weight = observations.as_arrays(x, y, sample_weight)
    rows = observations.num_rows(x)
    cut = math.floor(rows * (1.0 - share))
    if not 0 < cut < rows:
        raise ValueError(f"validation_split must leave samples on both sides; {share!r} of {rows} does not")

    def part(rows_of: slice) -> tuple[Any, Any, Any]:
        weight = None if sample_weight is None else sample_weight[rows_of]
        labels = y[rows_of] if isinstance(y, LatentGaussian) else _rows(y, rows_of)
        return _rows(x, rows_of), labels, weight

    return part(slice(None, cut)), part(slice(cut, None))


def _rows(arrays: Any, rows_of: slice) -> Any:
    return keras.tree.map_structure(lambda leaf: leaf[rows_of], arrays)
