"""Losses: of (observation, latent), what a target observed against what a regressor predicts; of what is read out."""

from typing import Any

import keras
import tensorflow as tf

from deepsimplex._utils.names import did_you_mean
from deepsimplex._utils.validation import check_number
from deepsimplex.latent import LatentGaussian, probability_distributions

__all__ = ["GLVQ", "CrossEntropy", "LatentFunctionLoss", "LatentLoss", "LatentNLL", "as_latent_loss"]


class LatentLoss(keras.losses.Loss):
    """Base of losses that compare a target's observation with a predicted Gaussian.

    Subclasses write ``call(observation, latent)``: both are dicts {"loc", "scale"} of tensors (see
    ``deepsimplex.LatentGaussian``), the result has shape [N]. Keras' reduction and sample weights apply as ever.

    Examples
    --------
    >>> class SquaredError(LatentLoss):
    ...     def call(self, observation, latent):
    ...         return keras.ops.sum((observation["loc"] - latent["loc"]) ** 2, axis=-1)
    >>> ones, zeros = ({"loc": keras.ops.full((3, 2), v), "scale": keras.ops.ones((3, 1))} for v in (1.0, 0.0))
    >>> float(SquaredError()(ones, zeros))
    2.0
    """


@keras.saving.register_keras_serializable(package="deepsimplex")
class LatentNLL(LatentLoss):
    """Negative log density of the observed latents under the predicted Gaussian.

    The observation's own noise is added to the predicted variance: -log N(loc | mu, Sigma + diag(noise^2)), the
    likelihood of [CASIMAC] sec. 3.4 for targets without noise, of [ILR-GP] Eq. 3 and [GPD] sec. 4 for those with it.

    Parameters
    ----------
    beta : float
        Weight every term of the sum over latent dimensions by its variance, taken as a constant, to the power beta
        (Seitzer et al. 2022, "On the pitfalls of heteroscedastic uncertainty estimation with probabilistic neural
        networks"). 0 (default) is the plain likelihood. With it, samples that the network fits badly are given up:
        their variance grows and their gradient vanishes. 0.5 trains means about as well as the mean squared error does
        and keeps the variances; 1 trains the means by the squared error itself. Needs an isotropic or diagonal scale.
    reduction, name, dtype
        As in keras.losses.Loss.

    Raises
    ------
    ValueError
        For a beta outside [0, 1], or a positive beta with a full covariance.

    Examples
    --------
    >>> import numpy as np
    >>> observed = {"loc": np.zeros((1, 2), "float32"), "scale": np.zeros((1, 1), "float32")}
    >>> predicted = {"loc": np.zeros((1, 2), "float32"), "scale": np.ones((1, 1), "float32")}
    >>> round(float(LatentNLL()(observed, predicted)), 4)
    1.8379
    """

    def __init__(
        self,
        beta: float = 0.0,
        reduction: str = "sum_over_batch_size",
        name: str = "latent_nll",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must lie between 0 and 1; found {beta!r}")
        self.beta = float(beta)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        observation, latent = LatentGaussian.of(y_true), LatentGaussian.of(y_pred)
        # An observation's noise is a standard deviation, of shape [N, 1] or [N, L].
        predictive = latent.with_noise(observation.scale)
        if self.beta == 0.0:
            return -predictive.distribution().log_prob(observation.loc)
        if predictive.covariance == "full":
            raise ValueError("beta must be 0 with a full covariance: its likelihood is no sum over latent dimensions")
        terms = probability_distributions().Normal(predictive.loc, predictive.scale).log_prob(observation.loc)
        weight = tf.stop_gradient(tf.square(predictive.scale) ** self.beta)
        return -tf.reduce_sum(weight * terms, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta": self.beta}


@keras.saving.register_keras_serializable(package="deepsimplex")
class LatentFunctionLoss(LatentLoss):
    """A plain function of (observation, latent) as a latent loss.

    Parameters
    ----------
    function : callable
        Takes two dicts {"loc", "scale"} and returns losses of shape [N]. Register it with
        ``keras.saving.register_keras_serializable`` to save models that use it.

    Examples
    --------
    >>> import numpy as np
    >>> loss = LatentFunctionLoss(lambda observed, latent: keras.ops.sum((observed["loc"] - latent["loc"]) ** 2, -1))
    >>> one = {"loc": np.ones((3, 2), "float32"), "scale": np.ones((3, 1), "float32")}
    >>> float(loss(one, one))
    0.0
    """

    def __init__(
        self, function: Any, reduction: str = "sum_over_batch_size", name: str | None = None, dtype: Any = None
    ) -> None:
        own_name = getattr(function, "__name__", "")
        # Keras makes a name scope of it, which "<lambda>" cannot be.
        own_name = own_name if own_name.isidentifier() else "latent_loss"
        super().__init__(name=name or own_name, reduction=reduction, dtype=dtype)
        self.function = function

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.function(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "function": keras.saving.serialize_keras_object(self.function)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LatentFunctionLoss":
        options = {key: value for key, value in config.items() if key != "function"}
        return cls(keras.saving.deserialize_keras_object(config["function"]), **options)


@keras.saving.register_keras_serializable(package="deepsimplex")
class CrossEntropy(keras.losses.Loss):
    """Cross-entropy of (labels, log-probabilities): -log p(y) of hard labels, -sum_k q_k log p(k) of distributions q.

    Unlike Keras' own it takes logarithms of probabilities, which say more than the probabilities where those underflow,
    and hard and soft labels alike. ``SimplexClassifier`` trains through its readout with it (see its ``objective``).

    Parameters
    ----------
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
        self, reduction: str | None = "sum_over_batch_size", name: str = "cross_entropy", dtype: Any = None
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        # y_true: [N], [N, 1] or [N, n], y_pred: [N, n]
        if _is_soft(y_true):
            return -tf.reduce_sum(tf.math.multiply_no_nan(y_pred, y_true), axis=-1)  # 0 log 0 = 0
        return -_own(y_true, y_pred)


@keras.saving.register_keras_serializable(package="deepsimplex")
class GLVQ(keras.losses.Loss):
    """Cost of (labels, scores of ``heads.PrototypeScores``): Phi(mu), mu = -score of the label [GPLVQ Eq. 3.2].

    mu = (d_J - d_K) / (d_J + d_K) compares the squared distances to the nearest prototypes of the sample's class and of
    all others; it is -1 for samples that are well classified and 1 at worst.

    Parameters
    ----------
    activation : {"sigmoid", "linear"}
        Phi. Default "sigmoid": 1 / (1 + exp(-steepness mu)), for which samples near the decision count most.
    steepness : float
        Of the sigmoid; with 1 it is all but linear. Default 2.
    reduction, name, dtype
        As in keras.losses.Loss.

    Raises
    ------
    ValueError
        For another activation, a steepness that is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[0.5, -0.5], [0.5, -0.5]], "float32")
    >>> GLVQ("linear", reduction=None)(np.array([0, 1]), scores).numpy()
    array([-0.5,  0.5], dtype=float32)
    """

    def __init__(
        self,
        activation: str = "sigmoid",
        steepness: float = 2.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "glvq",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        known = ("sigmoid", "linear")
        if activation not in known:
            hint = did_you_mean(activation, known)
            raise ValueError(f"activation must be one of {', '.join(known)}; found {activation!r}{hint}")
        check_number(steepness, "steepness", 0.0)
        self.activation = activation
        self.steepness = float(steepness)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        # y_true: [N], [N, 1] or [N, n], y_pred: [N, n]
        costs = -y_pred if self.activation == "linear" else tf.sigmoid(-self.steepness * y_pred)
        return tf.reduce_sum(tf.cast(y_true, costs.dtype) * costs, axis=-1) if _is_soft(y_true) else _own(y_true, costs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.activation, "steepness": self.steepness}


def _is_soft(y_true: Any) -> bool:
    return len(y_true.shape) == 2 and y_true.shape[1] != 1


def _own(y_true: Any, values: Any) -> Any:
    """The values [N] of the labels [N] or [N, 1] among those of all classes [N, n]; NaN for a label out of range."""
    label = tf.cast(tf.reshape(y_true, [-1]), tf.int32)  # Keras made floats of them
    # A mask, where the gradient of a gather would take fifty operations.
    own = tf.one_hot(label, values.shape[1], on_value=True, off_value=False, dtype=tf.bool)
    found = tf.reduce_sum(tf.where(own, values, tf.zeros_like(values)), axis=-1)
    return tf.where(tf.reduce_any(own, axis=-1), found, tf.constant(float("nan"), values.dtype))


def as_latent_loss(loss: Any) -> keras.losses.Loss:
    """The latent loss that ``compile(loss=...)`` was given: None is ``LatentNLL()``; a plain function is wrapped.

    Raises
    ------
    ValueError
        For Keras' own losses, ``CrossEntropy`` and ``GLVQ``, which compare labels with outputs and know nothing of
        latent Gaussians.

    Examples
    --------
    >>> as_latent_loss(None).name
    'latent_nll'
    """
    if loss is None:
        return LatentNLL()
    keras_own = isinstance(loss, str | list | tuple | dict) or type(loss).__module__.startswith("keras.")
    if keras_own or isinstance(loss, CrossEntropy | GLVQ) or getattr(loss, "__module__", "").startswith("keras."):
        raise ValueError(
            f"loss must be None or a loss of (observation, latent), such as deepsimplex.losses.LatentNLL(); found "
            f"{loss!r}, which compares labels with class scores. The model is trained in latent space; pass class-wise "
            'quantities as metrics instead, or train through the readout: SimplexClassifier(..., objective="class")'
        )
    if isinstance(loss, keras.losses.Loss):
        return loss
    if callable(loss):
        return LatentFunctionLoss(loss)
    raise ValueError(f"loss must be None or a loss of (observation, latent); found {loss!r}")
