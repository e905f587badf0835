"""Classification by any scikit-learn regressor, fitted to the latents of a target."""

import inspect
import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_val_predict
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from deepsimplex._utils.memory import check_memory
from deepsimplex._utils.validation import check_flag, check_whole
from deepsimplex.classifier.saliency_maps import Explained
from deepsimplex.estimators.calibrated_classifier import RandomState, no_gradient, seed_of
from deepsimplex.estimators.latent_classifier import LatentClassifier
from deepsimplex.export import export_model
from deepsimplex.export.portable_formats import write_behind
from deepsimplex.latent import LatentGaussian

# Rows at which the standard deviations of the latent dimensions are compared.
_COMPARED = 100


@dataclass(eq=False, repr=False)
class LatentRegressionClassifier(LatentClassifier):
    """A scikit-learn regressor fitted to the latents of a target, which are read out as class probabilities.

    Parameters
    ----------
    regressor : regressor, optional
        With ``fit(X, Z)`` for latents Z [N, L] ([N] for L = 1) and ``predict``. One without the tag ``multi_output`` is
        fitted to each latent dimension separately. If its ``predict`` takes ``return_std``, or that of a pipeline's
        last step or of a search's best estimator, that is the latents' standard deviation. Default None: the setting
        of [CASIMAC] sec. 3, a Gaussian process with a Matern and a white kernel.
    target : Target, str or dict
        Any target of ``deepsimplex.targets``, or its name. Default "casimac", as in the paper.
    cv : int, cross-validation splitter or iterable of splits
        For regressors without standard deviations: the number of shuffled cross-validation folds whose residuals give
        one standard deviation for all samples, or folds as scikit-learn takes them, such as the splits of GroupKFold
        where samples belong together. Default 5.
    readout : {"argmax", "softmax"}, optional
        Default None: the target's own.
    scale_features : bool
        Whether features are standardized first, for the regressor and for the target's distances that add up features
        ("euclidean", "cityblock"). Default True: such sums need features in one unit. Use False, for example, for
        a kernel with a given lengthscale.
    classes : array_like, shape [n], optional
        All classes, if y may lack some, in any order, which is that of the columns of soft labels. Default None:
        those of y.
    random_state : int, numpy.random.RandomState or None
        Seed of the shuffled folds; a generator (None: NumPy's global one) draws it at every fit. Default 0. The
        regressor's own ``random_state``, if it has one, is not affected.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    target_ : Target
    scaler_ : sklearn.preprocessing.StandardScaler
        Scales the features for ``regressor_``.
    regressor_ : regressor
        As fitted: a ``MultiOutputRegressor`` if there is one for every latent dimension.
    residual_scale_ : float or None
        Root mean square of the residuals, for regressors without standard deviations.
    covariance_ : {"isotropic", "diagonal"}
        Of the latents: isotropic if all of their dimensions have the same standard deviation.
    n_features_in_ : int

    Notes
    -----
    [CASIMAC Eq. 12-15]. ``fit`` tests halfway between training samples whether standard deviations are the same for all
    latent dimensions: the covariance is then isotropic, and the argmax readout exact.

    The default regressor has a prior of variance one, as in [CASIMAC]'s benchmark: for latents of another scale, as of
    ``CASIMAC(normalize=False)``, use a kernel with an amplitude, ``ConstantKernel() * Matern()``.

    Standard deviations include observation noise if they are those of residuals, of ``BayesianRidge`` or of a Gaussian
    process with a white kernel. A Gaussian process with ``alpha`` instead leaves it out.

    There is no ``save``, since regressors have no common format. Pickle or skops write the whole classifier. ``export``
    writes ONNX, for regressors that skl2onnx converts: linear models, nearest neighbors, trees and forests, support
    vector machines, neural networks, pipelines of them; not regressors with standard deviations, such as Gaussian
    processes: use ``SimplexGaussianProcess`` instead.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LatentRegressionClassifier(KNeighborsRegressor()).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    regressor: Any = None
    target: Any = "casimac"
    _: KW_ONLY
    cv: Any = 5
    readout: str | None = None
    scale_features: bool = True
    classes: ArrayLike | None = None
    random_state: RandomState = 0
    _formats = ("onnx",)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels, for targets made from labels alone: rows that sum to one.
        sample_weight : array_like, shape [N], optional
            Weights of the samples, for a regressor, the last step of a pipeline or the estimator of a search whose
            ``fit`` takes them, and in ``residual_scale_``; those of the default regressor divide the variance of its
            noise. Samples of weight 0 are left out. Weights that are all equal are left out for other regressors.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that are not in ``classes``, a single class, weights that the regressor does not take, a
            regressor that predicts NaN, and data that the target rejects.
        """
        with self._fitting():
            features, labels, weights = self._checked(X, y, sample_weight)
            seed = seed_of(self.random_state)
            if isinstance(self.cv, str) or not (hasattr(self.cv, "split") or np.iterable(self.cv)):
                check_whole(self.cv, "cv", 2)
            check_flag(self.scale_features, "scale_features")
            if self.regressor is not None and not hasattr(self.regressor, "get_params"):
                raise TypeError(f"regressor must be a scikit-learn regressor; found {self.regressor!r}")
            if self.regressor is None:
                hint = "give another regressor, or use SimplexGaussianProcess()"
                check_memory(8.0 * len(features) ** 2, f"the default regressor for {len(features):,} rows X", hint)
            latents = self._observations(features, labels, self.target, weights).loc
            if self.regressor is None:
                noise = WeightedWhiteKernel(weights=None if sample_weight is None else weights)
                regressor, weighted = GaussianProcessRegressor(Matern() + noise), {}
            else:
                regressor = clone(self.regressor)
                weighted = {} if sample_weight is None else _weight_argument(regressor, weights)
            scaler = StandardScaler(with_mean=self.scale_features, with_std=self.scale_features)
            features, Z = scaler.fit_transform(features, sample_weight=weights), latents
            if latents.shape[1] == 1 and _has_tag(regressor, "single_output"):
                Z = latents[:, 0]
            elif not _has_tag(regressor, "multi_output"):
                regressor = MultiOutputRegressor(regressor)
            fitted = clone(regressor).fit(features, Z, **weighted)
            predict = predictive_distribution(fitted)
            _check_finite(fitted, predict, features, sample_weight)
            self.residual_scale_ = None
            if predict is None:
                used = np.ravel(np.asarray(weights if sample_weight is None else sample_weight)) > 0
                folds = self._folds(used, seed)
                self.residual_scale_ = self._residual(regressor, features, Z, weighted, folds)
            self.covariance_ = "isotropic" if predict is None else _covariance(predict, features)
            self.scaler_, self.regressor_ = scaler, fitted
        return self

    def _folds(self, used: NDArray[np.bool_], seed: int) -> Any:
        """Return the folds of the rows that are used; an iterable of splits is one of all rows."""
        if hasattr(self.cv, "split"):
            return self.cv
        if not np.iterable(self.cv):
            return KFold(min(self.cv, int(used.sum())), shuffle=True, random_state=seed)
        place = np.cumsum(used) - 1
        return [tuple(place[rows][used[rows]] for rows in split) for split in self.cv]

    def _residual(self, regressor: Any, X: Any, Z: NDArray[np.float64], weighted: dict[str, Any], folds: Any) -> float:
        squares = np.square(np.reshape(cross_val_predict(regressor, X, Z, cv=folds, params=weighted), Z.shape) - Z)
        return float(np.sqrt(np.mean(np.average(squares, axis=0, weights=next(iter(weighted.values()), None)))))

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        X = self.scaler_.transform(X)
        predict = predictive_distribution(self.regressor_)
        if predict is None:
            mean, std = self.regressor_.predict(X), np.full((len(X), 1), self.residual_scale_)
        else:
            mean, std = predict(X)
            std = np.asarray(std, dtype=np.float64).reshape(len(X), -1)
            if self.covariance_ == "isotropic":
                std = np.sqrt(np.mean(np.square(std), axis=1, keepdims=True))
        mean = np.asarray(mean, dtype=np.float64).reshape(len(X), self.target_.latent_dim_)
        return LatentGaussian(mean, std)

    def _served_latents(self) -> tuple[Any, Any]:
        def latent(mean: Any) -> dict[str, Any]:
            loc = tf.reshape(tf.cast(mean, tf.float64), (-1, self.target_.latent_dim_))
            return {"loc": loc, "scale": tf.fill(tf.shape(loc[:, :1]), tf.constant(self.residual_scale_, tf.float64))}

        return tf.Module(), latent

    def _differentiable(self, of: Explained) -> Any:
        raise no_gradient(f"the regressor {' '.join(repr(self.regressor_).split())}")

    def _export(self, filepath: str | os.PathLike[str], format: str, **options: Any) -> None:
        if self.residual_scale_ is None:
            raise ValueError("export needs a regressor without return_std, whose latents have residual_scale_")
        if hasattr(self, "density_"):
            raise ValueError(
                "export has no features for the density behind a regressor; remove it by fit_density(None)"
            )
        resource, latent, readout = self._served()
        options |= {"latent": latent, "readout": readout, "sample_shape": (None,)}
        dtype = options["input_dtype"]
        steps = Pipeline([("scaler", self.scaler_), ("regressor", self.regressor_)])
        export = partial(export_model, resource, format=format, **options)
        write_behind(steps, filepath, export, self.n_features_in_, input_dtype=dtype)


class WeightedWhiteKernel(WhiteKernel):
    """White noise of variance ``noise_level``, divided by the weights of the training samples.

    Parameters
    ----------
    noise_level, noise_level_bounds
        See ``sklearn.gaussian_process.kernels.WhiteKernel``; for samples without noise the bounds reach lower.
    weights : ndarray, shape [N], optional
        Weights of the training samples, which the kernel tells from others by their number. Default None: 1.

    Examples
    --------
    >>> WeightedWhiteKernel(0.5, weights=np.array([1.0, 2.0]))(np.zeros((2, 1)))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """

    def __init__(
        self,
        noise_level: float = 1.0,
        noise_level_bounds: Any = (1e-12, 1e5),
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__(noise_level, noise_level_bounds)
        self.weights = weights

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """Return the kernel matrix and, if asked for, its gradient."""
        result = super().__call__(X, Y, eval_gradient)
        if self.weights is None or Y is not None or len(X) != len(self.weights):
            return result
        if eval_gradient:
            return result[0] / self.weights, result[1] / self.weights[:, np.newaxis]
        return result / self.weights


def _between(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points halfway between training samples: at these, standard deviations may all be zero."""
    return (0.5 * X[:-1] + 0.5 * X[1:])[:_COMPARED]


def _covariance(predict: Callable[[Any], Any], X: NDArray[np.float64]) -> Literal["isotropic", "diagonal"]:
    """Return the covariance of all predictions: isotropic if all outputs have the same standard deviation."""
    std = np.reshape(predict(_between(X))[1], (len(_between(X)), -1))
    return "isotropic" if np.allclose(std, std[:, :1], rtol=1e-9, atol=0.0) else "diagonal"


def _check_finite(fitted: Any, predict: Callable[[Any], Any] | None, X: NDArray[np.float64], weights: Any) -> None:
    """Raise ValueError if a regressor predicts NaN, with the reason if it may be the sum of its weights."""
    with np.errstate(all="ignore"):
        predicted = fitted.predict(_between(X)) if predict is None else predict(_between(X))
    if np.all([np.isfinite(part).all() for part in predicted]):
        return
    hint = ": are features too large?"
    if weights is not None:
        hint = (
            f" with a sample_weight that sums to {np.sum(weights):.3g}: a regressor with a prior, such as "
            "BayesianRidge, takes the sum for the number of samples. Give sample_weight / numpy.mean(sample_weight)"
        )
    regressor = fitted.estimator if isinstance(fitted, MultiOutputRegressor) else fitted
    raise ValueError(f"regressor must predict finite numbers; found NaN or infinity by {regressor!r}{hint}")


def _weight_argument(regressor: Any, weights: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the weights by the name of the argument of a regressor's ``fit``; of a pipeline, of its last step."""
    if isinstance(regressor, Pipeline):
        name, last = regressor.steps[-1]
        return {f"{name}__{key}": value for key, value in _weight_argument(last, weights).items()}
    if isinstance(regressor, GridSearchCV | RandomizedSearchCV):
        return _weight_argument(regressor.estimator, weights)
    if has_fit_parameter(regressor, "sample_weight"):
        return {"sample_weight": weights}
    if np.ptp(weights) == 0:
        return {}
    name, some = type(regressor).__name__, "Ridge, BayesianRidge and RandomForestRegressor"
    raise ValueError(f"sample_weight needs a regressor whose fit takes it, as {some} do; found a {name}")


def _has_tag(regressor: Any, tag: str) -> bool:
    """Return whether a regressor, or the estimator of a search, has one of scikit-learn's target tags."""
    while isinstance(regressor, GridSearchCV | RandomizedSearchCV):
        regressor = regressor.estimator
    return bool(getattr(get_tags(regressor).target_tags, tag))


def predictive_distribution(fitted: Any) -> Callable[[Any], Any] | None:
    """Return the prediction of means and standard deviations, both [N] or [N, L], by a regressor with ``return_std``.

    That is the fitted regressor itself, the last step of a pipeline, the best of a search, or all of a
    ``MultiOutputRegressor``. None if it has no ``return_std``.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.pipeline import make_pipeline
    >>> regressor = make_pipeline(StandardScaler(), BayesianRidge()).fit([[0.0], [1.0]], [0.0, 1.0])
    >>> mean, std = predictive_distribution(regressor)([[0.5]])
    >>> mean.round(2), std.shape
    (array([0.5]), (1,))
    """
    if isinstance(fitted, Pipeline):
        # Pipeline.predict takes no return_std if scikit-learn routes metadata.
        last = predictive_distribution(fitted.steps[-1][1])
        return last and (lambda X: last(fitted[:-1].transform(X) if len(fitted) > 1 else X))
    if hasattr(fitted, "best_estimator_"):
        return predictive_distribution(fitted.best_estimator_)
    if isinstance(fitted, MultiOutputRegressor):
        singles: list[Any] = [predictive_distribution(single) for single in fitted.estimators_]
        if None in singles:
            return None
        return lambda X: [np.stack(part, axis=1) for part in zip(*(single(X) for single in singles), strict=True)]
    has_return_std = "return_std" in inspect.signature(fitted.predict).parameters
    return partial(fitted.predict, return_std=True) if has_return_std else None
