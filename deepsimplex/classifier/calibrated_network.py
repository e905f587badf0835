"""What is fitted to the Keras classifier after training, from its density to its rule of decision."""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from deepsimplex._utils.archives import with_prefix
from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.messages import guided
from deepsimplex._utils.validation import check_labels, check_number
from deepsimplex.calibration import (
    Calibration,
    ConformalSets,
    DecisionRule,
    FeatureDensity,
    PriorShift,
    UnknownScore,
)
from deepsimplex.calibration.after_training import (
    RECOGNIZED_ROWS,
    SET_ROWS,
    FittedComponents,
    warn_of_training_samples,
)
from deepsimplex.calibration.conformal_sets import ConformalMethod
from deepsimplex.calibration.feature_density import VARIANCE_SHARE
from deepsimplex.calibration.jackknife_plus import JackknifePlusSets
from deepsimplex.calibration.unknown_score import are_unknown
from deepsimplex.classifier.given_features import BATCH_SIZE, has_nothing_to_train
from deepsimplex.classifier.keras_files import FileInMemory, check_overwrite
from deepsimplex.classifier.network import SimplexNetwork, features_of, given, is_given
from deepsimplex.evaluation import Report
from deepsimplex.heads.closed_form_head import left_out_outputs
from deepsimplex.latent import LatentGaussian
from deepsimplex.readout import LeftOutSoftmax
from deepsimplex.samples import Labels


class CalibratedNetwork(SimplexNetwork):
    """SimplexNetwork with ``calibrate``, ``set_priors``, ``conformalize``, ``set_decision`` and ``fit_density``.

    ``after_training`` holds what they fit: see ``deepsimplex.calibration.after_training.FittedComponents``.
    """

    unknown: UnknownScore | None = None
    _variance_share: ClassVar[float | None] = VARIANCE_SHARE

    @property
    def _density_changes_probabilities(self) -> bool:
        return self.readout.uses_scale

    def calibrate(
        self,
        x: Any,
        y: Any = None,
        method: str | dict[str, Any] | Calibration = "temperature",
        *,
        sample_weight: Any = None,
        groups: Any = None,
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
        method : str, dict or Calibration
            One of ``deepsimplex.calibration.CALIBRATIONS``; a dict holds a "name" and arguments. Default "temperature",
            one number, which keeps the likeliest class; "bias_corrected_temperature" also corrects the frequencies of
            the classes; "vector", "matrix", "platt", "isotonic" and "venn_abers" have numbers for every class. "auto"
            chooses temperature, vector or matrix scaling by cross-validation. "latent" scales the latent Gaussian, so
            that ``predict_latent`` is calibrated too. A given calibration is copied.
        sample_weight : array, optional
        groups : array, shape [N], optional
            Group of each sample, such as its patient, which "auto" keeps in one fold. Other methods divide no samples.
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
            For samples that ``evaluate`` rejects, soft labels, and samples that do not determine the calibration.
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
        options: dict[str, Any] = {"groups": groups, "batch_size": batch_size, "verbose": verbose}
        self.after_training.calibrate(x, y, method, sample_weight, **options)
        return self._retraced()

    def conformalize(
        self,
        x: Any,
        y: Any = None,
        coverage: float = 0.9,
        method: ConformalMethod = "lac",
        by_class: bool = False,
        *,
        groups: Any = None,
        left_out: bool = False,
        allow_empty: bool = True,
        batch_size: int | None = None,
        verbose: str | int = 0,
    ) -> Self:
        """Fit conformal prediction sets, which contain the true class with a given coverage, to held-out samples.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset, generator or None
            Samples that were held out of training and of ``calibrate``. None removes the sets.
        y : array
            Labels 0..n-1 [N], or one-hot [N, n].
        coverage : float
            Share of samples whose set contains the true class. Default 0.9.
        method : {"lac", "aps", "raps"}
            See ``deepsimplex.calibration.ConformalSets``, which also takes another penalty for "raps", and can be
            fitted to ``predict_proba``. Default "lac", the smallest sets on average.
        by_class : bool
            Whether the coverage holds for every class. Default False: for all samples together.
        groups : array, shape [N], optional
            A name or number of the group of each sample (a site, a device), for the coverage to hold in every group;
            ``predict_set`` needs those of its samples then, and exports are refused. Default None: no groups.
        left_out : bool
            Whether x are the training samples of a head in closed form, each to be left out, so that none need to be
            held out: see the notes. Default False.
        allow_empty : bool
            Whether sets may be empty. Default True. False adds the most probable class to empty sets, by which coverage
            can only grow.
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

        Notes
        -----
        With ``left_out`` the sets are those of the jackknife+: coverage is usually the one asked for, and proved for
        1 - 2 (1 - ``coverage``), 0.8 for 0.9. See ``calibration.JackknifePlusSets``. Samples are left out one by one:
        of those that belong together, such as images of one patient, hold some patients out instead.

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
        options: Any = {"groups": groups, "seed": self.seed, "batch_size": batch_size, "verbose": verbose}
        options |= {"left_out": left_out, "allow_empty": allow_empty}
        self.after_training.conformalize(x, y, coverage, method, by_class, **options)
        self._output_models.clear()
        return self

    def predict_set(
        self, x: Any, batch_size: int | None = None, verbose: str | int = 0, *, groups: Any = None
    ) -> np.ndarray:
        """Return whether each class is in the set of each sample, bool [N, n], after ``conformalize``.

        Sets that were fitted with groups need the ``groups`` [N] of these samples.
        """
        return self.after_training.predict_set(x, groups, batch_size=batch_size, verbose=verbose)

    def report(
        self,
        x: Any,
        y: Any = None,
        *,
        set_groups: Any = None,
        outside: Any = None,
        batch_size: int | None = None,
        verbose: str | int = 0,
        **options: Any,
    ) -> Report:
        """Score calibrated probabilities, and sets after ``conformalize``, against labels.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset or generator
            Samples that served neither for training nor for what was fitted after it; or batches of (sample, label),
            with or without weights, held in memory.
        y : array
            Labels 0..n-1 [N], or one-hot [N, n].
        set_groups : array, shape [N], optional
            Group of each sample, as for ``predict_set``, if ``conformalize`` had groups. Default None.
        outside : array, structure of arrays, tf.data.Dataset, PyDataset or generator, optional
            Samples of none of the classes, without labels. Default None.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2
        **options
            As ``intervals``, ``sample_weight`` and ``groups``, which are resampled whole: see
            ``deepsimplex.evaluation.report``.

        Returns
        -------
        Report

        Examples
        --------
        >>> import deepsimplex as ds
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([32]), num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x, y, epochs=5, verbose=0)
        >>> model.report(x_test, y_test).accuracy > 0.8
        True
        """
        predicting = {"batch_size": batch_size, "verbose": verbose}
        return self.after_training.report(x, y, set_groups=set_groups, outside=outside, options=predicting, **options)

    def estimate_priors(
        self, x: Any, trained: Any = None, *, batch_size: int | None = None, verbose: str | int = 0
    ) -> PriorShift:
        """Estimate the frequencies of the classes where the model is used, from unlabeled samples.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset or generator
            Unlabeled samples, drawn at random where the model is used.
        trained : array, shape [n], or mapping, optional
            Frequencies or counts of the classes in training, in their order or by name. Default None: the mean
            probabilities of the held-out samples of ``calibrate``, which should be called first, with
            ``method="bias_corrected_temperature"``.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        PriorShift
            With ``frequencies_``, their intervals ``lower_`` and ``upper_``, and ``p_value_`` of the test that no class
            has become more or less frequent. The model stays as it is: ``set_priors`` takes it.

        Raises
        ------
        ValueError
            Without a calibration and without ``trained``, and for fewer samples than classes + 1.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([32]), num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x[:900], y[:900], epochs=5, verbose=0)
        >>> fitted = model.calibrate(x[900:], y[900:], "bias_corrected_temperature")
        >>> shift = model.estimate_priors(x_test[y_test < 5])
        >>> shift.frequencies_.round(1), shift.p_value_ < 0.05
        (array([0.2, 0.2, 0.2, 0.2, 0.2, 0. , 0. , 0. , 0. , 0. ]), True)
        >>> fitted = model.set_priors(shift)
        """
        options: Any = {"seed": self.seed, "batch_size": batch_size, "verbose": verbose}
        return self.after_training.estimate_priors(x, trained, **options)

    def set_priors(self, frequencies: Any, trained: Any = None) -> Self:
        """Set the frequencies of the classes where the model is used, for which probabilities are reweighted.

        From then on ``model(x)``, ``predict``, ``predict_proba``, the metrics of ``evaluate``, files and exports have
        probabilities for these frequencies, instead of those in training.

        Parameters
        ----------
        frequencies : PriorShift, array, shape [n], mapping or None
            What ``estimate_priors`` returned; or known frequencies or counts, in the order of the classes or by name.
            None removes them.
        trained
            As for ``estimate_priors``. Without effect on a ``PriorShift``.

        Returns
        -------
        SimplexClassifier
            Itself. ``model.priors`` is the ``PriorShift``, or None. Training and another calibration remove it, with a
            warning, and it removes prediction sets and a rule that is fitted to samples.

        Notes
        -----
        Sets and rules that are fitted afterwards to samples with the old frequencies have no guarantee with the new
        ones, but for those that hold within a class, whatever its frequency: ``conformalize(by_class=True)``, and the
        rate of misses of ``calibration.RiskControl``.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([4]), class_names=["cat", "dog"])
        >>> model.set_priors({"cat": 0.9, "dog": 0.1}, trained={"cat": 500, "dog": 500}).priors.frequencies_
        array([0.9, 0.1])
        """
        self.after_training.set_priors(frequencies, trained)
        return self._retraced()

    def set_decision(
        self,
        rule: DecisionRule | None,
        x: Any = None,
        y: Any = None,
        *,
        left_out: bool = False,
        batch_size: int | None = None,
        verbose: str | int = 0,
    ) -> Self:
        """Set the rule by which ``decide`` turns class probabilities into decisions.

        Parameters
        ----------
        rule : DecisionRule or None
            ``calibration.ExpectedCost``, for costs of errors; ``calibration.RiskControl``, for a rate of errors,
            misses or rejections that is not exceeded, with confidence; or one of yours. None removes it.
        x, y : optional
            Held-out samples and labels, as for ``conformalize``, to which a copy of the rule is fitted. Default None:
            it depends on no samples, or is fitted already.
        left_out : bool
            As for ``conformalize``. Default False.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        SimplexClassifier
            Itself, with ``decide``; ``model.decision_rule`` is the rule, or None. Files keep it, and exports have an
            output "decision". A rule that is fitted to samples is removed by training, and by other probabilities of
            ``calibrate`` or ``set_priors``, with a warning.

        Raises
        ------
        TypeError, ValueError
            For another kind of rule, one that is not fitted, or for other classes; as ``conformalize`` for samples, and
            if they are too few for the rule. The model is then unchanged.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([4]), class_names=["healthy", "ill"])
        >>> rule = ds.calibration.ExpectedCost([[0, 1], [20, 0]], abstention=0.5)  # a miss costs 20 false alarms
        >>> model.set_decision(rule).decide(np.zeros((2, 8))).shape
        (2,)
        """
        self.after_training.set_decision(rule, x, y, left_out=left_out, batch_size=batch_size, verbose=verbose)
        self._output_models.clear()
        return self

    def decide(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return class numbers [N], int64, and -1 for abstentions, by the rule of ``set_decision``."""
        return self.after_training.decide(x, batch_size=batch_size, verbose=verbose)

    def fit_density(
        self,
        x: Any,
        y: Any = None,
        method: str | dict[str, Any] | FeatureDensity = "nearest_neighbors",
        *,
        groups: Any = None,
        batch_size: int | None = None,
        verbose: str | int = 0,
    ) -> Self:
        """Fit a density of the backbone's features to the training samples, for ``familiarity``.

        From then on the latent Gaussians are wider where samples are unfamiliar (``FeatureDensity.variance_factor``).
        Class probabilities are less confident there, so that calibrations and sets are fitted afterwards; those of a
        head in closed form do not depend on the scale of the latents, and stay.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset, generator or None
            The training samples; their features are held in memory. None removes the density.
        y : array
            Labels 0..n-1 [N], or one-hot [N, n].
        method : {"nearest_neighbors", "gaussian", "relative_mahalanobis"}, dict or FeatureDensity
            Default "nearest_neighbors": see ``deepsimplex.calibration.NeighborDistance``. A given one is copied.
        groups : array, shape [N], optional
            Group of each sample, such as its patient: familiarity then compares with samples of other groups, so that
            those of a new patient are as familiar as those of training. Default None: each sample is one.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        SimplexClassifier
            Itself, with ``familiarity``; ``model.density`` holds the density. Files keep it, and exports have an output
            "familiarity". Training removes it, with a warning. Where class probabilities change, a calibration and sets
            are removed, with a warning.

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
        self.after_training.fit_density(x, y, method, groups=groups, batch_size=batch_size, verbose=verbose)
        return self._retraced()

    def familiarity(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return how similar samples are to the training samples, [N], from 0 to 1; needs ``fit_density``.

        It is the share of training samples that are less typical: of samples like them, a tenth is below 0.1.
        """
        return self.after_training.familiarity(x, batch_size=batch_size, verbose=verbose)

    def fit_unknown(self, x: Any, *, batch_size: int | None = None, verbose: str | int = 0) -> Self:
        """Fit the score of unknown samples to samples that were held out of training, for ``predict_or_unknown``.

        A head in closed form needs no call: ``fit`` uses its left-out training samples.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset, generator or None
            Known samples that were held out of training; labels are not used. None removes the score.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        SimplexClassifier
            Itself, with ``unknown_score`` and ``predict_or_unknown``. Files keep what is fitted, and exports have an
            output "unknown". Training removes it, with a warning.
        """
        if x is None:
            return self._set_unknown(None)
        x, *_ = self._samples(x).read_all()
        x = self._computed_once(x)
        instead = "leave out fit_unknown: fit has fitted the score to left-out training samples"
        warn_of_training_samples("fit_unknown", self._training_samples(x), instead)
        name, inputs = "unknown inputs", lambda features: self._unknown_inputs(self.head(features))
        return self._fit_unknown(**self._predicted(name, inputs, x, batch_size, verbose))

    def unknown_score(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """Return how unlike the known samples each sample is, [N], from 0 to 1.

        It is the share of left-out training samples, or of those of ``fit_unknown``, that look more known: see
        ``calibration.UnknownScore``. Calibrations and densities do not change it.

        Raises
        ------
        ValueError
            Before ``fit`` of a head in closed form and, with other heads, before ``fit_unknown``.
        """
        return self._predict_unknown(x, batch_size, verbose)["unknown"]

    def predict_or_unknown(
        self, x: Any, rejected: float = 0.05, batch_size: int | None = None, verbose: str | int = 0
    ) -> np.ndarray:
        """Predict class numbers [N], int64, and -1 for samples that look unknown.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset or generator
        rejected : float
            Share of known samples that may be called unknown, at least 0 and below 1. Default 0.05.
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Raises
        ------
        ValueError
            As ``unknown_score``, and for a share out of range.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> import keras
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> backbone = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten()])
        >>> model = ds.SimplexClassifier(backbone, num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x, y, verbose=0)
        >>> known, noise = model.predict_or_unknown(x_test), model.predict_or_unknown(np.random.rand(100, 8, 8))
        >>> bool(np.mean(known == -1) < 0.1), bool(np.mean(noise == -1) > 0.9)
        (True, True)
        """
        check_number(rejected, "rejected", least=0, below=1)
        predicted = self._predict_unknown(x, batch_size, verbose)
        return np.where(are_unknown(predicted["unknown"], rejected), -1, predicted["probabilities"].argmax(axis=1))

    def _predict_unknown(self, x: Any, batch_size: int | None, verbose: str | int) -> dict[str, np.ndarray]:
        """Return scores of unknown samples [N] and class probabilities [N, n] by one pass through the backbone."""
        if self.unknown is None:
            raise guided(
                "decisions.md#flag-the-unfamiliar",
                "unknown_score needs samples that were left out of training: call fit_unknown(x_held) first. A head in "
                "closed form has them from fit",
            )

        def outputs(features: Any) -> dict[str, Any]:
            head, latent = self._gaussians(features)
            return {"unknown": self._unknown_of(head), "probabilities": self.probabilities(latent)}

        return self._predicted("unknown", outputs, x, batch_size, verbose)

    def predict_all(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> dict[str, Any]:
        """Predict all that the classifier has outputs for, by one pass through the backbone.

        Parameters
        ----------
        x : array, structure of arrays, tf.data.Dataset, PyDataset or generator
        batch_size : int, optional
            Default 32.
        verbose : "auto", 0, 1 or 2

        Returns
        -------
        dict
            "probabilities" [N, n], as of ``predict_proba``; "latent", the "loc" and "scale" of ``predict_latent``. As
            far as it is fitted, "prediction_set" [N, n] without groups, "decision" [N], "familiarity" [N] and "unknown"
            [N], as ``predict_set``, ``decide``, ``familiarity`` and ``unknown_score`` return them. Of a network that
            has diverged they are NaN, where those raise an error.

        Examples
        --------
        >>> import deepsimplex as ds
        >>> (x, y), (x_test, y_test) = ds.datasets.load("digits")
        >>> model = ds.SimplexClassifier(ds.backbones.mlp([16]), num_classes=10)
        >>> model.compile()
        >>> history = model.fit(x, y, epochs=2, verbose=0)
        >>> sorted(model.fit_density(x, y).predict_all(x_test))
        ['familiarity', 'latent', 'probabilities']
        """
        after, sets = self.after_training, self.prediction_sets
        if sets is not None and sets.needs_groups:
            after = dataclasses.replace(after, prediction_sets=None)
        if isinstance(sets, JackknifePlusSets):
            batch_size = min(batch_size or BATCH_SIZE, SET_ROWS)

        def outputs(features: Any) -> dict[str, Any]:
            head, latent = self._gaussians(features)
            p = self.probabilities(latent)
            return {"probabilities": p, "latent": latent, **self._served(p, features, head, after)}

        return self._predicted("all", outputs, x, batch_size, verbose)

    def _unknown_inputs(self, latent: dict[str, Any]) -> dict[str, Any]:
        """Return what an unknown sample is recognized by: uncalibrated log-probabilities, and latent variances."""
        latent = {name: tf.convert_to_tensor(value) for name, value in latent.items()}
        axes = list(range(1, len(latent["scale"].shape)))
        if "log_probabilities" in latent:  # of the readout, as if classes were as frequent as their weights make them
            log_p = self.unweighted_readout.unweighted_logarithms(latent["log_probabilities"])
        else:
            log_p = self.unweighted_readout.log_probabilities(self.predictive_latent(latent, calibrated=False))
        return {"log_p": log_p, "variance": tf.reduce_sum(tf.square(latent["scale"]), axis=axes)}

    def _unknown_of(self, head: dict[str, Any]) -> Any:
        assert self.unknown is not None
        return self.unknown(**self._unknown_inputs(head))

    def _fit_unknown(self, log_p: Any, variance: Any) -> Self:
        return self._set_unknown(UnknownScore().fit(np.asarray(log_p), np.asarray(variance)))

    def _set_unknown(self, unknown: UnknownScore | None) -> Self:
        self._hide("unknown", unknown)
        self._output_models.clear()
        return self

    def _served(
        self, p: Any, features: Any, head: dict[str, Any], after: FittedComponents | None = None
    ) -> dict[str, Any]:
        """Return the outputs that depend on what is fitted beside the network.

        They are computed from class probabilities, features and the Gaussian of the head.
        """
        unknown = {} if self.unknown is None else {"unknown": self._unknown_of(head)}
        return {**(after or self.after_training).served(p, features), **unknown}

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that ``calibrate`` fitted."""
        return self.after_training.calibration

    @property
    def priors(self) -> PriorShift | None:
        """The class frequencies that ``set_priors`` set."""
        return self.after_training.priors

    @property
    def decision_rule(self) -> DecisionRule | None:
        """The rule that ``set_decision`` set."""
        return self.after_training.decision_rule

    @property
    def prediction_sets(self) -> ConformalSets | None:
        """The prediction sets that ``conformalize`` fitted."""
        return self.after_training.prediction_sets

    @property
    def density(self) -> FeatureDensity | None:
        """The density that ``fit_density`` fitted."""
        return self.after_training.density

    # Called by ``after_training``, as its ``TrainedClassifier``

    def _labeled_arrays(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Return samples, class numbers [N] and weights of arrays or of a stream, which is read once into memory."""
        x, y, weight = self._samples(x, y, sample_weight, labeled=True).read_all()
        labels = Labels.of(y, self.num_classes, soft=False).values
        return self._computed_once(x), labels, weight

    def _computed_once(self, x: Any) -> Any:
        """Return samples as features, which are computed once, if the backbone has weights and none to train."""
        alone = self.distribute_strategy.num_replicas_in_sync == 1
        if not (alone and has_nothing_to_train(self.backbone) and self.backbone.weights):
            return x
        return given(self._features_once(x))

    def _class_labels(self) -> list[str]:
        return self.class_names

    def _class_numbers(self, labels: Any, rows: int) -> np.ndarray:
        names = self.class_names if any(isinstance(label, str) for label in labels[:1]) else None
        return check_labels(labels, self.num_classes, name="labels", rows=rows, classes=names)[0]

    def _without_priors(self, x: Any, **options: Any) -> np.ndarray:
        outputs = self._uncalibrated_outputs(x, **options)
        return outputs["probabilities"] if self.calibration is None else self.calibration.apply_outputs(**outputs)

    @property
    def _head_as_solved(self) -> str:
        """The head and its state, for errors of what needs a solved one."""
        state = " before fit" if not self.head.adapted else ""
        trained = "" if has_nothing_to_train(self.backbone) else ", on a backbone that is trained"
        return f"{type(self.head).__name__}{state}{trained}"

    def _left_out_outputs(
        self, x: Any, y: Any, most: int | None = None, seed: int = 0
    ) -> tuple[dict[str, Any], np.ndarray, Any]:
        if not (self._has_solved_head and isinstance(self.readout, LeftOutSoftmax)):
            raise guided(
                "decisions.md#without-held-out-rows",
                "left_out must be False but for a head that fit has solved in closed form, on a backbone with nothing "
                f"to train; found {self._head_as_solved}. Hold samples out",
            )
        x, labels, _ = self._labeled_arrays(x, y, None)
        weights = self.unweighted_readout.factors(labels)
        return left_out_outputs(
            self.head, self.unweighted_readout, self._features_as_solved(x), labels, weights, most, seed
        )

    @property
    def _has_solved_head(self) -> bool:
        return self.head.is_closed_form and self.head.adapted and has_nothing_to_train(self.backbone)

    def _features_as_solved(self, x: Any) -> np.ndarray:
        return features_of(x) if is_given(x) else self._features_once(x)

    def _features_once(self, x: Any) -> np.ndarray:
        return self._compute_given(self._checked(x, for_head=False).blocks(BATCH_SIZE))[0]

    def _training_samples(self, x: Any) -> np.ndarray:
        if not self._has_solved_head:
            return np.zeros(0, bool)
        return self.head.recognizes_features(self._features_as_solved(x)[:RECOGNIZED_ROWS])

    def _latents_without(self, features: Any, influence: Any, residuals: Any) -> tuple[Any, Any]:
        return self.head.without(features, influence, residuals), self.unweighted_readout

    def _uncalibrated_outputs(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> dict[str, Any]:
        """Return uncalibrated class probabilities, the latents that they are read out of, and the readout."""

        def outputs(features: Any) -> dict[str, Any]:
            latent = self.predictive_latent(self.latent_of_features(features), calibrated=False)
            return {"probabilities": self.unweighted_readout(latent), "latent": latent}

        predicted = self._predicted("uncalibrated", outputs, x, batch_size, verbose)
        return {**predicted, "latent": LatentGaussian.of(predicted["latent"]), "readout": self.unweighted_readout}

    def _density_features(self, x: Any, **options: Any) -> np.ndarray:
        return features_of(x) if is_given(x) else self.predict_features(x, **options)

    # Weights, and what is copied with them

    def save_weights(self, filepath: str | os.PathLike[str], overwrite: bool = True, **kwargs: Any) -> None:
        """Save the weights, with calibration, sets and density, to a ``.weights.h5`` file, atomically.

        Further arguments as in keras.Model.
        """
        if kwargs:  # shards are several files
            super().save_weights(filepath, overwrite, **kwargs)
            return
        check_overwrite(filepath, overwrite)
        memory = FileInMemory(filepath)
        super().save_weights(memory)
        with replacing(filepath) as fresh:
            fresh.write_bytes(memory.getvalue())  # a view would outlive the file in an error's traceback

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """Load a file of ``save_weights``, with calibration, sets and density; arguments as in keras.Model.

        With ``skip_mismatch`` the weights alone are loaded.
        If the file holds none of these and other weights, what this model has of them is removed, with a warning.
        """
        fitted = self.after_training.components()
        with self._replaced_weights("load_weights"):
            super().load_weights(filepath, skip_mismatch, **kwargs)
            if skip_mismatch:  # the file's was fitted to all of its weights
                vars(self.after_training).update(fitted)

    def get_weights(self) -> list[np.ndarray]:
        """Return the weights, followed by the arrays of calibration, sets and density, if they are fitted.

        Those of a head in closed form follow, by which ``forget`` recognizes samples.
        """
        names = json.dumps(list(arrays := self._fitted_arrays()))
        return [
            *super().get_weights(),
            *([np.frombuffer(names.encode(), np.uint8), *arrays.values()] if arrays else []),
        ]

    def set_weights(self, weights: list[np.ndarray]) -> None:
        """Set what ``get_weights`` returned, of this model or of a copy of its architecture.

        If that holds no calibration, sets or density, and other weights, what this model has of them is removed, with a
        warning.
        """
        if weights and not self.built:
            raise ValueError(
                "set_weights needs a model that has seen samples: call it on one first, or give the backbone an input"
            )
        count = len(self.weights)
        arrays = _named_arrays(weights[count:], count)
        with self._replaced_weights("set_weights"):
            super().set_weights(weights[:count])
            self._load_fitted_arrays(arrays)

    @contextmanager
    def _replaced_weights(self, method: str) -> Iterator[None]:
        """Remove what was fitted after training if the block changes the weights, and does not restore it."""
        before, fitted = self.after_training.components(), any(self.after_training.components().values())
        weights = super().get_weights() if fitted else []
        yield
        pairs = zip(weights, super().get_weights(), strict=False)
        if self.after_training.components() == before and any((old != new).any() for old, new in pairs):
            self.after_training.remove(method)
        if self.after_training.components() != before:
            self._retraced()

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that are copied with the weights: of the target's networks, and fitted after training."""
        target = {f"target_{name}": np.asarray(array) for name, array in self.target.state().items()}
        unknown = {} if self.unknown is None else {"unknown_numbers": self.unknown.numbers_}
        return {**target, **unknown, **self.after_training.state()}

    def _load_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        if "after_training" in arrays:
            self.after_training.load_state(arrays)
        numbers = arrays.get("unknown_numbers")
        self._set_unknown(None if numbers is None else UnknownScore(np.asarray(numbers)))
        if target := with_prefix(arrays, "target_"):
            self.target.load_state(target)

    def _fitted_arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays that copies without files have beside the weights, those of the head among them."""
        return {**self._arrays(), **{f"head_{name}": array for name, array in self.head.state().items()}}

    def _load_fitted_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        self._load_arrays(arrays)
        self.head.load_state(with_prefix(arrays, "head_"))

    def save_own_variables(self, store: Any) -> None:
        """Save the arrays that are copied with the weights."""
        super().save_own_variables(store)
        for name, array in self._arrays().items():
            store[name] = array

    def load_own_variables(self, store: Any) -> None:
        """Load what ``save_own_variables`` saved."""
        names = set(store.keys())  # not all stores of Keras can be iterated over
        variables = {name for name in names if name.isdecimal()}
        super().load_own_variables({name: store[name] for name in variables})
        self._load_arrays({name: np.asarray(store[name]) for name in names - variables})


def _named_arrays(arrays: Sequence[Any], weights: int) -> dict[str, np.ndarray]:
    """Return the arrays by name that follow the weights in a list of ``get_weights``: their names, then they."""
    if not arrays:
        return {}
    try:
        names = json.loads(np.asarray(arrays[0]).astype(np.uint8).tobytes())
        return dict(zip(names, map(np.asarray, arrays[1:]), strict=True))
    except (TypeError, ValueError):
        raise ValueError(
            f"weights must be what get_weights returns: {weights} arrays for this model, then those of calibration, "
            f"sets and density with their names; found {weights + len(arrays)} arrays"
        ) from None
