"""Losses of class probabilities that are read out of latents, in log space, and their mixtures with latent losses."""

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from deepsimplex._utils.registry import Registry
from deepsimplex._utils.validation import check_number
from deepsimplex.losses.composition import Composition
from deepsimplex.losses.label_forms import accepted_forms, in_accepted_form, is_soft
from deepsimplex.losses.latent_losses import ClassifierLoss, LatentLoss, LatentNLL


@keras.saving.register_keras_serializable(package="deepsimplex")
class CrossEntropy(keras.losses.Loss):
    """Cross-entropy of labels and log-probabilities, -sum_k q_k (1 - p_k)^gamma log p_k.

    It takes hard labels [N] and soft ones [N, n], and stays exact where probabilities underflow: it replaces
    Keras' own cross-entropies when they train a ``SimplexClassifier``.

    Parameters
    ----------
    label_smoothing : float
        Share of the label that is spread evenly over all classes. Default 0.
    gamma, alpha : float
        Focusing exponent and factor of the focal loss. Defaults 0 and 1: no focus.
    reduction, name, dtype
        As in keras.losses.Loss.

    Examples
    --------
    >>> import numpy as np
    >>> log_probabilities = np.log([[0.5, 0.5], [0.2, 0.8]])
    >>> loss = CrossEntropy(reduction=None)
    >>> loss(np.array([0, 1]), log_probabilities).numpy().round(3)
    array([0.693, 0.223], dtype=float32)
    >>> loss(np.array([[1, 0], [0.5, 0.5]]), log_probabilities).numpy().round(3)
    array([0.693, 0.916], dtype=float32)
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        gamma: float = 0.0,
        alpha: Any = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "cross_entropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = label_smoothing
        self.gamma = gamma
        self.alpha = alpha

    def call(self, y_true: Any, y_pred: Any) -> Any:
        # y_true: [N], [N, 1] or [N, n], y_pred: [N, n]
        plain = not (self.label_smoothing or self.gamma) and np.ndim(self.alpha) == 0 and self.alpha == 1.0
        if plain and not is_soft(y_true):
            return -value_of_label(y_true, y_pred)
        n = y_pred.shape[1]
        shares = y_true if is_soft(y_true) else tf.one_hot(tf.cast(tf.reshape(y_true, [-1]), tf.int32), n)
        shares = tf.cast(shares, y_pred.dtype)
        shares = shares * (1.0 - self.label_smoothing) + self.label_smoothing / n
        if self.gamma:
            # With gamma < 1 the slope at p = 1 would be infinite, and NaN times zero.
            shares *= tf.maximum(-tf.math.expm1(y_pred), keras.config.epsilon()) ** self.gamma
        return -tf.reduce_sum(self.alpha * tf.math.multiply_no_nan(y_pred, shares), axis=-1)  # 0 log 0 = 0

    def get_config(self) -> dict[str, Any]:
        arguments = {"label_smoothing": self.label_smoothing, "gamma": self.gamma, "alpha": self.alpha}
        return {**super().get_config(), **arguments}


class ProbabilityLoss(ClassifierLoss):
    """A Keras loss of labels and class probabilities, computed from the log-probabilities of the readout.

    Parameters
    ----------
    loss : keras.losses.Loss or callable
        Cross-entropies (sparse, categorical, focal) are replaced by ``CrossEntropy``. Other losses get class numbers
        [N] or one-hot or soft labels [N, n], whichever they compare: see ``label_forms``.
    num_classes : int
    """

    needs_latents = False
    needs_probabilities = True

    def __init__(self, loss: Any, num_classes: int) -> None:
        if not callable(loss):
            raise TypeError(f"loss must be None, a loss, its name, or a function of labels and outputs; found {loss!r}")
        if getattr(loss, "from_logits", False):
            raise ValueError(
                f"loss must be of class probabilities, not of logits; found {type(loss).__name__}(from_logits=True). "
                "Leave from_logits out: it is computed in log space anyway"
            )
        super().__init__(
            name=getattr(loss, "name", None) or "probability_loss",
            reduction=getattr(loss, "reduction", "sum_over_batch_size"),
        )
        self.loss = loss
        self.in_log_space = _in_log_space(loss)
        self.forms: list[str] = []
        if self.in_log_space is None:
            hinted = str(getattr(loss, "__module__", None)).startswith("keras.")
            self.forms = accepted_forms(loss, num_classes, binary=isinstance(loss, _BINARY), hinted=hinted)

    def compute(self, labels: dict[str, Any], outputs: dict[str, Any], sample_weight: Any = None) -> Any:
        """Return the loss of a batch from "label" and "log_probabilities"."""
        label, log_p = labels["label"], outputs["log_probabilities"]
        if self.in_log_space is not None:
            return self.in_log_space(label, log_p, sample_weight=sample_weight)
        label, p = in_accepted_form(self.forms, label, tf.exp(log_p))
        if isinstance(self.loss, keras.losses.Loss):
            return self.loss(label, p, sample_weight=sample_weight)
        losses = tf.convert_to_tensor(self.loss(label, p))
        weighted = losses if sample_weight is None else losses * tf.cast(sample_weight, losses.dtype)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weighted), tf.cast(tf.size(weighted), weighted.dtype))
        return mean / tf.distribute.get_strategy().num_replicas_in_sync


@keras.saving.register_keras_serializable(package="deepsimplex")
class Hybrid(ClassifierLoss):
    """Weighted mean of a latent loss and the cross-entropy of the labels, (1 - w) latent + w class.

    Parameters
    ----------
    weight : float
        Weight w of the cross-entropy, strictly between 0 and 1. Default 0.5.
    latent : LatentLoss, optional
        Default ``LatentNLL()``. The cross-entropy has the same reduction over the batch.
    name : str

    Raises
    ------
    ValueError
        If the weight is not strictly between 0 and 1.

    Examples
    --------
    >>> Hybrid(0.25).weight
    0.25
    """

    needs_probabilities = True

    def __init__(self, weight: float = 0.5, latent: LatentLoss | dict[str, Any] | None = None, name: str = "hybrid"):
        self.latent = LatentNLL() if latent is None else get_loss(latent)
        if not isinstance(self.latent, LatentLoss):
            raise TypeError(f"latent must be a LatentLoss; found {type(self.latent).__name__}")
        super().__init__(name=name, reduction=self.latent.reduction)
        self.weight = check_number(weight, "weight", above=0, below=1)
        self.cross_entropy = CrossEntropy(reduction=self.latent.reduction)

    def compute(self, labels: dict[str, Any], outputs: dict[str, Any], sample_weight: Any = None) -> Any:
        """Return the weighted mean of both losses of a batch."""
        latent = self.latent.compute(labels, outputs, sample_weight)
        entropy = self.cross_entropy(labels["label"], outputs["log_probabilities"], sample_weight=sample_weight)
        return (1.0 - self.weight) * latent + self.weight * tf.cast(entropy, latent.dtype)

    def check(self, num_classes: int, covariance: str | None) -> None:
        """Raise ValueError if the latent loss cannot train a head of this covariance."""
        self.latent.check(num_classes, covariance)

    def get_config(self) -> dict[str, Any]:
        latent = keras.saving.serialize_keras_object(self.latent)
        return {"weight": self.weight, "latent": latent, "name": self.name}


LOSSES: Registry[keras.losses.Loss] = Registry(
    "loss", keras.losses.Loss, {"latent_nll": LatentNLL, "hybrid": Hybrid, "composition": Composition}
)

# Keras names its losses in snake case and in camel case.
_KERAS_LOSSES = {
    name.lower(): kind
    for name, kind in vars(keras.losses).items()
    if isinstance(kind, type) and issubclass(kind, keras.losses.Loss)
} | dict.fromkeys(("crossentropy", "ce"), keras.losses.CategoricalCrossentropy)

# Keras losses that can be computed from log-probabilities.
_CROSS_ENTROPIES = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
)

_BINARY = keras.losses.BinaryCrossentropy, keras.losses.BinaryFocalCrossentropy


def get_loss(identifier: Any) -> Any:
    """Return the loss for a name, a configuration or an object, as ``compile(loss=...)`` takes them.

    Parameters
    ----------
    identifier : None, str, dict, keras.losses.Loss or callable
        None stays None. A name of ``LOSSES``, of a loss of Keras ("categorical_focal_crossentropy"), or
        "module:Class"; a dict of "name" and arguments; or a loss.

    Raises
    ------
    TypeError, ValueError
        If there is no such loss, or it has no such argument.

    Examples
    --------
    >>> get_loss({"name": "categorical_crossentropy", "label_smoothing": 0.1}).name
    'categorical_crossentropy'
    """
    name, arguments = identifier, {}
    if isinstance(identifier, dict) and "class_name" not in identifier:
        arguments = {key: value for key, value in identifier.items() if key != "name"}
        name = identifier.get("name")
    if isinstance(name, str) and name not in LOSSES and ":" not in name:
        kind = _KERAS_LOSSES.get(name.replace("_", "").lower())
        if kind is not None:
            return kind(**arguments)
        loss = keras.saving.get_registered_object(name)
        if loss is None and not arguments:
            with contextlib.suppress(ValueError):  # a short name, such as "mse"
                loss = keras.losses.get(name)
        if callable(loss) and not isinstance(loss, type):
            return get_loss(loss)
    if identifier is None or (callable(identifier) and not isinstance(identifier, type)):
        from_keras = getattr(identifier, "__module__", "").startswith("keras.")
        name = getattr(identifier, "__name__", None) if from_keras else None
        return identifier if name is None else get_loss(name)
    if isinstance(identifier, dict) and "class_name" in identifier:
        return keras.saving.deserialize_keras_object(identifier)
    return LOSSES.get(identifier)


def value_of_label(y_true: Any, values: Any) -> Any:
    """Return the values [N] of the labels [N] or [N, 1] among those of all classes [N, n]; NaN for an unknown label."""
    label = tf.cast(tf.reshape(y_true, [-1]), tf.int32)  # Keras converts labels to floats
    # A mask, where the gradient of a gather would take fifty operations.
    mask = tf.one_hot(label, values.shape[1], on_value=True, off_value=False, dtype=tf.bool)
    value = tf.reduce_sum(tf.where(mask, values, tf.zeros_like(values)), axis=-1)
    return tf.where(tf.reduce_any(mask, axis=-1), value, tf.constant(float("nan"), values.dtype))


def _in_log_space(loss: Any) -> CrossEntropy | None:
    """The cross-entropy of log-probabilities that equals a loss of Keras, if it has one."""
    if isinstance(loss, CrossEntropy):
        return loss
    if type(loss) not in _CROSS_ENTROPIES or (options := loss.get_config()).get("ignore_class") is not None:
        return None
    arguments = ("label_smoothing", "gamma", "alpha", "reduction", "name")
    return CrossEntropy(**{name: options[name] for name in arguments if name in options})
