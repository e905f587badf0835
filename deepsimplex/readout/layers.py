"""Readouts as Keras layers from latent Gaussians to class probabilities: base class, argmax, softmax, by name."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, get_args

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri

from deepsimplex._utils.batching import in_row_batches, row_slices, rows_at_once
from deepsimplex._utils.portable_operations import smallest_normal
from deepsimplex._utils.registry import Registry
from deepsimplex._utils.validation import check_choice, check_flag, check_number, check_whole
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import argmax_readout, softmax_readout
from deepsimplex.readout.argmax_readout import ArgmaxMethod, argmax, argmax_error
from deepsimplex.readout.formula import ChosenFormula, Formula, check_num_points, choose
from deepsimplex.readout.left_out_latents import LeftOutLatents
from deepsimplex.readout.score_matrix import MANY_CLASSES, Scores, check_scores, difference, noise_floor
from deepsimplex.readout.sobol import gaussian
from deepsimplex.readout.softmax_readout import SoftmaxMethod

# Sobol points of a readout that defines only ``class_probabilities``, of a training step's metrics, and of intervals.
_POINTS, _TRAINING_POINTS, _INTERVAL_POINTS = 1024, 16, 4096


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
    uses_scale : bool
        Whether probabilities depend on the scale of the latents, not on their mean alone.

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

    scale_invariant: bool = False
    uses_scale: bool = True

    def __init__(
        self, scores: ArrayLike | None = None, num_points: int | None = None, seed: int = 0, **kwargs: Any
    ) -> None:
        # Probabilities in half precision would lose calibration: inputs come as they are and are cast up, never down.
        super().__init__(autocast=False, **kwargs)
        self.scores = check_scores(scores)
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
        matrix = Scores(self.scores, points.shape[-1]).matrix
        return tf.tensordot(points, tf.constant(matrix.T, points.dtype), 1)

    def class_probabilities(self, points: Any) -> Any:
        """Class probabilities [..., n] given latent points f, a float tensor [..., L]."""
        raise NotImplementedError(
            f"{type(self).__name__} must define class_probabilities(points), the class probabilities at latent points, "
            "to be averaged and to have intervals"
        )

    def build(self, input_shape: dict[str, Any]) -> None:
        """Check that the scores fit the latents."""
        Scores(self.scores, input_shape["loc"][-1])
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
        num_points = _POINTS if self.num_points is None else check_num_points(self.num_points)
        noise = gaussian(min(num_points, _TRAINING_POINTS) if training else num_points, loc.shape[1], self.seed)

        def expected(loc: Any, scale: Any) -> Any:
            return tf.reduce_mean(self.class_probabilities(_latent_points(loc, scale, noise)), axis=1)

        if loc.shape[0] is None:  # whole: XLA cannot differentiate loops of unknown length
            return expected(loc, scale)
        return in_row_batches(expected, loc, scale, rows_at_once(noise.size + len(noise)))

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Logarithms of the class probabilities [N, n], at full accuracy, as losses need them.

        By default those of the probabilities of ``call``, floored at the smallest normal number.
        """
        return _floored_logarithms(self(latent, training=False))

    def predict(self, latent: LatentGaussian | dict[str, Any], log: bool = False) -> NDArray[Any]:
        """Class probabilities [N, n] of latents in arrays, or their logarithms, as an array."""
        latent = LatentGaussian.of(latent)
        parts = {"loc": tf.convert_to_tensor(latent.loc), "scale": tf.convert_to_tensor(latent.scale)}
        return np.asarray(self.log_probabilities(parts) if check_flag(log, "log") else self(parts))

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
        num_points = _INTERVAL_POINTS if num_points is None else check_num_points(num_points)
        return self._quantiles(LatentGaussian.of(latent).numpy(), level, num_points)

    def _quantiles(self, latent: LatentGaussian, level: float, num_points: int) -> ClassIntervals:
        """Order statistics over Sobol points, interpolated as those of a balanced sample."""
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
        for rows in row_slices(len(latent), rows_at_once(num_points * max(n, dims))):
            p = self.class_probabilities(_latent_points(*latent[rows].tensors(), noise)).numpy()
            batches.append(np.quantile(p.swapaxes(1, 2), tails, axis=-1, method="hazen").astype(p.dtype))
        return ClassIntervals(*np.concatenate(batches, axis=1))

    def adapt(self, left_out: LeftOutLatents) -> Self:
        """Fit the weights to latents of left-out samples. Default: nothing is fitted."""
        return self

    def cross_fit(self, left_out: LeftOutLatents) -> NDArray[Any]:
        """Adapt, and return log class probabilities [N, n] of the left-out samples."""
        self.adapt(left_out)
        return np.asarray(self.log_probabilities({"loc": left_out.loc, "scale": left_out.scale}))

    def add_classes(self, classes: NDArray[np.int64]) -> Self:
        """Take up classes, by number, that had no samples when the readout was adapted. Default: nothing changes."""
        return self

    def with_scores(self, scores: ArrayLike | None) -> "Readout":
        """Return this readout with these scores, unless it has scores already."""
        if scores is None or self.scores is not None:
            return self
        return type(self).from_config({**self.get_config(), "scores": np.asarray(scores).tolist()})

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
    return loc[:, tf.newaxis] + tf.matmul(z, tf.linalg.band_part(scale, -1, 0), transpose_b=True)


def _floored_logarithms(probabilities: Any) -> Any:
    if probabilities.dtype not in (tf.float32, tf.float64):
        probabilities = tf.cast(probabilities, tf.float32)  # half precision would lose the small ones
    return tf.math.log(tf.maximum(probabilities, smallest_normal(probabilities.dtype)))


class FormulaReadout(Readout):
    """Base class of readouts that choose among formulas: the argmax and softmax layers."""

    formulas: ClassVar[tuple[Formula, ...]]
    methods: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        scores: ArrayLike | None = None,
        method: str = "auto",
        num_points: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(scores, num_points, seed, **kwargs)
        self.method = check_choice(method, "method", self.methods)
        object.__setattr__(self, "_chosen", {})  # not for Keras, which tracks dicts and saves those of strings alone

    def formula_for(self, loc: Any, scale: Any) -> ChosenFormula:
        """Return the formula for latents of these shapes and this dtype, which is chosen, and shapes checked, once."""
        rows = {*loc.shape[:1], *scale.shape[:1]} - {None}
        shapes = tuple(loc.shape[1:]), tuple(scale.shape[1:]), len(rows) > 1
        scores = None if self.scores is None else self.scores.tobytes()
        settings = self.method, self.num_points, self.seed
        key = *shapes, loc.dtype, scores, settings
        if key not in self._chosen:
            self._chosen[key] = choose(self.formulas, loc, scale, self.scores, *settings)
        return self._chosen[key]

    def build(self, input_shape: dict[str, Any]) -> None:
        """Check that these scores and this method fit the latents."""
        self.formula_for(*(tf.TensorSpec(input_shape[name]) for name in ("loc", "scale")))
        self.built = True

    def call(self, latent: dict[str, Any], training: bool | None = None) -> Any:
        """Compute class probabilities [N, n].

        In training, unless the formula is cheap, from at most 16 points. Among many classes the noise of so few points
        would exceed the scores: from ``MANY_CLASSES`` on a closed form takes their place, which is right about the
        likeliest class under one variance, and approximate about its probability.
        """
        loc, scale = latent["loc"], latent["scale"]
        chosen = self.formula_for(loc, scale)
        if training and not chosen.formula.cheap:
            if chosen.scores.num_classes >= MANY_CLASSES:
                loc, scale = tf.cast(loc, chosen.dtype), tf.cast(scale, chosen.dtype)
                return self._approximation(chosen.scores.mean(loc), chosen.scores.mean_variance(scale))
            sampling = next(formula for formula in self.formulas if formula.method == "quasi_monte_carlo")
            given = self.num_points if chosen.formula is sampling else None
            chosen = replace(chosen, formula=sampling, num_points=min(given or _TRAINING_POINTS, _TRAINING_POINTS))
        return chosen.probabilities(loc, scale, whole=True)

    def _approximation(self, mean: Any, variance: Any) -> Any:
        """Approximate class probabilities of many scores of means [N, n] and one variance [N, 1]."""
        raise NotImplementedError

    def log_probabilities(self, latent: dict[str, Any]) -> Any:
        """Logarithms of the class probabilities [N, n], computed in log space: they do not underflow."""
        gaussian = LatentGaussian.of(latent)
        loc, scale = gaussian.loc, gaussian.scale
        return self.formula_for(loc, scale).probabilities(loc, scale, log=True, whole=True)

    def predict(self, latent: LatentGaussian | dict[str, Any], log: bool = False) -> NDArray[Any]:
        """Class probabilities [N, n] of latents in arrays, or their logarithms, by a compiled function."""
        latent = LatentGaussian.of(latent).numpy()
        return np.asarray(self.formula_for(latent.loc, latent.scale).predict(latent, log))

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor, as JSON can hold them."""
        return {**super().get_config(), "method": self.method}


@keras.saving.register_keras_serializable(package="deepsimplex")
class ArgmaxReadout(FormulaReadout):
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

    formulas, methods = argmax_readout.FORMULAS, get_args(ArgmaxMethod)
    scale_invariant = True

    @property
    def differentiable(self) -> bool:
        """False for plain Monte Carlo, which counts draws."""
        return self.method != "monte_carlo"

    @property
    def credible_intervals(self) -> bool:
        """False: given a latent point the class is certain."""
        return False

    def _approximation(self, mean: Any, variance: Any) -> Any:
        """Those of Gumbel variables of the same variance in place of Gaussian ones."""
        deviation = tf.maximum(tf.sqrt(variance), noise_floor(mean))
        return tf.nn.softmax(math.pi / math.sqrt(6.0) * mean / deviation)

    def class_probabilities(self, points: Any) -> Any:
        """One-hot of the highest score at latent points [..., L]."""
        scores = self.score(points)
        return tf.one_hot(tf.argmax(scores, axis=-1), scores.shape[-1], dtype=scores.dtype)

    def intervals(
        self, latent: LatentGaussian | dict[str, Any], level: float = 0.95, num_points: int | None = None
    ) -> ClassIntervals:
        """Intervals of the numerical error: probabilities plus and minus a normal quantile times ``argmax_error``."""
        check_number(level, "level", above=0, below=1)
        latent = LatentGaussian.of(latent).numpy()
        points = self.num_points if num_points is None else num_points
        p = argmax(latent, self.scores, self.method, points, self.seed)
        error = argmax_error(latent, self.scores, self.method, points, self.seed)
        margin = float(ndtri(0.5 + 0.5 * level)) * error
        return ClassIntervals(np.clip(p - margin, 0.0, 1.0), np.clip(p + margin, 0.0, 1.0))


@keras.saving.register_keras_serializable(package="deepsimplex")
class SoftmaxReadout(FormulaReadout):
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

    formulas, methods = softmax_readout.FORMULAS, get_args(SoftmaxMethod)

    def _approximation(self, mean: Any, variance: Any) -> Any:
        """Expected logistic function of each score, beside the mean of the sum of the others' exponentials."""
        others = tf.math.log(tf.maximum(1.0 - tf.nn.softmax(mean), smallest_normal(mean.dtype)))
        others += tf.reduce_logsumexp(mean, axis=-1, keepdims=True) + 0.5 * variance
        return tf.nn.softmax(tf.math.log_sigmoid((mean - others) / tf.sqrt(1.0 + math.pi / 8.0 * variance)))

    def class_probabilities(self, points: Any) -> Any:
        """Softmax of the scores at latent points [..., L]."""
        return tf.nn.softmax(self.score(points), axis=-1)

    def _quantiles(self, latent: LatentGaussian, level: float, num_points: int) -> ClassIntervals:
        scores = Scores(self.scores, latent.latent_dim)
        if scores.num_classes != 2:
            return super()._quantiles(latent, level, num_points)
        # The logistic function of the quantiles of the difference of the two scores.
        m, variance = (moment.numpy() for moment in difference(*scores.moments(*latent.tensors())))
        mean = np.concatenate([m, -m], axis=1)
        margin = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(variance)
        return ClassIntervals(expit(mean - margin), expit(mean + margin))


READOUTS: Registry[Readout] = Registry("readout", Readout, {"argmax": ArgmaxReadout, "softmax": SoftmaxReadout})


def readout_layer(identifier: str | Mapping[str, Any] | Readout, scores: ArrayLike | None = None) -> Readout:
    """Make a readout layer from its name or configuration, with scores if it has none.

    Parameters
    ----------
    identifier : str, dict or Readout
        "argmax", "softmax", "module:Class", a dict of "name" and arguments, or a layer.
    scores : array_like, shape [n, L], optional
        Scores S for a layer that was made without.

    Returns
    -------
    Readout

    Raises
    ------
    TypeError, ValueError
        For anything else, with the nearest known name. Other Keras layers are refused: a subclass of ``Readout``
        defines ``call``, and all else has a default.

    Examples
    --------
    >>> readout_layer("softmax", np.eye(3)).scores.shape
    (3, 3)
    """
    layer: Readout = READOUTS.get(identifier)
    return layer.with_scores(scores)


def class_intervals(
    latent: LatentGaussian | dict[str, Any],
    level: float = 0.95,
    scores: ArrayLike | None = None,
    readout: str | Mapping[str, Any] | Readout = "softmax",
    num_points: int | None = None,
    seed: int = 0,
    method: ArgmaxMethod = "auto",
) -> ClassIntervals:
    """Intervals of the class probabilities: credible intervals for softmax, the numerical error for argmax.

    readout="softmax": the class probabilities softmax(scores f) are random, since f ~ N(loc, Sigma) is. The interval is
    a credible interval: their central quantiles, (1 - level) / 2 and (1 + level) / 2. More points do not narrow it;
    more training data do. So are the intervals of any ``Readout`` that defines ``class_probabilities``.

    readout="argmax": given f the class is certain, so that class probabilities have no distribution. The interval is
    that of the numerical error: ``argmax`` plus and minus a normal quantile times ``argmax_error``. More points narrow
    it, and where the readout is exact only a bound on round-off is left, however uncertain the class: 1e-12 wide in
    float64, 1e-4 in float32 at ten classes (5e-3 at 1000).

    Parameters
    ----------
    latent : LatentGaussian or dict
        Latents f, or the dict {"loc", "scale"}, in NumPy arrays, or in tensors that have values.
    level : float
        Share of the distribution inside, between 0 and 1. Default 0.95, the bands of [GPD].
    scores : array_like, shape [n, L], optional
        Scores S: the vertices (the default, L = n - 1), tau P, V^T (ILR), I (Dirichlet, one-hot), or any other.
    readout : {"softmax", "argmax"}, name, configuration or Readout
        Default "softmax", whose class probabilities have a distribution. A layer keeps its own ``method``,
        ``seed`` and ``scores``.
    num_points : int, optional
        softmax: Sobol points, a power of two of at least 1 / (1 - level); default 4096, n = 2 needs none. argmax: as
        for ``argmax``.
    seed : int
        Seed of the scrambling or of the draws. The same call gives the same answer, row by row.
    method : {"auto", "exact", "quasi_monte_carlo", "monte_carlo"}
        Method of ``argmax``; for the softmax readout only "auto", the default.

    Returns
    -------
    ClassIntervals
        (lower, upper), arrays of shape [N, n] and the dtype of ``loc``.

    Raises
    ------
    ValueError
        When ``level`` is not between 0 and 1 or needs more points, ``readout`` or ``method`` is unknown or does not
        fit, or the shapes do not.

    Notes
    -----
    [GPD Fig. 6] for the quantiles. They are exact for n = 2, where the probability increases with a Gaussian. For more
    classes they are order statistics over points shared by all rows, interpolated as those of a balanced
    sample are (the i-th of Q at (i - 1/2) / Q): with 4096 points the ends have an error of about 1e-3 for ten classes.

    Scale zero gives lower = upper = softmax(scores loc). The level holds class by class, not for all n at once, and
    neither end sums to one over the classes. The mean ``softmax`` usually lies inside but need not: a class that is
    almost certain in one draw of a hundred, and almost excluded in the others, has a mean near 0.01 and an upper end
    near 0 at level 0.95.

    Examples
    --------
    >>> import numpy as np
    >>> latent = {"loc": np.array([[1.0, 0.0]]), "scale": np.array([[0.5, 0.0]])}
    >>> lower, upper = class_intervals(latent, level=0.9)
    >>> lower.round(2), upper.round(2)
    (array([[0.39, 0.06, 0.06]]), array([[0.89, 0.3 , 0.3 ]]))
    >>> lower, upper = class_intervals(latent, level=0.9, readout="argmax")
    >>> bool((upper - lower).max() < 5e-3)
    True
    """
    layer: Readout = READOUTS.get(readout, seed=seed)
    if method != "auto" and layer.credible_intervals:
        raise ValueError(f"method is one of readout='argmax', leave it 'auto' for {readout!r}; found {method!r}")
    if method != "auto":
        layer = READOUTS.get(readout, method=method, seed=seed)
    return layer.with_scores(scores).intervals(latent, level, num_points)


def method_for(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: ArgmaxMethod = "auto",
    readout: str = "argmax",
) -> str:
    """Return the method that ``argmax`` or ``softmax`` uses for these latents.

    Parameters
    ----------
    latent : LatentGaussian or dict
    scores : array_like, shape [n, L], optional
    method : str
        As for the readout.
    readout : {"argmax", "softmax"}

    Returns
    -------
    str
        "exact", "quasi_monte_carlo" or "monte_carlo".

    Raises
    ------
    ValueError
        For an unknown readout, or arguments that the readout rejects.

    Examples
    --------
    >>> loc = np.zeros((1, 3))
    >>> method_for({"loc": loc, "scale": np.ones((1, 1))}), method_for({"loc": loc, "scale": np.ones((1, 3))})
    ('exact', 'quasi_monte_carlo')
    """
    latent = LatentGaussian.of(latent)
    layer = READOUTS.get(readout, scores=scores, method=method)
    if not isinstance(layer, FormulaReadout):
        raise TypeError(
            f"readout must be 'argmax', 'softmax' or one of their layers, which choose a method; found "
            f"{type(layer).__name__}"
        )
    return layer.formula_for(latent.loc, latent.scale).formula.method
