"""What Gaussian processes are given, checked before anything is computed of it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.latent import LatentGaussian


def check_features(X: ArrayLike, name: str = "X", *, columns: int | None = None, least: int = 0) -> NDArray[np.float64]:
    """Features as float64 [N, d], or an error that says why they are none.

    Parameters
    ----------
    X : array_like
    name : str
        What to call it in an error.
    columns : int, optional
        How many there must be; None (default) takes any.
    least : int
        Rows needed. Default 0.

    Raises
    ------
    TypeError
        For anything but real numbers.
    ValueError
        For other shapes, and values that are not finite.

    Examples
    --------
    >>> check_features([1.0, 2.0])
    Traceback (most recent call last):
    ValueError: X must have shape [N, d]; found shape (2,). A single feature becomes X.reshape(-1, 1)
    """
    features = _real(X, name)
    if features.ndim != 2:
        hint = f". A single feature becomes {name}.reshape(-1, 1)" if features.ndim == 1 else ""
        raise ValueError(f"{name} must have shape [N, d]; found shape {features.shape}{hint}")
    if features.shape[1] != columns and (columns is not None or features.shape[1] == 0):
        wanted = "at least 1 column" if columns is None else f"{columns} columns, as the training samples"
        raise ValueError(f"{name} must have {wanted}; found {features.shape[1]}")
    if len(features) < least:
        raise ValueError(f"{name} must have at least {least} rows; found {len(features)}")
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"{name} must be finite; found NaN or infinity in {len(wrong)} rows, the first is row {wrong[0]}. "
            "Leave them out or fill them in"
        )
    return features


def _real(X: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(X)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    try:
        if array.dtype.kind == "O":
            return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must hold real numbers; found objects that are none ({error})") from error
    raise TypeError(f"{name} must hold real numbers; found dtype {array.dtype}")


def check_data(
    X: ArrayLike, observation: LatentGaussian, y: ArrayLike | None
) -> tuple[NDArray[np.float64], LatentGaussian]:
    """Features [N, d] and latent observations of as many rows, at least two: from one nothing can be learned."""
    features = check_features(X, least=2)
    if not isinstance(observation, LatentGaussian):
        raise TypeError(f"observation must be a LatentGaussian; found {type(observation).__name__}")
    for name, rows in (("observation", len(observation)), ("y", len(features) if y is None else len(np.asarray(y)))):
        if rows != len(features):
            raise ValueError(f"{name} must have as many rows as X, {len(features)}; found {rows}")
    return features, observation.numpy()
