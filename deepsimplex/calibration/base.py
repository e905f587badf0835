"""What all calibrations share: checked samples, arrays or tensors, and what was learned as plain numbers."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.validation import check_labels_and_probabilities, check_probabilities
from deepsimplex.latent import is_tensor
from deepsimplex.readout.normal import tiny_of


class Calibration(ABC):
    """A calibration that is learned on held-out samples; it has no settings.

    Attributes
    ----------
    method : str
        Its name in ``calibrate`` and in configurations.
    """

    method: ClassVar[str]
    # Attributes that a fit leaves: numbers, arrays, or lists of arrays.
    _learned: ClassVar[tuple[str, ...]]

    @property
    def is_fitted(self) -> bool:
        """Whether ``fit`` has come to its end."""
        return hasattr(self, self._learned[0])

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit with held-out samples first")

    def get_config(self) -> dict[str, Any]:
        """What was learned, as numbers and lists; empty before ``fit``."""
        return {name: _plain(getattr(self, name)) for name in self._learned} if self.is_fitted else {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The calibration of a configuration that ``get_config`` gave."""
        made = cls()
        for name, value in config.items():
            setattr(made, name, _of_plain(value))
        return made

    def __repr__(self) -> str:
        numbers = {name: value for name, value in self.get_config().items() if isinstance(value, float)}
        return f"{type(self).__name__}({', '.join(f'{name}={value:.4g}' for name, value in numbers.items())})"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _of_plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return [_of_plain(item) for item in value] if isinstance(value[0], list | tuple) else np.array(value, np.float64)


class ProbabilityCalibration(Calibration):
    """A calibration that maps class probabilities to class probabilities."""

    @abstractmethod
    def _fit(self, p: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], floor: float) -> None:
        """Learn from samples that all weigh something; ``floor`` stands for a probability of zero in logarithms."""

    @abstractmethod
    def _transform(self, p: Any, floor: float) -> Any:
        """Calibrated probabilities of a float64 tensor [N, n]."""

    def fit(self, p: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from the class probabilities of held-out samples and their labels.

        Parameters
        ----------
        p : array_like, shape [N, n]
            Uncalibrated class probabilities of samples that the classifier did not learn from: on its training samples
            it looks better calibrated, or worse, than it is.
        y : array_like, shape [N] or [N, 1]
            Class numbers 0..n-1.
        sample_weight : array_like, shape [N], optional
            Not negative; samples of weight 0 are left out.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For labels, probabilities or weights that are none, and where the samples do not tell what to learn.
        """
        labels, probabilities = check_labels_and_probabilities(y, p)
        weights = check_weights(sample_weight, len(labels))
        there = weights > 0
        floor = float(np.finfo(probabilities.dtype).tiny)
        self._fit(probabilities[there].astype(np.float64), labels[there], weights[there], floor)
        return self

    def transform(self, p: Any) -> Any:
        """Calibrated class probabilities.

        Parameters
        ----------
        p : array_like or tensor, shape [N, n]
            Arrays are checked; tensors are not, and may be of a graph.

        Returns
        -------
        ndarray or tensor, shape [N, n]
            Of the dtype of ``p`` (float32 where that has less precision), computed in float64.
        """
        self._check_fitted()
        if is_tensor(p):
            return self._of_tensor(p)
        return self._of_tensor(tf.constant(check_probabilities(p))).numpy()

    def _of_tensor(self, p: Any) -> Any:
        dtype = p.dtype if p.dtype in (tf.float32, tf.float64) else tf.float32
        return tf.cast(self._transform(tf.cast(p, tf.float64), tiny_of(dtype)), dtype)

    def fit_transform(self, p: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> NDArray[Any]:
        """Learn, and give the calibrated probabilities of the same samples: better ones than new samples will have."""
        return self.fit(p, y, sample_weight).transform(p)


def check_weights(sample_weight: ArrayLike | None, samples: int) -> NDArray[np.float64]:
    """Weights [N] that are finite, not negative and not all zero; ones where there are none."""
    if sample_weight is None:
        return np.ones(samples)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape not in ((samples,), (samples, 1)):
        raise ValueError(f"sample_weight must have shape [{samples}], one for each sample; found {weights.shape}")
    weights = weights.reshape(samples)
    if not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise ValueError("sample_weight must be finite, not negative and not all zero")
    return weights


def check_classes_there(y: NDArray[np.int64], n: int, calibration: str, otherwise: str) -> None:
    """Refuse held-out samples that lack a class of 0..n-1."""
    absent = np.setdiff1d(np.arange(n), y)
    if len(absent):
        raise ValueError(
            f"{calibration} needs held-out samples of every class; found none of {absent.tolist()} among {len(y)}. "
            f"Hold out more, a share of every class, or take {otherwise}"
        )


def check_columns(p: Any, learned: int) -> None:
    """One class against the rest is one calibrator for two classes, and one for each of more."""
    n = 2 if learned == 1 else learned
    if p.shape[1] != n:
        raise ValueError(f"p must have shape [N, {n}], as in fit; found {tuple(p.shape)}")
