"""The argmax and softmax readouts as Keras layers, and the table of readouts by name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri

from deepsimplex._utils.registry import Registry
from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout.argmax_probabilities import ArgmaxRule, Method, argmax
from deepsimplex.readout.arguments import check_seed, tensors, with_values
from deepsimplex.readout.numerical_error import argmax_error
from deepsimplex.readout.readout_base import TRAINING_POINTS, ClassIntervals, Readout, check_level
from deepsimplex.readout.rule import Rule
from deepsimplex.readout.scores import Scores
from deepsimplex.readout.softmax_probabilities import SoftmaxMethod, SoftmaxRule


class _RuleReadout(Readout):
    """Base class of the argmax and softmax layers, each with a rule that chooses among several methods."""

    rule: ClassVar[type[Rule]]

    def __init__(self, scores: ArrayLike | None, method: str, num_points: int | None, seed: int, **kwargs: Any) -> None:
        if method not in self.rule.methods:
            raise ValueError(f"method must be one of {', '.join(self.rule.methods)}; found {method!r}")
        super().__init__(scores, num_points, seed, **kwargs)
        self.method = method

    def rule_for(self, latent_dim: int, covariance: Covariance) -> Rule:
        """Choose the method for such latents."""
        return self.rule.of(latent_dim, covariance, self.scores, self.method, self.num_points, self.seed)

    def build(self, input_shape: dict[str, Any]) -> None:
        """Check that these scores and this method fit the latents."""
        loc, scale = input_shape["loc"], input_shape["scale"]
        self.rule_for(loc[-1], "full" if len(scale) == 3 else "isotropic" if scale[-1] == 1 else "diagonal")
        self.built = True

    def call(self, latent: dict[str, Any], training: bool | None = None) -> Any:
        """Compute class probabilities [N, n]; of a training batch, at 16 points unless they are cheap."""
        latent = LatentGaussian.of(latent)
        rule = self.rule_for(latent.latent_dim, latent.covariance)
        if training and not rule.is_cheap:
            fewer = min(rule.num_points or TRAINING_POINTS, TRAINING_POINTS)
            num_points = fewer if rule.method == "quasi_monte_carlo" else TRAINING_POINTS
            rule = replace(rule, method="quasi_monte_carlo", num_points=num_points)
        return rule.probabilities(*tensors(latent), is_batch=True)

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Logarithms of the class probabilities [N, n], computed in log space: they do not underflow."""
        latent = LatentGaussian.of(latent)
        rule = self.rule_for(latent.latent_dim, latent.covariance)
        return rule.log_probabilities(*tensors(latent), is_batch=True)

    def predict(self, latent: LatentGaussian | dict[str, Any], log: bool = False) -> NDArray[Any]:
        """Class probabilities [N, n] of latents in arrays, or their logarithms, by a compiled function."""
        latent = LatentGaussian.of(latent).numpy()
        return np.asarray(self.rule_for(latent.latent_dim, latent.covariance).read(latent, log))

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor, as JSON can hold them."""
        return {**super().get_config(), "method": self.method}


@keras.saving.register_keras_serializable(package="deepsimplex")
class ArgmaxReadout(_RuleReadout):
    """Probability that each class scores highest, as a layer: see ``deepsimplex.readout.argmax``.

    Parameters
    ----------
    scores : array_like, shape [n, L], optional
        Scores S; None stands for the vertices, L = n - 1.
    method : {"auto", "exact", "quasi_monte_carlo", "monte_carlo"}
    num_points : int, optional
        Nodes, Sobol points or draws, depending on the method.
    seed : int
    **kwargs
        Arguments of keras.layers.Layer.

    Examples
    --------
    >>> import numpy as np
    >>> latent = {"loc": np.zeros((1, 3), "float32"), "scale": np.ones((1, 1), "float32")}
    >>> ArgmaxReadout()(latent).numpy()
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """

    rule = ArgmaxRule
    scale_invariant = True

    def __init__(
        self,
        scores: ArrayLike | None = None,
        method: Method = "auto",
        num_points: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(scores, method, num_points, seed, **kwargs)

    @property
    def differentiable(self) -> bool:
        """False for plain Monte Carlo, which counts draws."""
        return self.method != "monte_carlo"

    @property
    def credible_intervals(self) -> bool:
        """False: given a latent point the class is certain."""
        return False

    def class_probabilities(self, points: Any) -> Any:
        """One-hot of the highest score at latent points [..., L]."""
        scores = self.score(points)
        return tf.one_hot(tf.argmax(scores, axis=-1), scores.shape[-1], dtype=scores.dtype)

    def intervals(
        self,
        latent: LatentGaussian | dict[str, Any],
        level: float = 0.95,
        num_points: int | None = None,
        seed: int | None = None,
    ) -> ClassIntervals:
        """Intervals of the numerical error: probabilities plus and minus a normal quantile times ``argmax_error``."""
        check_level(level)
        latent = with_values(latent)
        points = self.num_points if num_points is None else num_points
        arguments = (self.scores, self.method, points, self.seed if seed is None else check_seed(seed))
        p = argmax(latent, *arguments)
        margin = float(ndtri(0.5 + 0.5 * level)) * argmax_error(latent, *arguments)
        return ClassIntervals(np.clip(p - margin, 0.0, 1.0), np.clip(p + margin, 0.0, 1.0))


@keras.saving.register_keras_serializable(package="deepsimplex")
class SoftmaxReadout(_RuleReadout):
    """Expected softmax of the scores, as a layer: see ``deepsimplex.readout.softmax``.

    Parameters
    ----------
    scores : array_like, shape [n, L], optional
        Scores S; None stands for the vertices, L = n - 1.
    method : {"auto", "exact", "quasi_monte_carlo"}
    num_points : int, optional
        Nodes or Sobol points, depending on the method.
    seed : int
    **kwargs
        Arguments of keras.layers.Layer.

    Examples
    --------
    >>> import numpy as np
    >>> latent = {"loc": np.zeros((1, 1), "float32"), "scale": np.ones((1, 1), "float32")}
    >>> SoftmaxReadout()(latent).numpy()
    array([[0.5, 0.5]], dtype=float32)
    """

    rule = SoftmaxRule

    def __init__(
        self,
        scores: ArrayLike | None = None,
        method: SoftmaxMethod = "auto",
        num_points: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(scores, method, num_points, seed, **kwargs)

    def class_probabilities(self, points: Any) -> Any:
        """Softmax of the scores at latent points [..., L]."""
        return tf.nn.softmax(self.score(points), axis=-1)

    def intervals(
        self,
        latent: LatentGaussian | dict[str, Any],
        level: float = 0.95,
        num_points: int | None = None,
        seed: int | None = None,
    ) -> ClassIntervals:
        """Credible intervals of the class probabilities: see ``deepsimplex.readout.class_intervals``."""
        if self._num_classes(LatentGaussian.of(latent).loc.shape) != 2:
            return super().intervals(latent, level, num_points, seed)
        latent, _, _ = self._interval_arguments(latent, level, num_points, seed)
        # The logistic function of the quantiles of the difference of the two scores.
        scores = Scores.of(self.scores, latent.latent_dim)
        m, variance = (moment.numpy() for moment in scores.difference(*tensors(latent)))
        difference = np.concatenate([m, -m], axis=1)
        margin = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(variance)
        return ClassIntervals(expit(difference - margin), expit(difference + margin))


READOUTS: Registry[keras.layers.Layer] = Registry(
    "readout", keras.layers.Layer, {"argmax": ArgmaxReadout, "softmax": SoftmaxReadout}
)


def readout_layer(
    identifier: str | Mapping[str, Any] | keras.layers.Layer, scores: ArrayLike | None = None
) -> keras.layers.Layer:
    """Make a readout layer from its name or configuration, with scores if it has none.

    Parameters
    ----------
    identifier : str, dict or keras.layers.Layer
        "argmax", "softmax", "module:Class", a dict of "name" and arguments, or a layer: a ``Readout``, or any layer
        from a dict {"loc", "scale"} to class probabilities.
    scores : array_like, shape [n, L], optional
        Scores S for a ``Readout`` that was made without.

    Returns
    -------
    keras.layers.Layer

    Raises
    ------
    TypeError, ValueError
        For anything else, with the nearest known name.

    Examples
    --------
    >>> readout_layer("softmax", np.eye(3)).scores.shape
    (3, 3)
    """
    layer = READOUTS.get(identifier)
    return layer.with_scores(scores) if isinstance(layer, Readout) else layer
