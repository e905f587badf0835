"""The readouts as Keras layers: the dict {"loc", "scale"} in, class probabilities out."""

from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout.argmax_probabilities import ArgmaxRule, Method
from deepsimplex.readout.arguments import check_seed, tensors
from deepsimplex.readout.normal import tiny_of
from deepsimplex.readout.rule import Rule
from deepsimplex.readout.softmax_probabilities import SoftmaxMethod, SoftmaxRule


class Readout(keras.layers.Layer):
    """What the readouts' layers share: scores, points, seed, and a precision of their own."""

    rule: ClassVar[type[Rule]]

    def __init__(self, scores: ArrayLike | None, method: str, num_points: int | None, seed: int, **kwargs: Any) -> None:
        if method not in self.rule.methods:
            raise ValueError(f"method must be one of {', '.join(self.rule.methods)}; found {method!r}")
        # Probabilities in half precision would lose calibration: inputs come as they are and are cast up, never down.
        super().__init__(autocast=False, **kwargs)
        self.scores = None if scores is None else np.asarray(scores, dtype=np.float64)
        self.method = method
        self.num_points = num_points
        self.seed = check_seed(seed)

    def _rule(self, latent_dim: int, covariance: Covariance) -> Rule:
        return self.rule.of(latent_dim, covariance, self.scores, self.method, self.num_points, self.seed)

    def _num_classes(self, loc_shape: Any) -> int:
        return loc_shape[-1] + 1 if self.scores is None else len(self.scores)

    def _rule_for(self, input_shape: dict[str, Any]) -> Any:
        loc, scale = input_shape["loc"], input_shape["scale"]
        kind: Covariance = "full" if len(scale) == 3 else "isotropic" if scale[-1] == 1 else "diagonal"
        return self._rule(loc[-1], kind)

    def build(self, input_shape: dict[str, Any]) -> None:
        """Check that these scores and this method fit the latents."""
        self._rule_for(input_shape)
        self.built = True

    def coarser(self, num_points: int, input_shape: dict[str, Any]) -> "Readout":
        """This layer where it is cheap for such latents; else one that samples, at ``num_points`` points."""
        if self._rule_for(input_shape).is_cheap:
            return self
        coarse = {"method": "quasi_monte_carlo", "num_points": num_points, "name": f"{self.name}_coarser"}
        return type(self).from_config({**self.get_config(), **coarse})

    def call(self, latent: dict[str, Any]) -> Any:
        """Class probabilities [N, n] of latents {"loc": [N, L], "scale": [N, 1], [N, L] or [N, L, L]}."""
        return self._of(latent).probabilities(*tensors(LatentGaussian.of(latent)), is_batch=True)

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Their logarithms, computed in log space: what a loss needs, since they never underflow."""
        return self._of(latent).log_probabilities(*tensors(LatentGaussian.of(latent)), is_batch=True)

    def _of(self, latent: dict[str, Any]) -> Rule:
        checked = LatentGaussian.of(latent)
        return self._rule(checked.latent_dim, checked.covariance)

    def compute_output_shape(self, input_shape: dict[str, Any]) -> tuple[int | None, int]:
        """[N, n], N unknown where that of the input is."""
        return input_shape["loc"][0], self._num_classes(input_shape["loc"])

    def compute_output_spec(self, latent: dict[str, Any]) -> keras.KerasTensor:
        """A float32 tensor [N, n], float64 for a float64 latent."""
        loc = latent["loc"]
        dtype = "float64" if keras.backend.standardize_dtype(loc.dtype) == "float64" else "float32"
        return keras.KerasTensor((loc.shape[0], self._num_classes(loc.shape)), dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as JSON can hold them."""
        scores = None if self.scores is None else self.scores.tolist()
        own = {"scores": scores, "method": self.method, "num_points": self.num_points, "seed": self.seed}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="deepsimplex")
class ArgmaxReadout(Readout):
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

    def __init__(
        self,
        scores: ArrayLike | None = None,
        method: Method = "auto",
        num_points: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(scores, method, num_points, seed, **kwargs)


@keras.saving.register_keras_serializable(package="deepsimplex")
class SoftmaxReadout(Readout):
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


def log_probabilities(readout: keras.layers.Layer, latent: dict[str, Any]) -> Any:
    """Logarithms of the class probabilities [N, n] that a layer reads out of latents.

    The layers of this package compute them; those of another layer are held above its smallest normal number.
    """
    if hasattr(readout, "log_probabilities"):
        return readout.log_probabilities(latent)
    probabilities = readout(latent)
    if probabilities.dtype not in (tf.float32, tf.float64):
        probabilities = tf.cast(probabilities, tf.float32)  # half precision would lose the small ones
    return tf.math.log(tf.maximum(probabilities, tiny_of(probabilities.dtype)))
