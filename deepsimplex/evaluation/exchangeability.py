"""Conformal test martingale: does a stream of numbers go on as a reference sample of them began?"""

import math
import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_array, check_whole

# Bets on a p-value u: slopes e of 1 + e (u - 1/2), and densities that are r on the lowest or highest share q.
_SLOPES = (-1.9, -1.0, -0.5, 0.5, 1.0, 1.9)
_STEPS = ((0.05, 5.0), (0.1, 0.3), (0.1, 2.0))
_BETS = len(_SLOPES) + 2 * len(_STEPS)
# Numbers of the stream that are compared with one another at once.
_BLOCK = 1024


class ExchangeabilityTest:
    """Sequential test whether the numbers of a stream are exchangeable with those of a reference sample.

    The evidence M against it may be looked at after every number: without a change it ever exceeds 1 / a with
    probability at most a (Ville's inequality), however long the stream is.

    Parameters
    ----------
    reference : array_like, shape [R]
        The more, the sooner a change is detected; with few, a change soon belongs to what the stream is compared with.
    seed : int
        Seed of the random order of equal numbers. Default 0.

    Attributes
    ----------
    stream : ndarray, shape [T]
        All numbers of ``update``.
    log_evidence : ndarray, shape [T]
        log M after each of them.

    Notes
    -----
    The p-value of each number is its rank among the reference and the stream so far; without a change p-values are
    independent and uniform (Vovk, Gammerman, Shafer: *Algorithmic Learning in a Random World*, 2005, sec. 7.1). M is
    the capital of a player who bets on them at fair odds, from 1: a mixture over bets and over the time s at which
    betting begins, with weights 1 / log(s + e) - 1 / log(s + 1 + e), s = 0, 1, ..., so that a late change is detected
    nearly as soon as an early one. Cutting the stream into other calls changes nothing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> test = ExchangeabilityTest(rng.normal(size=500))
    >>> bool(test.update(rng.normal(size=200)).max() < np.log(20))
    True
    >>> bool(test.update(rng.normal(1.0, size=200)).max() > np.log(20))
    True
    """

    def __init__(self, reference: ArrayLike, *, seed: int = 0) -> None:
        values = check_array(reference, "reference", "[R]", least=1)
        self.seed = check_whole(seed, "seed", 0)
        self.stream: NDArray[np.float64] = np.empty(0)
        self.log_evidence: NDArray[np.float64] = np.empty(0)
        self._sorted = np.sort(values)
        # Other ties in every test: the same would be lucky, or not, in all of them.
        self._entropy = [self.seed, zlib.crc32(values.tobytes())]
        self._log_capital = np.full(_BETS, -np.inf)

    def update(self, values: ArrayLike) -> NDArray[np.float64]:
        """Append numbers [m] to the stream; return log M after each of them, [m]."""
        new = check_array(values, "values", "[m]")
        before = len(self.stream)
        log_evidence = self._bet(self._p_values(new), before)
        self.stream = np.concatenate([self.stream, new])
        self.log_evidence = np.concatenate([self.log_evidence, log_evidence])
        return log_evidence

    def _p_values(self, new: NDArray[np.float64]) -> NDArray[np.float64]:
        bits = np.random.PCG64(self._entropy).advance(len(self.stream))
        ties = np.random.Generator(bits).random(len(new))  # those of a number depend on its place in the stream only
        p_values = np.empty(len(new))
        for first in range(0, len(new), _BLOCK):
            block = new[first : first + _BLOCK]
            below, up_to = (np.searchsorted(self._sorted, block, side) for side in ("left", "right"))
            below = below + np.tril(block < block[:, np.newaxis]).sum(axis=1)
            up_to = up_to + np.tril(block <= block[:, np.newaxis]).sum(axis=1)  # with the number itself
            total = len(self._sorted) + 1 + np.arange(len(block))
            p_values[first : first + _BLOCK] = (below + ties[first : first + _BLOCK] * (up_to - below)) / total
            self._sorted = np.sort(np.concatenate([self._sorted, block]), kind="stable")
        return p_values

    def _bet(self, u: NDArray[np.float64], before: int) -> NDArray[np.float64]:
        """Return log M [m] after each of the p-values u [m], which follow ``before`` others."""
        steps = [
            np.where(tail < q, r, (1 - q * r) / (1 - q)) for q, r in _STEPS for tail in (u, np.nextafter(1.0, 0) - u)
        ]
        returns = np.cumsum(np.log([*(1 + slope * (u - 0.5) for slope in _SLOPES), *steps]), axis=1)  # [bets, m]
        start = 1 / np.log(np.arange(before, before + len(u) + 1) + math.e)
        begun = np.log(-np.diff(start) / _BETS) - np.concatenate([np.zeros((_BETS, 1)), returns[:, :-1]], axis=1)
        capital = np.logaddexp.accumulate(np.column_stack([self._log_capital, begun]), axis=1)[:, 1:] + returns
        if len(u):
            self._log_capital = capital[:, -1]
        return np.asarray(np.logaddexp(np.logaddexp.reduce(capital, axis=0), np.log(start[1:])))
