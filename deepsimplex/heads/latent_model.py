"""A functional model that may end in a Gaussian over latent space."""

from typing import Any

import keras
import tensorflow as tf

from deepsimplex.latent import LatentGaussian
from deepsimplex.losses import as_latent_loss


def as_observation(y: Any) -> Any:
    """Latents as losses see them: the dict {"loc", "scale"}; plain latents [N, L] are observed without noise."""
    if y is None or isinstance(y, dict):
        return y
    if isinstance(y, LatentGaussian):
        return y.as_dict()
    return {"loc": y, "scale": keras.ops.zeros_like(y[:, :1])}


def single_sample_weight(sample_weight: Any) -> Any:
    """The one weight per sample that Keras copied to every entry of a dict of observations."""
    leaves = keras.tree.flatten(sample_weight)
    return leaves[0] if leaves else None


@keras.saving.register_keras_serializable(package="deepsimplex")
class LatentModel(keras.Model):
    """A functional Keras model from features to a Gaussian over latent space.

    A plain functional model applies its loss once per entry of the output dict and cannot see both "loc" and "scale"
    (keras-team/keras#14140). This one hands the dict whole to a loss of (observation, latent).

    Parameters
    ----------
    inputs, outputs
        As in keras.Model; ``outputs`` is what a head such as ``GaussianHead`` returns.

    Notes
    -----
    ``fit`` and ``evaluate`` take as ``y`` a ``LatentGaussian``, the dict {"loc", "scale"}, or latents [N, L] (observed
    without noise); data sets yield (x, dict) or (x, latents). Compile with ``deepsimplex.losses.LatentNLL()`` or any
    loss of (observation, latent).

    Examples
    --------
    >>> import numpy as np, deepsimplex as ds
    >>> inputs = keras.Input((4,))
    >>> model = ds.heads.LatentModel(inputs, ds.heads.GaussianHead(2)(inputs))
    >>> model.compile(optimizer="adam", loss=ds.losses.LatentNLL())
    >>> history = model.fit(np.zeros((8, 4)), ds.LatentGaussian(np.ones((8, 2)), np.zeros((8, 1))), verbose=0)
    >>> sorted(model.predict(np.zeros((3, 4)), verbose=0))
    ['loc', 'scale']
    """

    def compile(self, optimizer: Any = "adam", loss: Any = None, **kwargs: Any) -> None:
        """Configure training: ``loss`` is None (``losses.LatentNLL()``) or a loss of (observation, latent)."""
        super().compile(optimizer=optimizer, loss=as_latent_loss(loss), **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as a saved model was, its optimizer's state included."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> keras.callbacks.History:
        if isinstance(kwargs.get("validation_data"), tuple):
            x_validation, y_validation, *weights = kwargs["validation_data"]
            kwargs["validation_data"] = (x_validation, as_observation(y_validation), *weights)
        return super().fit(x, as_observation(y), **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        return super().evaluate(x, as_observation(y), **kwargs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        values = self.loss(as_observation(y), y_pred, sample_weight=single_sample_weight(sample_weight))
        return tf.add_n([values, *[tf.cast(extra, values.dtype) for extra in self.losses]])
