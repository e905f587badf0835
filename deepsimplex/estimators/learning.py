"""What the fits of all classifiers share: data are checked, an end is told, and a fit without one has not been."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from deepsimplex.estimators.calibrating import CalibratedMixin
from deepsimplex.estimators.labels import Labels
from deepsimplex.estimators.step import Callback


class LearningClassifier(CalibratedMixin, ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier that learns from features and labels of any kind.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        In the order of the columns of probabilities.
    n_features_in_ : int
    """

    classes: ArrayLike | None
    # The attribute that is there once a fit has come to its end.
    _learned_as: ClassVar[str]

    def __sklearn_is_fitted__(self) -> bool:
        """Whether ``fit`` has come to its end, where what was learned is kept."""
        return hasattr(self, self._learned_as)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Within, the classifier is not fitted; a fit that is refused or interrupted leaves it as it was before."""
        before = dict(self.__dict__)
        self.__dict__.pop(self._learned_as, None)
        self.__dict__.pop("calibration_", None)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], Labels]:
        """Features [N, d] and labels to learn from, once they are known to fit together."""
        features: NDArray[np.float64] = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        labels = Labels.of(y, self.classes)
        if len(labels.memberships) != len(features):
            raise ValueError(f"X and y must have as many rows; found {len(features)} and {len(labels.memberships)}")
        self.classes_ = labels.classes
        return features, labels

    def _tell_end(self, callback: Callback | None) -> None:
        """Once the fit cannot be lost any more."""
        fit_ended: Any = getattr(callback, "fit_ended", None)
        if fit_ended is not None:
            fit_ended(self)
