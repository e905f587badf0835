"""How far the computed probabilities of the argmax readout may lie from the true ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import norm

from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.argmax_probabilities import ArgmaxRule, Method, argmax
from deepsimplex.readout.arguments import tensors, with_values
from deepsimplex.readout.logarithms import smallest_exact
from deepsimplex.readout.monte_carlo import monte_carlo_standard_error
from deepsimplex.readout.scores import Scores, noise_floor

# Scramblings whose spread is taken: the spread itself is then known to a quarter of its size.
_SCRAMBLINGS = 8


def argmax_error(
    latent: LatentGaussian | dict[str, Any],
    scores: ArrayLike | None = None,
    method: Method = "auto",
    num_points: int | None = None,
    seed: int = 0,
) -> NDArray[Any]:
    """Numerical error of the class probabilities that ``argmax`` returns for the same arguments.

    It says how well the integral was computed, not how certain the class is: it shrinks with more points, and is as
    good as zero where the readout is exact.

    Parameters
    ----------
    latent : LatentGaussian or dict
    scores : array_like, shape [n, L], optional
    method : {"auto", "exact", "quasi_monte_carlo", "monte_carlo"}
    num_points : int, optional
    seed : int
        All as for ``argmax``. Tensors must have values: this looks at them, and works in no graph.

    Returns
    -------
    ndarray, shape [N, n]
        "monte_carlo": the standard error [CASIMAC Eq. 38-39]. It is zero where no draw or every draw was won; the
        true probability is then within 3 / num_points of that with 95 % confidence.
        "quasi_monte_carlo": the standard deviation over eight scramblings, ``seed`` to ``seed`` + 7, plus the bound on
        round-off. It is known to a quarter of its size, and costs eight times what ``argmax`` does.
        "exact": a bound, not a standard error: twice the largest difference in the row to the answer with twice the
        nodes, plus a bound on round-off. For n = 2, a closed form, round-off is all.
        The dtype is that of ``argmax``.

    Raises
    ------
    ValueError
        As ``argmax``.

    Notes
    -----
    Round-off of the mean scores moves them by at most h standard deviations, and a Gaussian's mean moved by h changes
    the probability p of any set by at most h phi(Phi^-1(p)), whatever the set. Scores that ``argmax`` takes for tied,
    because a smaller scale than their own round-off would tell them apart, count as tied here too; neither does
    the spread of scramblings see that ``argmax`` widens narrow directions a little in float32.

    Examples
    --------
    >>> import numpy as np
    >>> latent = {"loc": np.array([[0.5, 0.0]]), "scale": np.array([[0.5, 0.3]])}
    >>> bool(0 < argmax_error(latent).max() < 2e-3)
    True
    >>> argmax_error(latent, method="monte_carlo", num_points=4000).round(3)
    array([[0.007, 0.005, 0.005]])
    """
    latent = with_values(latent)
    rule = ArgmaxRule.of(latent.latent_dim, latent.covariance, scores, method, num_points, seed)
    points = rule.points(tf.as_dtype(latent.loc.dtype))
    p = argmax(latent, scores, method, num_points, seed)
    if rule.method == "monte_carlo":
        return monte_carlo_standard_error(p, points).astype(p.dtype)
    if rule.method == "quasi_monte_carlo":
        return _spread(latent, scores, points, seed) + _round_off(latent, scores, p)
    finer = replace(rule, num_points=2 * points).read(latent, log=False)
    difference = np.abs(finer - p).max(axis=1, keepdims=True)
    # Twice: the finer answer errs too, but by less than half as much. Of the row: at one class both may err alike.
    return 2.0 * difference + _round_off(latent, scores, p)


def _spread(latent: LatentGaussian, scores: ArrayLike | None, num_points: int, seed: int) -> NDArray[Any]:
    """Standard deviation of one answer by quasi-Monte Carlo over independent scramblings, shape [N, n]."""
    # Tensors are computed at once, where arrays would have a graph traced for every seed.
    eager = LatentGaussian(tf.convert_to_tensor(latent.loc), tf.convert_to_tensor(latent.scale))
    answers = [
        argmax(eager, scores, "quasi_monte_carlo", num_points, seed + step).numpy() for step in range(_SCRAMBLINGS)
    ]
    return np.std(answers, axis=0, ddof=1)


def _round_off(latent: LatentGaussian, scores: ArrayLike | None, p: NDArray[Any]) -> NDArray[Any]:
    """Bound on what round-off changes in probabilities p [N, n], to first order; see the notes of ``argmax_error``."""
    loc, scale = tensors(latent)
    S = Scores.of(scores, latent.latent_dim)
    factor = S.factor(scale).numpy()
    deviations = np.linalg.norm(factor, axis=-1)
    if S.num_classes == 3:  # the deviation of the narrowest direction of the plane, which quadrature resolves
        deviations = np.linalg.svd(factor @ factor.transpose(0, 2, 1), compute_uv=False, hermitian=True)[:, 1:2] ** 0.5
    deviations = np.maximum(deviations, noise_floor(S.mean(loc)))
    # A product of L terms, and a few operations before and after, each relative to the lengths of its factors.
    longest = np.linalg.norm(S.centered, axis=1).max() * np.linalg.norm(loc, axis=1, keepdims=True)
    moved = (latent.latent_dim + 8) * np.linalg.norm(longest / deviations, axis=1, keepdims=True)
    tiny = np.finfo(p.dtype).tiny
    # Sums of n logarithms, below 64 each where they count, and the logarithm of p itself, which the answer undoes.
    summed = p * (p.shape[1] + 64 - np.log(np.maximum(p, tiny)))
    # Probabilities below that are flushed away term by term.
    flushed = smallest_exact(loc.dtype)
    return flushed + np.finfo(p.dtype).eps * (moved * norm.pdf(ndtri(p)) + summed).astype(p.dtype)
