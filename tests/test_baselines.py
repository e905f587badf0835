"""Least squares on labels, with Platt scaling and without."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine

import deepsimplex as ds
from deepsimplex.estimators import least_squares_gaussian_process, nystroem_kernel_ridge


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


def small_ridge(**arguments):
    return nystroem_kernel_ridge(30, gammas=[0.01, 0.1], penalties=[0.001, 0.1], **arguments)


@pytest.mark.parametrize(
    "classifier",
    [least_squares_gaussian_process(), least_squares_gaussian_process(platt=True), small_ridge()],
    ids=["process", "process, Platt", "ridge"],
)
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_accurate_and_repeatable(classifier, classes, wine):
    X, y, X_test, y_test = wine
    X, y, X_test, y_test = X[y < classes], y[y < classes], X_test[y_test < classes], y_test[y_test < classes]
    names = np.array(["a", "b", "c"])
    fitted = clone(classifier).fit(X, names[y])
    p = fitted.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert ds.evaluation.accuracy(y_test, p) > 0.93
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.4
    np.testing.assert_array_equal(fitted.predict(X_test), names[p.argmax(axis=1)])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X_test), p)


def test_platt_scaling_is_fitted_to_held_out_means(wine):
    X, y, X_test, _ = wine
    calibrated = least_squares_gaussian_process(platt=True).fit(X, y).calibrated_classifiers_[0]
    process, sigmoids = calibrated.estimator.process, calibrated.calibrators
    latent = process.predict_latent(X_test)
    np.testing.assert_array_equal(calibrated.estimator.decision_function(X_test), latent.loc)
    assert process.regressor_.posterior_.support.shape[0] == int(0.8 * len(X))
    p = np.stack([sigmoid.predict(mean) for sigmoid, mean in zip(sigmoids, latent.loc.T, strict=True)], axis=1)
    np.testing.assert_allclose(calibrated.predict_proba(X_test), p / p.sum(axis=1, keepdims=True), rtol=1e-12)
    pair = ds.readout.decision_function(latent, 0, 1, np.eye(3))
    np.testing.assert_array_equal(process.decision_function(X_test, pair=(0, 1)), pair)


def test_platt_scaling_improves_likelihood_of_overlapping_classes():
    """Two features do not tell these classes apart; the latents know nothing of their noise."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y, X_test, y_test = X[::2, :2], y[::2], X[1::2, :2], y[1::2]
    plain, calibrated = (
        ds.evaluation.report(y_test, least_squares_gaussian_process(platt).fit(X, y).predict_proba(X_test))
        for platt in (False, True)
    )
    assert calibrated.negative_log_likelihood < 0.75 * plain.negative_log_likelihood
    assert calibrated.expected_calibration_error < plain.expected_calibration_error


def test_ridge_without_platt_scaling_has_decisions_only(wine):
    X, y, X_test, y_test = wine
    search = small_ridge(platt=False).fit(X, y)
    assert search.score(X_test, y_test) > 0.93
    assert search.decision_function(X_test).shape == (len(X_test), 3)
    assert not hasattr(search, "predict_proba")
