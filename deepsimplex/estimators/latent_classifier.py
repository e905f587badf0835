"""Base class of the classifiers that regress onto the latents of a target and read them out."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from deepsimplex._utils.batching import row_blocks
from deepsimplex.estimators.calibrated_classifier import CalibratedClassifier, floored
from deepsimplex.estimators.checked_data import readable_rows
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import READOUTS, ClassIntervals, Readout, decision_function
from deepsimplex.readout.layers import readout_layer
from deepsimplex.samples import Labels
from deepsimplex.targets import TARGETS


class LatentClassifier(CalibratedClassifier):
    """A scikit-learn classifier whose latents a readout turns into class probabilities.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        In the order of the columns of probabilities.
    n_features_in_ : int
    target_ : Target
        Fitted copy of ``target``. With ``scale_features``, distances that add up features are those of standardized
        ones.
    scores_ : ndarray, shape [n, L]
        Scores S by which latents are read out.
    readout_ : str
        Name of the readout.
    """

    target: Any
    target_: Any
    readout: str | None = None
    scale_features: bool
    regressor_: Any
    _fitted_attribute = "regressor_"

    @property
    def _density_changes_probabilities(self) -> bool:
        return self._readout.uses_scale

    @abstractmethod
    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Compute the latents of checked features."""

    def _check_readout(self) -> None:
        if self.readout is not None:
            READOUTS.get(self.readout)

    def _checked(self, *data: Any) -> tuple[Any, Labels, Any]:
        self._check_readout()
        return super()._checked(*data)

    def _blocks(self, X: ArrayLike) -> Iterator[NDArray[np.float64]]:
        """Check features, all of them first, and yield blocks of rows in double precision."""
        features = readable_rows(self, X, reset=False)
        for rows in row_blocks(features):
            yield np.asarray(features[rows], dtype=np.float64)

    def set_params(self, **params: Any) -> Any:
        """Set parameters as in scikit-learn; "target__smoothing" and the like work for targets given by name too."""
        if any(key.startswith("target__") for key in params):
            self.target = TARGETS.get(params.pop("target", self.target))
        return super().set_params(**params)

    def _observations(self, X: NDArray[np.float64], labels: Labels, target: Any, weights: Any) -> LatentGaussian:
        """Compute the latents of the training samples by a copy of the target, which becomes ``target_``."""
        # A deep copy: a distance that is a function has no configuration.
        self.target_ = copy.deepcopy(TARGETS.get(target))
        if self.scale_features and self.target_.sums_features:
            X = StandardScaler().fit_transform(X, sample_weight=weights)
        return self.target_.fit_transform(X, labels.values, num_classes=len(labels.classes))

    @property
    def scores_(self) -> NDArray[np.float64]:
        """Scores S [n, L] by which latents are read out."""
        return self.target_.scores_

    @property
    def readout_(self) -> str:
        """Name of the readout."""
        return self.readout or self.target_.default_readout

    @property
    def _readout(self) -> Readout:
        return readout_layer(self.readout_, self.scores_)

    @abstractmethod
    def _served_latents(self) -> tuple[Any, Callable[[Any], dict[str, Any]]]:
        """Return the owner of the variables, and a TensorFlow function from features to uncalibrated latents."""

    def _served(self) -> tuple[Any, Any, Any]:
        (resource, latent), layer = self._served_latents(), self._readout
        return resource, lambda X: self._adjusted(latent(X), X), lambda gaussian: self._calibrated(layer(gaussian))

    def predict_latent(self, X: ArrayLike) -> LatentGaussian:
        """Return the latent Gaussians of features X [N, d], calibrated; for observation noise see the class' notes."""
        check_is_fitted(self)
        latents = [self._adjusted(self._latents(block), block) for block in self._blocks(X)]
        return LatentGaussian(*(np.concatenate([getattr(one, name) for one in latents]) for name in ("loc", "scale")))

    def _adjusted(self, latent: Any, X: Any) -> Any:
        """Widen the latents of features X where these are unfamiliar, and calibrate them."""
        latent, calibration = self._widened(latent, X), self._after_training.calibration
        return latent if calibration is None else calibration.apply_latent(latent)

    def _widened(self, latent: Any, X: Any) -> Any:
        density = self._after_training.density
        return latent if density is None else density.widened(latent, X)

    def _outputs(self, X: ArrayLike) -> dict[str, Any]:
        latent, layer = self.predict_latent(X), self._readout
        return {"probabilities": layer.predict(latent), "latent": latent, "readout": layer}

    def _read(self, X: ArrayLike, log: bool = False) -> Iterator[NDArray[np.float64]]:
        """Yield uncalibrated class probabilities, or their logarithms, of blocks of rows."""
        check_is_fitted(self)
        readout = self._readout
        for block in self._blocks(X):
            yield readout.predict(self._adjusted(self._latents(block), block), log)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return class probabilities [N, n], columns as ``classes_``."""
        return self._calibrated(np.concatenate([*self._read(X)]))

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return logarithms of the class probabilities [N, n], those of ``predict_proba`` up to rounding.

        They are at least -708.4: probabilities below the smallest normal number, 2.2e-308, count as that. For more than
        two classes, softmax logarithms of probabilities below 1e-30 are averages over samples, with the errors stated
        in ``deepsimplex.readout.softmax``, as all probabilities are if ``deepsimplex.readout.method_for`` is
        "quasi_monte_carlo".
        """
        return floored(self._log_probabilities(X))

    def _log_probabilities(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute logarithms in log space, where they have no floor, unless a calibration maps probabilities."""
        if self._after_training.probability_maps:
            return self._calibrated_logarithms(np.concatenate([*self._read(X)]))
        return np.concatenate([*self._read(X, log=True)])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likeliest class of every row, shape [N]."""
        numbers = [np.argmax(self._calibrated(p), axis=1) for p in self._read(X)]
        return self.classes_[np.concatenate(numbers)]

    def decision_function(self, X: ArrayLike, pair: tuple[Any, Any] | None = None) -> NDArray[np.float64]:
        """Compute log-odds of the classes, or signed distances from the boundary between two classes.

        Parameters
        ----------
        X : array_like, shape [N, d]
        pair : (class, class), optional
            Two of ``classes_``: the signed distance of the latent mean from the boundary between them, positive on the
            side of the first [CASIMAC Eq. 40].

        Returns
        -------
        ndarray, shape [N] or [N, n]
            Without a pair, log-odds: of the second class for two, else of every class against their geometric mean.
            The largest is the class that ``predict`` returns. Unlike ``predict_log_proba`` they have no floor.
        """
        if pair is not None:
            if not np.iterable(pair) or isinstance(pair, str | bytes) or len(labels := list(pair)) != 2:
                raise ValueError(f"pair must hold two of classes_; found {pair!r}")
            first, second = (self._number(label) for label in labels)
            if first == second:
                raise ValueError(f"pair must hold two different classes; found {pair!r}")
            return np.asarray(decision_function(self.predict_latent(X), first, second, self.scores_))
        logarithms = self._log_probabilities(X)
        if len(self.classes_) == 2:
            return logarithms[:, 1] - logarithms[:, 0]
        return logarithms - logarithms.mean(axis=1, keepdims=True)

    def _number(self, label: Any) -> int:
        numbers = np.flatnonzero(self.classes_ == label if isinstance(label, Hashable) else [])
        if not len(numbers):
            raise ValueError(f"pair must hold two of classes_, {self.classes_.tolist()}; found {label!r}")
        return int(numbers[0])

    def class_intervals(self, X: ArrayLike, level: float = 0.95) -> ClassIntervals:
        """Compute lower and upper ends [N, n] of intervals of the class probabilities.

        By the softmax readout they are credible intervals at this level. By argmax (CASIMAC, one-hot) they only show
        the numerical error of the probability, and almost coincide. See ``deepsimplex.readout.class_intervals``.

        Raises
        ------
        ValueError
            If a calibration maps the probabilities: only latent scaling keeps intervals.
        """
        if maps := self._after_training.probability_maps:
            raise ValueError(
                f"class_intervals are those of probabilities as read out of latents, which {maps[0]!r} maps "
                "to others: calibrate with method='latent', or calibrate(None), without set_priors"
            )
        latent = self.predict_latent(X)
        return self._readout.intervals(latent, level)
