"""Calibration, prediction sets, decisions and familiarity of a classifier that is fitted already, of any library."""

import copy
import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from deepsimplex._utils.archives import load_arrays, naming_damage, save_arrays
from deepsimplex._utils.array_operations import is_tensor
from deepsimplex._utils.atomic_files import check_path, replacing
from deepsimplex._utils.messages import shown
from deepsimplex._utils.validation import check_array, check_choice, check_class_names, check_probabilities
from deepsimplex.calibration.after_training import RECOGNIZED_ROWS, FittedComponents
from deepsimplex.classifier.calibrated_network import CalibratedNetwork
from deepsimplex.classifier.saliency_maps import Explained
from deepsimplex.estimators.calibrated_classifier import CalibratedClassifier, no_gradient
from deepsimplex.export import export_model
from deepsimplex.export.portable_formats import warn_of_rounded_columns, write_behind
from deepsimplex.samples import is_stream

_KEY = "deepsimplex after training 1"
# Rows of random numbers whose probabilities tell one classifier from another, and the largest difference of one.
_PROBES, _TOLERANCE = 16, 1e-3
# Smallest probability that a calibration meets: float32 holds it, too.
_LEAST = 2.0**-52


class AfterTraining(CalibratedClassifier):
    """Calibration, prediction sets, familiarity and report of a fitted classifier, which stays as it is.

    It is a scikit-learn classifier that needs no fit: ``predict_proba`` gives the calibrated probabilities of the
    classifier inside.

    Parameters
    ----------
    classifier : object, optional
        Fitted, with ``predict_proba``: of scikit-learn, XGBoost, LightGBM, CatBoost, a pipeline or any other. Or a
        Keras model that predicts class probabilities [N, n], or [N, 1] of the second of two classes. Default None:
        there are probabilities alone, and all methods take them, [N, n], in place of samples.
    classes : array_like, shape [n], optional
        Names of the columns of the probabilities, in their order; needed where nothing else tells them. Default None:
        ``classifier.classes_``, or 0 to n - 1 for a Keras model. They may name the classes of a classifier that was
        fitted to the numbers 0 to n - 1.
    features : callable, optional
        From samples to the features [N, d] of ``fit_density`` and ``familiarity``: ``pipeline[:-1].transform``, or
        ``keras.Model(model.input, model.layers[-2].output)``, whose ``predict`` is called. Default None: these two
        methods take features, which samples of a table are.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
        In the order of the columns of probabilities. scikit-learn's scorers of probabilities take them for sorted.
    calibration_ : Calibration
        Only after ``calibrate``.
    floor_ : float
        Only after ``calibrate``: the probability that stands for smaller ones, zero above all, before the calibration.
    priors_ : PriorShift
        Only after ``set_priors``.
    prediction_sets_ : ConformalSets
        Only after ``conformalize``.
    decision_rule_ : DecisionRule
        Only after ``set_decision``.
    density_ : FeatureDensity
        Only after ``fit_density``.

    Raises
    ------
    NotFittedError
        For a classifier that is not fitted.
    TypeError, ValueError
        For one without probabilities, and for classes that are missing, or not those of the classifier.

    Notes
    -----
    ``calibrate`` and ``conformalize`` need samples that the classifier was not trained on, each of them its own;
    ``fit_density`` the training samples. Further training of the classifier makes them obsolete.

    A forest of 100 trees, or 5 neighbors, say zero where no tree or neighbor votes for a class. To a calibration, which
    takes logarithms, such a zero is half the smallest positive probability of the held-out samples, and at least 2e-16.
    ``saliency`` explains Keras models and the classifiers of this package; others have no gradient.
    ``export`` writes Keras models in all formats, scikit-learn's classifiers as ONNX, and of others, loaded without
    the classifier, the part behind their probabilities.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0).fit(X[:600], y[:600])
    >>> classifier = AfterTraining(forest).calibrate(X[600:900], y[600:900]).conformalize(X[900:1300], y[900:1300])
    >>> bool(classifier.report(X[1300:], y[1300:]).set_coverage > 0.85)
    True

    Probabilities alone:

    >>> p, p_new = forest.predict_proba(X[600:1200]), forest.predict_proba(X[1200:])
    >>> AfterTraining(classes=forest.classes_).calibrate(p, y[600:1200]).predict_proba(p_new).shape
    (597, 10)
    """

    _formats = ("tf_saved_model", "onnx", "litert")

    def __init__(
        self,
        classifier: Any = None,
        *,
        classes: ArrayLike | None = None,
        features: Callable[[Any], Any] | None = None,
    ) -> None:
        self.classifier, self.classes, self.features = classifier, classes, features
        self._check()

    def _check(self) -> None:
        """Raise an error unless there is a fitted classifier that gives probabilities of known classes."""
        classifier = self.classifier
        usable = not isinstance(classifier, type) and hasattr(classifier, "predict_proba")
        if not (classifier is None or usable or isinstance(classifier, keras.Model)):
            hint = ". Probabilities alone: AfterTraining(classes=names), and they in place of samples"
            raise TypeError(
                "classifier must have predict_proba, or be a Keras model that predicts probabilities; found "
                f"{shown(classifier)}{hint if isinstance(classifier, np.ndarray | list) else ''}"
            )
        if isinstance(classifier, BaseEstimator):
            try:
                check_is_fitted(classifier)
            except NotFittedError:
                raise NotFittedError(f"classifier must be fitted; found {shown(classifier)} before its fit") from None
        if self.features is not None and not callable(self.features):
            raise TypeError(
                "features must be a function from samples to features [N, d]; found "
                f"{shown(self.features)}. Give features themselves to fit_density and familiarity"
            )
        self.classes_  # noqa: B018, raises for classes that are missing

    @property
    def classes_(self) -> NDArray[Any]:  # type: ignore[override]
        """Names of the columns of probabilities, [n]."""
        known, given = self._known_classes(), self.classes
        if given is None and known is None:
            raise ValueError(
                "classes must be given, the name of each column of the probabilities, such as range(10): "
                + ("there is no classifier" if self.classifier is None else f"{shown(self.classifier)} names none")
            )
        names: Any = known if given is None else given
        count = len(names) if known is None else len(known)
        names = check_class_names(names, count, of="the probabilities")
        numbered = isinstance(self.classifier, keras.Model) or known == list(range(count))
        if known is not None and list(names) != known and not numbered:
            raise ValueError(
                f"classes must be those of classifier, in their order, {known}; found {list(names)}. Other names "
                "are for classifiers that were fitted to numbers from 0"
            )
        if count < 2:
            raise ValueError(f"classes must be at least 2; found {list(names)}")
        return np.asarray(names)

    def _known_classes(self) -> list[Any] | None:
        """Return the classes that the classifier tells, None if it tells none."""
        classifier = self.classifier
        known = getattr(classifier, "class_names", None) if isinstance(classifier, keras.Model) else None
        if known is not None and list(known) == [f"{number}" for number in range(len(known))]:
            known = range(len(known))  # what a classifier calls its classes without names: its labels are numbers
        known = getattr(classifier, "classes_", known)
        if known is None and isinstance(classifier, keras.Model):
            shape = getattr(classifier, "output_shape", None)
            known = range(max(shape[-1], 2)) if isinstance(shape, tuple) and shape[-1] else None
        if known is None or len(known) == 0:
            if hasattr(classifier, "fit") and not isinstance(classifier, keras.Model):
                raise NotFittedError(f"classifier must be fitted; found {shown(classifier)}, without classes_")
            return None
        if isinstance(known, list) and np.ndim(known[0]):
            raise ValueError(
                f"classifier must predict one label of each sample; found {len(known)}. Wrap a classifier of each"
            )
        return np.asarray(known).tolist()

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X, if the classifier tells it; of probabilities, if there is no classifier."""
        return len(self.classes_) if self.classifier is None else int(self.classifier.n_features_in_)

    @property
    def _sample_shape(self) -> tuple[int | None, ...] | None:
        if isinstance(self.classifier, keras.Model):
            shape = getattr(self.classifier, "input_shape", None)
            return shape[1:] if isinstance(shape, tuple) else None
        count = None if self.classifier is None else getattr(self.classifier, "n_features_in_", None)
        return None if count is None else (int(count),)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: the classifier inside is fitted."""
        return True

    def __sklearn_clone__(self) -> Self:
        """Return a copy around the same fitted classifier, with nothing fitted after its training."""
        return type(self)(**self.get_params(deep=False))

    def set_params(self, **params: Any) -> Self:
        """Set arguments of the constructor. What was fitted to another classifier is removed, with a warning."""
        BaseEstimator.set_params(clone(self), **params)._check()  # before anything changes
        super().set_params(**params)
        components = self._after_training
        components.remove("set_params")
        self.__dict__.pop("floor_", None)
        return self._store(components)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        fitted = [repr(each) for each in self._after_training.components().values() if each is not None]
        return super().__repr__(N_CHAR_MAX) + (f" with {', '.join(fitted)}" if fitted else "")

    def fit(self, X: Any = None, y: Any = None, **options: Any) -> NoReturn:
        """Raise TypeError: the classifier is fitted already."""
        raise TypeError(
            "fit must not be called: AfterTraining takes a classifier that is fitted. Call calibrate, conformalize and "
            "fit_density, or fit another classifier and wrap it"
        )

    @property
    def _after_training(self) -> FittedComponents:
        # Of a copy: a floor that was set by a fit that fails is not kept.
        return replace(super()._after_training, classifier=copy.copy(self))

    def _store(self, after_training: FittedComponents) -> Self:
        fitted: Any = after_training.classifier
        if hasattr(fitted, "floor_"):
            self.floor_ = fitted.floor_
        return super()._store(after_training)

    def _uncalibrated_outputs(self, X: Any) -> dict[str, Any]:
        p = self._probabilities(X)
        self.floor_ = max(_LEAST, 0.5 * float(p[p > 0].min()))
        return {"probabilities": self._floored(p)}

    def _floored(self, p: Any) -> Any:
        """Return probabilities [N, n], an array or a tensor, none below ``floor_``."""
        if not is_tensor(p):
            return self._floored(tf.constant(p)).numpy()
        p = tf.maximum(p, tf.constant(self.floor_, p.dtype))
        return p / tf.reduce_sum(p, axis=1, keepdims=True)

    def _calibrated(self, p: Any) -> Any:
        return super()._calibrated(p if self._after_training.calibration is None else self._floored(p))

    def _probabilities(self, X: Any) -> NDArray[Any]:
        """Return the classifier's probabilities [N, n], not calibrated."""
        classifier, count = self.classifier, len(self.classes_)
        name = "X" if classifier is None else "the output of classifier"
        if classifier is None:
            p = X
        elif hasattr(classifier, "predict_proba"):
            p = classifier.predict_proba(X)
        else:
            p = np.asarray(classifier.predict(X, verbose=0))
            if count == 2 and p.ndim == 2 and p.shape[1] == 1:
                p = _both_classes(p).numpy()
        return check_probabilities(p, name, num_classes=count)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return calibrated class probabilities [N, n], columns as ``classes_``, of the classifier's dtype."""
        return self._calibrated(self._probabilities(X))

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return finite logarithms of ``predict_proba``, [N, n]."""
        return self._calibrated_logarithms(self._probabilities(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each sample, [N], by calibrated probabilities."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def _labeled_arrays(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, NDArray[np.int64], Any]:
        if is_stream(X):
            raise TypeError(
                f"X must be an array, with y beside it; found a {type(X).__name__}. The arrays of a tf.data.Dataset: "
                "x, y = map(numpy.concatenate, zip(*dataset.as_numpy_iterator()))"
            )
        X, numbers, weights = super()._labeled_arrays(X, y, sample_weight)
        rows = X.shape[0] if hasattr(X, "shape") else len(numbers)  # several inputs of a network have no shape
        if rows != len(numbers):
            raise ValueError(f"X and y must have as many rows; found {rows} and {len(numbers)}")
        # The numbers count sorted classes.
        return X, np.argsort(self.classes_, kind="stable")[numbers], weights

    def _training_samples(self, X: Any) -> NDArray[np.bool_]:
        """Ask the classifier, or the one at the end of a pipeline, if it is one of ours, which knows its samples."""
        before, classifier = _split(self.classifier)
        if not isinstance(classifier, CalibratedClassifier | CalibratedNetwork):
            return super()._training_samples(X)
        return classifier._training_samples(X if before is None else before.transform(X[:RECOGNIZED_ROWS]))

    def _differentiable(self, of: Explained) -> Any:
        classifier: Any = self.classifier
        if of == "familiarity":
            if self.features is not None:
                raise ValueError(
                    "saliency of='familiarity' has no gradient through features, a function of arrays: give features "
                    "themselves as X, with AfterTraining(classifier) around the same classifier"
                )
            return None, None
        inner: Any = _both_classes
        if isinstance(classifier, keras.Model):
            network = classifier
        elif isinstance(classifier, CalibratedClassifier):
            network, inner = classifier._differentiable(of)
        else:
            raise no_gradient("probabilities alone" if classifier is None else shown(classifier))
        smooth = copy.copy(self)._store(self._after_training.differentiable)
        return network, lambda outputs: smooth._calibrated(inner(outputs))

    def _saliency_samples(self, X: Any) -> NDArray[Any]:
        return check_array(X, "X", dtype="any")

    def _density_features(self, X: Any) -> NDArray[Any]:
        if self.features is not None:
            network: Any = self.features if isinstance(self.features, keras.Model) else None
            features = self.features(X) if network is None else network.predict(X, verbose=0)
            return check_array(features, "the output of features", "[N, d]")
        if hasattr(self.classifier, "feature_names_in_"):
            validate_data(self.classifier, X, reset=False, skip_check_array=True)  # names of columns, and their order
        try:
            return check_array(X, "X", "[N, d]")
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"{error}. The density of other samples needs AfterTraining(..., features=function), of a pipeline "
                "features=pipeline[:-1].transform, with an imputer where values are missing"
            ) from error

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Write what was fitted after training to an ``.npz`` file, without the classifier and without a pickle.

        Parameters
        ----------
        filepath : path-like
            Ends in .npz and may begin with ``~``; written atomically. Save the classifier beside it as its library
            does: ``xgboost_model.save_model(...)``, ``keras_model.save(...)``, skops, joblib.

        Raises
        ------
        ValueError
            For another ending, and for classes that are neither numbers nor texts.
        OSError
            If the file cannot be written; an existing one is kept.

        Notes
        -----
        The file holds no samples. By the probabilities of rows of random numbers, where the classifier takes them,
        ``load`` notices another classifier.
        """
        if not os.fspath(filepath).endswith(".npz"):
            raise ValueError(f"filepath must end in .npz; found {os.fspath(filepath)!r}")
        names = self.classes_.tolist()
        if not all(isinstance(name, bool | int | float | str) for name in names):
            raise ValueError(f"classes must be numbers or texts, which files hold; found {names!r}")
        first, second = self._probe(), self._probe()
        same = first is not None and second is not None and _difference(first, second) < _TOLERANCE
        probe = {"probe": first} if same and first is not None else {}
        floor = {"floor": np.array(self.floor_)} if hasattr(self, "floor_") else {}
        arrays = {"classes": np.array(json.dumps(names)), **probe, **floor, **self._after_training.state()}
        with replacing(filepath) as fresh:
            save_arrays(fresh, _KEY, arrays)

    @classmethod
    def load(
        cls,
        filepath: str | os.PathLike[str],
        classifier: Any = None,
        *,
        features: Callable[[Any], Any] | None = None,
    ) -> Self:
        """Load what ``save`` wrote, around the classifier that it was fitted to.

        Parameters
        ----------
        filepath : path-like
        classifier, features
            As in the constructor; restored by their own library.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, and for a classifier of other classes or with other probabilities than the one that
            was saved. These are compared for classifiers of columns or arrays of numbers.
        """
        path = check_path(filepath, "filepath")
        if not path.is_file():
            raise FileNotFoundError(f"filepath: there is no file at {str(path)!r}")
        otherwise = "is damaged, or no file of AfterTraining.save of this version"
        remedy, place = "save it again or restore a copy", f"filepath: {str(path)!r}"
        with naming_damage(path, "classes.npy", otherwise, remedy, place):
            arrays = load_arrays(path, _KEY)
            classes = json.loads(str(arrays["classes"]))
        loaded = cls(classifier, classes=classes, features=features)
        if classifier is not None and "probe" in arrays:
            loaded._check_probe(arrays["probe"])
        components = loaded._after_training
        if "after_training" in arrays:
            components.load_state(arrays)
        if "floor" in arrays:
            loaded.floor_ = float(arrays["floor"])
        return loaded._store(components)

    def _probe(self) -> NDArray[Any] | None:
        """Return the classifier's probabilities of rows of random numbers; None if it takes no such rows."""
        classifier = self.classifier
        shape = getattr(classifier, "input_shape", (None, getattr(classifier, "n_features_in_", None)))
        if not isinstance(shape, tuple) or not all(isinstance(size, int | np.integer) for size in shape[1:]):
            return None
        rng = np.random.default_rng(0)
        # Every row has another magnitude: thresholds of trees and slopes of linear models show at some of them.
        magnitudes = np.logspace(-2, 4, _PROBES).reshape(-1, *[1] * len(shape[1:]))
        rows = magnitudes * rng.normal(size=(_PROBES, *shape[1:]))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # such as those about missing feature names
            try:
                return self._probabilities(rows.astype(np.float32))
            except Exception:  # classifiers raise anything for rows that they do not take
                return None

    def _check_probe(self, saved: NDArray[Any]) -> None:
        """Raise ValueError unless the classifier has the probabilities of ``_probe`` that the saved one had."""
        probe = self._probe()
        difference = np.inf if probe is None else _difference(probe, saved)
        if not difference < _TOLERANCE:
            raise ValueError(
                f"classifier must be the one that was saved: its probabilities of {_PROBES} rows of random numbers "
                f"differ by {difference:.2g}. Restore that one, or calibrate this one anew"
            )

    def export(
        self,
        filepath: str | os.PathLike[str],
        class_names: Sequence[str] | None = None,
        format: str = "tf_saved_model",
        verbose: bool = False,
        input_dtype: str = "float32",
        X: Any = None,
    ) -> None:
        """Export the classifier with its calibration, sets and rule, for serving without this package.

        Parameters
        ----------
        filepath, class_names, format, verbose, input_dtype
            As for other classifiers: see ``SimplexGaussianProcess.export``. Classifiers of scikit-learn support only
            "onnx".
        X : pandas.DataFrame, optional
            For a pipeline that was fitted to the columns of a data frame: rows of it, by which each column becomes an
            input [N, 1] of its name and dtype, as in ``export.export_pipeline``. Default None: an input "features".

        Raises
        ------
        ValueError
            For a density of features that files cannot compute, and for what a format cannot hold.
        """
        self._write(filepath, class_names, format, verbose, input_dtype, X=X)

    def _export(self, filepath: str | os.PathLike[str], format: str, *, X: Any = None, **options: Any) -> None:
        classifier, is_network = self.classifier, isinstance(self.classifier, keras.Model)
        if self._after_training.density is not None and not (is_network and self.features is None):
            raise ValueError("export has no features for the density; remove it by fit_density(None)")
        before, last = _split(classifier)
        is_ours = isinstance(last, CalibratedClassifier)
        if X is not None and (classifier is None or is_network or (is_ours and before is None)):
            raise ValueError("X must not be given but for a pipeline of columns of a data frame")
        if is_ours:
            self._export_ours(before, last, filepath, format, X, options)
            return
        resource, _, readout = self._served()
        if is_network:
            inputs = getattr(classifier, "inputs", None) or []
            if len(inputs) != 1:
                raise ValueError(f"export needs a Keras model of one input that is built; found {len(inputs)} inputs")
            dtype = inputs[0].dtype
            options |= {"sample_dtype": dtype} | ({} if "float" in dtype else {"input_dtype": dtype})
            shape, name = tuple(inputs[0].shape[1:]), "features"
        else:
            options["sample_dtype"] = options["input_dtype"]
            shape, name = (len(self.classes_),), "probabilities"
        options |= {"latent": None, "readout": readout, "sample_shape": shape, "input_name": name}
        if classifier is None or is_network:
            export_model(resource, filepath, format, **options)
            return
        alone = ". The part behind its probabilities: AfterTraining.load(filepath).export, after save"
        if format != "onnx":
            raise ValueError(f"format must be 'onnx' for {shown(classifier)}, by skl2onnx; found {format!r}{alone}")
        behind = partial(export_model, resource, format=format, **options)
        if options["input_dtype"] == "float32":
            warn_of_rounded_columns(classifier, X)
        try:
            write_behind(classifier, filepath, behind, self.n_features_in_, X, options["input_dtype"])
        except ValueError as error:
            if error.__cause__ is None:  # not a converter's
                raise
            reason = _root_cause(error)
            if X is None and hasattr(classifier, "feature_names_in_"):
                reason += ". Columns of a data frame become inputs by export(..., X=frame)"
            raise ValueError(f"format='onnx' cannot hold {shown(classifier)}: {reason}{alone}") from error

    def _export_ours(
        self, before: Pipeline | None, last: CalibratedClassifier, filepath: Any, format: str, X: Any, options: Any
    ) -> None:
        """Write a classifier of ours behind the other steps of its pipeline, which skl2onnx converts."""
        single = check_choice(options["input_dtype"], "input_dtype", last._input_dtypes) == "float32"
        around = options.pop("calibrated", lambda p: p)  # of an AfterTraining around this one
        options["calibrated"] = lambda p: around(self._calibrated(p))
        check_choice(format, "format", last._formats)

        def write(path: Any) -> None:
            last._export(path, format, **options)

        if before is None:
            if single:
                last._warn_of_rounding()
            write(filepath)
            return
        if format != "onnx":
            raise ValueError(f"format must be 'onnx' for a pipeline, by skl2onnx; found {format!r}")
        if single:
            warn_of_rounded_columns(before, X)
        write_behind(before, filepath, write, self.n_features_in_, X, options["input_dtype"])

    def _served(self) -> tuple[Any, None, Callable[[Any], Any]]:
        classifier = self.classifier
        if not isinstance(classifier, keras.Model):
            return tf.Module(), None, lambda p: self._calibrated(tf.identity(p))

        return classifier, None, lambda samples: self._calibrated(_both_classes(classifier(samples, training=False)))


def _split(classifier: Any) -> tuple[Pipeline | None, Any]:
    """Return the steps of a pipeline before its classifier, None if there are none, and the classifier."""
    if not isinstance(classifier, Pipeline):
        return None, classifier
    return classifier[:-1] if len(classifier) > 1 else None, classifier[-1]


def _both_classes(p: Any) -> Any:
    """Return probabilities [N, n], which may be [N, 1], of the second of two classes."""
    return tf.concat([1 - p, p], axis=1) if p.shape[1] == 1 else p


def _root_cause(error: BaseException) -> str:
    """Return the first line of the first of the errors that led to this one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0].rstrip(".")


def _difference(p: NDArray[Any], q: NDArray[Any]) -> float:
    return float(np.abs(p - q).max()) if p.shape == q.shape else np.inf
