"""Distance of features to their k-th nearest neighbor among the training samples."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import tf
from deepsimplex._utils.portable_operations import kth_largest
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_whole
from deepsimplex.calibration.feature_density import FeatureDensity

# Quantiles of the lengths of training features between which lengths count as the first.
_SAME_LENGTH = (0.5, 0.99)
_PRECISION = np.float32  # of the search among a network's features, in a third of the time


@registered
class NeighborDistance(FeatureDensity):
    """Distance to the k-th nearest of the training samples (Sun et al. 2022): the default.

    The score is minus that distance between transformed features. The lengths of a network's features grow with its
    certainty, and say little about familiarity: the paper normalizes all of them to one. Here lengths between the
    median and the 0.99 quantile of the training samples count as the median, so that short features, whose direction
    is ill-determined, stay near each other, and features longer than almost all stay far. Columns of a table keep their
    lengths.

    Parameters
    ----------
    k : int
        Number of neighbors. Default 10; with fewer samples kept, all but one of them.
    max_samples : int
        Largest number of training samples to keep, at least 2: the density holds max_samples q numbers, for q
        principal components. Default 5000, with which images of unknown classes were detected as well as with all of
        Fashion-MNIST. For hundreds of classes take more, so that the k nearest can be of one class.
    seed : int
        Seed of the draw of the samples that are kept. Default 0.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(200, 2))
    >>> density = NeighborDistance().fit(z, np.zeros(200, int))
    >>> bool(np.diff(density.familiarity([[0.0, 0.0], [5.0, 5.0]])) < -0.5)
    True
    """

    fitted_attributes = (*FeatureDensity.fitted_attributes, "neighbors_", "lengths_")
    neighbors_: NDArray[np.floating]
    lengths_: NDArray[np.float64]  # lengths between these two count as the first

    def __init__(self, k: int = 10, max_samples: int = 5000, seed: int = 0) -> None:
        super().__init__(seed)
        self.k, self.max_samples = check_whole(k, "k", 1), check_whole(max_samples, "max_samples", 2)

    def _fit(self, z: NDArray[np.float64], y: NDArray[np.int64]) -> None:
        lengths = np.linalg.norm(z, axis=1)
        self.lengths_ = np.quantile(lengths, _SAME_LENGTH if self.projection_.ndim == 2 else (1.0, 1.0))
        dtype = _PRECISION if self.projection_.ndim == 2 else np.float64
        self.neighbors_ = self._shortened(z[self._kept(len(z))]).numpy().astype(dtype)

    def _kept(self, N: int) -> NDArray[np.int64]:
        """Draw the indices of the training samples that are kept."""
        return np.random.default_rng(self.seed).permutation(N)[: self.max_samples]

    def _shortened(self, z: Any) -> Any:
        """Shorten features whose lengths are between the two of ``lengths_`` to the first."""
        length = tf.norm(z, axis=1, keepdims=True)
        shorter, longer = (tf.constant(limit, length.dtype) for limit in self.lengths_)
        excess = tf.clip_by_value(length - shorter, 0.0, longer - shorter)
        return z * (1.0 - tf.math.divide_no_nan(excess, length))

    def _cross_validated_scores(
        self, z: NDArray[np.float64], y: NDArray[np.int64], units: NDArray[np.int64] | None
    ) -> NDArray[np.float64]:
        if units is not None:
            return super()._cross_validated_scores(z, y, units)
        self._fit(z, y)
        scores, kept = np.empty(len(z)), np.isin(np.arange(len(z)), self._kept(len(z)))
        for rows, themselves in ((~kept, 0), (kept, 1)):  # each of the kept samples is its own nearest neighbor
            if rows.any():
                scores[rows] = self._in_batches(z[rows], partial(self._score, themselves=themselves))
        return scores

    def _score(self, z: Any, themselves: int = 0) -> Any:
        kept, k = self.neighbors_, min(self.k, len(self.neighbors_) - 1) + themselves
        short = tf.cast(self._shortened(z), kept.dtype)
        # |short|^2 - |short - neighbor|^2, in one product
        weights = tf.constant(np.concatenate([2 * kept, -np.square(kept).sum(axis=1, keepdims=True)], axis=1))
        nearness = tf.matmul(tf.pad(short, [[0, 0], [0, 1]], constant_values=1), weights, transpose_b=True)
        squared = tf.reduce_sum(tf.square(short), axis=1) - kth_largest(nearness, k)
        return -tf.sqrt(tf.maximum(tf.cast(squared, z.dtype), 0.0))

    def _row_size(self) -> int:
        return len(self.neighbors_)
