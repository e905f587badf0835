"""The Brier score taken apart into reliability, resolution and uncertainty."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.evaluation.bins import bin_index, check_bins, equal_width_edges
from deepsimplex.evaluation.inputs import check_labels_and_probabilities
from deepsimplex.evaluation.prepared import Prepared


@dataclass(frozen=True)
class BrierDecomposition:
    """The Brier score as reliability - resolution + uncertainty + remainder.

    Attributes
    ----------
    reliability : float
        Squared gap between mean probability and frequency in a bin, over samples: 0 is calibrated.
    resolution : float
        How far the frequencies of the bins lie from those of all samples, squared: the more, the more was told apart.
    uncertainty : float
        Variance of the labels themselves; no classifier changes it, and 0 where all samples are of one class.
    remainder : float
        What bins hide: the variance of the probabilities within them, less twice their covariance with the labels.

    Examples
    --------
    >>> parts = BrierDecomposition(reliability=0.01, resolution=0.2, uncertainty=0.25, remainder=0.0)
    >>> round(parts.brier_score, 4)
    0.06
    """

    reliability: float
    resolution: float
    uncertainty: float
    remainder: float

    @property
    def brier_score(self) -> float:
        """The sum of the parts, which is ``brier_score(y, p)`` up to rounding."""
        return self.reliability - self.resolution + self.uncertainty + self.remainder


def _cells(probabilities: NDArray[Any], bins: int | None) -> NDArray[np.intp]:
    """The bin of every probability [N, n], numbered over all classes; None gives every value a bin of its own."""
    n = probabilities.shape[1]
    if bins is not None:
        return bin_index(probabilities, equal_width_edges(bins)) + bins * np.arange(n)
    columns = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in probabilities.T]
    starts = np.cumsum([0] + [column.max() + 1 for column in columns[:-1]])
    return np.stack(columns, axis=1) + starts


def prepare_brier_decomposition(y: ArrayLike, p: ArrayLike, bins: int | None = 15) -> Prepared:
    """See ``brier_decomposition``; gives its four parts in order, [4]."""
    labels, probabilities = check_labels_and_probabilities(y, p)
    n = probabilities.shape[1]
    cells = _cells(probabilities, None if bins is None else check_bins(bins))
    size = int(cells.max()) + 1

    def finish(
        labels: NDArray[np.int64], probabilities: NDArray[np.float64], cells: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        samples = len(labels)
        events = cells[np.arange(samples), labels]
        counts = np.bincount(cells.ravel(), minlength=size)
        weighted = np.maximum(counts, 1)  # an empty bin has sums of 0
        means = np.bincount(cells.ravel(), weights=probabilities.ravel(), minlength=size) / weighted
        frequencies = np.bincount(events, minlength=size) / weighted
        share = np.bincount(labels, minlength=n) / samples
        # Every bin belongs to one class; an empty one weighs nothing whichever it is given to.
        shares = np.zeros(size)
        shares[cells.ravel()] = np.tile(share, samples)
        reliability = np.sum(counts * np.square(means - frequencies))
        resolution = np.sum(counts * np.square(frequencies - shares))
        within = probabilities - means[cells]
        # Of the covariance only the labels that happened count: deviations within a bin sum to zero.
        covariance = np.sum(within[np.arange(samples), labels])
        remainder = np.sum(np.square(within)) - 2 * covariance
        parts = np.array([reliability, resolution, samples * np.sum(share * (1 - share)), remainder]) / samples
        return parts / 2 if n == 2 else parts

    # Means of a bin's few samples scatter, which adds to reliability and resolution; frequencies of few samples are
    # less even than those of many. The remainder's errors go either way.
    halves = 2 if n == 2 else 1
    limits = ((0, 2 / halves), (0, 2 / halves), (0, (1 - 1 / n) / halves), None)
    return Prepared(finish, (labels, probabilities.astype(np.float64), cells), limits=limits)


def brier_decomposition(y: ArrayLike, p: ArrayLike, bins: int | None = 15) -> BrierDecomposition:
    """Take the Brier score apart, class against the rest, summed over classes (Murphy, 1973; Stephenson et al., 2008).

    Parameters
    ----------
    y : array_like, shape [N] or [N, 1]
        Class numbers 0..n-1.
    p : array_like, shape [N, n]
        Class probabilities.
    bins : int or None
        Right-closed bins of equal width for the probabilities of every class, 15 by default: a remainder is left, and
        given. None puts only equal probabilities together: then the remainder is 0 and Murphy's three terms are exact,
        but they tell something only where probabilities repeat (a tree's, a table's); of N different ones, each class
        has reliability and resolution of single samples.

    Returns
    -------
    BrierDecomposition
        Halved for two classes, as ``brier_score`` is.

    Examples
    --------
    >>> p = [[0.8, 0.2], [0.8, 0.2], [0.4, 0.6], [0.4, 0.6]]
    >>> parts = brier_decomposition([0, 1, 1, 1], p, bins=None)
    >>> round(parts.reliability, 4), round(parts.resolution, 4), round(parts.uncertainty, 4), round(parts.remainder, 4)
    (0.125, 0.0625, 0.1875, 0.0)
    """
    return BrierDecomposition(*map(float, prepare_brier_decomposition(y, p, bins).value()))
