"""Least squares on one-hot labels, with or without Platt scaling: the baselines of [GPD]."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from deepsimplex._utils.validation import check_flag, check_whole
from deepsimplex.estimators.calibrated_classifier import RandomState
from deepsimplex.estimators.gaussian_process import SimplexGaussianProcess

# Share of the samples that Platt scaling is fitted to [GPD sec. 5].
_CALIBRATION = 0.2


class _MeanDecision(ClassifierMixin, BaseEstimator):
    """Classifier with the means of a Gaussian process as decision function, for Platt scaling."""

    def __init__(self, process: SimplexGaussianProcess) -> None:
        self.process = process

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        self.classes_ = self.process.fit(X, y, sample_weight).classes_
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        means = self.process.predict_latent(X).loc
        return means[:, 1] - means[:, 0] if len(self.classes_) == 2 else means


def _platt(classifier: Any, random_state: RandomState) -> CalibratedClassifierCV:
    """Fit the classifier to 80 % of every class, and a sigmoid per class to its decisions on the other 20 %."""
    # Not calibration.PlattScaling, which takes log-odds: these regressions have no probabilities.
    split = StratifiedShuffleSplit(1, test_size=_CALIBRATION, random_state=random_state)
    return CalibratedClassifierCV(classifier, method="sigmoid", cv=split)


def least_squares_gaussian_process(platt: bool = False, random_state: RandomState = 0, **settings: Any) -> Any:
    """Gaussian-process regression onto one-hot labels, with learned noise [GPD sec. 3.1].

    Without Platt scaling the latents are read out as usual: the probability of a class is that of its latent being the
    largest. Latents exclude the observation noise, so these probabilities are overconfident where classes overlap,
    which Platt scaling corrects; where classes do not overlap and have few samples, it can do harm. ([GPD]'s code
    truncates the means to [0, 1] and normalizes them, so that some probabilities are zero.)

    Parameters
    ----------
    platt : bool
        Whether means become probabilities by Platt scaling: a sigmoid per class, fitted to a stratified, held-out 20 %
        of the samples [GPD sec. 5], and normalized over the classes. Single samples are held out: give one of those
        that belong together. Default False.
    random_state : int, numpy.random.RandomState or None
        Seed of the process and of that split. Default 0.
    **settings
        See ``SimplexGaussianProcess``.

    Returns
    -------
    SimplexGaussianProcess or sklearn.calibration.CalibratedClassifierCV
        Not fitted. With Platt scaling, which is scikit-learn's, it can be pickled, but not saved or exported.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = least_squares_gaussian_process(platt=True).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """
    process = SimplexGaussianProcess("one_hot", random_state=random_state, **settings)
    check_flag(platt, "platt")
    return _platt(_MeanDecision(process), random_state) if platt else process


def nystroem_kernel_ridge(
    n_components: int = 200,
    *,
    gammas: Sequence[float] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    penalties: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0),
    cv: int = 5,
    platt: bool = True,
    random_state: RandomState = 0,
) -> Any:
    """Kernel ridge regression onto labels through Nystroem features, with Platt scaling [GPD sec. 3.1, NKRR].

    All parts are scikit-learn's: ``StandardScaler``, ``Nystroem`` of an RBF kernel, ``RidgeClassifier``. The kernel's
    width and the penalty are chosen by the cross-validated accuracy on 80 % of the samples, which the ridge regression
    is fitted to; the other 20 % calibrate [GPD sec. 5].

    Parameters
    ----------
    n_components : int
        Number of Nystroem components. [GPD] uses 200 to 500. Default 200, and at most a fold's training samples.
    gammas : sequence of float
        Candidates for the kernel exp(-gamma ||x - x'||^2).
    penalties : sequence of float
        Candidates for the ridge penalty.
    cv : int
        Folds of the stratified cross-validation, of single samples: where samples belong together, as images of one
        patient do, give one of each, or one value of ``gammas`` and ``penalties`` without ``platt``. Default 5.
    platt : bool
        Whether to calibrate; without, there is no ``predict_proba``. Default True.
    random_state : int, numpy.random.RandomState or None
        Seed of all parts. Default 0.

    Returns
    -------
    sklearn.calibration.CalibratedClassifierCV or sklearn.model_selection.GridSearchCV
        Not fitted.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = nystroem_kernel_ridge(n_components=20, gammas=[0.1], penalties=[0.01, 1.0]).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.9)
    True
    """
    check_whole(cv, "cv", 2)
    check_flag(platt, "platt")
    regression = Pipeline(
        [
            ("scaler", StandardScaler()),
            ("nystroem", Nystroem(n_components=n_components, random_state=random_state)),
            ("ridge", RidgeClassifier()),
        ]
    )
    grid = {"nystroem__gamma": list(gammas), "ridge__alpha": list(penalties)}
    search = GridSearchCV(regression, grid, cv=StratifiedKFold(cv, shuffle=True, random_state=random_state))
    return _platt(search, random_state) if platt else search
