"""Argmax readout: the probability that each class scores highest under a latent Gaussian, and its numerical error."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import norm

from deepsimplex._utils.validation import check_array, check_whole
from deepsimplex.latent import Covariance, LatentGaussian
from deepsimplex.readout import exact_quadrature, orthant_probabilities
from deepsimplex.readout.method import Formula, Method
from deepsimplex.readout.normal import log_ndtr, smallest_exact, tiny_of
from deepsimplex.readout.score_matrix import Scores, noise_floor

ArgmaxMethods = Literal["auto", "exact", "quasi_monte_carlo", "monte_carlo"]

# Points of the sampling methods: the 1000 draws of [CASIMAC] err by 0.04 where 128 Sobol points err by 0.001.
_SAMPLES = {"quasi_monte_carlo": 128, "monte_carlo": 1000}
# Scramblings whose standard deviation estimates the numerical error, to within a quarter of its size.
_SCRAMBLINGS = 8


def _of_unit_size(loc: Any, scale: Any) -> tuple[Any, Any]:
    """Divide latents by a power of two near the largest number of their row, which changes neither argmax nor digits.

    Squares of the results neither underflow nor overflow.
    """
    largest = [tf.reduce_max(tf.abs(tf.reshape(part, [tf.shape(part)[0], -1])), axis=1) for part in (loc, scale)]
    size = tf.maximum(*map(tf.stop_gradient, largest))
    power = tf.round(tf.math.log(tf.maximum(size, tiny_of(loc.dtype))) / math.log(2.0))
    most = -0.95 * math.log2(tiny_of(loc.dtype))  # whose reciprocal is a normal number too
    factor = tf.pow(tf.constant(2.0, loc.dtype), -tf.round(tf.clip_by_value(power, -most, most)))
    factor = tf.where(size > 0, factor, tf.ones_like(factor))
    return loc * factor[:, tf.newaxis], scale * tf.reshape(factor, [-1] + [1] * (scale.shape.rank - 1))


def _log_two_classes(scores: Scores, loc: Any, scale: Any) -> Any:
    m, variance = scores.difference(loc, scale)
    z = m / tf.sqrt(tf.maximum(variance, tf.square(noise_floor(scores.mean(loc)))))
    return log_ndtr(tf.concat([z, -z], axis=-1))


def _frequencies(mean: Any, factor: Any, num_points: int, seed: int) -> Any:
    """Share of draws in which each class scores highest, shape [N, n]: plain Monte Carlo [CASIMAC] B.3.

    All rows use the same draws, so that the result of a row does not depend on its place in a batch.
    """
    draws = tf.random.stateless_normal([num_points, factor.shape[-1]], [seed, 0], dtype=mean.dtype)
    scores = mean[:, :, tf.newaxis] + tf.matmul(factor, draws, transpose_b=True)
    wins = tf.one_hot(tf.argmax(scores, axis=1), mean.shape[-1], dtype=mean.dtype)  # [N, points, n]
    return tf.reduce_mean(wins, axis=1)


class ArgmaxMethod(Method):
    """The argmax readout with its method chosen."""

    methods = get_args(ArgmaxMethods)
    exact_needs = (
        "two or three classes, or an isotropic scale with the scores of a regular simplex, or a diagonal scale with "
        "scores proportional to the identity"
    )

    @staticmethod
    def exact_formula(scores: Scores, covariance: Covariance) -> str | None:
        independence = scores.independence(covariance)
        if scores.num_classes == 2:
            return "two classes"
        return "three classes" if scores.num_classes == 3 and independence != "equal variances" else independence

    @property
    def is_cheap(self) -> bool:
        cheap = ("two classes", "equal variances")
        return self.method == "exact" and self.exact_formula(self.scores, self.covariance) in cheap

    def points(self, dtype: tf.DType) -> int:
        if self.num_points:
            return self.num_points
        if self.method != "exact":
            return _SAMPLES[self.method]
        formula = self.exact_formula(self.scores, self.covariance)
        if formula == "two classes":
            return 1
        if formula == "three classes":
            return orthant_probabilities.NODES_PER_PANEL[dtype.name]
        if formula == "equal variances":
            return exact_quadrature.default_num_points(self.scores.num_classes, dtype)
        return exact_quadrature.NODES_PER_PANEL[dtype.name]

    def formula(self, dtype: tf.DType) -> Formula:
        points = self.points(dtype)
        formula = self._exact(points, dtype) if self.method == "exact" else self._sampling(points)
        return Formula(
            lambda loc, scale: formula.probabilities(*_of_unit_size(loc, scale)),
            lambda loc, scale: formula.log_probabilities(*_of_unit_size(loc, scale)),
            formula.row_size,
        )

    def _sampling(self, points: int) -> Formula:
        n = self.scores.num_classes

        def of_moments(compute: Callable[..., Any]) -> Callable[[Any, Any], Any]:
            return lambda loc, scale: compute(self.scores.mean(loc), self.scores.factor(scale), points, self.seed)

        if self.method == "monte_carlo":
            logarithms = of_moments(lambda *arguments: tf.math.log(_frequencies(*arguments)))
            return Formula(of_moments(_frequencies), logarithms, n * points)
        row_size = n * (n - 1) * max(points, n)
        return Formula(of_moments(orthant_probabilities.genz), of_moments(orthant_probabilities.log_genz), row_size)

    def _exact(self, nodes: int, dtype: tf.DType) -> Formula:
        scores, n = self.scores, self.scores.num_classes

        def of_independent(compute: Callable[..., Any]) -> Callable[[Any, Any], Any]:
            return lambda loc, scale: compute(*scores.independent_moments(loc, scale), nodes)

        formula = self.exact_formula(scores, self.covariance)
        if formula == "two classes":
            return Formula.of_logarithms(lambda loc, scale: _log_two_classes(scores, loc, scale), 2 * scores.latent_dim)
        if formula == "three classes":
            return Formula.of_logarithms(
                lambda loc, scale: orthant_probabilities.log_three_classes(
                    scores.mean(loc), scores.factor(scale), nodes
                ),
                orthant_probabilities.PANELS * nodes,
            )
        if formula == "equal variances":
            probabilities, logarithms = exact_quadrature.equal_variances, exact_quadrature.log_equal_variances
            return Formula(of_independent(probabilities), of_independent(logarithms), n * nodes)
        return Formula(
            of_independent(exact_quadrature.unequal_variances),
            of_independent(exact_quadrature.log_unequal_variances),
            n * nodes * exact_quadrature.num_panels(n, dtype),
        )


def argmax(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: ArgmaxMethods = "auto",
    num_points: int | None = None,
    seed: int = 0,
    log: bool = False,
) -> Any:
    """Probability that each class scores highest, P[argmax_k scores_k . f = y] with f ~ N(loc, Sigma).

    Parameters
    ----------
    latent : LatentGaussian or dict
        Latents f, or the dict {"loc", "scale"}, in NumPy arrays or tensors. Scale zero is the limit: the one-hot of
        the highest score, shared equally among scores that tie to within round-off. Arrays are checked. Tensors are
        not: the sign of a standard deviation does not matter, and NaN gives NaN in its own row.
    scores : array_like, shape [n, L], optional
        Scores S: the vertices P (the default, L = n - 1), tau P, V^T (ILR), I (Dirichlet, one-hot), or any other.
    method : {"auto", "exact", "quasi_monte_carlo", "monte_carlo"}
        "exact" is a closed form for n = 2 and a one-dimensional quadrature for n = 3, for an isotropic scale with the
        scores of a regular simplex, and for independent components with scores proportional to the identity.
        "quasi_monte_carlo" is Genz's sequential conditioning, for any scale and scores. Both are differentiable in
        loc and scale. "monte_carlo" counts draws, as [CASIMAC] does, and has no useful gradient. "auto" is exact
        where that is possible, else quasi-Monte Carlo; ``method_for`` returns which, ``argmax_error`` its error.
    num_points : int, optional
        Quadrature nodes (in all for equal variances, per panel otherwise; the closed form for n = 2 has none), Sobol
        points (a power of two; default 128) or draws (default 1000).
    seed : int
        Seed of the Sobol scrambling or of the draws. The same call gives the same answer, row by row.
    log : bool
        Return log-probabilities, computed in log space: accurate where probabilities underflow, to margins of 80
        standard deviations and more. Default False.

    Returns
    -------
    ndarray or tensor, shape [N, n]
        Rows sum to one. Tensors in, tensor out; the dtype is that of ``loc``, float32 for tensors of half precision.
        Never zero except for "monte_carlo": what the dtype cannot hold becomes its smallest normal number.

    Raises
    ------
    ValueError
        When the shapes do not fit, or no exact method exists for method="exact".

    Notes
    -----
    [CASIMAC Eq. 15]. The exact methods err by 1e-12 in float64 and 1e-6 in float32 (2e-6 for a hundred classes and
    more). Over 50 rows of ten classes quasi-Monte Carlo errs by at most 1.3e-3 with 128 points and 4e-4 with 512; it is
    smooth except where the order of two constraints changes, where it jumps by less than that. Directions narrower than
    2e-3 of the widest score's standard deviation in float32 (1e-7 in float64) are widened to that.

    Examples
    --------
    >>> import numpy as np
    >>> argmax({"loc": np.array([[0.5, 0.0]]), "scale": np.array([[0.5]])}).round(3)
    array([[0.696, 0.152, 0.152]])
    """
    latent = LatentGaussian.of(latent)
    chosen = ArgmaxMethod.choose(latent.latent_dim, latent.covariance, scores, method, num_points, seed)
    return chosen.read(latent, log)


def argmax_error(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: ArgmaxMethods = "auto",
    num_points: int | None = None,
    seed: int = 0,
) -> NDArray[Any]:
    """Numerical error of the class probabilities that ``argmax`` returns for the same arguments.

    It is the error of the integral, not the uncertainty about the class: it shrinks with more points, and is nearly
    zero where the readout is exact.

    Parameters
    ----------
    latent : LatentGaussian or dict
    scores : array_like, shape [n, L], optional
    method : {"auto", "exact", "quasi_monte_carlo", "monte_carlo"}
    num_points : int, optional
    seed : int
        All as for ``argmax``. Tensors must have values: it cannot be computed inside ``tf.function``.

    Returns
    -------
    ndarray, shape [N, n]
        "monte_carlo": the standard error [CASIMAC Eq. 38-39]. It is zero where no draw or every draw was won; the
        true probability is then within 3 / num_points of that with 95 % confidence.
        "quasi_monte_carlo": the standard deviation over eight scramblings, ``seed`` to ``seed`` + 7, plus the bound on
        round-off. It is accurate to a quarter of its size, and costs eight times what ``argmax`` does.
        "exact": a bound, not a standard error: twice the largest difference in the row to the result with twice the
        nodes, plus a bound on round-off. For n = 2, a closed form, only the bound on round-off.
        The dtype is that of ``argmax``.

    Raises
    ------
    TypeError
        For tensors of a graph.
    ValueError
        As ``argmax``.

    Notes
    -----
    Round-off of the mean scores moves them by at most h standard deviations, and a Gaussian's mean moved by h changes
    the probability p of any set by at most h phi(Phi^-1(p)), whatever the set. Scores that ``argmax`` takes for tied,
    because they differ by no more than round-off, count as tied here too. The spread of scramblings does not include
    the effect of widening narrow directions in float32.

    Examples
    --------
    >>> import numpy as np
    >>> latent = {"loc": np.array([[0.5, 0.0]]), "scale": np.array([[0.5, 0.3]])}
    >>> bool(0 < argmax_error(latent).max() < 2e-3)
    True
    >>> argmax_error(latent, method="monte_carlo", num_points=4000).round(3)
    array([[0.007, 0.005, 0.005]])
    """
    latent = LatentGaussian(*_of_unit_size(*LatentGaussian.of(latent).tensors())).numpy()
    chosen = ArgmaxMethod.choose(latent.latent_dim, latent.covariance, scores, method, num_points, seed)
    points = chosen.points(tf.as_dtype(latent.loc.dtype))
    # Eagerly, here and below: a graph would be traced for this one call.
    p = chosen.probabilities(*latent.tensors()).numpy()
    if chosen.method == "monte_carlo":
        return monte_carlo_standard_error(p, points).astype(p.dtype)
    if chosen.method == "quasi_monte_carlo":
        return _spread(latent, scores, points, seed) + _round_off(latent, scores, p)
    finer = replace(chosen, num_points=2 * points).probabilities(*latent.tensors()).numpy()
    difference = np.abs(finer - p).max(axis=1, keepdims=True)
    # Twice: the finer result errs too, but by less than half as much. In the row: at one class both may err alike.
    return 2.0 * difference + _round_off(latent, scores, p)


def _spread(latent: LatentGaussian, scores: ArrayLike | None, num_points: int, seed: int) -> NDArray[Any]:
    """Standard deviation of quasi-Monte Carlo over independent scramblings, shape [N, n]."""
    # Tensors are computed eagerly; for arrays a graph would be traced for every seed.
    eager = LatentGaussian(tf.convert_to_tensor(latent.loc), tf.convert_to_tensor(latent.scale))
    answers = [
        argmax(eager, scores, "quasi_monte_carlo", num_points, seed + step).numpy() for step in range(_SCRAMBLINGS)
    ]
    return np.std(answers, axis=0, ddof=1)


def _round_off(latent: LatentGaussian, scores: ArrayLike | None, p: NDArray[Any]) -> NDArray[Any]:
    """Bound on what round-off changes in probabilities p [N, n], to first order; see the notes of ``argmax_error``."""
    loc, scale = latent.tensors()
    S = Scores.of(scores, latent.latent_dim)
    factor = S.factor(scale).numpy()
    std = np.linalg.norm(factor, axis=-1)
    if S.num_classes == 3:  # the standard deviation in the narrowest direction of the plane of scores
        std = np.linalg.svd(factor @ factor.transpose(0, 2, 1), compute_uv=False, hermitian=True)[:, 1:2] ** 0.5
    std = np.maximum(std, noise_floor(S.mean(loc)))
    # A product of L terms, and a few operations before and after, each relative to the lengths of its factors.
    longest = np.linalg.norm(S.centered, axis=1).max() * np.linalg.norm(loc, axis=1, keepdims=True)
    moved = (latent.latent_dim + 8) * np.linalg.norm(longest / std, axis=1, keepdims=True)
    tiny = np.finfo(p.dtype).tiny
    # Sums of n logarithms, below 64 each where they count, and the logarithm of p itself, which is exponentiated.
    summed = p * (p.shape[1] + 64 - np.log(np.maximum(p, tiny)))
    # Terms of probabilities below that may underflow to zero.
    flushed = smallest_exact(loc.dtype)
    return flushed + np.finfo(p.dtype).eps * (moved * norm.pdf(ndtri(p)) + summed).astype(p.dtype)


def monte_carlo_standard_error(p: ArrayLike, num_points: int) -> NDArray[np.float64]:
    """Standard error of class probabilities that were estimated by plain Monte Carlo.

    Parameters
    ----------
    p : array_like
        Estimated class probabilities, in [0, 1], of any shape.
    num_points : int
        Number N of draws they were estimated from, at least 2.

    Returns
    -------
    ndarray, shape of ``p``, float64
        sqrt((p^2 (1 - p) + p (1 - p)^2) / (N - 1)) [CASIMAC Eq. 38-39].

    Examples
    --------
    >>> monte_carlo_standard_error([0.5, 0.1], 101)
    array([0.05, 0.03])
    """
    check_whole(num_points, "num_points", 2)
    p = check_array(p, "p", finite=False)
    inside = (p >= 0) & (p <= 1)
    if not np.all(inside):
        raise ValueError(f"p must hold probabilities in [0, 1]; found {p[~inside][0]}")
    return np.sqrt((p**2 * (1 - p) + p * (1 - p) ** 2) / (num_points - 1))
