"""Inputs of the Gaussian processes: errors for invalid ones, fits for unusual ones."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex._utils import memory
from deepsimplex.gp import CollapsedGaussianProcess, ExactGaussianProcess
from deepsimplex.gp.cholesky import SingularError
from deepsimplex.gp.gpflow_kernels import NamedKernel, gpflow
from deepsimplex.gp.optimize import pack, unpack
from deepsimplex.gp.regression import observed_rows
from deepsimplex.gp.scaling import Moments, Scaling
from deepsimplex.latent import LatentGaussian
from deepsimplex.targets import CASIMAC

X = np.random.default_rng(0).normal(size=(30, 3))
OBSERVATION = LatentGaussian(np.sin(X[:, :2]), np.full((30, 1), 0.1))
each_process = pytest.mark.parametrize("process", [ExactGaussianProcess, CollapsedGaussianProcess])


def with_nan(array):
    array = array.copy()
    array[4, 1] = np.nan
    return array


@each_process
@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ((X[:20], OBSERVATION), ValueError, r"^observation must.*found 30"),
        ((X, OBSERVATION, np.zeros(20)), ValueError, r"^y must.*found 20"),
        ((with_nan(X), OBSERVATION), ValueError, r"^X must.*found nan at \[4, 1\]"),
        ((X[:, 0], OBSERVATION), ValueError, r"^X must.*found shape \(30,\)"),
        ((X[:, :0], OBSERVATION), ValueError, r"^X must.*found 0"),
        ((X[:1], OBSERVATION[:1]), ValueError, r"^X must.*found 1"),
        ((X.astype(str), OBSERVATION), TypeError, r"^X must.*found dtype <U32"),
        ((X + 1j, OBSERVATION), TypeError, r"^X must.*found dtype complex128"),
        (([["a"]] * 30, OBSERVATION), TypeError, r"^X must.*found dtype <U1"),
        ((np.array([["a", None]] * 30), OBSERVATION), TypeError, r"^X must.*found objects"),
        ((X, X), TypeError, r"^observation must.*found ndarray"),
    ],
)
def test_invalid_data_raise(process, data, error, message):
    with pytest.raises(error, match=message):
        process(max_iter=1).fit(*data)


@each_process
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iter": -1}, r"^max_iter must.*found -1"),
        ({"max_iter": 2.5}, r"^max_iter must.*found 2\.5"),
        ({"n_restarts": -1}, r"^n_restarts must.*found -1"),
        ({"n_restarts": True}, r"^n_restarts must.*found True"),
    ],
)
def test_settings_out_of_range_raise(process, settings, message):
    with pytest.raises(ValueError, match=message):
        process(**settings)


@pytest.mark.parametrize(
    ("inducing", "error", "message"),
    [
        (0, ValueError, r"^inducing, .*must.*found 0"),
        (2.5, ValueError, r"^inducing, .*must.*found 2\.5"),
        (True, ValueError, "inducing, unless"),
        ("many", ValueError, "inducing, unless"),
        (2, ValueError, r"^inducing must.*found 2"),
        (X[:4, :2], ValueError, r"^inducing must.*found shape \(4, 2\)"),
        (X[:4, :1], ValueError, r"^inducing must.*found shape \(4, 1\)"),
        (
            X[0],
            ValueError,
            r"^inducing must.*found shape \(3,\).*np\.reshape\(inducing, \(1,",
        ),
        (X[:0], ValueError, r"^inducing must.*found 0"),
        (with_nan(X), ValueError, r"^inducing must.*found nan at \[4, 1\]"),
        ([["a", "b", "c"]], TypeError, r"^inducing must.*found dtype <U1"),
    ],
)
def test_invalid_inducing_points_raise(inducing, error, message):
    with pytest.raises(error, match=message):
        CollapsedGaussianProcess(inducing=inducing, max_iter=1).fit(X, OBSERVATION, np.arange(30) % 3)


@each_process
def test_invalid_features_of_predict_raise(process):
    with pytest.raises(ValueError, match="call fit first"):
        process().predict(X)
    fitted = process(max_iter=1).fit(X, OBSERVATION)
    for wrong, message in (
        (X[:, :2], r"^X must.*found shape \(30, 2\)"),
        (X[:, :1], r"^X must.*found shape \(30, 1\)"),
        (X[0], r"^X must.*found shape \(3,\)"),
        (with_nan(X), r"^X must.*found nan at \[4, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.predict(wrong)
    assert fitted.predict(X[:0]).loc.shape == (0, 2)
    assert fitted.predict(X[:1].astype(object)).loc.shape == (1, 2)


def test_more_inducing_points_than_rows_are_the_rows():
    many, all_rows = (
        CollapsedGaussianProcess(inducing=inducing, max_iter=3).fit(X, OBSERVATION).predict(X + 0.1)
        for inducing in (1000, X)
    )
    np.testing.assert_allclose(many.loc, all_rows.loc, atol=1e-6)
    more = CollapsedGaussianProcess(inducing=np.concatenate([X, X + 0.5, X]), max_iter=3).fit(X, OBSERVATION)
    np.testing.assert_allclose(more.predict(X).loc, all_rows_exactly().predict(X).loc, atol=0.02)


def all_rows_exactly():
    return ExactGaussianProcess(max_iter=3).fit(X, OBSERVATION)


class Indefinite(gpflow.kernels.SquaredExponential):
    """No covariance at all."""

    def K_r2(self, r2):
        return self.variance * (r2 - 1.0)


@each_process
@pytest.mark.parametrize("max_iter", [0, 2])
def test_indefinite_kernel_raises(process, max_iter):
    with pytest.raises(ValueError, match=r"covariance matrix .* is not positive definite"):
        process(Indefinite(), max_iter=max_iter).fit(X, OBSERVATION)


@each_process
@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_predictions_do_not_depend_on_units(process, size):
    expected = process(max_iter=5).fit(X, OBSERVATION).predict(X + 0.1)
    latent = process(max_iter=5).fit(size * X, OBSERVATION).predict(size * (X + 0.1))
    np.testing.assert_allclose(latent.loc, expected.loc, rtol=1e-6, atol=1e-6)


def test_features_too_large_raise():
    with pytest.raises(ValueError, match="X holds features too large"):
        ExactGaussianProcess(scale_features=False).fit(1e200 * X, OBSERVATION)


def test_width_of_constant_columns_is_one():
    equal = np.full((7, 2), 0.1)
    np.testing.assert_array_equal(Scaling.for_features(Moments.of(equal)).width, 1.0)
    np.testing.assert_array_equal(Scaling.for_latents(Moments.of(equal)).width, 1.0)
    np.testing.assert_array_equal(Scaling.for_latents(Moments.of(np.zeros((3, 2)))).width, 1.0)


@each_process
def test_latents_that_are_all_equal_are_predicted(process):
    equal = LatentGaussian(np.full((30, 2), 0.1), np.full((30, 1), 0.1))
    np.testing.assert_allclose(process().fit(X, equal).predict(X + 5.0).loc, 0.1, rtol=1e-6)


@each_process
@pytest.mark.parametrize("kernel", ["rbf", "matern32", "given"])
@pytest.mark.parametrize("ard", [False, True])
def test_extreme_hyperparameters_are_finite_or_singular(process, kernel, ard):
    """A search then backtracks. Small lengthscales enlarge the round-off of distances between nearly equal rows."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(3)) if kernel == "given" else kernel
    fitted = process(kernel, ard=ard and kernel in ("rbf", "matern32"), noise="learned")
    twice = np.concatenate([X[:15], X[:15] + 1e-9])
    objective = fitted._objective(fitted, observed_rows(twice, OBSERVATION))
    start = pack(objective.start)
    for shift in (-800.0, -25.0, 800.0):
        for chosen in (slice(0, 1), slice(1, -1), slice(-1, None), slice(None)):
            moved = start.copy()
            moved[chosen] += shift
            with np.errstate(all="ignore"), contextlib.suppress(SingularError):
                objective.evaluate(unpack(moved, objective.start))


@pytest.mark.parametrize("ard", [False, True])
def test_rbf_kernel_is_at_most_its_variance(ard):
    kernel = NamedKernel("rbf", ard)
    values = [np.log(2.0), np.full(3 if ard else (), -25.0)]
    rows = tf.constant(np.concatenate([X, X + 1e-9]))
    for K in (kernel.matrix(kernel.bind(values), kernel.pairs(rows)), kernel.bind(values)(rows, rows[:3])):
        assert np.max(K) <= 2.0


def test_exact_process_of_too_many_rows_raises_before_the_target(monkeypatch):
    monkeypatch.setattr(memory, "memory_size", lambda: 1e5)
    labels = np.arange(60) % 3
    many = np.random.default_rng(0).normal(size=(60, 3))
    for classifier, message in {
        ds.SimplexGaussianProcess("ilr"): r"exact Gaussian process of 60 rows.*'stochastic'",
        ds.SimplexGaussianProcess(CASIMAC(lambda a, b: 1 / 0)): "exact Gaussian process of 60 rows",
        ds.LatentRegressionClassifier(target=CASIMAC(lambda a, b: 1 / 0)): "default regressor for 60 rows",
        ds.SimplexGaussianProcess("ilr", inference="collapsed", inducing=50): "inducing=50 of 60 rows.*fewer inducing",
        ds.CategoricalGaussianProcess(inducing=50): "inducing=50 of 60 rows.*fewer inducing",
    }.items():
        with pytest.raises(MemoryError, match=message):
            classifier.fit(many, labels)
    ds.SimplexGaussianProcess("ilr", inference="collapsed", inducing=10, max_iter=1).fit(many, labels)
