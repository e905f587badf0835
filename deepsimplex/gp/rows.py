"""Training rows of the Gaussian processes: arrays checked, and the moments and a random sample of all rows."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import is_sliced_by_rows, not_finite
from deepsimplex._utils.validation import check_array, check_labels, check_sample_weight
from deepsimplex.gp.scaling import Moments
from deepsimplex.latent import LatentGaussian
from deepsimplex.samples import ArraySamples, Reservoir, Samples

Arrays = tuple[NDArray[Any], ...]
# Number of rows for initial hyperparameters and inducing points: more rows change both little.
SAMPLE = 20_000


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


def observed_rows(
    X: ArrayLike, observation: LatentGaussian, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> ArraySamples:
    """Check the arrays of ``GaussianProcess.fit``, and return the samples that ``fit_samples`` takes."""
    features = _check_features(X)
    if not isinstance(observation, LatentGaussian):
        raise TypeError(f"observation must be a LatentGaussian; found {type(observation).__name__}")
    if observation.covariance == "full":
        raise ValueError("observation must have an isotropic or diagonal scale; found a full one, [N, L, L]")
    classes = np.zeros(len(features), np.int64) if y is None else np.asarray(y)
    for name, count in {"observation": len(observation), "y": len(classes)}.items():
        if count != len(features):
            raise ValueError(f"{name} must have as many rows as X, {len(features)}; found {count}")
    weights, observed = check_sample_weight(sample_weight, len(features)), observation.numpy()

    def in_double_precision(*columns: NDArray[Any]) -> Arrays:
        *numbers, classes = columns
        return *(np.asarray(column, dtype=np.float64) for column in numbers), classes

    samples = ArraySamples(features, observed.loc, observed.scale, weights, classes, used=weights > 0)
    return samples.map(in_double_precision)


def labeled_rows(X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ArraySamples:
    """Check the arrays of ``CategoricalProcess.fit``, and return the samples that ``fit_samples`` takes."""
    features = _check_features(X)
    labels, n = check_labels(y, soft=True, rows=len(features), of="X")
    weights = check_sample_weight(sample_weight, len(features))

    def weighted(X: Any, y: Any, weights: Any) -> Arrays:
        memberships = np.eye(n)[y] if y.ndim == 1 else y
        return np.asarray(X, dtype=np.float64), weights[:, np.newaxis] * memberships

    return ArraySamples(features, labels, weights, used=weights > 0).map(weighted)


def _check_features(X: ArrayLike) -> Any:
    """Return features [N, d] of at least two rows: as they are if they can be read in blocks, else in an array."""
    if not is_sliced_by_rows(X):
        return check_array(X, "X", "[N, d]", least=2)
    features: Any = X
    check_array(features[:2], "X", least=2, finite=False)
    if where := not_finite(features):
        raise ValueError(f"X must be finite; found {features[where[0]][where[1]]} at {list(where)}")
    return features
