"""Intervals of class probabilities: how far the latent Gaussian lets them vary, or how well they are computed."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri
from scipy.special import softmax as softmax_of

from deepsimplex._utils.batching import row_slices
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout.argmax_probabilities import Method, argmax
from deepsimplex.readout.arguments import check_seed, tensors, with_values
from deepsimplex.readout.layers import ArgmaxReadout
from deepsimplex.readout.numerical_error import argmax_error
from deepsimplex.readout.points import gaussian
from deepsimplex.readout.registry import named_readout
from deepsimplex.readout.rule import check_num_points
from deepsimplex.readout.scores import Scores

_SAMPLES = 4096
# Sampled probabilities that a piece of rows may hold.
_BUDGET = 2**20


class ClassIntervals(NamedTuple):
    """An interval for every class probability.

    Attributes
    ----------
    lower, upper : ndarray, shape [N, n]
        Ends of the intervals, 0 <= lower <= upper <= 1.

    Examples
    --------
    >>> import numpy as np
    >>> lower, upper = class_intervals({"loc": np.array([[0.0]]), "scale": np.array([[0.5]])})
    >>> lower.round(3), upper.round(3)
    (array([[0.123, 0.123]]), array([[0.877, 0.877]]))
    """

    lower: NDArray[Any]
    upper: NDArray[Any]


def class_intervals(
    latent: LatentGaussian | dict[str, Any],
    level: float = 0.95,
    scores: ArrayLike | None = None,
    readout: str = "softmax",
    num_points: int | None = None,
    seed: int = 0,
    method: Method = "auto",
) -> ClassIntervals:
    """Intervals of the class probabilities; what they mean depends on the readout.

    readout="softmax": the class probabilities softmax(scores f) are themselves random, since f ~ N(loc, Sigma) is.
    The interval is where the model believes each to lie: its central quantiles, (1 - level) / 2 and (1 + level) / 2.
    More points do not narrow it; more data for the regressor do.

    readout="argmax": given f the class is certain, so that the class probability is a number and has no distribution.
    The interval is only where that number lies, given how well it was computed: ``argmax`` plus and minus a normal
    quantile times ``argmax_error``. More points do narrow it, and where the readout is exact only a bound on
    round-off is left, however unsure the class: 1e-12 wide in float64, 1e-4 in float32 at ten classes (5e-3 at 1000).

    Parameters
    ----------
    latent : LatentGaussian or dict
        Latents f, or the dict {"loc", "scale"}, in NumPy arrays, or in tensors that have values.
    level : float
        Share of the distribution inside, between 0 and 1. Default 0.95, the bands of [GPD].
    scores : array_like, shape [n, L], optional
        Scores S: the vertices (the default, L = n - 1), tau P, V^T (ILR), I (Dirichlet, one-hot), or any other.
    readout : {"softmax", "argmax"}
        Default "softmax", which has a distribution to tell of.
    num_points : int, optional
        softmax: Sobol points, a power of two of at least 1 / (1 - level); default 4096, n = 2 needs none. argmax: as
        for ``argmax``.
    seed : int
        Seed of the scrambling or of the draws. The same call gives the same answer, row by row.
    method : {"auto", "exact", "quasi_monte_carlo", "monte_carlo"}
        Of ``argmax``; for the softmax readout only "auto", the default.

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
    [GPD Fig. 6] for the quantiles. They are exact for n = 2, where the probability grows with a Gaussian. For more
    classes they are order statistics over points shared by all rows, interpolated as those of a balanced
    sample are (the i-th of Q at (i - 1/2) / Q). Over 50 rows of ten classes with intervals 0.18 wide on average, 4096
    points err by 1.3e-3 root mean square and 9e-3 at most, against 131072; 1024 points by 2.9e-3 and 2e-2. With scores
    three times as large and intervals 0.32 wide it is 3.1e-3 and 3e-2. A row of ten classes takes 2 ms.

    Scale zero gives lower = upper = softmax(scores loc). The level holds class by class, not for all n at once, and
    neither end sums to one over the classes. The mean ``softmax`` usually lies inside but need not: a class that is
    all but sure in one draw of a hundred, and all but ruled out in the others, has a mean near 0.01 and an upper end
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
    _check_level(level)
    latent = with_values(latent)
    if named_readout(readout) is ArgmaxReadout:
        return _around_argmax(latent, level, scores, method, num_points, seed)
    if method != "auto":
        raise ValueError(f"method is one of readout='argmax', leave it 'auto' for 'softmax'; found {method!r}")
    checked = Scores.of(scores, latent.latent_dim)
    points, seed = check_num_points("quasi_monte_carlo", num_points), check_seed(seed)
    if checked.num_classes == 2:
        return _two_classes(latent, level, checked)
    return _sampled(latent, level, checked, _resolving(points or _SAMPLES, level), seed)


def _check_level(level: float) -> None:
    if not isinstance(level, float | np.floating) or not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, both excluded, such as 0.95; found {level!r}")


def _resolving(points: int, level: float) -> int:
    """Number of Sobol points, if they reach as far into the tails as ``level`` asks."""
    # Beyond the (1/2 / points)-quantile there is no order statistic.
    if points * (1.0 - level) < 1.0 - 1e-9:
        raise ValueError(
            f"num_points must be at least 1 / (1 - level) = {1.0 / (1.0 - level):.0f} for level = {level}; "
            f"found {points}"
        )
    return points


def _around_argmax(
    latent: LatentGaussian,
    level: float,
    scores: ArrayLike | None,
    method: Method,
    num_points: int | None,
    seed: int,
) -> ClassIntervals:
    p = argmax(latent, scores, method, num_points, seed)
    margin = float(ndtri(0.5 + 0.5 * level)) * argmax_error(latent, scores, method, num_points, seed)
    return ClassIntervals(np.clip(p - margin, 0.0, 1.0), np.clip(p + margin, 0.0, 1.0))


def _two_classes(latent: LatentGaussian, level: float, scores: Scores) -> ClassIntervals:
    """The logistic function of the quantiles of the scores' difference."""
    m, variance = (moment.numpy() for moment in scores.difference(*tensors(latent)))
    difference = np.concatenate([m, -m], axis=1)
    margin = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(variance)
    return ClassIntervals(expit(difference - margin), expit(difference + margin))


def _sampled(latent: LatentGaussian, level: float, scores: Scores, num_points: int, seed: int) -> ClassIntervals:
    """Order statistics over Sobol points."""
    n, dims = scores.num_classes, scores.latent_dim
    points = gaussian(num_points, dims, seed).T.astype(latent.loc.dtype)
    tails = (0.5 - 0.5 * level, 0.5 + 0.5 * level)
    pieces = []
    for rows in row_slices(len(latent), max(1, _BUDGET // (n * max(num_points, dims)))):
        loc, scale = tensors(latent[rows])
        mean, factor = scores.mean(loc).numpy(), scores.factor(scale).numpy()
        p = softmax_of(mean[:, :, np.newaxis] + factor @ points, axis=1)
        pieces.append(np.quantile(p, tails, axis=-1, method="hazen").astype(p.dtype))
    lower, upper = np.concatenate(pieces, axis=1)
    return ClassIntervals(lower, upper)
