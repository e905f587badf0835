"""Checked arrays of training samples as rows that are read in blocks."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.batching import is_sliced_by_rows, not_finite
from deepsimplex._utils.validation import check_array, check_labels, check_sample_weight
from deepsimplex.gp.rows import ArrayRows, Arrays
from deepsimplex.latent import LatentGaussian


def observed_rows(
    X: ArrayLike, observation: LatentGaussian, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> ArrayRows:
    """Check the arrays of ``GaussianProcess.fit``, and return the rows that ``fit_rows`` takes."""
    features = check_features(X)
    if not isinstance(observation, LatentGaussian):
        raise TypeError(f"observation must be a LatentGaussian; found {type(observation).__name__}")
    classes = np.zeros(len(features), np.int64) if y is None else np.asarray(y)
    for name, count in {"observation": len(observation), "y": len(classes)}.items():
        if count != len(features):
            raise ValueError(f"{name} must have as many rows as X, {len(features)}; found {count}")
    weights, observed = check_sample_weight(sample_weight, len(features)), observation.numpy()

    def in_double_precision(*parts: NDArray[Any]) -> Arrays:
        *numbers, classes = parts
        return *(np.asarray(part, dtype=np.float64) for part in numbers), classes

    rows = ArrayRows(features, observed.loc, observed.scale, weights, classes, used=weights > 0)
    return rows.map(in_double_precision)


def labeled_rows(X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ArrayRows:
    """Check the arrays of ``CategoricalProcess.fit``, and return the rows that ``fit_rows`` takes."""
    features = check_features(X)
    labels, n = check_labels(y, soft=True, rows=len(features), of="X")
    weights = check_sample_weight(sample_weight, len(features))

    def weighted(X: Any, y: Any, weights: Any) -> Arrays:
        memberships = np.eye(n)[y] if y.ndim == 1 else y
        return np.asarray(X, dtype=np.float64), weights[:, np.newaxis] * memberships

    return ArrayRows(features, labels, weights, used=weights > 0).map(weighted)


def check_features(X: ArrayLike) -> Any:
    """Return features [N, d] of at least two rows: as they are if they can be read in blocks, else in an array."""
    if not is_sliced_by_rows(X):
        return check_array(X, "X", "[N, d]", least=2)
    features: Any = X
    check_array(features[:2], "X", least=2, finite=False)
    if where := not_finite(features):
        raise ValueError(f"X must be finite; found {features[where[0]][where[1]]} at {list(where)}")
    return features
