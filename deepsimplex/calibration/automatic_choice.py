"""Choice of a calibration by cross-validation on the held-out samples."""

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from deepsimplex._utils.array_operations import keras
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_whole
from deepsimplex.calibration.calibrator import ProbabilityCalibration, smoothed_labels
from deepsimplex.calibration.logistic_scaling import MatrixScaling, VectorScaling
from deepsimplex.calibration.temperature import TemperatureScaling

_METHODS: dict[str, type[ProbabilityCalibration]] = {
    "temperature": TemperatureScaling,
    "vector": VectorScaling,
    "matrix": MatrixScaling,
}
# Classes beyond which fits to all folds take minutes.
_MOST_CLASSES = 50


@registered
class AutomaticCalibration(ProbabilityCalibration):
    """The one of temperature, vector and matrix scaling that cross-validation on the held-out samples prefers.

    With fewer samples of a class than two for every fold, with a class in fewer groups than folds, if ``fit`` is given
    groups, or with more than 50 classes, temperature scaling without a comparison. The likeliest class may change,
    unless temperature scaling is chosen.

    Parameters
    ----------
    folds : int
        Number of folds, with the frequencies of the classes, and with whole groups if ``fit`` is given groups. Default
        5.
    seed : int
        Seed of the folds. Default 0.

    Attributes
    ----------
    chosen_ : ProbabilityCalibration
        Fitted to all held-out samples.
    scores_ : dict of str to float
        Mean NLL of each method over the folds, infinite if a fold did not determine it; empty without a comparison.

    Raises
    ------
    ValueError
        By ``fit``, if the classes of the held-out samples are no likelier than by chance; by ``transform``, for another
        number of classes.

    Notes
    -----
    The NLL is that of smoothed labels, as if every class had one more sample, shared equally by all labels: hundreds of
    samples do not show how wrong a probability of 1e-9 may be.

    On digits, wine and breast cancer, for random forests, logistic regressions and Gaussian processes, isotonic
    regression and Platt scaling were not among the best with up to 500 samples; cross-validation chose isotonic
    regression for its probabilities of zero, at an infinite NLL of new samples. They are therefore not compared.

    Examples
    --------
    >>> p, y = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.1, 0.1, 0.8]] * 25, [0, 1, 2, 1] * 25
    >>> AutomaticCalibration().fit(p, y)
    AutomaticCalibration(MatrixScaling(penalty=1, temperature_=1.146, uniform_share_=0.009901))
    >>> AutomaticCalibration().fit(p[:4], y[:4])
    AutomaticCalibration(TemperatureScaling(temperature_=1.161))
    """

    fitted_attributes = ("chosen_", "scores_")
    divides_samples = True
    chosen_: ProbabilityCalibration
    scores_: dict[str, float]

    def __init__(self, folds: int = 5, seed: int = 0) -> None:
        self.folds = check_whole(folds, "folds", 2)
        self.seed = check_whole(seed, "seed", 0)

    def _fit(
        self,
        p: NDArray[np.float64],
        y: NDArray[np.int64],
        weights: NDArray[np.float64],
        floor: float,
        groups: NDArray[Any] | None = None,
    ) -> None:
        n = p.shape[1]
        self.scores_ = {}
        units = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]
        of_class = [len(np.unique(units[y == k])) for k in range(n)]
        enough = np.bincount(y, minlength=n).min() >= 2 * self.folds and min(of_class) >= self.folds
        if n <= _MOST_CLASSES and enough:
            folds = self._folds(y, groups)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of folds in which all are classified correctly
                parts = p, y, weights, floor
                self.scores_ = {name: self._score(method, folds, *parts) for name, method in _METHODS.items()}
        best = min(self.scores_, key=self.scores_.__getitem__, default="temperature")
        self.chosen_ = _METHODS[best]()
        self.chosen_._fit(p, y, weights, floor)

    def _folds(self, y: NDArray[np.int64], groups: NDArray[Any] | None) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return the rows of the others and of each fold."""
        from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

        divide = StratifiedKFold if groups is None else StratifiedGroupKFold
        return list(divide(self.folds, shuffle=True, random_state=self.seed).split(y, y, groups))

    def _score(
        self,
        method: type[ProbabilityCalibration],
        folds: list[tuple[NDArray[Any], NDArray[Any]]],
        p: NDArray[np.float64],
        y: NDArray[np.int64],
        weights: NDArray[np.float64],
        floor: float,
    ) -> float:
        """Return the mean NLL of smoothed labels over the folds."""
        labels, calibrated = smoothed_labels(y, weights, p.shape[1]), np.empty_like(p)
        for others, fold in folds:
            fitted = method()
            try:
                fitted._fit(p[others], y[others], weights[others], floor)
            except ValueError:
                return float("inf")
            calibrated[fold] = fitted.transform(p[fold])
        return -float(np.average(np.sum(labels * np.log(np.maximum(calibrated, floor)), axis=1), weights=weights))

    def _transform(self, p: Any, floor: float) -> Any:
        return self.chosen_._transform(p, floor)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor and, after the fit, what was chosen, with its configuration."""
        config = super().get_config()
        chosen = {"chosen_": keras.saving.serialize_keras_object(self.chosen_)} if self.is_fitted else {}
        return {**config, **chosen}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Make the object from ``get_config``'s dict."""
        made = super().from_config(dict(config))
        if made.is_fitted:
            made.chosen_ = keras.saving.deserialize_keras_object(config["chosen_"])
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.chosen_ if self.is_fitted else ''})"
