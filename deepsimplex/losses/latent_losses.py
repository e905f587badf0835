"""Losses of latents: a target's observation against the Gaussian that a network predicts."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from deepsimplex._utils.validation import check_number
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.normal import log_density


class ClassifierLoss(keras.losses.Loss):
    """Base class of the losses that ``SimplexClassifier`` computes from latents, or latents and class probabilities.

    Attributes
    ----------
    needs_latents : bool
        Whether the latents of the samples are needed, or labels suffice.
    needs_probabilities : bool
        Whether training goes through the readout.
    needs_adapt : bool
        Whether ``adapt`` must be called with the latents of the training samples before training. What it computes is
        saved through ``state``.
    mixes_classes : bool
        Whether what ``latent_labels`` returns for a soft label is the mean of what it returns for the classes, weighted
        by its shares, with targets made from labels alone. Default False: it is computed from the soft label's latent.

    Examples
    --------
    >>> class Distance(ClassifierLoss):
    ...     def compute(self, labels, outputs, sample_weight=None):
    ...         return keras.ops.mean(keras.ops.abs(labels["loc"] - outputs["loc"]))
    >>> float(Distance().compute({"loc": keras.ops.ones((3, 2))}, {"loc": keras.ops.zeros((3, 2))}))
    1.0
    """

    needs_latents = True
    needs_probabilities = False
    needs_adapt = False
    mixes_classes = False

    def compute(self, labels: dict[str, Any], outputs: dict[str, Any], sample_weight: Any = None) -> Any:
        """Return the loss of a batch, a scalar unless ``reduction`` is None.

        Parameters
        ----------
        labels : dict of tensors
            Training labels: "label" [N] or [N, n], and with ``needs_latents`` what ``latent_labels`` returns, by
            default "loc" [N, L] and "scale" of the target's observation.
        outputs : dict of tensors
            "loc" and "scale" of the head, and with ``needs_probabilities`` "log_probabilities" [N, n].
        sample_weight : tensor [N], optional
        """
        raise NotImplementedError(f"{type(self).__name__} must implement compute")

    @property
    def is_ready(self) -> bool:
        """Whether ``adapt`` was called, if it is needed."""
        return not self.needs_adapt

    def adapt(self, loc: Any, labels: Any, scores: Any, neighbor_error: Callable[[], float] = lambda: 0.0) -> None:
        """Compute what the loss needs from the latents of the training samples; by default nothing.

        Called by every ``fit``, before its first epoch; with targets made from labels alone only until the loss is
        ready, with the latents of the n classes.

        Parameters
        ----------
        loc : array, shape [N, L]
        labels : array, shape [N] or [N, n]
        scores : array, shape [n, L]
            Of the target.
        neighbor_error : callable
            Returns the leave-one-out error of the nearest neighbor: that of the target or, if it compares no samples,
            that among features of training samples, which are computed then. Default: returns zero.
        """

    def state(self) -> dict[str, Any]:
        """Return numbers and arrays by name that ``adapt`` computed, to be saved with the weights; by default none."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what ``state`` returned, as arrays; by default nothing."""

    @property
    def how_to_adapt(self) -> str:
        """Instruction, for error messages, if the loss is not ready."""
        return "call fit first"

    def latent_labels(self, latents: LatentGaussian, scores: Any) -> dict[str, Any]:
        """Return the training labels that ``compute`` reads of latents, by name; by default "loc" and "scale"."""
        return latents.as_dict()

    def check(self, num_classes: int, covariance: str | None) -> None:
        """Raise ValueError if the loss cannot train a head of this covariance; by default every loss can."""


class LatentLoss(ClassifierLoss):
    """Base class of losses that compare a target's observation with a predicted Gaussian.

    Subclasses implement ``call(observation, latent)``: both are dicts {"loc", "scale"} of tensors (see
    ``deepsimplex.LatentGaussian``), the result has shape [N]. Keras applies ``reduction`` and sample weights.

    Examples
    --------
    >>> class SquaredError(LatentLoss):
    ...     def call(self, observation, latent):
    ...         return keras.ops.sum((observation["loc"] - latent["loc"]) ** 2, axis=-1)
    >>> ones, zeros = ({"loc": keras.ops.full((3, 2), v), "scale": keras.ops.ones((3, 1))} for v in (1.0, 0.0))
    >>> float(SquaredError()(ones, zeros))
    2.0
    """

    def compute(self, labels: dict[str, Any], outputs: dict[str, Any], sample_weight: Any = None) -> Any:
        """Return the loss of a batch from the "loc" and "scale" of both dicts."""
        observation, latent = ({name: part[name] for name in ("loc", "scale")} for part in (labels, outputs))
        return self(observation, latent, sample_weight=sample_weight)


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
        networks"). 0 (default) is the plain likelihood. With it, samples that the network fits badly are ignored:
        their variance grows and their gradient vanishes. 0.5 trains means about as well as the mean squared error does
        and keeps the variances; 1 trains the means by the squared error itself. Needs an isotropic or diagonal scale.
    reduction, name, dtype
        As in keras.losses.Loss.

    Raises
    ------
    ValueError
        If beta lies outside [0, 1], or is positive with a full covariance.

    Notes
    -----
    Seitzer, Tavakoli, Antic, Martius: *On the Pitfalls of Heteroscedastic Uncertainty Estimation with Probabilistic
    Neural Networks*, 2022.

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
        self.beta = check_number(beta, "beta", least=0, most=1)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        observation, latent = LatentGaussian.of(y_true), LatentGaussian.of(y_pred)
        # An observation's noise is a standard deviation, of shape [N, 1] or [N, L].
        predictive = latent.with_noise(observation.scale)
        self.check(predictive.latent_dim + 1, predictive.covariance)
        residual, scale = observation.loc - predictive.loc, predictive.scale
        if predictive.covariance == "full":
            z = tf.linalg.triangular_solve(scale, residual[..., tf.newaxis])[..., 0]
            scale = tf.linalg.diag_part(scale)
        else:
            z = residual / scale
        terms = log_density(z) - tf.math.log(scale)
        if self.beta > 0:
            terms *= tf.stop_gradient(scale ** (2.0 * self.beta))
        return -tf.reduce_sum(terms, axis=-1)

    def check(self, num_classes: int, covariance: str | None) -> None:
        """Raise ValueError for a positive beta with a full covariance."""
        if self.beta > 0 and covariance == "full":
            raise ValueError(
                "beta must be 0 with a full covariance, whose likelihood is no sum over latent dimensions; found "
                f"{self.beta}. Take beta=0 or a diagonal covariance"
            )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta": self.beta}
