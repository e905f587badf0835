"""Formulas for class probabilities: the choice among them, and their evaluation, compiled and in batches of rows.

``choose`` takes the first ``Formula`` of a readout whose condition holds for the shapes of the latents.
``ChosenFormula.probabilities`` then calls its ``moments`` (of the scores, from those of the latents) and its
``compute`` (probabilities from the scores' moments), compiled unless it is called eagerly, in batches if rows are many.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from deepsimplex._utils.batching import in_row_batches, rows_at_once, vector_jacobian_product
from deepsimplex._utils.portable_operations import portable_format, smallest_normal
from deepsimplex._utils.validation import check_flag, check_whole
from deepsimplex.latent import Covariance, LatentGaussian, covariance_from_shape
from deepsimplex.readout.score_matrix import Scores


class Condition(NamedTuple):
    """Condition of an exact formula, on the scores and the covariance: in words, and as a function."""

    words: str
    holds: Callable[[Scores, Covariance], bool]


TWO_CLASSES = Condition("two classes", lambda scores, covariance: scores.num_classes == 2)
THREE_CLASSES = Condition("three classes", lambda scores, covariance: scores.num_classes == 3)
EQUAL_VARIANCES = Condition(
    "an isotropic scale with the scores of a regular simplex",
    lambda scores, covariance: covariance == "isotropic" and scores.independent_variance is not None,
)
UNEQUAL_VARIANCES = Condition(
    "a diagonal scale with scores proportional to the identity",
    lambda scores, covariance: covariance == "diagonal" and scores.identity_factor is not None,
)
ANY = Condition("", lambda scores, covariance: True)


@dataclass(frozen=True, eq=False)
class Formula:
    """One way to compute class probabilities: a closed form, a quadrature, or an average over samples.

    Attributes
    ----------
    method : {"exact", "quasi_monte_carlo", "monte_carlo"}
    condition : Condition
        For which scores and covariances it applies.
    moments : callable or None
        (scores, loc, scale) -> tuple of tensors, from which probabilities are computed, for formulas that a factor of
        all latents does not change: these are divided by their size before, so that squares of large and small ones
        are numbers of their dtype. None: probabilities are computed from (scores, loc, scale).
    compute : callable
        (*moments, num_points, log) -> class probabilities [N, n] or their logarithms; if the method samples,
        (*moments, num_points, seed, log).
    default_points : callable
        (n, dtype) -> default number of nodes, points or draws.
    row_size : callable
        (n, L, num_points, dtype) -> numbers in the largest tensor of a row.
    cheap : bool
        Whether it takes little of a training step: a closed form, or one small grid for all classes.
    """

    method: Literal["exact", "quasi_monte_carlo", "monte_carlo"]
    condition: Condition
    moments: Callable[[Scores, Any, Any], tuple[Any, ...]] | None
    compute: Callable[..., Any]
    default_points: Callable[[int, tf.DType], int]
    row_size: Callable[[int, int, int, tf.DType], int]
    cheap: bool = False


def choose(
    formulas: Sequence[Formula],
    loc: Any,
    scale: Any,
    scores: NDArray[np.float64] | None,
    method: str,
    num_points: int | None,
    seed: int,
) -> "ChosenFormula":
    """Choose the first formula of a method, or of any for "auto", whose condition holds for latents of these shapes.

    Of loc and scale, which are arrays, tensors or their specifications, shapes and dtype count; half precision and
    whole numbers are computed in float32. Raises ValueError if there is no such formula, or if shapes, scores or the
    number of points do not fit.
    """
    covariance = covariance_from_shape(loc.shape, scale.shape)
    S, dtype = Scores(scores, loc.shape[1]), tf.float64 if loc.dtype == "float64" else tf.float32
    for formula in formulas:
        if method in ("auto", formula.method) and formula.condition.holds(S, covariance):
            default = formula.default_points(S.num_classes, dtype)
            points = default if num_points is None else check_num_points(num_points, formula.method)
            return ChosenFormula(formula, S, covariance, dtype, points, seed)
    conditions = ", or ".join(formula.condition.words for formula in formulas if formula.method == method)
    raise ValueError(
        f"method={method!r} needs {conditions}; found n = {S.num_classes} and a {covariance} scale. "
        "method='auto' takes quasi_monte_carlo here"
    )


def check_num_points(num_points: int, method: str = "quasi_monte_carlo") -> int:
    """Return ``num_points``; raise ValueError if the method cannot work with that number."""
    checked = check_whole(num_points, "num_points", 4, 2**24)
    if method == "quasi_monte_carlo" and checked & (checked - 1):
        raise ValueError(f"num_points must be a power of two for quasi-Monte Carlo; found {checked}")
    return checked


@dataclass(frozen=True)
class ChosenFormula:
    """A formula for given scores, covariance and dtype, with its number of points and its seed."""

    formula: Formula
    scores: Scores
    covariance: Covariance
    dtype: tf.DType
    num_points: int
    seed: int

    @property
    def most_rows(self) -> int:
        """Rows that are computed at once; other numbers in exports to portable formats."""
        n, dims = self.scores.matrix.shape
        return rows_at_once(self.formula.row_size(n, dims, self.num_points, self.dtype))

    def predict(self, latent: LatentGaussian, log: bool) -> Any:
        """Class probabilities [N, n] or their logarithms: arrays for arrays, by a compiled function; else tensors."""
        check_flag(log, "log")
        if latent.holds_tensors:
            return self.probabilities(latent.loc, latent.scale, log)
        loc, scale = latent.tensors()
        compiled, rows = _compiled(self, log, True), loc.shape[0]
        batches = math.ceil(rows / self.most_rows)
        if batches <= 1:
            return compiled(loc, scale).numpy()
        size = math.ceil(rows / batches)
        return np.concatenate([compiled(loc[i : i + size], scale[i : i + size]).numpy() for i in range(0, rows, size)])

    def probabilities(self, loc: Any, scale: Any, log: bool = False, whole: bool = False) -> Any:
        """Class probabilities [N, n], or their logarithms, of tensors.

        ``whole`` computes batches whose size a graph does not know, such as a network's, at once: XLA cannot
        differentiate loops of unknown length.
        """
        loc, scale, rows = tf.cast(loc, self.dtype), tf.cast(scale, self.dtype), loc.shape[0]
        if rows is not None:
            whole = rows <= self.most_rows
        if tf.executing_eagerly() or portable_format.get() or not (whole or rows is None):
            return self._values(log, whole, loc, scale)
        result = _compiled(self, log, whole)(loc, scale)
        result.set_shape([rows, self.scores.num_classes])
        return result

    def _values(self, log: bool, whole: bool, loc: Any, scale: Any) -> Any:
        """Class probabilities [N, n], or their logarithms, of all rows at once or in batches."""
        if not whole:
            return in_row_batches(partial(self._values, log, True), loc, scale, self.most_rows)
        formula, S = self.formula, self.scores
        moments = (S, loc, scale) if formula.moments is None else formula.moments(S, *unit_size(loc, scale))
        sampling = () if formula.method == "exact" else (self.seed,)
        result = formula.compute(*moments, self.num_points, *sampling, log)
        if log or formula.method == "monte_carlo":
            return result
        # Never zero, so that no log-loss is infinite: the smallest normal number stands for all that lies below.
        return tf.maximum(result, smallest_normal(loc.dtype))


def unit_size(loc: Any, scale: Any) -> tuple[Any, Any]:
    """Divide latents by a power of two near the largest number of their row, which changes no digits.

    Squares of the results neither underflow nor overflow.
    """
    sizes = tf.reduce_max(tf.abs(loc), axis=1), tf.reduce_max(tf.abs(scale), axis=[*range(1, scale.shape.rank)])
    size = tf.maximum(*map(tf.stop_gradient, sizes))
    power = tf.round(tf.math.log(tf.maximum(size, smallest_normal(loc.dtype))) / math.log(2.0))
    most = -0.95 * math.log2(smallest_normal(loc.dtype))  # whose reciprocal is a normal number too
    factor = tf.pow(tf.constant(2.0, loc.dtype), -tf.round(tf.clip_by_value(power, -most, most)))
    factor = tf.where(size > 0, factor, tf.ones_like(factor))
    return loc * factor[:, tf.newaxis], scale * tf.reshape(factor, [-1] + [1] * (scale.shape.rank - 1))


@lru_cache(maxsize=128)
def _compiled(chosen: ChosenFormula, log: bool, whole: bool) -> Any:
    """Compile a formula as a differentiable function of any number of rows: once per setting, not once per model.

    Its gradient is a second traced function, which computes the probabilities again: if they were passed from one graph
    to the other, axes and shapes would not be constants in the second, as XLA requires. TensorFlow merges the two
    unless they contain loops or branches. TensorFlow also keeps the graph in which a custom gradient is defined in
    memory: here that of this function, not that of a model.
    """
    (n, dims), dtype = chosen.scores.matrix.shape, chosen.dtype
    scale_shape = {"isotropic": [1], "diagonal": [dims], "full": [dims, dims]}[chosen.covariance]
    signature = [tf.TensorSpec([None, dims], dtype), tf.TensorSpec([None, *scale_shape], dtype)]
    values = partial(chosen._values, log, whole)
    product = partial(vector_jacobian_product, values)
    gradient = tf.function(product, input_signature=[*signature, tf.TensorSpec([None, n], dtype)], autograph=False)

    @tf.custom_gradient
    def differentiable(loc: Any, scale: Any) -> tuple[Any, Any]:
        return values(loc, scale), partial(gradient, loc, scale)

    # A concrete function: TensorFlow would warn that one function is retraced often.
    return tf.function(differentiable, input_signature=signature, autograph=False).get_concrete_function()
