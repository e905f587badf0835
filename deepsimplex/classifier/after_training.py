"""Mixin with calibration, conformal sets and feature density, fitted after training."""

import copy
from typing import Any, Self

import numpy as np

from deepsimplex._utils.messages import warn_caller
from deepsimplex.calibration import CALIBRATIONS, DENSITIES, Calibration, ConformalSets, FeatureDensity
from deepsimplex.calibration.calibrator import check_removal, warn_of_removal
from deepsimplex.calibration.conformal_sets import ConformalMethod
from deepsimplex.calibration.familiarity import VARIANCE_SHARE
from deepsimplex.classifier.observations import labeled_arrays


class FittedAfterTraining:
    """Mixin of ``SimplexClassifier``: ``calibrate``, ``conformalize`` with ``predict_set``, ``fit_density``."""

    num_classes: int
    seed: int
    target: Any
    readout: Any
    predict_proba: Any
    predict_latent: Any
    predict_features: Any
    _hide: Any
    calibration: Calibration | None
    prediction_sets: ConformalSets | None
    density: FeatureDensity | None

    def calibrate(
        self,
        x: Any,
        y: Any = None,
        method: str | dict[str, Any] | Calibration = "temperature",
        *,
        sample_weight: Any = None,
        batch_size: int | None = None,
        verbose: str | int = 0,
    ) -> Self:
        """Calibrate the class probabilities of the trained model on held-out samples.

        From then on ``model(x)``, ``predict``, ``predict_proba``, the metrics of ``evaluate``, files and the SavedModel
        have calibrated probabilities. A second call replaces the first: it is fitted to uncalibrated outputs.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset, generator or None
            Samples that were held out of training; or batches of (sample, label), with or without weights, held in
            memory. None removes the calibration.
        y : array
            Labels 0..n-1 [N], or one-hot [N, n].
        method : {"temperature", "latent", "platt", "isotonic"}, dict or Calibration
            See ``deepsimplex.calibration``; a dict holds a "name" and arguments. Default "temperature", one number
            that needs few samples. "latent" scales the latent Gaussian, so that ``predict_latent`` is calibrated too. A
            given calibration is copied.
        sample_weight : array, optional
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        SimplexClassifier
            Itself. ``model.calibration`` is the fitted calibration, or None.

        Raises
        ------
        TypeError, ValueError
            For samples that ``evaluate`` would reject, soft labels, and samples that do not determine the calibration.
            The model is then unchanged.

        Notes
        -----
        Calibration has no effect in training: neither on losses nor on metrics of training batches, nor on
        ``model(x, training=True)``, and the loss of ``evaluate`` is that of uncalibrated outputs. ``fit`` and
        ``train_on_batch`` change the outputs that a calibration was fitted to, and remove it with a warning.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), "ilr", num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x[:500], y[:500], epochs=2, verbose=0)
        >>> model.calibrate(x[500:], y[500:]).calibration.is_fitted
        True
        """
        if x is None:
            check_removal(y, "x", "calibrate", "calibration")
            self._discard_sets("calibrate")
            self._set_calibration(None)
            return self
        calibration = copy.deepcopy(CALIBRATIONS.get(method))
        x, labels, sample_weight = labeled_arrays(x, y, sample_weight, self.num_classes)
        before = self.calibration
        self._set_calibration(None)
        try:
            calibration.fit_outputs(
                labels,
                probabilities=self.predict_proba(x, batch_size, verbose),
                latent=self.predict_latent(x, batch_size, verbose),
                readout=self.readout,
                sample_weight=sample_weight,
            )
        except BaseException:
            self._set_calibration(before)
            raise
        self._discard_sets("calibrate")
        self._set_calibration(calibration)
        return self

    def conformalize(
        self,
        x: Any,
        y: Any = None,
        coverage: float = 0.9,
        method: ConformalMethod = "lac",
        by_class: bool = False,
        *,
        batch_size: int | None = None,
        verbose: str | int = 0,
    ) -> Self:
        """Fit conformal prediction sets, which contain the true class with a given coverage, to held-out samples.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset, generator or None
            Samples that were held out of training and of ``calibrate``, as there. None removes the sets.
        y : array
            Labels 0..n-1 [N], or one-hot [N, n].
        coverage : float
            Share of samples whose set contains the true class. Default 0.9.
        method : {"lac", "aps", "raps"}
            See ``deepsimplex.calibration.ConformalSets``, which also takes another penalty for "raps", and can be
            fitted to ``predict_proba``. Default "lac", the smallest sets on average.
        by_class : bool
            Whether the coverage holds for every class. Default False: for all samples together.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        SimplexClassifier
            Itself, with ``predict_set``; ``model.prediction_sets`` holds the thresholds. Files keep them, and exports
            have an output "prediction_set". Training and another calibration remove them, with a warning.

        Raises
        ------
        TypeError, ValueError
            As ``calibrate``, and for fewer samples than the coverage needs. The model is then unchanged.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), "vertices", num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x[:700], y[:700], epochs=2, verbose=0)
        >>> sets = model.conformalize(x[700:], y[700:], coverage=0.9).predict_set(x_test)
        >>> bool(ds.evaluation.coverage(y_test, sets) > 0.8)
        True
        """
        if x is None:
            check_removal(y, "x", "conformalize", "sets")
            self.prediction_sets = None
            return self
        sets = ConformalSets(coverage, method, by_class, seed=self.seed)
        x, labels, _ = labeled_arrays(x, y, None, self.num_classes)
        self.prediction_sets = sets.fit(self.predict_proba(x, batch_size, verbose), labels)
        return self

    def predict_set(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return whether each class is in the set of each sample, bool [N, n], after ``conformalize``."""
        if self.prediction_sets is None:
            raise ValueError("predict_set needs conformalize(x, y) with held-out samples first")
        return self.prediction_sets.predict(self.predict_proba(x, batch_size, verbose))

    def fit_density(
        self,
        x: Any,
        y: Any = None,
        method: str | dict[str, Any] | FeatureDensity = "nearest_neighbors",
        *,
        batch_size: int | None = None,
        verbose: str | int = 0,
    ) -> Self:
        """Fit a density of the backbone's features to the training samples, for ``familiarity``.

        From then on the latent Gaussians are wider where samples are unfamiliar (``FeatureDensity.variance_factor``):
        class probabilities are less confident there, and their intervals wider. Fit calibrations and sets afterwards.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset, generator or None
            The training samples; their features are held in memory. None removes the density.
        y : array
            Labels 0..n-1 [N], or one-hot [N, n].
        method : {"nearest_neighbors", "gaussian", "relative_mahalanobis"}, dict or FeatureDensity
            Default "nearest_neighbors": see ``deepsimplex.calibration.NeighborDistance``. A given one is copied.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        SimplexClassifier
            Itself, with ``familiarity``; ``model.density`` holds the density. Files keep it, and exports have an output
            "familiarity". Training removes it, with a warning; it removes a calibration and sets, as ``calibrate``
            does sets.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> import keras
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> keras.utils.set_random_seed(0)
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([64]), "vertices", num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x, y, epochs=5, verbose=0)
        >>> familiarity = model.fit_density(x, y).familiarity(x_test)
        >>> bool(familiarity.mean() > 0.4), bool(model.familiarity(1 - x_test).mean() < 0.05)
        (True, True)
        """
        if x is None:
            check_removal(y, "x", "fit_density", "density")
            self._set_density(None)
            return self
        density = copy.deepcopy(DENSITIES.get(method))
        x, labels, _ = labeled_arrays(x, y, None, self.num_classes)
        self._set_density(density.fit(self.predict_features(x, batch_size, verbose), labels, VARIANCE_SHARE))
        return self

    def familiarity(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return how similar samples are to the training samples, [N], from 0 to 1; needs ``fit_density``.

        It is the share of training samples that are less typical: of samples like them, a tenth is below 0.1.
        """
        if self.density is None:
            raise ValueError("familiarity needs fit_density(x, y) with the training samples first")
        return self.density.familiarity(self.predict_features(x, batch_size, verbose))

    def _set_density(self, density: FeatureDensity | None) -> None:
        """Set the density, which widens latents, and remove calibration and sets, which were fitted without it."""
        self._discard_calibration("fit_density")
        self._discard_sets("fit_density")
        self.density = density
        self._set_calibration(None)

    def _discard_calibration(self, cause: str) -> None:
        """Remove the calibration, with a warning, because the outputs that it was fitted to change."""
        if self.calibration is not None:
            warn_of_removal(cause, "calibration")
            self._set_calibration(None)

    def _discard_sets(self, cause: str) -> None:
        """Remove the sets, with a warning, because the probabilities that they were fitted to change."""
        if self.prediction_sets is not None:
            warn_of_removal(cause, "sets")
            self.prediction_sets = None

    def _set_calibration(self, calibration: Calibration | None) -> None:
        """Set the calibration, and drop the functions that Keras traced with an earlier one."""
        self.calibration = calibration
        self.predict_function = self.test_function = None
        self._hide("_latents", None)

    def _train_uncalibrated(self) -> None:
        """Remove calibration, sets and density, because training changes the weights that they were fitted to."""
        self._discard_calibration("training")
        self._discard_sets("training")
        if self.density is not None:
            warn_caller("training changes the features, and removes their density: call fit_density again afterwards")
            self.density = None
            self._set_calibration(None)  # drop the functions that were traced with the density
