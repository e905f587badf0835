"""Standardization of features and latents by moments that are accumulated over blocks of rows."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from deepsimplex.samples import Reservoir, Samples

Arrays = tuple[NDArray[Any], ...]
# Number of rows for initial hyperparameters and inducing points: more rows change both little.
SAMPLE = 20_000
# Widths below this share of the largest number are round-off: such a column is constant.
_ROUND_OFF = 1e-12


class Scaling(NamedTuple):
    """An affine map of columns, (values - center) / width.

    Attributes
    ----------
    center, width : ndarray, shape [d]
        Widths are positive.
    """

    center: NDArray[np.float64]
    width: NDArray[np.float64]

    @classmethod
    def identity(cls, columns: int) -> "Scaling":
        """Leave columns as they are."""
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def for_features(cls, moments: "Moments") -> "Scaling":
        """Scale every column to (weighted) mean zero and standard deviation one; a constant column to zero."""
        width = np.ldexp(np.sqrt(moments.squares), moments.exponent)
        return cls(moments.center, np.where(width <= _ROUND_OFF * moments.largest, 1.0, width))

    @classmethod
    def for_latents(cls, moments: "Moments") -> "Scaling":
        """Scale to mean zero, by one width for all dimensions, so that isotropic noise stays isotropic."""
        width = float(np.sqrt(np.mean(np.ldexp(moments.squares, 2 * moments.exponent))))
        constant = width <= _ROUND_OFF * moments.largest.max()
        return cls(moments.center, np.full(len(moments.center), 1.0 if constant else width))

    def __call__(self, values: Any) -> Any:
        """Scale values [..., d]."""
        return (values - self.center) / self.width


@dataclass(frozen=True)
class Moments:
    """Weighted means and variances of columns; those of two blocks of rows can be added.

    Parameters
    ----------
    weight : float
        Sum of the rows' weights.
    center : ndarray, shape [d]
        Means.
    squares : ndarray, shape [d]
        Variances in units of 4**exponent: scaling by powers of two is exact, and squares neither overflow
        nor vanish.
    largest : ndarray, shape [d]
        Largest absolute values.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> added = Moments.of(X[:20]) + Moments.of(X[20:])
    >>> bool(np.allclose(Scaling.for_features(added).width, X.std(axis=0)))
    True
    """

    weight: float
    center: NDArray[np.float64]
    squares: NDArray[np.float64]
    largest: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any], weights: NDArray[np.float64] | None = None) -> Self:
        """Compute the moments of rows [N, d] with weights [N], by default equal ones; in double precision."""
        values = np.asarray(values, dtype=np.float64)
        center, largest = np.average(values, axis=0, weights=weights), np.abs(values).max(axis=0)
        exponent = np.frexp(largest)[1]
        squares = np.square(np.ldexp(values, -exponent) - np.ldexp(center, -exponent))
        weight = float(len(values) if weights is None else weights.sum())
        return cls(weight, center, np.average(squares, axis=0, weights=weights), largest)

    @property
    def exponent(self) -> NDArray[np.intc]:
        """Exponents [d] of the powers of two next above the largest values."""
        return np.frexp(self.largest)[1]

    def __add__(self, other: "Moments") -> "Moments":
        weight, largest = self.weight + other.weight, np.maximum(self.largest, other.largest)
        share, exponent = other.weight / weight, np.frexp(largest)[1]
        first, second = (np.ldexp(part.squares, 2 * (part.exponent - exponent)) for part in (self, other))
        apart = np.square(np.ldexp(other.center, -exponent) - np.ldexp(self.center, -exponent))
        squares = (1.0 - share) * first + share * second + share * (1.0 - share) * apart
        return Moments(weight, (1.0 - share) * self.center + share * other.center, squares, largest)


def survey(samples: Samples, seed: int) -> tuple[list[Moments], Arrays]:
    """Read rows once to compute their moments and to draw a random sample, from which a fit is initialized.

    Parameters
    ----------
    samples : Samples
        Features and what was observed of them, weights [N] and classes [N].
    seed : int

    Returns
    -------
    moments : list of Moments
        Of the features and of what was observed, over all rows.
    sample : tuple of ndarray
        All arrays of at most ``SAMPLE`` rows and one of every class, in order.
    """
    reservoir = Reservoir(SAMPLE, seed, per_class=1)
    moments: list[Moments] = []
    for block in samples.blocks():
        *values, weights, classes = block
        added = [Moments.of(value, weights) for value in values]
        moments = [total + part for total, part in zip(moments, added, strict=True)] if moments else added
        reservoir.add(block, classes)
    return moments, reservoir.drawn().columns
