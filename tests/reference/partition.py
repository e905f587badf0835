"""Slow oracle of standardized partition spaces: the paper's text, one sample at a time.

[SPS] Sondhauss and Weihs (2001), with the two corrections that its own words ask for: the method of moments (minus 1)
and the distance sqrt((G - 1) / G) from the centroid to a corner.
"""

import math

import numpy as np
from scipy import stats


def ranking(row: np.ndarray) -> list[int]:
    """o_1, o_2, ... of sec. 4: the class of the largest membership, then of the largest among the others."""
    left, order = list(range(len(row))), []
    while left:
        best = left[0]
        for c in left:
            if row[c] > row[best]:
                best = c
        order.append(best)
        left.remove(best)
    return order


def same_quantile(x: float, rest: float, alpha: float, beta: float, new_alpha: float, new_beta: float) -> float:
    """The solution of F_new(m^s) = F(m), by the tail that has digits; ``rest`` is 1 - x, given with all its digits."""
    if x <= 0 or rest <= 0:
        return x
    if stats.beta.cdf(x, alpha, beta) < 0.5:
        return float(stats.beta.ppf(stats.beta.cdf(x, alpha, beta), new_alpha, new_beta))
    return 1 - float(stats.beta.ppf(stats.beta.cdf(rest, beta, alpha), new_beta, new_alpha))


def scaled_values(values: list[float], rests: list[float], right: int, trials: int) -> list[float]:
    """Sec. 4 "Scaling at depth one" for the assignment values of one region."""
    if trials == 0:
        return values
    p, N = right / trials, len(values)
    if N < 2 or max(values) - min(values) <= 1e-15 * max(values) or p in (0, 1):
        return [p] * N
    # Near 1 the values have few digits left; their complements have the same variance.
    mean, mean_rest = math.fsum(values) / N, math.fsum(rests) / N
    small, center = (values, mean) if mean < 0.5 else (rests, mean_rest)
    variance = math.fsum((v - center) ** 2 for v in small) / (N - 1)
    alpha_plus_beta = mean * mean_rest / variance - 1
    if alpha_plus_beta <= 1e-12:
        return [p] * N
    N_s = min(trials, alpha_plus_beta)
    alpha, beta = alpha_plus_beta * mean, alpha_plus_beta * mean_rest
    return [same_quantile(v, r, alpha, beta, N_s * p, N_s * (1 - p)) for v, r in zip(values, rests, strict=True)]


def scaled_memberships(y: np.ndarray, m: np.ndarray, depth: int = 1) -> np.ndarray:
    """Sec. 4: regions by the first ``depth`` ranks, scaled rank by rank; the other memberships keep their ratios."""
    N, G = m.shape
    regions: dict[tuple[int, ...], list[int]] = {}
    for i in range(N):
        regions.setdefault(tuple(ranking(m[i])[:depth]), []).append(i)
    scaled = np.zeros((N, G))
    for order, rows in regions.items():
        above: list[int] = []
        for c in order:
            trials = sum(y[i] not in above for i in rows)
            right = sum(y[i] == c for i in rows)
            shares, rests = {}, []
            for i in rows:
                lower = math.fsum(m[i, g] for g in range(G) if g not in above and g != c)
                total = lower + m[i, c] if above else 1.0
                if total > 0:
                    shares[i] = m[i, c] / total
                    # Not 1 - share at deeper ranks: it loses the digits of a share near 1.
                    rests.append(lower / total if above else 1 - m[i, c])
            moved = scaled_values(list(shares.values()), rests, right, trials) if shares else []
            for i, share in zip(shares, moved, strict=True):
                scaled[i, c] = share * max(0.0, 1 - math.fsum(scaled[i, g] for g in above))
            above.append(c)
        for i in rows:
            rest = math.fsum(m[i, g] for g in range(G) if g not in order)
            for g in range(G):
                if g not in order and rest > 0:
                    scaled[i, g] = max(0.0, 1 - math.fsum(scaled[i, c] for c in order)) * m[i, g] / rest
    return scaled


def closeness(m: np.ndarray, corners: list[int]) -> float:
    """Sec. 5: Ac for true and AS for assigned corners."""
    N, G = m.shape
    radius = math.dist([1 / G] * G, [1.0] + [0.0] * (G - 1))
    distances = [math.dist(m[i], [float(g == corners[i]) for g in range(G)]) for i in range(N)]
    return (radius - math.fsum(distances) / N) / radius
