"""Gaussian densities of features: one for each class, or one within the classes and one over all."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import tf
from deepsimplex._utils.registry import registered
from deepsimplex.calibration.feature_density import FeatureDensity


@registered
class GaussianDensity(FeatureDensity):
    """Class-conditional Gaussians of the features (DDU, Mukhoti et al. 2021).

    The score is log sum_k pi_k N(z; m_k, S_k), with the classes' shares pi_k among the training samples and
    covariances S_k by Ledoit and Wolf's shrinkage. It holds n d^2 numbers for n classes of d features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.normal(size=(200, 2)), np.repeat([0, 1], 100)
    >>> density = GaussianDensity().fit(z + 4 * y[:, None], y)
    >>> density.familiarity([[0.0, 0.0], [9.0, -9.0]]).round(1)
    array([1., 0.])
    """

    fitted_attributes = (*FeatureDensity.fitted_attributes, "centers_", "whitening_", "offsets_")
    centers_: NDArray[np.float64]
    whitening_: NDArray[np.float64]
    offsets_: NDArray[np.float64]

    def _fit(self, z: NDArray[np.float64], y: NDArray[np.int64]) -> None:
        classes = [z[y == k] for k in np.unique(y)]
        self.centers_ = np.stack([rows.mean(axis=0) for rows in classes])
        self.whitening_ = np.stack([_whitening(rows - rows.mean(axis=0)) for rows in classes])
        shares = np.array([len(rows) / len(z) for rows in classes])
        log_determinants = np.log(np.diagonal(self.whitening_, axis1=1, axis2=2)).sum(axis=1)
        self.offsets_ = np.log(shares) + log_determinants - 0.5 * z.shape[1] * math.log(2.0 * math.pi)

    def _score(self, z: Any) -> Any:
        centered = z[:, tf.newaxis] - tf.constant(self.centers_, z.dtype)
        white = tf.einsum("nkd,kde->nke", centered, tf.constant(self.whitening_, z.dtype))
        exponents = tf.constant(self.offsets_, z.dtype) - 0.5 * tf.reduce_sum(tf.square(white), axis=-1)
        return tf.reduce_logsumexp(exponents, axis=1)

    def _row_size(self) -> int:
        return self.centers_.size


@registered
class RelativeMahalanobis(FeatureDensity):
    """Relative Mahalanobis distance: from the nearest class, minus that from all samples (Ren et al. 2021).

    The score is d_0^2 - min_k d_k^2: Mahalanobis distances from the classes' means by one covariance within them, and
    from the mean of all by the covariance of all. It holds 2 d^2 numbers, however many the classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.normal(size=(200, 2)), np.repeat([0, 1], 100)
    >>> bool(np.diff(RelativeMahalanobis().fit(z + 4 * y[:, None], y).familiarity([[0.0, 0.0], [2.0, 2.0]])) < -0.2)
    True
    """

    fitted_attributes = (*FeatureDensity.fitted_attributes, "centers_", "within_", "overall_")
    centers_: NDArray[np.float64]
    within_: NDArray[np.float64]
    overall_: NDArray[np.float64]

    def _fit(self, z: NDArray[np.float64], y: NDArray[np.int64]) -> None:
        classes, number = np.unique(y, return_inverse=True)
        self.centers_ = np.stack([z[y == k].mean(axis=0) for k in classes])
        self.within_, self.overall_ = _whitening(z - self.centers_[number]), _whitening(z)

    def _score(self, z: Any) -> Any:
        within, overall = (tf.constant(part, z.dtype) for part in (self.within_, self.overall_))
        white, centers = z @ within, tf.constant(self.centers_, z.dtype) @ within
        nearest = tf.reduce_min(tf.reduce_sum(tf.square(white[:, tf.newaxis] - centers), axis=-1), axis=1)
        return tf.reduce_sum(tf.square(z @ overall), axis=1) - nearest

    def _row_size(self) -> int:
        return self.centers_.size


def _whitening(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute A [d, d] with A A^T the inverse covariance of centered rows, by Ledoit and Wolf's shrinkage."""
    from sklearn.covariance import ledoit_wolf

    covariance = ledoit_wolf(z, assume_centered=True)[0] if len(z) > 1 else np.zeros((z.shape[1], z.shape[1]))
    # For units that never fire in a class, and classes of one sample; the features have variance one on average.
    covariance += 1e-6 * np.eye(len(covariance))
    return np.linalg.inv(np.linalg.cholesky(covariance)).T
