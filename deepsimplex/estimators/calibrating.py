"""Calibration of fitted scikit-learn classifiers on held-out samples."""

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from deepsimplex.calibration import CALIBRATIONS, Calibration
from deepsimplex.estimators.labels import Labels


class CalibratedMixin:
    """A classifier whose probabilities a calibration may change.

    Attributes
    ----------
    calibration_ : calibration
        Only after ``calibrate``.
    """

    classes_: NDArray[Any]

    def calibrate(
        self,
        X: ArrayLike | None,
        y: ArrayLike | None = None,
        method: str | Calibration = "temperature",
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Calibrate the class probabilities of the fitted classifier on held-out samples.

        Parameters
        ----------
        X : array_like, shape [N, d], or None
            Features of samples that were not learned from. None removes the calibration.
        y : array_like, shape [N]
            Labels as named in ``classes_``.
        method : {"temperature", "latent", "platt", "isotonic"} or calibration
            See ``deepsimplex.calibration``. Default "temperature". "latent" scales the latent Gaussians, for
            classifiers that read their probabilities out of such. Of a calibration that is given, a copy is fitted.
        sample_weight : array_like, shape [N], optional
            Of the held-out samples.

        Returns
        -------
        self
            With the attribute ``calibration_``, which predictions, ``save`` and ``export`` go by. It takes the place of
            an earlier one, and another ``fit`` removes it.

        Raises
        ------
        ValueError
            For labels that ``classes_`` does not name, soft labels, and what the method cannot learn from. The
            classifier is then as it was before.
        """
        check_is_fitted(self)
        if X is None:
            if y is not None:
                raise ValueError("X must be given beside y; calibrate(None) removes the calibration")
            vars(self).pop("calibration_", None)
            return self
        calibration = copy.deepcopy(CALIBRATIONS.get(method))
        numbers = self._numbers(y)
        uncalibrated = copy.copy(self)
        vars(uncalibrated).pop("calibration_", None)
        uncalibrated._fit_calibration(calibration, X, numbers, sample_weight)
        self.calibration_ = calibration
        return self

    def _fit_calibration(
        self, calibration: Calibration, X: ArrayLike, y: NDArray[np.int64], sample_weight: ArrayLike | None
    ) -> None:
        p: Any = self.predict_proba(X)  # type: ignore[attr-defined]
        calibration.fit_outputs(y, probabilities=p, sample_weight=sample_weight)

    def _numbers(self, y: Any) -> NDArray[np.int64]:
        """Labels as positions in ``classes_``."""
        if y is None:
            raise ValueError("y must be given beside X: the labels of the held-out samples")
        memberships = Labels.of(y, self.classes_).memberships
        if memberships.ndim == 2:
            raise ValueError(f"y must hold one label for every row; found soft labels of shape {memberships.shape}")
        return memberships

    @property
    def _calibration(self) -> Calibration | None:
        return getattr(self, "calibration_", None)

    @property
    def _maps_probabilities(self) -> bool:
        """Whether there is a calibration of probabilities, and not of latents."""
        return self._calibration is not None and self._calibration.maps_probabilities

    def _calibrated(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Class probabilities, calibrated if the classifier is."""
        return p if self._calibration is None else self._calibration.apply_probabilities(p)

    def _calibrated_logarithms(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithms of calibrated probabilities, of which isotonic ones may be zero: finite all the same."""
        calibrated = self._calibrated(p)
        return np.log(np.maximum(calibrated, np.finfo(np.float64).tiny))
