"""Base class of the scikit-learn classifiers: checked data, atomic fits, callbacks and calibration."""

import copy
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from deepsimplex._utils.messages import guided, listed
from deepsimplex._utils.validation import (
    check_choice,
    check_class_names,
    check_class_weight,
    check_labels,
    check_sample_weight,
)
from deepsimplex.calibration import Calibration, DecisionRule, FeatureDensity, PriorShift
from deepsimplex.calibration.after_training import COMPONENTS, FittedComponents
from deepsimplex.calibration.conformal_sets import ConformalMethod
from deepsimplex.classifier.saliency_maps import Explained, SaliencyMethod, saliency_maps
from deepsimplex.estimators.checked_data import (
    checked_labels,
    checked_rows,
    column_ranges,
    fitted_labels,
    readable_rows,
)
from deepsimplex.evaluation import Report
from deepsimplex.export import export_model, model_card
from deepsimplex.export.model_card import classification_task, write_card
from deepsimplex.export.rounding import warn_of_rounding
from deepsimplex.samples import Labels

RandomState = int | np.random.RandomState | None

# scikit-learn's generators take seeds below this.
_SEEDS = 2**32


@dataclass(frozen=True)
class ClassifierStep:
    """A step of the optimization of a classifier, passed to callbacks of ``fit``.

    Attributes
    ----------
    iteration : int
        From 1, over all starts.
    objective : float
        The value that is minimized: a sum over samples.
    hyperparameters : dict of str to ndarray
        See ``deepsimplex.gp.Step``.
    num_samples : int
        Number of training samples N.
    classifier : callable
        Returns the classifier at this step, which can predict and be saved. A call costs as much as a few steps.

    Examples
    --------
    >>> from deepsimplex import SimplexGaussianProcess
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> scores = []
    >>> watch = lambda step: scores.append(step.classifier().score(X[1::2], y[1::2]))
    >>> bool(SimplexGaussianProcess("ilr").fit(X[::2], y[::2], callback=watch).score(X[1::2], y[1::2]) == scores[-1])
    True
    """

    iteration: int
    objective: float
    hyperparameters: dict[str, NDArray[np.float64]]
    num_samples: int
    classifier: Callable[[], Any]


Callback = Callable[[ClassifierStep], None]


class CalibratedClassifier(ClassifierMixin, BaseEstimator):
    """Base class of classifiers of features [N, d] and labels of any kind, whose probabilities can be calibrated.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        Sorted, in the order of the columns of probabilities.
    n_features_in_ : int
    feature_range_ : ndarray, shape [2, d]
        Smallest and largest value of every feature in ``fit``.
    calibration_ : Calibration
        Only after ``calibrate``.
    priors_ : PriorShift
        Only after ``set_priors``.
    prediction_sets_ : ConformalSets
        Only after ``conformalize``.
    decision_rule_ : DecisionRule
        Only after ``set_decision``.
    density_ : FeatureDensity
        Only after ``fit_density``.
    """

    classes: ArrayLike | None
    classes_: NDArray[Any]
    # Formats of ``export``.
    _formats: ClassVar[tuple[str, ...]] = ("tf_saved_model", "onnx")
    # Dtypes of its input.
    _input_dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    _variance_share: ClassVar[float | None] = None
    # An attribute that only a fitted classifier has.
    _fitted_attribute: ClassVar[str]

    @property
    def _density_changes_probabilities(self) -> bool:
        return False

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the classifier is fitted."""
        return hasattr(self, self._fitted_attribute)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Make the classifier unfitted inside; restore it if the fit raises."""
        before = dict(self.__dict__)
        self.__dict__.pop(self._fitted_attribute, None)
        self._store(FittedComponents(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _checked(self, X: Any, y: Any, sample_weight: Any, class_weight: Any = None) -> tuple[Any, Labels, Any]:
        """Return training features [N, d], their labels and their weights [N]; samples of weight 0 are left out."""
        features, labels, weights = self._readable(X, y, sample_weight, class_weight)
        used = weights > 0
        return np.asarray(features[used], dtype=np.float64), labels[used], weights[used]

    def _readable(self, X: Any, y: Any, sample_weight: Any, class_weight: Any = None) -> tuple[Any, Labels, Any]:
        """Return checked features as ``readable_rows`` does, with labels and weights [N] of all samples."""
        features = readable_rows(self, X, ensure_min_samples=2)
        labels = fitted_labels(y, self.classes)
        if len(labels.values) != len(features):
            raise ValueError(f"X and y must have as many rows; found {len(features)} and {len(labels.values)}")
        weights = check_sample_weight(sample_weight, len(features))
        if class_weight is not None and not (isinstance(class_weight, str) and class_weight == "balanced"):
            class_weight = check_class_weight(class_weight, labels.classes.tolist(), "{label: 2.0}, or 'balanced'")
        weights = weights * compute_sample_weight(class_weight, labels.classes[labels.hard])
        if np.count_nonzero(weights > 0) < 2:
            raise ValueError("sample_weight, times class_weight, must be above 0 for at least 2 samples; found fewer")
        self.classes_, self.feature_range_ = labels.classes, column_ranges(features)
        return features, labels, weights

    def _report_end(self, callback: Callback | None) -> None:
        """Call the callback's ``fit_ended``, if it has one, with the fitted classifier."""
        getattr(callback, "fit_ended", lambda classifier: None)(self)

    def calibrate(
        self,
        X: ArrayLike | None,
        y: ArrayLike | None = None,
        method: str | Calibration = "temperature",
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Calibrate the class probabilities of the fitted classifier on held-out samples.

        Parameters
        ----------
        X : array_like, shape [N, d], or None
            Features of samples that were not used in ``fit``. None removes the calibration.
        y : array_like, shape [N] or [N, n]
            Labels as named in ``classes_``, or one-hot, in its order.
        method : str or Calibration
            One of ``deepsimplex.calibration.CALIBRATIONS``: "temperature", the default, which keeps the likeliest
            class; "bias_corrected_temperature", "vector", "matrix", "platt", "isotonic", "venn_abers"; "auto", for
            temperature, vector or matrix scaling by cross-validation; and "latent", which scales the latent Gaussians,
            for classifiers that have them. A calibration that is given is copied.
        sample_weight : array_like, shape [N], optional
            Weights of the held-out samples.
        groups : array_like, shape [N], optional
            Group of each sample, such as its patient, which "auto" keeps in one fold. Other methods divide no samples.

        Returns
        -------
        self
            With the attribute ``calibration_``, which predictions, ``save`` and ``export`` use. It replaces an earlier
            one; another ``fit`` removes it.

        Raises
        ------
        ValueError
            For labels that are not in ``classes_``, soft labels, and data that the method cannot be fitted to. The
            classifier then stays as it was.
        """
        return self._store(self._after_training.calibrate(X, y, method, sample_weight, groups=groups))

    def conformalize(
        self,
        X: ArrayLike | None,
        y: ArrayLike | None = None,
        coverage: float = 0.9,
        method: ConformalMethod = "lac",
        by_class: bool = False,
        random_state: RandomState = 0,
        *,
        groups: ArrayLike | None = None,
        left_out: bool = False,
        allow_empty: bool = True,
    ) -> Self:
        """Fit conformal prediction sets, which contain the true class with a given coverage, to held-out samples.

        Parameters
        ----------
        X : array_like, shape [N, d], or None
            Features of samples that were used neither in ``fit`` nor in ``calibrate``. None removes the sets.
        y : array_like, shape [N] or [N, n]
            Labels as named in ``classes_``, or one-hot, in its order.
        coverage : float
            Share of samples whose set contains the true class. Default 0.9.
        method : {"lac", "aps", "raps"}
            See ``calibration.ConformalSets``, which alone takes other penalties. Default "lac", the smallest sets.
        by_class : bool
            Whether the coverage holds for every class. Default False: for all samples together.
        random_state : int, numpy.random.RandomState or None
            Seed of "aps" and "raps". Default 0.
        groups : array_like, shape [N], optional
            A name or number of the group of each row (a site, a device), for the coverage to hold in every group;
            ``predict_set`` needs those of its rows then. Default None: no groups.
        left_out : bool
            Whether X are the training rows, each to be left out, of a ``SimplexGaussianProcess`` in closed form, so
            that none need to be held out: see the notes. Default False.
        allow_empty : bool
            Whether sets may be empty. Default True. False adds the most probable class to empty sets, by which coverage
            can only grow.

        Returns
        -------
        self
            With the attribute ``prediction_sets_``, which ``predict_set``, ``save`` and ``export`` use. Another fit or
            calibration removes it.

        Raises
        ------
        ValueError
            For labels that are not in ``classes_``, and for fewer samples than the coverage needs. The classifier then
            stays as it was.

        Notes
        -----
        With ``left_out`` the sets are those of the jackknife+: coverage is usually the one asked for, and proved for
        1 - 2 (1 - ``coverage``), 0.8 for 0.9. See ``calibration.JackknifePlusSets``. Samples are left out one by one:
        of those that belong together, such as images of one patient, hold some patients out instead.
        """
        options: Any = {"groups": groups, "left_out": left_out, "allow_empty": allow_empty}
        options["seed"] = seed_of(random_state)
        return self._store(self._after_training.conformalize(X, y, coverage, method, by_class, **options))

    def predict_set(self, X: ArrayLike, groups: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Return whether each class is in the set of each row, bool [N, n], columns as ``classes_``.

        Sets that were fitted with groups need the ``groups`` [N] of these rows.
        """
        return self._after_training.predict_set(X, groups)

    def predict_all(self, X: ArrayLike) -> dict[str, Any]:
        """Predict all that the classifier has outputs for.

        Parameters
        ----------
        X : array_like, shape [N, d]

        Returns
        -------
        dict
            "probabilities" [N, n], as ``predict_proba``; as far as it is fitted "prediction_set" [N, n], without
            groups, "decision" [N], class numbers and -1, "familiarity" [N] and "unknown" [N], as ``predict_set``,
            ``decide``, ``familiarity`` and ``unknown_score``.

        Examples
        --------
        >>> from deepsimplex import GLVQ
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> sorted(GLVQ().fit(X, y).fit_density(X, y).predict_all(X))
        ['familiarity', 'probabilities']
        """
        p, after = self.predict_proba(X), self._after_training
        outputs: dict[str, Any] = {"probabilities": p}
        if after.prediction_sets is not None and not after.prediction_sets.needs_groups:
            outputs["prediction_set"] = after.predict_set(X, p=p)
        if after.decision_rule is not None:
            outputs["decision"] = after.decision_rule.decide(p)
        if after.density is not None:
            outputs["familiarity"] = after.familiarity(X)
        if hasattr(self, "known_quantiles_"):
            outputs["unknown"] = self.unknown_score(X)
        return outputs

    def report(
        self, X: ArrayLike, y: ArrayLike, *, set_groups: Any = None, outside: Any = None, **options: Any
    ) -> Report:
        """Score calibrated probabilities, and sets after ``conformalize``, against labels.

        Parameters
        ----------
        X : array_like
            N samples that served neither for training nor for what was fitted after it.
        y : array_like, shape [N] or [N, n]
            Labels as named in ``classes_``, or one-hot, in its order.
        set_groups : array_like, shape [N], optional
            Group of each sample, as for ``predict_set``, if ``conformalize`` had groups. Default None.
        outside : array_like, optional
            Samples of none of the classes. Default None.
        **options
            As ``bins``, ``intervals`` and ``groups``, which are resampled whole: see ``deepsimplex.evaluation.report``.

        Returns
        -------
        Report

        Examples
        --------
        >>> from deepsimplex import GLVQ
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> GLVQ().fit(X[::2], y[::2]).report(X[1::2], y[1::2]).accuracy > 0.9
        True
        """
        return self._after_training.report(X, y, set_groups=set_groups, outside=outside, **options)

    def estimate_priors(self, X: ArrayLike, trained: Any = None) -> PriorShift:
        """Estimate the frequencies of the classes where the classifier is used, from unlabeled samples.

        Parameters
        ----------
        X : array_like, shape [N, d]
            Features of unlabeled samples, drawn at random where the classifier is used.
        trained : array_like, shape [n], or mapping, optional
            Frequencies or counts of the classes in ``fit``, in the order of ``classes_`` or by name. Default None: the
            mean probabilities of the held-out samples of ``calibrate``, which should be called first, with
            ``method="bias_corrected_temperature"``.

        Returns
        -------
        PriorShift
            With ``frequencies_``, their intervals ``lower_`` and ``upper_``, and ``p_value_`` of the test that no class
            has become more or less frequent. The classifier stays as it is: ``set_priors`` takes it.

        Raises
        ------
        ValueError
            Without a calibration and without ``trained``, and for fewer samples than classes + 1.
        """
        return self._after_training.estimate_priors(X, trained)

    def set_priors(self, frequencies: Any, trained: Any = None) -> Self:
        """Set the frequencies of the classes where the classifier is used, for which probabilities are reweighted.

        Parameters
        ----------
        frequencies : PriorShift, array_like, shape [n], mapping or None
            What ``estimate_priors`` returned; or known frequencies or counts, in the order of ``classes_`` or by name.
            None removes them.
        trained
            As for ``estimate_priors``. Without effect on a ``PriorShift``.

        Returns
        -------
        self
            With the attribute ``priors_``, which predictions, ``save`` and ``export`` use. Another fit or calibration
            removes it, and it removes prediction sets and a rule that is fitted to samples.

        Notes
        -----
        Sets and rules that are fitted afterwards to samples with the old frequencies have no guarantee with the new
        ones, but for those that hold within a class, whatever its frequency: ``conformalize(by_class=True)``, and the
        rate of misses of ``calibration.RiskControl``.
        """
        return self._store(self._after_training.set_priors(frequencies, trained))

    def set_decision(
        self, rule: DecisionRule | None, X: Any = None, y: ArrayLike | None = None, *, left_out: bool = False
    ) -> Self:
        """Set the rule by which ``decide`` turns class probabilities into decisions.

        Parameters
        ----------
        rule : DecisionRule or None
            ``calibration.ExpectedCost``, for costs of errors; ``calibration.RiskControl``, for a rate of errors,
            misses or rejections that is not exceeded, with confidence; or one of yours. None removes it.
        X, y : optional
            Held-out samples and labels, as for ``conformalize``, to which a copy of the rule is fitted. Default None:
            it depends on no samples, or is fitted already.
        left_out : bool
            As for ``conformalize``. Default False.

        Returns
        -------
        self
            With the attribute ``decision_rule_``, which ``decide``, ``save`` and ``export`` use. Another fit removes
            it, and one that is fitted to samples is removed by ``calibrate`` and ``set_priors``.

        Raises
        ------
        TypeError, ValueError
            For another kind of rule, one that is not fitted, or for other classes; as ``conformalize`` for samples, and
            if they are too few for the rule. The classifier then stays as it was.
        """
        return self._store(self._after_training.set_decision(rule, X, y, left_out=left_out))

    @property
    def decision_rule(self) -> DecisionRule | None:
        """The rule that ``set_decision`` set, or None."""
        return vars(self).get("decision_rule_")

    def decide(self, X: ArrayLike, abstention: Any = None) -> NDArray[Any]:
        """Decide by the rule of ``set_decision``.

        Parameters
        ----------
        X : array_like, shape [N, d]
        abstention : optional
            What stands for an abstention among ``classes_``. Default None: -1 beside numbers, "unknown" beside text;
            needed only if that is a class, and the rule abstains.

        Returns
        -------
        ndarray, shape [N]
            Classes, as named in ``classes_``, and abstentions.

        Raises
        ------
        ValueError
            Without a rule, and if ``abstention`` is one of the classes.
        """
        return self._with_abstentions(self._after_training.decide(X), abstention)

    def _with_abstentions(self, numbers: NDArray[np.int64], abstention: Any = None) -> NDArray[Any]:
        """Return class names for class numbers [N], and for -1 what stands for an abstention."""
        classes = self.classes_.tolist()
        if abstention is None and not (numbers < 0).any():
            return self.classes_[numbers]
        if abstention is None:
            abstention = "unknown" if any(isinstance(name, str) for name in classes) else -1
        is_array = isinstance(abstention, np.ndarray) or (np.iterable(abstention) and not isinstance(abstention, str))
        if is_array or abstention in classes:
            raise ValueError(
                f"abstention must be a value besides classes_, {listed(classes)}; found {abstention!r}. Pass what "
                "stands for an abstention: decide(X, abstention='unsure')"
            )
        # The last is number -1.
        return np.array([*classes, abstention], dtype=object if self.classes_.dtype == object else None)[numbers]

    def fit_density(
        self,
        X: ArrayLike | None,
        y: ArrayLike | None = None,
        method: str | FeatureDensity = "nearest_neighbors",
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit a density of the features to the training samples, for ``familiarity``.

        From then on latents, of classifiers that have them, are wider where samples are unfamiliar. Where class
        probabilities depend on their scale, which those of left-out readouts do not, they are less confident there, and
        calibration and sets are removed, with a warning.

        Parameters
        ----------
        X : array_like, shape [N, d], or None
            Features of the training samples. None removes the density.
        y : array_like, shape [N] or [N, n]
            Labels as named in ``classes_``, or one-hot, in its order.
        method : {"nearest_neighbors", "gaussian", "relative_mahalanobis"} or FeatureDensity
            Default "nearest_neighbors": see ``deepsimplex.calibration.NeighborDistance``. A given one is copied.
        groups : array_like, shape [N], optional
            Group of each sample, such as its patient: familiarity then compares with samples of other groups, so that
            those of a new patient are as familiar as those of training. Default None: each sample is one.

        Returns
        -------
        self
            With the attribute ``density_``, which ``save`` and ``export`` keep. Another fit removes it.
        """
        return self._store(self._after_training.fit_density(X, y, method, groups=groups))

    def familiarity(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return how typical rows are, [N]: the share of less typical training samples; needs ``fit_density``."""
        return self._after_training.familiarity(X)

    def saliency(
        self,
        X: Any,
        of: Explained = "probability",
        labels: Any = None,
        method: SaliencyMethod = "integrated_gradients",
        *,
        layer: str | None = None,
        baseline: Any = 0.0,
        steps: int = 32,
        batch_size: int = 32,
    ) -> NDArray[Any]:
        """Compute how much each column, or pixel, of samples adds to a log-probability or to the familiarity.

        Parameters
        ----------
        X : array_like, shape [N, d], or [N, H, W] or [N, H, W, C] for a network
        of : {"probability", "familiarity"}
            Default "probability", of the likeliest class or of ``labels``. "familiarity" needs ``fit_density``.
        labels : array_like, shape [N], or one label, optional
            As named in ``classes_``. Default None: the likeliest class of each sample.
        method, layer, steps, batch_size
            As for ``SimplexClassifier.saliency``; "grad_cam" needs a network with a convolution.
        baseline : array_like
            A sample without content, of which "integrated_gradients" are the differences. Default 0, which suits images
            and standardized columns; for others the mean of the training rows.

        Returns
        -------
        ndarray, shape [N, d] or [N, H, W]
            Parts of each column; ``plots.saliency`` draws those of images.

        Raises
        ------
        ValueError
            For a classifier that TensorFlow does not compute, so that there is no gradient; as
            ``SimplexClassifier.saliency``.

        Examples
        --------
        >>> from deepsimplex import GMLVQ
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> parts = GMLVQ().fit(X, y).saliency(X[:2], baseline=X.mean(axis=0))  # setosa: petals
        >>> parts.shape, parts[0].argmax().tolist() in (2, 3)
        ((2, 4), True)
        """
        network, probabilities = self._differentiable(of)
        options: Any = (of, labels, method, layer, baseline, steps, batch_size)
        return saliency_maps(self._after_training, network, probabilities, X, self._saliency_samples(X), *options)

    def _differentiable(self, of: Explained) -> tuple[Any, Callable[[Any], Any]]:
        """Return a network and a function from its output, without one from samples, to class probabilities."""
        _, latent, readout = copy.copy(self)._store(self._after_training.differentiable)._served()
        return None, lambda X: readout(X if latent is None else latent(X))

    def _saliency_samples(self, X: Any) -> NDArray[Any]:
        return checked_rows(self, X, reset=False)

    @property
    def _after_training(self) -> FittedComponents:
        """What was fitted to this classifier, from the attributes that ``_store`` sets."""
        check_is_fitted(self)
        fitted = vars(self)
        return FittedComponents(self, **{name: fitted.get(f"{name}_") for name in COMPONENTS})

    def _store(self, after_training: FittedComponents) -> Self:
        """Set the attributes ``density_``, ``calibration_`` and so on; delete those that are None."""
        for name, component in after_training.components().items():
            if component is None:
                self.__dict__.pop(f"{name}_", None)
            else:
                setattr(self, f"{name}_", component)
        return self

    def _labeled_arrays(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, NDArray[np.int64], Any]:
        if y is None:
            raise ValueError("y must be given beside X: the labels of its rows")
        return X, checked_labels(y, self.classes_, soft=False).values, sample_weight

    def _uncalibrated_outputs(self, X: ArrayLike) -> dict[str, Any]:
        return self._without("calibration_", "priors_")._outputs(X)

    def _without_priors(self, X: ArrayLike) -> NDArray[Any]:
        return self._without("priors_").predict_proba(X)

    def _without(self, *attributes: str) -> Self:
        other = copy.copy(self)
        for name in attributes:
            other.__dict__.pop(name, None)
        return other

    def _class_labels(self) -> Sequence[Any]:
        return self.classes_.tolist()

    def _class_numbers(self, labels: Any, rows: int) -> NDArray[np.int64]:
        return check_labels(labels, name="labels", rows=rows, of="X", classes=self.classes_.tolist())[0]

    def _left_out_outputs(
        self, X: Any, y: Any, most: int | None = None, seed: int = 0
    ) -> tuple[dict[str, Any], NDArray[np.int64], Any]:
        raise guided(
            "decisions.md#without-held-out-rows",
            "left_out must be False but for a SimplexGaussianProcess() in closed form, which predicts training rows "
            f"that are left out; found {type(self).__name__}. Hold rows out",
        )

    def _training_samples(self, X: Any) -> NDArray[np.bool_]:
        return np.zeros(0, bool)

    def _outputs(self, X: ArrayLike) -> dict[str, Any]:
        """Return class probabilities and, if any, the latents that they are read out of, and the readout."""
        return {"probabilities": self.predict_proba(X)}

    def _latents_without(self, features: Any, influence: Any, residuals: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def _density_features(self, X: ArrayLike) -> NDArray[Any]:
        return checked_rows(self, X, reset=False)

    def export(
        self,
        filepath: str | os.PathLike[str],
        class_names: Sequence[str] | None = None,
        format: str = "tf_saved_model",
        verbose: bool = False,
        input_dtype: str = "float32",
    ) -> None:
        """Export the classifier for serving without this package: as a SavedModel or an ONNX file.

        Input: "features" [N, d]. Outputs, float64: "class_probabilities" [N, n], "class_id" [N] (a position in
        ``classes_``), of classifiers with ``predict_latent`` "latent_mean" [N, L], "latent_scale", and after
        ``conformalize`` "prediction_set" [N, n], after ``set_decision`` "decision" [N] (as "class_id", -1 for
        abstentions), after ``fit_density`` "familiarity" [N], after ``fit_unknown`` "unknown" [N].
        ``deepsimplex.export.load_served`` loads a SavedModel; ``deepsimplex.export.export_pipeline`` writes a pipeline
        that ends in a classifier.

        Parameters
        ----------
        filepath : path-like
            Folder of the SavedModel, or file that ends in .onnx or .tflite; may begin with ``~``; written atomically.
        class_names : list of str, optional
            In the order of ``classes_``. Default None: ``classes_`` as text.
        format : {"tf_saved_model", "onnx", "litert"}
            Default "tf_saved_model". ``LatentRegressionClassifier`` supports only "onnx". LiteRT has no float64
            arithmetic, which covariances need: only ``SimplexGaussianProcess()``, solved in closed form, supports it.
        verbose : bool
            Print Keras' summary of the endpoint. Default False.
        input_dtype : {"float32", "float64"}
            Dtype of the features. Default "float32", with a warning if it rounds a feature, such as a time in seconds,
            by a considerable part of its range in ``fit``. Layers of networks compute in float32 alone.
        """
        self._write(filepath, class_names, format, verbose, input_dtype)

    def _write(
        self, filepath: Any, class_names: Any, format: str, verbose: bool, input_dtype: str, **further: Any
    ) -> None:
        """Check the arguments of ``export``, and write the files; ``further`` are options of ``_export``."""
        check_is_fitted(self)
        check_choice(format, "format", self._formats)
        if check_choice(input_dtype, "input_dtype", self._input_dtypes) == "float32":
            self._warn_of_rounding()
        classes: Any = self.classes_ if class_names is None else class_names
        names = check_class_names(classes, len(self.classes_), "class_names", "probabilities")
        options: dict[str, Any] = {
            "class_names": [str(name) for name in names],
            "verbose": verbose,
            "input_dtype": input_dtype,
        }
        self._export(filepath, format, **options, **further, further_outputs=self._further_outputs)
        write_card(self.card(), filepath)

    def _warn_of_rounding(self) -> None:
        """Warn if single precision rounds a feature by a considerable part of its range in ``fit``."""
        if (ranges := getattr(self, "feature_range_", None)) is not None:
            remedy = ", or export with input_dtype='float64'" if "float64" in self._input_dtypes else ""
            lower, upper = ranges
            warn_of_rounding(lower, upper, remedy, getattr(self, "feature_names_in_", None))

    def _further_outputs(self, p: Any, features: Any) -> dict[str, Any]:
        return self._after_training.served(p, features)

    def card(self, report: Report | None = None, **options: Any) -> str:
        """Return a model card as Markdown with the metadata that hubs read; ``export`` writes it without scores.

        Parameters
        ----------
        report : Report, optional
            Scores on test samples, as of ``evaluation.report``. Default None: the card says that there are none.
        **options
            Of ``export.model_card``: name, description, data, license.

        Returns
        -------
        str
        """
        components, shape = self._after_training.components(), self._sample_shape
        components["unknown"] = "fit_unknown" if hasattr(self, "known_quantiles_") else None
        facts = {"class": " ".join(repr(self).split())} | ({} if shape is None else {"input": list(shape)})
        options = {"name": type(self).__name__, "task": classification_task(shape), **options}
        return model_card(facts, self.classes_.tolist(), components=components, report=report, **options)

    @property
    def _sample_shape(self) -> tuple[int | None, ...] | None:
        return (self.n_features_in_,)

    def _export(self, filepath: str | os.PathLike[str], format: str, **options: Any) -> None:
        resource, latent, readout = self._served()
        options |= {"sample_shape": (self.n_features_in_,), "input_name": "features"}
        export_model(resource, filepath, format, latent=latent, readout=readout, **options)

    @abstractmethod
    def _served(self) -> tuple[Any, Callable[[Any], Any] | None, Callable[[Any], Any]]:
        """Return the owner of the variables, and ``latent`` and ``readout`` of ``export_model``, in TensorFlow."""

    def _calibrated(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply the classifier's calibration and class frequencies, if it has them, to class probabilities."""
        return self._after_training.apply_probabilities(p)

    def _calibrated_logarithms(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute finite logarithms of calibrated probabilities, of which isotonic ones may be zero."""
        with np.errstate(divide="ignore"):
            return floored(np.log(self._calibrated(p)))


def no_gradient(computed: str) -> ValueError:
    """Return the error of ``saliency`` where nothing that TensorFlow computes leads from samples to probabilities."""
    return ValueError(
        f"saliency needs a gradient, that of a Keras model or a classifier of deepsimplex; found {computed}. "
        "sklearn.inspection.permutation_importance(classifier, X, y) and shap.Explainer(classifier.predict_proba, X) "
        "need none"
    )


def floored(logarithms: NDArray[np.floating]) -> NDArray[Any]:
    """Return logarithms of probabilities, at least that of the smallest normal number: -708.4, or -87.3 in float32.

    Examples
    --------
    >>> floored(np.array([-1e9, -1.0])).round(1)
    array([-708.4,   -1. ])
    """
    return np.maximum(logarithms, np.log(np.finfo(logarithms.dtype).tiny))


def seed_of(random_state: Any) -> int:
    """Return the one seed of all random choices of a fit.

    Parameters
    ----------
    random_state : int, numpy.random.RandomState or None
        An int is the seed itself. A generator, or NumPy's global one for None, draws it.

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> seed_of(3), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    (3, True)
    """
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if 0 <= random_state < _SEEDS:
            return int(random_state)
    elif random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    raise ValueError(
        f"random_state must be a whole number in [0, 2**32), a RandomState or None; found {random_state!r}"
    )
