"""Columns brought to mean zero and deviation one, and back."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Scaling:
    """An affine map of columns: (values - center) / width.

    Parameters
    ----------
    center : ndarray, shape [d]
    width : ndarray, shape [d]
        Positive.

    Examples
    --------
    >>> Scaling.of_features(np.array([[1.0, 5.0], [3.0, 5.0]]))(np.array([[5.0, 6.0]]))
    array([[3., 1.]])
    """

    center: NDArray[np.float64]
    width: NDArray[np.float64]

    @classmethod
    def none(cls, columns: int) -> "Scaling":
        """That leaves columns as they are."""
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def of_features(cls, X: NDArray[np.float64]) -> "Scaling":
        """To mean zero and deviation one, column by column; a constant column becomes zero."""
        # By powers of two, which round nothing off, so that squares neither overflow nor vanish.
        _, exponent = np.frexp(np.abs(X).max(axis=0))
        width = np.ldexp(np.ldexp(X, -exponent).std(axis=0), exponent)
        return cls(X.mean(axis=0), np.where(_is_round_off(width, X), 1.0, width))

    @classmethod
    def of_latents(cls, loc: NDArray[np.float64]) -> "Scaling":
        """To mean zero, and one width for all dimensions, so that noise that is isotropic stays so."""
        center = loc.mean(axis=0)
        width = float(np.sqrt(np.mean(np.square(loc - center))))
        return cls(center, np.full(loc.shape[1], 1.0 if np.all(_is_round_off(width, loc)) else width))

    def __call__(self, values: Any) -> Any:
        return (values - self.center) / self.width

    def undo(self, scaled: Any) -> Any:
        """Scaled values as they were."""
        return scaled * self.width + self.center


def _is_round_off(width: Any, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the width of columns is what is left of equal numbers, which is round-off, not zero."""
    return np.asarray(width <= 1e-12 * np.abs(values).max(axis=0))
