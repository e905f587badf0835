"""Argmax readout: the probability that each class scores highest under a latent Gaussian, and its numerical error."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import norm

from deepsimplex._utils.validation import check_array, check_choice, check_whole
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import exact_quadrature, orthant_probabilities
from deepsimplex.readout.formula import (
    ANY,
    EQUAL_VARIANCES,
    THREE_CLASSES,
    TWO_CLASSES,
    UNEQUAL_VARIANCES,
    ChosenFormula,
    Formula,
    choose,
    unit_size,
)
from deepsimplex.readout.normal import log_ndtr, smallest_exact
from deepsimplex.readout.score_matrix import Scores, check_scores, difference, noise_floor

ArgmaxMethod = Literal["auto", "exact", "quasi_monte_carlo", "monte_carlo"]

# Scramblings whose standard deviation estimates the numerical error, to within a quarter of its size.
_SCRAMBLINGS = 8


def _two_classes(mean: Any, factor: Any, num_points: int, log: bool) -> Any:
    """Phi(z) and Phi(-z), or their logarithms, z the standardized difference of the scores: a closed form."""
    m, variance = difference(mean, factor)
    z = m / tf.sqrt(tf.maximum(variance, tf.square(noise_floor(mean))))
    log_p = log_ndtr(tf.concat([z, -z], axis=-1))
    return log_p if log else tf.exp(log_p)


def _frequencies(mean: Any, factor: Any, num_points: int, seed: int, log: bool) -> Any:
    """Share of draws in which each class scores highest, shape [N, n]: plain Monte Carlo [CASIMAC] B.3.

    All rows use the same draws, so that the result of a row does not depend on its place in a batch.
    """
    draws = tf.random.stateless_normal([num_points, factor.shape[-1]], [seed, 0], dtype=mean.dtype)
    scores = mean[:, :, tf.newaxis] + tf.matmul(factor, draws, transpose_b=True)
    wins = tf.one_hot(tf.argmax(scores, axis=1), mean.shape[-1], dtype=mean.dtype)  # [N, points, n]
    nothing = tf.stop_gradient(tf.reduce_sum(0.0 * scores[:, :, 0], axis=1, keepdims=True))  # NaN of NaN
    p = tf.reduce_mean(wins, axis=1) + nothing
    return tf.math.log(p) if log else p


FORMULAS = (
    Formula(
        "exact",
        TWO_CLASSES,
        Scores.moments,
        _two_classes,
        default_points=lambda n, dtype: 1,
        row_size=lambda n, dims, points, dtype: 2 * dims,
        cheap=True,
    ),
    Formula(
        "exact",
        EQUAL_VARIANCES,
        Scores.independent_moments,
        exact_quadrature.equal_variances,
        default_points=exact_quadrature.default_num_points,
        row_size=exact_quadrature.row_size,
        cheap=True,
    ),
    Formula(
        "exact",
        THREE_CLASSES,
        Scores.moments,
        orthant_probabilities.three_classes,
        default_points=lambda n, dtype: orthant_probabilities.NODES_PER_PANEL[dtype.name],
        row_size=lambda n, dims, points, dtype: orthant_probabilities.PANELS * points,
    ),
    Formula(
        "exact",
        UNEQUAL_VARIANCES,
        Scores.independent_moments,
        exact_quadrature.unequal_variances,
        default_points=lambda n, dtype: exact_quadrature.NODES_PER_PANEL[dtype.name],
        row_size=lambda n, dims, points, dtype: n * points * exact_quadrature.num_panels(n, dtype),
    ),
    # The 1000 draws of [CASIMAC] err by 0.04 where 128 Sobol points err by 0.001.
    Formula(
        "quasi_monte_carlo",
        ANY,
        Scores.moments,
        orthant_probabilities.genz,
        default_points=lambda n, dtype: 128,
        row_size=lambda n, dims, points, dtype: n * (n - 1) * max(points, n),
    ),
    Formula(
        "monte_carlo",
        ANY,
        Scores.moments,
        _frequencies,
        default_points=lambda n, dtype: 1000,
        row_size=lambda n, dims, points, dtype: n * points,
    ),
)
"""Formulas of the argmax readout, in the order of preference."""


def _choose(
    latent: LatentGaussian, scores: ArrayLike | None, method: str, num_points: int | None, seed: int
) -> ChosenFormula:
    check_choice(method, "method", get_args(ArgmaxMethod))
    check_whole(seed, "seed", 0)
    return choose(FORMULAS, latent.loc, latent.scale, check_scores(scores), method, num_points, seed)


def argmax(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: ArgmaxMethod = "auto",
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
    more). For 64 classes and more with an isotropic scale in float32 the cost of a class does not depend on the number
    of nodes: it looks up tables that are made for every row.

    Over 50 rows of ten classes quasi-Monte Carlo errs by at most 1.3e-3 with 128 points and 4e-4 with 512; it is
    smooth except where the order of two constraints changes, where it jumps by less than that. Directions narrower than
    2e-3 of the widest score's standard deviation in float32 (1e-7 in float64) are widened to that.

    Examples
    --------
    >>> import numpy as np
    >>> argmax({"loc": np.array([[0.5, 0.0]]), "scale": np.array([[0.5]])}).round(3)
    array([[0.696, 0.152, 0.152]])
    """
    latent = LatentGaussian.of(latent)
    return _choose(latent, scores, method, num_points, seed).predict(latent, log)


def argmax_error(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: ArgmaxMethod = "auto",
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
    latent = LatentGaussian(*unit_size(*LatentGaussian.of(latent).tensors())).numpy()
    chosen = _choose(latent, scores, method, num_points, seed)
    loc, scale = latent.tensors()
    # Eagerly, here and below: a graph would be traced for this one call.
    p = chosen.probabilities(loc, scale).numpy()
    if chosen.formula.method == "monte_carlo":
        return monte_carlo_standard_error(p, chosen.num_points).astype(p.dtype)
    if chosen.formula.method == "quasi_monte_carlo":
        values = [replace(chosen, seed=seed + step).probabilities(loc, scale).numpy() for step in range(_SCRAMBLINGS)]
        return np.std(values, axis=0, ddof=1) + _round_off(chosen.scores, loc, scale, p)
    finer = replace(chosen, num_points=2 * chosen.num_points).probabilities(loc, scale).numpy()
    change = np.abs(finer - p).max(axis=1, keepdims=True)
    # Twice: the finer result errs too, but by less than half as much. In the row: at one class both may err alike.
    return 2.0 * change + _round_off(chosen.scores, loc, scale, p)


def _round_off(scores: Scores, loc: Any, scale: Any, p: NDArray[Any]) -> NDArray[Any]:
    """Bound on what round-off changes in probabilities p [N, n], to first order; see the notes of ``argmax_error``."""
    mean, factor = scores.moments(loc, scale)
    factor = factor.numpy()
    std = np.linalg.norm(factor, axis=-1)
    if scores.num_classes == 3:  # the standard deviation in the narrowest direction of the plane of scores
        std = np.linalg.svd(factor @ factor.transpose(0, 2, 1), compute_uv=False, hermitian=True)[:, 1:2] ** 0.5
    std = np.maximum(std, noise_floor(mean))
    # A product of L terms, and a few operations before and after, each relative to the lengths of its factors.
    longest = np.linalg.norm(scores.centered, axis=1).max() * np.linalg.norm(loc, axis=1, keepdims=True)
    moved = (loc.shape[1] + 8) * np.linalg.norm(longest / std, axis=1, keepdims=True)
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
