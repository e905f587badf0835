"""Base class of the densities of features, which give familiarity and widen latents of unfamiliar samples."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.array_operations import is_tensor, tf
from deepsimplex._utils.batching import row_slices
from deepsimplex._utils.parameters import Fitted, constructor_parameters
from deepsimplex._utils.portable_operations import precise_dtype
from deepsimplex._utils.validation import (
    check_array,
    check_finite_rows,
    check_groups,
    check_labels,
    check_number,
    check_whole,
)
from deepsimplex.latent import LatentGaussian

# Parts of the training samples, each scored by a density of the others.
_FOLDS = 5
# Number of quantiles of the training scores that are stored: familiarity has a resolution of a thousandth.
_QUANTILES = 1000
_FARTHEST, _ROUND_OFF = 1e12, 1e-12
# Quantiles of the training scores: variances grow below the first one, in units of half the range between the two.
_UNFAMILIAR = (0.1, 0.9)
# Share of the variance of a network's features that the principal components of a density hold.
VARIANCE_SHARE = 0.98
# Numbers in the largest tensor of a batch of rows.
_BUDGET = 2**23


class FeatureDensity(Fitted, ABC):
    """Base class of densities of features; familiarity is the quantile of a score over the training samples.

    Away from the training samples, a network's features collapse and its variances stay too small. ``variance_factor``
    compensates for that: with the score t of a sample, and its quantiles t_q over the training samples, variances
    grow by 1 + 2 max(0, (t_.1 - t) / (t_.9 - t_.1)), linearly beyond the least familiar tenth.

    A subclass defines ``_fit``, ``_score`` and ``_row_size``, and adds the arrays that ``_fit`` sets to
    ``fitted_attributes``. Register it with ``keras.saving.register_keras_serializable``.

    Parameters
    ----------
    seed : int
        Seed of the division of the training samples into five folds. Default 0.

    Attributes
    ----------
    quantiles_ : ndarray, shape [1000]
        Quantiles of the scores of training samples under a density of other samples.
    mean_, projection_ : ndarray, shapes [d], and [d] or [d, q]
        Transformation of the features before the density: (z - mean), times factors or a matrix.

    Examples
    --------
    >>> from deepsimplex.calibration import GaussianDensity
    >>> z = np.random.default_rng(0).normal(size=(200, 2))
    >>> density = GaussianDensity().fit(z, np.zeros(200, int))
    >>> isinstance(density, FeatureDensity), bool(density.familiarity([[9.0, 9.0]])[0] < 0.01)
    (True, True)
    """

    fitted_attributes: ClassVar[tuple[str, ...]] = ("quantiles_", "mean_", "projection_")
    quantiles_: NDArray[np.float64]
    mean_: NDArray[np.float64]
    projection_: NDArray[np.float64]

    def __init__(self, seed: int = 0) -> None:
        self.seed = check_whole(seed, "seed", 0)

    @abstractmethod
    def _fit(self, z: NDArray[np.float64], y: NDArray[np.int64]) -> None:
        """Fit to transformed features [N, q] and class numbers [N]."""

    @abstractmethod
    def _score(self, z: Any) -> Any:
        """Compute scores [N] of transformed features, a tensor [N, q]: the larger, the more typical."""

    @abstractmethod
    def _row_size(self) -> int:
        """Return how many numbers the largest tensor of a row holds."""

    def fit(
        self, z: ArrayLike, y: ArrayLike, variance_share: float | None = None, groups: ArrayLike | None = None
    ) -> "FeatureDensity":
        """Fit to the features [N, d] of training samples and their class numbers [N].

        Parameters
        ----------
        z : array_like, shape [N, d]
        y : array_like, shape [N]
        variance_share : float, optional
            Default None: every feature is standardized, which suits columns of a table in different units. Otherwise
            features are replaced by the leading principal components that hold this share of the variance:
            ``SimplexClassifier.fit_density`` uses 0.98, since the directions in which the features of training samples
            hardly vary add mostly noise.
        groups : array_like, shape [N], optional
            Group of each sample, such as its patient: the score of a training sample is that under a density of other
            groups, as for a new patient. Default None: of other samples.

        Raises
        ------
        ValueError
            For features that are not finite, fewer than ten samples, and a share that is not above 0 and at most 1.
        """
        features = check_array(z, "z", finite=False)
        if features.ndim != 2 or len(features) < 2 * _FOLDS or not features.shape[1]:
            raise ValueError(f"z must hold at least {2 * _FOLDS} features, [N, d]; found shape {list(features.shape)}")
        check_finite_rows(features, "z", "float64")
        labels, _ = check_labels(y, rows=len(features), of="z", least_classes=1)
        self.mean_ = features.mean(axis=0)
        self.projection_ = _projection(features - self.mean_, variance_share, np.abs(self.mean_))
        features = _times(features - self.mean_, self.projection_)
        units = None
        if groups is not None:
            units = np.unique(check_groups(groups, len(labels), "row of z"), return_inverse=True)[1]
            if units.max() < 1:
                raise ValueError("groups must hold at least two, each of which is scored by the others; found one")
        scores = self._cross_validated_scores(features, labels, units)
        self._fit(features, labels)
        self.quantiles_ = np.quantile(scores, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        return self

    def _cross_validated_scores(
        self, z: NDArray[np.float64], y: NDArray[np.int64], units: NDArray[np.int64] | None
    ) -> NDArray[np.float64]:
        """Compute scores [N] of training samples, each under a density that was fitted to other samples, or units."""
        units, scores = np.arange(len(z)) if units is None else units, np.empty(len(z))
        fold = np.random.default_rng(self.seed).permutation(units.max() + 1)[units] % _FOLDS
        for held_out in np.unique(fold):
            rest = fold != held_out
            if np.sum(rest) < _FOLDS:
                raise ValueError(
                    f"groups must leave at least {_FOLDS} samples beside each fifth of them; found {np.sum(rest)}"
                )
            self._fit(z[rest], y[rest])
            scores[~rest] = self._in_batches(z[~rest], self._score)
        return scores

    def variance_factor(self, z: Any) -> Any:
        """Return the factors by which the variances of latents are multiplied at these features.

        Parameters
        ----------
        z : tensor, shape [N, d]

        Returns
        -------
        tensor, shape [N]
            1 for samples of familiarity 0.1 or more, and larger the less familiar a sample is.
        """
        scores = self.scores(z)
        low, high = np.quantile(self.quantiles_, _UNFAMILIAR)
        spread = tf.constant(max(high - low, np.finfo(np.float32).tiny), scores.dtype)
        return 1.0 + 2.0 * tf.maximum((tf.constant(low, scores.dtype) - scores) / spread, 0.0)

    def widened(self, latent: Any, z: Any) -> Any:
        """Return latents with variances multiplied by ``variance_factor``.

        Parameters
        ----------
        latent : LatentGaussian or dict of tensors
            N latents.
        z : array_like or tensor, shape [N, d]
            Their features; tensors for a dict.

        Returns
        -------
        LatentGaussian or dict of tensors
        """
        if is_tensor(z):
            factor = tf.cast(tf.sqrt(self.variance_factor(z)), latent["scale"].dtype)
            per_row = [-1] + [1] * (len(latent["scale"].shape) - 1)
            return {**latent, "scale": latent["scale"] * tf.reshape(factor, per_row)}
        factor = np.sqrt(self._in_batches(self._features(z), self.variance_factor))
        return LatentGaussian(latent.loc, latent.scale * factor.reshape(-1, *[1] * (latent.scale.ndim - 1)))

    def scores(self, z: Any) -> Any:
        """Compute scores [N] of features [N, d]."""
        z, dtype = z if is_tensor(z) else self._features(z), precise_dtype()
        mean, projection = (tf.constant(part, dtype) for part in (self.mean_, self.projection_))
        centered = tf.cast(z, dtype) - mean
        if len(projection.shape) == 2:  # sums of infinite numbers would be NaN
            farthest = _FARTHEST / np.abs(self.projection_).max()
            centered = tf.clip_by_value(centered, -farthest, farthest)
        # Squares beyond that would overflow.
        return self._score(tf.clip_by_value(_times(centered, projection), -_FARTHEST, _FARTHEST))

    def _features(self, z: ArrayLike) -> NDArray[np.float64]:
        self._check_fitted()
        return check_array(z, "z", "[N, d]", columns=len(self.mean_))

    def familiarity(self, z: Any) -> Any:
        """Return the share of training samples that are less typical than each of these features.

        Parameters
        ----------
        z : array_like or tensor, shape [N, d]
            Tensors may be symbolic.

        Returns
        -------
        ndarray or tensor, shape [N]
            From 0, unlike all training samples, to 1; uniformly distributed for samples like the training samples.
        """
        if not is_tensor(z):
            return self._in_batches(self._features(z), self.familiarity)
        scores = self.scores(z)
        above = scores[:, tf.newaxis] > tf.constant(self.quantiles_, scores.dtype)
        return tf.reduce_mean(tf.cast(above, scores.dtype), axis=1)

    def _in_batches(self, z: NDArray[np.float64], function: Any) -> NDArray[np.float64]:
        most = max(1, _BUDGET // max(_QUANTILES, self._row_size()))
        return np.concatenate([function(tf.constant(z[rows])).numpy() for rows in row_slices(len(z), most)])

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor; the fitted arrays are in ``state``."""
        return {name: getattr(self, name) for name in constructor_parameters(type(self))}

    def state(self) -> dict[str, Any]:
        """Return the fitted arrays by name."""
        return {name: getattr(self, name) for name in self.fitted_attributes} if self.is_fitted else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the arrays that ``state`` returned."""
        vars(self).update({name: np.asarray(value) for name, value in state.items()})


def _projection(
    z: NDArray[np.float64], variance_share: float | None, sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute factors [d] that standardize centered features, or a matrix [d, q] to their principal components.

    The unit of a constant feature is its absolute value in ``sizes`` [d], or 1 for 0.
    """
    if variance_share is None:
        std = z.std(axis=0)
        is_constant = std <= _ROUND_OFF * sizes
        return 1.0 / np.where(is_constant, np.where(sizes > 0, sizes, 1.0), std)
    share = check_number(variance_share, "variance_share", above=0, most=1)
    variances, components = np.linalg.eigh(z.T @ z / len(z))
    variances, components = np.maximum(variances[::-1], 0.0), components[:, ::-1]
    total = variances.sum()
    count = 1 + int(np.searchsorted(np.cumsum(variances), share * total))
    return components[:, :count] / (np.sqrt(variances[:count].mean()) or 1.0)


def _times(z: Any, projection: Any) -> Any:
    """Multiply features [N, d] by factors [d] or a matrix [d, q]."""
    return z * projection if len(projection.shape) == 1 else z @ projection
