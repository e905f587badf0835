"""Any scikit-learn regressor as a classifier: it learns latents in place of numbers."""

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict

from deepsimplex.estimators.base import TargetClassifier
from deepsimplex.latent import LatentGaussian


class LatentRegressionClassifier(TargetClassifier):
    """A regressor of scikit-learn learns the latents of a target, which are read out as class probabilities.

    Parameters
    ----------
    regressor : regressor, optional
        With ``fit(X, Z)`` for latents Z [N, L] ([N] for L = 1) and ``predict``. Where its predict takes
        ``return_std``, that is the latents' deviation. None (default) is the setting of [CASIMAC] sec. 3: a Gaussian
        process with a Matern and a white kernel.
    target : Target, str or dict
        Any target of ``deepsimplex.targets``, or its name. Default "casimac", as the paper has it.
    folds : int
        For regressors without deviations: the residuals of so many folds, each predicted by a regressor fitted to the
        others, give one deviation for all samples. Default 5.
    readout : {"argmax", "softmax"}, optional
        None (default) takes the target's own.
    classes : array_like, shape [n], optional
        All classes there are, where y may lack some; None (default) takes those of y.
    random_state : int
        Shuffles the folds. Default 0.

    Attributes
    ----------
    classes_ : ndarray, shape [n]
    target_ : Target
    regressor_ : regressor
        As fitted.
    deviation_ : float or None
        Root mean square of the residuals, for regressors without deviations.
    n_features_in_ : int

    Notes
    -----
    [CASIMAC Eq. 12-15]. A deviation that is the same for all latent dimensions is taken as isotropic, so that the
    readout is exact.

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
        random_state: int = 0,
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
        features, labels = self._checked(X, y)
        latents = self._observations(features, labels).loc
        Z = latents[:, 0] if latents.shape[1] == 1 else latents
        paper = GaussianProcessRegressor(Matern() + WhiteKernel(noise_level_bounds=(1e-12, 1e5)))
        regressor = paper if self.regressor is None else self.regressor
        self.deviation_ = None if _gives_deviations(regressor) else self._residual(regressor, features, Z)
        self.regressor_ = clone(regressor).fit(features, Z)
        return self

    def _residual(self, regressor: Any, X: NDArray[np.float64], Z: NDArray[np.float64]) -> float:
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2; found {self.folds!r}")
        folds = KFold(min(self.folds, len(X)), shuffle=True, random_state=self.random_state)
        predicted = cross_val_predict(clone(regressor), X, Z, cv=folds)
        return float(np.sqrt(np.mean(np.square(predicted - Z))))

    def _latents(self, X: NDArray[np.float64]) -> LatentGaussian:
        if self.deviation_ is not None:
            mean, deviation = self.regressor_.predict(X), np.full((len(X), 1), self.deviation_)
        else:
            mean, deviation = self.regressor_.predict(X, return_std=True)
        mean = np.asarray(mean, dtype=np.float64).reshape(len(X), self.target_.latent_dim_)
        deviation = np.asarray(deviation, dtype=np.float64).reshape(len(X), -1)
        same = np.allclose(deviation, deviation[:, :1], rtol=1e-9, atol=0.0)
        return LatentGaussian(mean, deviation[:, :1] if same else deviation)


def _gives_deviations(regressor: Any) -> bool:
    return "return_std" in inspect.signature(regressor.predict).parameters
