"""Slow oracles of the readouts: adaptive quadrature class by class, and counting."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_ndtr, softmax
from scipy.stats import norm


def density(z: float) -> float:
    """Density of the standard normal distribution; for single numbers many times as fast as SciPy's."""
    return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def distribution(z: float) -> float:
    """Phi(z)."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def log_argmax_independent(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """log P[argmax = y] of independent Gaussian scores, shapes [n]: one adaptive integral a class, in units of t_y."""
    answer = np.empty(len(mean))
    for y in range(len(mean)):
        steps = (np.delete(mean, y) - mean[y]) / deviation[y]  # where the rivals' distribution functions rise
        widths = np.delete(deviation, y) / deviation[y]

        def log_integrand(x: float, steps: NDArray[np.float64] = steps, widths: NDArray[np.float64] = widths) -> float:
            return -0.5 * x * x - 0.5 * math.log(2 * math.pi) + float(log_ndtr((x - steps) / widths).sum())

        bounds = (min(-10.0, steps.min() - 10.0), max(10.0, steps.max() + 10.0))
        peak = minimize_scalar(lambda x: -log_integrand(x), bounds=bounds, method="bounded", options={"xatol": 1e-9}).x
        top = log_integrand(peak)
        breaks = np.sort(np.concatenate([[peak], steps, steps - 4 * widths, steps + 4 * widths]))
        area, _ = quad(
            lambda x, top=top: math.exp(log_integrand(x) - top),
            peak - 9,
            peak + 9,
            points=breaks[(breaks > peak - 9) & (breaks < peak + 9)],
            epsabs=0,
            epsrel=1e-12,
            limit=1000,
        )
        answer[y] = top + math.log(area)
    return answer


def argmax_independent(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities themselves."""
    return np.exp(log_argmax_independent(mean, deviation))


def argmax_three(loc: NDArray[np.float64], factor: NDArray[np.float64], S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Three classes, loc [L], factor [L, L]: P[both differences positive] by conditioning on the first."""
    answer = np.empty(3)
    for y in range(3):
        A = S[y] - np.delete(S, y, axis=0)
        (m1, m2), C = A @ loc, A @ factor @ factor.T @ A.T
        s1, slope = math.sqrt(C[0, 0]), C[0, 1] / math.sqrt(C[0, 0])
        rest = math.sqrt(C[1, 1] - slope**2)
        begin, step = -m1 / s1, -m2 / slope

        def integrand(x: float, at: float = m2, slope: float = slope, rest: float = rest) -> float:
            return density(x) * distribution((at + slope * x) / rest)

        points = sorted(x for x in (step, step - 4 * abs(rest / slope), step + 4 * abs(rest / slope), 0.0) if x > begin)
        answer[y] = sum(
            quad(integrand, a, b, epsabs=1e-15, epsrel=1e-12)[0]
            for a, b in itertools.pairwise([begin, *[p for p in points if p < begin + 40], max(begin, 0.0) + 40])
        )
    return answer


def argmax_isotropic(loc: NDArray[np.float64], s: float, P: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for a latent N(loc, s^2 I) and simplex scores P: independent after a common shift of all scores."""
    n = len(P)
    alpha = np.trace((P - P.mean(0)) @ (P - P.mean(0)).T) / (n - 1)
    return argmax_independent(P @ loc, np.full(n, s * np.sqrt(alpha)))


def argmax_by_counting(
    loc: NDArray[np.float64], factor: NDArray[np.float64], S: NDArray[np.float64], draws: int, seed: int
) -> NDArray[np.float64]:
    """Share of independent draws in which each class scores highest; loc [L], factor [L, L], S [n, L]."""
    f = loc + np.random.default_rng(seed).standard_normal((draws, len(loc))) @ factor.T
    return np.bincount((f @ S.T).argmax(1), minlength=len(S)) / draws


def softmax_two(m: float, s: float) -> float:
    """E[sigmoid(x)], x ~ N(m, s^2), by adaptive quadrature on both sides of the step."""

    def integrand(x: float) -> float:
        return density((x - m) / s) / s * expit(x)

    width = 9 * s
    points = [x for x in (-20.0, 0.0, 20.0, m) if m - width < x < m + width]
    return quad(integrand, m - width, m + width, points=points, epsabs=1e-13, epsrel=1e-11, limit=500)[0]


def softmax_by_averaging(
    loc: NDArray[np.float64], factor: NDArray[np.float64], S: NDArray[np.float64], draws: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean softmax over independent draws, and its standard error."""
    f = loc + np.random.default_rng(seed).standard_normal((draws, len(loc))) @ factor.T
    values = softmax(f @ S.T, axis=1)
    return values.mean(0), values.std(0) / np.sqrt(draws)


def softmax_independent(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """E[softmax(g)] of independent Gaussian scores, shapes [n], as P[argmax_k g_k + Gumbel_k = y] on dense grids."""
    low = (mean - 10 * deviation).max() - 4
    high = mean.max() + min((deviation**2).max() / 2, 8 * deviation.max()) + 40
    u, step = np.linspace(low, high, 1001, retstep=True)
    t, width = np.linspace(-10, 10 + 3 * deviation.max(), 1001, retstep=True)
    weights = norm.pdf(t) * width
    cdf, densities = np.empty((2, len(mean), len(u)))
    for k in range(len(mean)):
        e = np.exp(-np.maximum(u[:, None] - mean[k] - deviation[k] * t, -7.0))
        cdf[k], densities[k] = np.exp(-e) @ weights, (e * np.exp(-e)) @ weights
    return np.array([(densities[y] * np.delete(cdf, y, axis=0).prod(0)).sum() * step for y in range(len(mean))])
