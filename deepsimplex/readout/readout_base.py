"""Base class of the readouts: Keras layers from latent Gaussians to class probabilities."""

from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.validation import check_array, check_number, check_whole
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.formula import check_num_points
from deepsimplex.readout.normal import smallest_normal
from deepsimplex.readout.row_batches import batch_rows, in_row_batches
from deepsimplex.readout.score_matrix import Scores
from deepsimplex.readout.sobol import gaussian

# Sobol points of a readout that defines only ``class_probabilities``, of a training step's metrics, and of intervals.
_POINTS, TRAINING_POINTS, _INTERVAL_POINTS = 1024, 16, 4096


class ClassIntervals(NamedTuple):
    """An interval for every class probability.

    Attributes
    ----------
    lower, upper : ndarray, shape [N, n]
        Ends of the intervals, 0 <= lower <= upper <= 1.

    Examples
    --------
    >>> from deepsimplex.readout import class_intervals
    >>> lower, upper = class_intervals({"loc": np.array([[0.0]]), "scale": np.array([[0.5]])})
    >>> lower.round(3), upper.round(3)
    (array([[0.123, 0.123]]), array([[0.877, 0.877]]))
    """

    lower: NDArray[Any]
    upper: NDArray[Any]


class Readout(keras.layers.Layer):
    """Base class of readouts: the dict {"loc", "scale"} in, class probabilities out.

    A subclass defines ``class_probabilities``, from which everything else follows by quasi-Monte Carlo; or ``call``,
    where the expectation is known in another way; or both. Register it with
    ``keras.saving.register_keras_serializable`` so that models that hold it can be saved.

    Parameters
    ----------
    scores : array_like, shape [n, L], optional
        Scores S; None stands for the vertices, L = n - 1. A classifier passes those of its target to a readout
        without scores.
    num_points : int, optional
        Sobol points, a power of two. Default 1024.
    seed : int
        Seed of their scrambling. Default 0.
    **kwargs
        Arguments of keras.layers.Layer.

    Attributes
    ----------
    differentiable : bool
        Whether probabilities have useful gradients, so that a loss can train through the readout.
    credible_intervals : bool
        Whether ``intervals`` are credible intervals: class probabilities vary with the latent point.
    scale_invariant : bool
        Whether multiplying mean and scale of the latents by one factor leaves the probabilities as they are.

    Examples
    --------
    Squared scores in place of exponential ones:

    >>> class SquaredReadout(Readout):
    ...     def class_probabilities(self, points):
    ...         squared = tf.square(tf.nn.relu(self.score(points))) + 1e-6
    ...         return squared / tf.reduce_sum(squared, axis=-1, keepdims=True)
    >>> latent = {"loc": np.array([[1.0, 0.0]], "float32"), "scale": np.array([[0.1]], "float32")}
    >>> SquaredReadout()(latent).numpy().round(2)
    array([[1., 0., 0.]], dtype=float32)
    """

    scale_invariant: ClassVar[bool] = False

    def __init__(
        self, scores: ArrayLike | None = None, num_points: int | None = None, seed: int = 0, **kwargs: Any
    ) -> None:
        # Probabilities in half precision would lose calibration: inputs come as they are and are cast up, never down.
        super().__init__(autocast=False, **kwargs)
        self.scores = None if scores is None else check_array(scores, "scores", "[n, L]")
        self.num_points = num_points
        self.seed = check_whole(seed, "seed", 0)

    @property
    def differentiable(self) -> bool:
        """Whether probabilities have useful gradients."""
        return True

    @property
    def credible_intervals(self) -> bool:
        """Whether ``intervals`` are credible intervals of class probabilities that vary with the latent point."""
        return type(self).class_probabilities is not Readout.class_probabilities

    def score(self, points: Any) -> Any:
        """Scores S f [..., n] of latent points f [..., L]."""
        matrix = Scores.of(self.scores, points.shape[-1]).matrix
        return tf.tensordot(points, tf.constant(matrix.T, points.dtype), 1)

    def class_probabilities(self, points: Any) -> Any:
        """Class probabilities [..., n] given latent points f, a float tensor [..., L]."""
        raise NotImplementedError(
            f"{type(self).__name__} must define class_probabilities(points), the class probabilities at latent points, "
            "to be averaged and to have intervals"
        )

    def build(self, input_shape: dict[str, Any]) -> None:
        """Check that the scores fit the latents."""
        Scores.of(self.scores, input_shape["loc"][-1])
        self.built = True

    def call(self, latent: dict[str, Any], training: bool | None = None) -> Any:
        """Compute class probabilities.

        Parameters
        ----------
        latent : dict
            "loc" [N, L] and "scale" [N, 1], [N, L] or [N, L, L].
        training : bool, optional
            True uses at most 16 points where the readout samples: enough for the metrics of training batches.

        Returns
        -------
        tensor, shape [N, n]
            float32, or float64 for a float64 latent.
        """
        loc, scale = LatentGaussian.of(latent).tensors()
        num_points = check_num_points("quasi_monte_carlo", self.num_points) or _POINTS
        noise = gaussian(min(num_points, TRAINING_POINTS) if training else num_points, loc.shape[1], self.seed)

        def expected(loc: Any, scale: Any) -> Any:
            return tf.reduce_mean(self.class_probabilities(_latent_points(loc, scale, noise)), axis=1)

        if loc.shape[0] is None:  # whole: XLA cannot differentiate loops of unknown length
            return expected(loc, scale)
        return in_row_batches(expected, loc, scale, batch_rows(noise.size + len(noise)))

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Logarithms of the class probabilities [N, n], at full accuracy, as losses need them.

        By default those of the probabilities of ``call``, floored at the smallest normal number.
        """
        return _floored_logarithms(self(latent, training=False))

    def predict(self, latent: LatentGaussian | dict[str, Any], log: bool = False) -> NDArray[Any]:
        """Class probabilities [N, n] of latents in arrays, or their logarithms, as an array."""
        latent = LatentGaussian.of(latent)
        parts = {"loc": tf.convert_to_tensor(latent.loc), "scale": tf.convert_to_tensor(latent.scale)}
        return np.asarray(self.log_probabilities(parts) if log else self(parts))

    def intervals(
        self, latent: LatentGaussian | dict[str, Any], level: float = 0.95, num_points: int | None = None
    ) -> ClassIntervals:
        """Credible intervals of the class probabilities: central quantiles under the latent Gaussian.

        Parameters
        ----------
        latent : LatentGaussian or dict
            N Gaussians, in arrays or in tensors that have values.
        level : float
            Share of the distribution inside, between 0 and 1. Default 0.95.
        num_points : int, optional
            Sobol points, a power of two of at least 1 / (1 - level). Default 4096.

        Returns
        -------
        ClassIntervals
            (lower, upper), arrays of shape [N, n].

        Raises
        ------
        NotImplementedError
            Where the readout does not define ``class_probabilities``.
        ValueError
            For a level outside of (0, 1) or that needs more points.
        """
        check_number(level, "level", above=0, below=1)
        points = check_num_points("quasi_monte_carlo", num_points)
        return self._quantiles(LatentGaussian.of(latent).numpy(), level, points)

    def _quantiles(self, latent: LatentGaussian, level: float, num_points: int | None) -> ClassIntervals:
        """Order statistics over Sobol points, interpolated as those of a balanced sample."""
        num_points = num_points or _INTERVAL_POINTS
        # Beyond the (1/2 / points)-quantile there is no order statistic.
        if num_points * (1.0 - level) < 1.0 - 1e-9:
            raise ValueError(
                f"num_points must be at least 1 / (1 - level) = {1.0 / (1.0 - level):.0f} for level = {level}; "
                f"found {num_points}"
            )
        dims, n = latent.latent_dim, self._num_classes(latent.loc.shape)
        noise = gaussian(num_points, dims, self.seed)
        tails = (0.5 - 0.5 * level, 0.5 + 0.5 * level)
        batches = []
        for rows in row_slices(len(latent), batch_rows(num_points * max(n, dims))):
            p = self.class_probabilities(_latent_points(*latent[rows].tensors(), noise)).numpy()
            batches.append(np.quantile(p.swapaxes(1, 2), tails, axis=-1, method="hazen").astype(p.dtype))
        return ClassIntervals(*np.concatenate(batches, axis=1))

    def with_scores(self, scores: ArrayLike | None) -> "Readout":
        """Return this readout with these scores, unless it has scores already."""
        if scores is None or self.scores is not None:
            return self
        return type(self).from_config({**self.get_config(), "scores": check_array(scores, "scores", "[n, L]").tolist()})

    def _num_classes(self, loc_shape: Any) -> int:
        return loc_shape[-1] + 1 if self.scores is None else len(self.scores)

    def compute_output_shape(self, input_shape: dict[str, Any]) -> tuple[int | None, int]:
        """[N, n], N unknown where that of the input is."""
        return input_shape["loc"][0], self._num_classes(input_shape["loc"])

    def compute_output_spec(self, latent: dict[str, Any], training: bool | None = None) -> keras.KerasTensor:
        """A float32 tensor [N, n], float64 for a float64 latent."""
        loc = latent["loc"]
        dtype = "float64" if keras.backend.standardize_dtype(loc.dtype) == "float64" else "float32"
        return keras.KerasTensor((loc.shape[0], self._num_classes(loc.shape)), dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor, as JSON can hold them."""
        scores = None if self.scores is None else self.scores.tolist()
        return {**super().get_config(), "scores": scores, "num_points": self.num_points, "seed": self.seed}


def _latent_points(loc: Any, scale: Any, noise: NDArray[np.float64]) -> Any:
    """Latent points [N, Q, L] of Gaussians, at the same standard normal points [Q, L] for all of them."""
    z = tf.constant(noise, loc.dtype)
    if len(scale.shape) == 2:
        return loc[:, tf.newaxis] + scale[:, tf.newaxis] * z
    return loc[:, tf.newaxis] + tf.einsum("qm,nlm->nql", z, tf.linalg.band_part(scale, -1, 0))


def _floored_logarithms(probabilities: Any) -> Any:
    if probabilities.dtype not in (tf.float32, tf.float64):
        probabilities = tf.cast(probabilities, tf.float32)  # half precision would lose the small ones
    return tf.math.log(tf.maximum(probabilities, smallest_normal(probabilities.dtype)))
