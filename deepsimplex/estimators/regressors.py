"""What scikit-learn's regressors differ in: how many outputs they learn, and whether they state deviations."""

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags


def of_many_outputs(regressor: Any) -> Any:
    """The regressor, or scikit-learn's ``MultiOutputRegressor`` of it where it learns one output alone.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.svm import SVR
    >>> of_many_outputs(LinearRegression()), of_many_outputs(SVR())
    (LinearRegression(), MultiOutputRegressor(estimator=SVR()))
    """
    return regressor if _learns_many(regressor) else MultiOutputRegressor(regressor)


def learns_single(regressor: Any) -> bool:
    """Whether a regressor takes a single output as a vector, as almost all do.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression, MultiTaskLasso
    >>> learns_single(LinearRegression()), learns_single(MultiTaskLasso())
    (True, False)
    """
    if isinstance(regressor, GridSearchCV | RandomizedSearchCV):
        return learns_single(regressor.estimator)
    return bool(get_tags(regressor).target_tags.single_output)


def _learns_many(regressor: Any) -> bool:
    # What a search says of its estimator leaves this out.
    if isinstance(regressor, GridSearchCV | RandomizedSearchCV):
        return _learns_many(regressor.estimator)
    return bool(get_tags(regressor).target_tags.multi_output)


def states_deviations(fitted: Any) -> bool:
    """Whether a fitted regressor has ``return_std``: itself, or what predicts in the end of it.

    Nothing is said of a ``TransformedTargetRegressor``: it would have to transform the deviations too.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> states_deviations(make_pipeline(StandardScaler(), BayesianRidge()))
    True
    """
    if isinstance(fitted, Pipeline):
        return states_deviations(fitted.steps[-1][1])
    if hasattr(fitted, "best_estimator_"):
        return states_deviations(fitted.best_estimator_)
    if isinstance(fitted, MultiOutputRegressor):
        return all(states_deviations(single) for single in fitted.estimators_)
    return "return_std" in inspect.signature(fitted.predict).parameters


def predict_with_deviations(fitted: Any, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and deviations of X [N, d], both [N] or [N, L], by a regressor that states them."""
    if isinstance(fitted, Pipeline):
        # Not by Pipeline.predict, which takes no return_std where scikit-learn routes metadata.
        return predict_with_deviations(fitted.steps[-1][1], fitted[:-1].transform(X) if len(fitted) > 1 else X)
    if hasattr(fitted, "best_estimator_"):
        return predict_with_deviations(fitted.best_estimator_, X)
    if isinstance(fitted, MultiOutputRegressor):
        mean, deviation = zip(*(predict_with_deviations(single, X) for single in fitted.estimators_), strict=True)
        return np.stack(mean, axis=1), np.stack(deviation, axis=1)
    mean, deviation = fitted.predict(X, return_std=True)
    return np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
