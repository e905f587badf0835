"""What the scikit-learn classifiers share: labels become latents, a regressor learns them, a readout reads them out."""

import copy
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from deepsimplex.calibration import Calibration
from deepsimplex.estimators.labels import Labels
from deepsimplex.estimators.learning import LearningClassifier
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import READOUTS, ClassIntervals, Readout, decision_function, readout_layer
from deepsimplex.targets import get_target


class LatentClassifier(LearningClassifier):
    """A scikit-learn classifier whose latents a readout turns into class probabilities.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        In the order of the columns of probabilities.
    n_features_in_ : int
    scores_ : ndarray, shape [n, L]
        Scores S by which latents are read out.
    readout_ : str
        Name of the readout.
    """

    regressor_: Any
    _learned_as = "regressor_"

    @abstractmethod
    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        """Latents of checked features."""

    @property
    @abstractmethod
    def _scores(self) -> NDArray[np.float64]:
        """Scores S [n, L] by which the latents are read out."""

    @property
    @abstractmethod
    def _readout_name(self) -> str:
        """Name of the readout."""

    @property
    def scores_(self) -> NDArray[np.float64]:
        """Scores S [n, L] by which latents are read out."""
        return self._scores

    @property
    def readout_(self) -> str:
        """Name of the readout."""
        return self._readout_name

    def predict_latent(self, X: ArrayLike) -> LatentGaussian:
        """The latent Gaussians of features X [N, d]; the classifier's notes say whether they hold observation noise."""
        check_is_fitted(self)
        latent = self._latents(validate_data(self, X, dtype=np.float64, reset=False))
        return latent if self._calibration is None else self._calibration.apply_latent(latent)

    @property
    def _readout(self) -> Readout:
        """The layer that reads the latents out."""
        return readout_layer(self._readout_name, self._scores)

    def _read(self, X: ArrayLike, log: bool) -> NDArray[np.float64]:
        return self._readout.predict(self.predict_latent(X), log)

    def _fit_calibration(
        self, calibration: Calibration, X: ArrayLike, y: NDArray[np.int64], sample_weight: ArrayLike | None
    ) -> None:
        latent, layer = self.predict_latent(X), self._readout
        p = layer.predict(latent)
        calibration.fit_outputs(y, probabilities=p, latent=latent, readout=layer, sample_weight=sample_weight)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities [N, n], columns as ``classes_``."""
        return self._calibrated(self._read(X, log=False))

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Their logarithms [N, n], finite where probabilities underflow.

        The argmax readout computes them in log space. So does softmax for two classes; for more, logarithms of
        probabilities below 1e-30 are averages over samples, with the errors that ``deepsimplex.readout.softmax`` tells,
        as all probabilities are where ``deepsimplex.readout.method_for`` says "quasi_monte_carlo". Calibrated
        probabilities of zero count as the smallest normal number.
        """
        if self._maps_probabilities:
            return self._calibrated_logarithms(self._read(X, log=False))
        return self._read(X, log=True)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every row, shape [N]."""
        p = self.predict_proba(X)
        return self.classes_[np.argmax(p, axis=1)]

    def decision_function(self, X: ArrayLike, pair: tuple[Any, Any] | None = None) -> NDArray[np.float64]:
        """How far every row is from the decision between classes.

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
            The largest is the class that ``predict`` gives.
        """
        if pair is not None:
            first, second = (self._number(label) for label in pair)
            return np.asarray(decision_function(self.predict_latent(X), first, second, self._scores))
        logarithms = self.predict_log_proba(X)
        if len(self.classes_) == 2:
            return logarithms[:, 1] - logarithms[:, 0]
        return logarithms - logarithms.mean(axis=1, keepdims=True)

    def class_intervals(self, X: ArrayLike, level: float = 0.95) -> ClassIntervals:
        """Lower and upper ends [N, n] of class probabilities, of the readout that gives the probabilities.

        Where that is softmax, the model believes each probability to lie between them with so much certainty. Where it
        is argmax (CASIMAC, one-hot), they only tell how exactly the probability was computed, and all but coincide.
        ``deepsimplex.readout.class_intervals``, which says more, takes softmax unless told otherwise.

        Raises
        ------
        ValueError
            Where a calibration maps the probabilities: only that by latent scaling has intervals.
        """
        if self._maps_probabilities:
            raise ValueError(
                f"class_intervals are those of probabilities as read out of latents, which {self._calibration!r} maps "
                "to others: calibrate with method='latent', or calibrate(None)"
            )
        return self._readout.intervals(self.predict_latent(X), level)

    def _number(self, label: Any) -> int:
        found = np.flatnonzero(self.classes_ == label)
        if not len(found):
            raise ValueError(f"pair must hold two of classes_, {self.classes_.tolist()}; found {label!r}")
        return int(found[0])


class TargetClassifier(LatentClassifier):
    """A classifier made of a target, a regressor and the readout that the target is made for, unless told otherwise.

    Attributes
    ----------
    target_ : Target
        As fitted.
    """

    target: Any
    readout: str | None

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], Labels]:
        if self.readout is not None:
            READOUTS.get(self.readout)
        return super()._checked(X, y)

    def _observations(self, X: NDArray[np.float64], labels: Labels, target: Any = None) -> LatentGaussian:
        """Latents of the training samples by a copy of the target (or another), which becomes ``target_``."""
        # A copy, which what cannot be written down (a function as the distance) is part of.
        self.target_ = copy.deepcopy(get_target(self.target if target is None else target))
        return self.target_.fit_transform(X, labels.memberships, num_classes=len(labels.classes))

    @property
    def _scores(self) -> NDArray[np.float64]:
        return self.target_.scores_

    @property
    def _readout_name(self) -> str:
        return self.readout or self.target_.default_readout
