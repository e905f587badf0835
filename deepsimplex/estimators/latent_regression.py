"""Any scikit-learn regressor as a classifier: it learns latents in place of numbers."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict

from deepsimplex.estimators.base import TargetClassifier
from deepsimplex.estimators.regressors import learns_single, of_many_outputs, predict_with_deviations, states_deviations
from deepsimplex.estimators.seeds import RandomState, seed_of
from deepsimplex.latent import LatentGaussian

# Rows at which the deviations of the latent dimensions are compared.
_COMPARED = 100


class LatentRegressionClassifier(TargetClassifier):
    """A regressor of scikit-learn learns the latents of a target, which are read out as class probabilities.

    Parameters
    ----------
    regressor : regressor, optional
        With ``fit(X, Z)`` for latents Z [N, L] ([N] for L = 1) and ``predict``. One whose tags say nothing of
        ``multi_output`` is fitted to every latent dimension by itself. Where its predict takes ``return_std``, or that
        of a pipeline's last step or of a search's best estimator, that is the latents' deviation. None (default) is
        the setting of [CASIMAC] sec. 3: a Gaussian process with a Matern and a white kernel.
    target : Target, str or dict
        Any target of ``deepsimplex.targets``, or its name. Default "casimac", as the paper has it.
    folds : int
        For regressors without deviations: the residuals of so many folds, each predicted by a regressor fitted to the
        others, give one deviation for all samples. Default 5.
    readout : {"argmax", "softmax"}, optional
        None (default) takes the target's own.
    classes : array_like, shape [n], optional
        All classes there are, where y may lack some; None (default) takes those of y.
    random_state : int, numpy.random.RandomState or None
        Shuffles the folds; a generator (None: NumPy's global one) does so at every fit. Default 0. The regressor has a
        setting of its own.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    target_ : Target
    regressor_ : regressor
        As fitted: a ``MultiOutputRegressor`` where there is one for every latent dimension.
    deviation_ : float or None
        Root mean square of the residuals, for regressors without deviations.
    covariance_ : {"isotropic", "diagonal"}
        Of the latents: isotropic where all of their dimensions have the same deviation.
    n_features_in_ : int

    Notes
    -----
    [CASIMAC Eq. 12-15]. Whether deviations are the same for all latent dimensions, so that the readout is exact, is
    settled by ``fit``, halfway between training samples.

    The default regressor has a prior of variance one, as in [CASIMAC]'s benchmark: to latents of another order, as of
    CASIMAC targets of unscaled features, give one whose kernel has an amplitude, ``ConstantKernel() * Matern()``.

    Deviations are of the latents as they would be observed: residuals hold their noise, and so do the deviations of
    ``BayesianRidge`` and of a Gaussian process with a white kernel. One with ``alpha`` in its place leaves it out.

    There is no ``save`` and no ``export``: how any regressor is written is its own affair. Pickle or skops write all of
    the classifier.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LatentRegressionClassifier(KNeighborsRegressor()).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    def __init__(
        self,
        regressor: Any = None,
        target: Any = "casimac",
        *,
        folds: int = 5,
        readout: str | None = None,
        classes: ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.regressor = regressor
        self.target = target
        self.folds = folds
        self.readout = readout
        self.classes = classes
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from features X [N, d] and labels y.

        Parameters
        ----------
        X : array_like, shape [N, d]
        y : array_like, shape [N] or [N, n]
            Labels of any kind, or soft labels, for targets made from labels alone: rows that sum to one.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN, labels that ``classes`` does not name, a single class, and what the target refuses.
        """
        with self._fitting():
            features, labels = self._checked(X, y)
            seed = seed_of(self.random_state)
            if self.folds < 2:
                raise ValueError(f"folds must be at least 2; found {self.folds!r}")
            latents = self._observations(features, labels).loc
            paper = GaussianProcessRegressor(Matern() + WhiteKernel(noise_level_bounds=(1e-12, 1e5)))
            regressor = clone(paper if self.regressor is None else self.regressor)
            if latents.shape[1] == 1 and learns_single(regressor):
                Z = latents[:, 0]
            else:
                Z, regressor = latents, of_many_outputs(regressor)
            fitted = clone(regressor).fit(features, Z)
            stated = states_deviations(fitted)
            self.deviation_ = None if stated else self._residual(regressor, features, Z, seed)
            self.covariance_ = _covariance(fitted, features) if stated else "isotropic"
            self.regressor_ = fitted
        return self

    def _residual(self, regressor: Any, X: NDArray[np.float64], Z: NDArray[np.float64], seed: int) -> float:
        folds = KFold(min(self.folds, len(X)), shuffle=True, random_state=seed)
        predicted = cross_val_predict(regressor, X, Z, cv=folds)
        return float(np.sqrt(np.mean(np.square(np.reshape(predicted, Z.shape) - Z))))

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        if self.deviation_ is not None:
            mean, deviation = self.regressor_.predict(X), np.full((len(X), 1), self.deviation_)
        else:
            mean, deviation = predict_with_deviations(self.regressor_, X)
            deviation = deviation.reshape(len(X), -1)
            if self.covariance_ == "isotropic":
                deviation = np.sqrt(np.mean(np.square(deviation), axis=1, keepdims=True))
        mean = np.asarray(mean, dtype=np.float64).reshape(len(X), self.target_.latent_dim_)
        return LatentGaussian(mean, deviation)


def _covariance(fitted: Any, X: NDArray[np.float64]) -> Literal["isotropic", "diagonal"]:
    """Whether a regressor gives all of its outputs the same deviation, once for all predictions to come.

    At training samples themselves deviations may be zero, whatever they are elsewhere.
    """
    between = (0.5 * X[:-1] + 0.5 * X[1:])[:_COMPARED]
    _, deviation = predict_with_deviations(fitted, between)
    deviation = deviation.reshape(len(between), -1)
    return "isotropic" if np.allclose(deviation, deviation[:, :1], rtol=1e-9, atol=0.0) else "diagonal"
