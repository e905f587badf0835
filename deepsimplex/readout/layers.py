"""The readouts as Keras layers: the dict {"loc", "scale"} in, class probabilities out."""

from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout.argmax_probabilities import METHODS, ArgmaxRule, Method
from deepsimplex.readout.arguments import check_seed, tensors
from deepsimplex.readout.softmax_probabilities import SoftmaxRule


class _Readout(keras.layers.Layer):
    """What both layers share: scores, points, seed, and a precision of their own."""

    def __init__(self, scores: ArrayLike | None, num_points: int | None, seed: int, **kwargs: Any) -> None:
        # Probabilities in half precision would lose calibration: inputs come as they are and are cast up, never down.
        super().__init__(autocast=False, **kwargs)
        self.scores = None if scores is None else np.asarray(scores, dtype=np.float64)
        self.num_points = num_points
        self.seed = check_seed(seed)

    def _rule(self, latent_dim: int, covariance: Covariance) -> Any:
        raise NotImplementedError

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

    def coarser(self, num_points: int, input_shape: dict[str, Any]) -> "_Readout":
        """This layer where it is exact for such latents; where it samples, one that takes ``num_points`` points."""
        if not self._rule_for(input_shape).samples:
            return self
        return type(self).from_config({**self.get_config(), "num_points": num_points, "name": f"{self.name}_coarser"})

    def call(self, latent: dict[str, Any]) -> Any:
        """Class probabilities [N, n] of latents {"loc": [N, L], "scale": [N, 1], [N, L] or [N, L, L]}."""
        checked = LatentGaussian.of(latent)
        return self._rule(checked.latent_dim, checked.covariance)(*tensors(checked))

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Logarithms of the class probabilities, shape [N, n]; training through the readout minimises them."""
        return keras.ops.log(self(latent))

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
        return {**super().get_config(), "scores": scores, "num_points": self.num_points, "seed": self.seed}


@keras.saving.register_keras_serializable(package="deepsimplex")
class ArgmaxReadout(_Readout):
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

    def __init__(
        self,
        scores: ArrayLike | None = None,
        method: Method = "auto",
        num_points: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; found {method!r}")
        super().__init__(scores, num_points, seed, **kwargs)
        self.method = method

    def _rule(self, latent_dim: int, covariance: Covariance) -> ArgmaxRule:
        return ArgmaxRule.of(latent_dim, covariance, self.scores, self.method, self.num_points, self.seed)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as JSON can hold them."""
        return {**super().get_config(), "method": self.method}


@keras.saving.register_keras_serializable(package="deepsimplex")
class SoftmaxReadout(_Readout):
    """Expected softmax of the scores, as a layer: see ``deepsimplex.readout.softmax``.

    Parameters
    ----------
    scores : array_like, shape [n, L], optional
        Scores S; None stands for the vertices, L = n - 1.
    num_points : int, optional
        Nodes (n = 2) or Sobol points.
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

    def __init__(
        self, scores: ArrayLike | None = None, num_points: int | None = None, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(scores, num_points, seed, **kwargs)

    def _rule(self, latent_dim: int, covariance: Covariance) -> SoftmaxRule:
        return SoftmaxRule.of(latent_dim, self.scores, self.num_points, self.seed)
