"""Scale the confidences of one region of a standardized partition towards its correctness [SPS] sec. 4.

A beta distribution is matched to the values of a region by moments; a second one has the mean that the test set shows;
every value is moved to the same quantile of the second one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

# Below this tail SciPy's inverse of the incomplete beta function may return NaN; the logarithm of the tail is used.
SMALLEST_TAIL = 1e-20
# Above these sums of parameters the incomplete beta function, or its logarithm, loses its digits.
LARGEST_CONCENTRATION = 1e14
LARGEST_LOG_CONCENTRATION = 1e12


@dataclass(frozen=True)
class BetaScaling:
    """The two beta distributions by which the values of one region were scaled [SPS] sec. 4.

    Attributes
    ----------
    label : any
        The class whose memberships these are.
    samples : int
        Number of values in the region.
    trials, successes : int
        Number of test samples of the region whose true class is none of the classes ranked above ``label``, and of
        those among them whose true class is ``label``. For the assigned class: all samples and the correct ones.
    target : float
        successes / trials, to which the mean of the values is moved; NaN without trials.
    mean, variance : float
        Of the values; the variance divides by samples - 1 and is NaN for a single one.
    alpha, beta : float
        Parameters of the beta distribution matched to the values; NaN if there is none (see ``note``).
    scaled_alpha, scaled_beta : float
        Parameters of the distribution that they are moved to; their sum is min(trials, alpha + beta).
    scaled_mean : float
        Mean of the scaled values: near the target, as the beta distributions only approximate that of the values.
    note : str
        Empty, or why no beta distribution fits, so that every value became the target.

    Examples
    --------
    >>> from deepsimplex.evaluation import standardized_partition
    >>> region = standardized_partition([0, 0, 1, 0], [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.7, 0.3]]).regions[0]
    >>> level = region.levels[0]
    >>> level.target, round(level.mean, 4), round(level.scaled_mean, 4)
    (0.75, 0.75, 0.7505)
    """

    label: Any
    samples: int
    trials: int
    successes: int
    target: float
    mean: float
    variance: float
    alpha: float
    beta: float
    scaled_alpha: float
    scaled_beta: float
    scaled_mean: float
    note: str


def normal_score(x: Array, a: float, b: float) -> Array:
    """The z with P(Beta(a, b) <= x) = Phi(z), for a and b so large that a correction for the skewness suffices."""
    total = a + b
    z = (x - a / total) / np.sqrt(a / total * b / total / total)
    skewness = 2 * (b - a) / total / np.sqrt(a / total * b)
    return z - skewness / 6 * (z * z - 1)


def log_lower_tail(x: Array, a: float, b: float) -> Array:
    """Logarithm of P(Beta(a, b) <= x) for x in (0, 1) below the mean: a continued fraction (DLMF 8.17.22)."""
    if a + b > LARGEST_LOG_CONCENTRATION:
        return special.log_ndtr(normal_score(x, a, b))
    # Lentz's method: the fraction is a product of c * d.
    tiny = 1e-300
    c: Array = np.ones_like(x)
    d: Array = 1 / (1 - (a + b) / (a + 1) * x)
    fraction = d.copy()
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / np.where(np.abs(d) < tiny, tiny, d)
            c = 1 + term / c
            c = np.where(np.abs(c) < tiny, tiny, c)
            fraction = fraction * (c * d)
        if np.all(np.abs(c * d - 1) < 1e-15):
            break
    return a * np.log(x) + b * np.log1p(-x) - special.betaln(a, b) - np.log(a) + np.log(fraction)


def far_quantile(log_tail: Array, a: float, b: float) -> Array:
    """The x with log P(Beta(a, b) <= x) = ``log_tail``, for tails below ``SMALLEST_TAIL``; by bisection."""
    low, high = np.full_like(log_tail, -745.0), np.full_like(log_tail, np.log(a / (a + b)))
    for _ in range(70):
        middle = (low + high) / 2
        below = log_lower_tail(np.exp(middle), a, b) < log_tail
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(low > -745.0, np.exp(high), 0.0)


def lower_tail(x: Array, complement: Array, a: float, b: float) -> Array:
    """P(Beta(a, b) <= x), given 1 - x too, accurate for very narrow distributions as well."""
    if a + b <= LARGEST_CONCENTRATION:
        return special.betainc(a, b, x)
    if a <= 1e-8 * (a + b):  # the limit is a gamma distribution ...
        return special.gammainc(a, b * x)
    if b <= 1e-8 * (a + b):
        return special.gammaincc(b, a * complement)
    return special.ndtr(normal_score(x, a, b))  # ... or a normal one


def move(values: Array, complements: Array, a: float, b: float, new_a: float, new_b: float) -> tuple[Array, Array]:
    """Move values and their complements to the same quantiles of Beta(new_a, new_b) as they have in Beta(a, b).

    The smaller tail is used: near 1 the distribution function has few digits left and its complement has all.
    """
    from_below = lower_tail(values, complements, a, b) <= 0.5
    moved, moved_complements = np.empty_like(values), np.empty_like(values)
    for side, x, rest, (p, q), (new_p, new_q), near, far in (
        (from_below, values, complements, (a, b), (new_a, new_b), moved, moved_complements),
        (~from_below, complements, values, (b, a), (new_b, new_a), moved_complements, moved),
    ):
        tail = lower_tail(x[side], rest[side], p, q)
        quantile = special.betaincinv(new_p, new_q, np.where(tail < SMALLEST_TAIL, 0.0, tail))
        lost = (tail < SMALLEST_TAIL) & (x[side] > 0)
        if lost.any():
            quantile[lost] = far_quantile(log_lower_tail(x[side][lost], p, q), new_p, new_q)
        near[side], far[side] = quantile, 1 - quantile
    return moved, moved_complements


def scale(
    values: Array, complements: Array, label: Any, successes: int, trials: int, precision: float
) -> tuple[Array, Array, BetaScaling]:
    """Scale the values of one region towards successes / trials [SPS] sec. 4, (i) and (ii).

    Parameters
    ----------
    values, complements : ndarray, shape [N], float64
        Memberships q in a class (as shares of what higher ranks left) and 1 - q; N >= 1.
    label, successes, trials
        As in ``BetaScaling``.
    precision : float
        Values that differ by no more than four times this, relatively, are equal.

    Returns
    -------
    scaled, scaled_complements : ndarray, shape [N]
    parameters : BetaScaling

    Notes
    -----
    The paper prints alpha + beta = mean (1 - mean) / variance; the method of moments, which it names, subtracts 1.
    A correctness of 0 or 1 gives scaled values of 0 or 1, the limits of the formula. If no beta distribution has the
    moments (one value, equal values, or a variance of at least mean (1 - mean)), every value becomes the target.
    """
    samples = len(values)
    target = successes / trials if trials else np.nan
    # Sorted, so that the last digit does not depend on the order of the test set.
    ordered, ordered_complements = np.sort(values), np.sort(complements)
    mean, mean_complement = float(ordered.mean()), float(ordered_complements.mean())
    # The smaller side has the more digits: 1 - q near q = 1.
    small = ordered if mean < 0.5 else ordered_complements
    variance = float(np.var(small, ddof=1)) if samples > 1 else np.nan
    alpha = beta = scaled_alpha = scaled_beta = np.nan
    note = ""
    if trials == 0:
        note = "no test sample of this class or a lower rank"
    elif samples < 2:
        note = "a single value"
    elif ordered[-1] - ordered[0] <= 4 * precision * ordered[-1] or not variance > 0:
        note = "equal values"
    else:
        concentration = mean * mean_complement / variance - 1
        if concentration > 1e-12:
            alpha, beta = concentration * mean, concentration * mean_complement
            certainty = min(float(trials), concentration)
            scaled_alpha, scaled_beta = certainty * target, certainty * (1 - target)
        else:
            note = "a variance too large for a beta distribution"
    if trials == 0:
        scaled, scaled_complements = values, complements
    elif note or successes in (0, trials):
        scaled, scaled_complements = np.full(samples, target), np.full(samples, 1 - target)
    else:
        scaled, scaled_complements = move(values, complements, alpha, beta, scaled_alpha, scaled_beta)
    moments = (label, samples, trials, successes, target, mean, variance)
    betas = (alpha, beta, scaled_alpha, scaled_beta)
    parameters = BetaScaling(*moments, *betas, scaled_mean=float(scaled.mean()), note=note)
    return scaled, scaled_complements, parameters


def scale_region(
    ordered: Array, labels: list[Any], counts: list[int], precision: float
) -> tuple[Array, tuple[BetaScaling, ...]]:
    """Scale the memberships of one region, rank by rank [SPS] sec. 4, "Scaling at depths d > 1".

    Parameters
    ----------
    ordered : ndarray, shape [N, n], float64
        Memberships of the region's samples; column j < d is that of the region's class of rank j.
    labels, counts : list of length d
        Those classes, and how many of the N samples belong to each.
    precision : float
        As in ``scale``.

    Returns
    -------
    scaled : ndarray, shape [N, n]
        Columns in the same order. Columns from d on keep their ratios; if they are all 0 they stay 0.
    levels : tuple of BetaScaling, length d

    Notes
    -----
    As in the construction of a Dirichlet variable from beta variables, rank j takes the share
    q_j = m_j / (m_j + ... + m_n) of what the ranks above left, and its trials are the test samples that they left: the
    target is p_j / (1 - p_1 - ... - p_(j-1)).
    """
    samples, depth = len(ordered), len(labels)
    scaled = np.zeros_like(ordered)
    left, levels, trials = np.ones(samples), [], samples
    for j in range(depth):
        total = ordered[:, j:].sum(axis=1)
        alive = total > 0
        if j == 0:
            values = np.minimum(ordered[:, 0], 1.0)
            complements = np.subtract(1.0, values)
            alive = np.ones(samples, bool)
        elif alive.any():
            values = ordered[alive, j] / total[alive]
            complements = ordered[alive, j + 1 :].sum(axis=1) / total[alive]
        else:
            break
        moved, moved_complements, level = scale(values, complements, labels[j], counts[j], trials, precision)
        scaled[alive, j] = left[alive] * moved
        left[alive] *= moved_complements
        trials -= counts[j]
        levels.append(level)
    others = ordered[:, depth:]
    total = others.sum(axis=1, keepdims=True)
    shares = np.divide(others, total, out=np.zeros_like(others), where=total > 0)
    scaled[:, depth:] = left[:, None] * shares
    return scaled, tuple(levels)
