"""GPLVQ: its gradient, its steps and its Gaussian processes, against differences, loops and scikit-learn."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import norm
from sklearn.datasets import load_iris
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import deepsimplex as ds
from deepsimplex import prototypes
from deepsimplex.kernels import median_distance
from deepsimplex.prototypes.prototype_process import PrototypeProcess, log_odds, winner_gradient
from tests.reference import gplvq as reference

NOISES = [1e-3, 0.3, 2.0]
each_noise = pytest.mark.parametrize("noise", NOISES)


def problem(seed, N=30, d=3, P=4):
    rng = np.random.default_rng(seed)
    X, y, W = rng.normal(size=(N, d)), rng.choice([-1.0, 1.0], N), rng.normal(size=(P, d))
    return X, y, W, rng.permutation([-1.0, 1.0] * 2)


def gradient(x, y, w, c, lengthscale, noise):
    k = reference.kernel(x, w, lengthscale)
    return winner_gradient(k, c * y, noise) * (x - w) / lengthscale**2


def fit_run(X, y, W, c, **options):
    """GPLVQ of one run."""
    return prototypes.fit_gplvq(X, y[None], W, c[None], **options)


@each_noise
@pytest.mark.parametrize("lengthscale", [0.7, 3.0])
def test_gradient_equals_finite_differences(noise, lengthscale):
    X, y, W, c = problem(0)
    for i, x in enumerate(X):
        w, label = W[i % 4], c[i % 4]
        slope = gradient(x, y[i], w, label, lengthscale, noise)

        def log_likelihood(w, i=i, x=x, label=label):
            return reference.log_likelihood(x, y[i], w, label, lengthscale, noise)

        steps = 1e-6 * np.eye(3)
        by_differences = [(log_likelihood(w + step) - log_likelihood(w - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(slope, by_differences, rtol=1e-5, atol=1e-7)


def test_gradient_equals_tensorflow():
    X, y, W, c = problem(1)
    w = tf.Variable(W[0])
    for x, label in zip(X, y, strict=True):
        with tf.GradientTape() as tape:
            k = tf.exp(-tf.reduce_sum((x - w) ** 2) / (2 * 1.5**2))
            variance = 1 - k**2 / 1.2
            density = -0.5 * tf.math.log(variance) - 0.5 * (label - c[0] * k / 1.2) ** 2 / variance
        expected = tape.gradient(density, w)
        np.testing.assert_allclose(gradient(x, label, W[0], c[0], 1.5, 0.2), expected, rtol=1e-10, atol=1e-14)


@each_noise
def test_gradient_has_the_sign_of_agreement(noise):
    k = np.linspace(1e-6, 1.0, 1001)
    assert (winner_gradient(k, 1.0, noise) > 0).all()
    assert (winner_gradient(k, -1.0, noise) < 0).all()


@each_noise
@pytest.mark.parametrize("rate", [0.02, 5.0])
def test_gplvq_steps_equal_reference(noise, rate):
    X, y, W, c = problem(3)
    order, rates = np.random.default_rng(0).permutation(len(X)), rate * (1 - np.arange(len(X)) / len(X))

    def step(x, label, w, sign):
        return gradient(x, label, w, sign, 1.5, noise)

    expected = reference.present(X[order], y[order], W, c, rates * 1.5**2, step)
    rng = np.random.default_rng(0)
    fit = fit_run(X, y, W, c, lengthscale=1.5, noise_variance=noise, learning_rate=rate, max_iter=1, rng=rng)
    np.testing.assert_allclose(fit.prototypes, expected, rtol=1e-8, atol=1e-10)


def test_objective_equals_reference_and_decreases():
    X, y, W, c = problem(4)
    expected = 0.0
    for x, label in zip(X, y, strict=True):
        j = int(np.argmin(np.sum((x - W) ** 2, axis=1)))
        expected -= reference.log_likelihood(x, label, W[j], c[j], 1.5, 0.2)
    options, reports = {"lengthscale": 1.5, "noise_variance": 0.2, "learning_rate": 1e-3, "decay": False}, []
    before = fit_run(X, y, W, c, **options, max_iter=0).objective
    assert before == pytest.approx(expected, rel=1e-12)
    after = fit_run(X, y, W, c, **options, max_iter=2, report=reports.append)
    assert after.objective == reports[1].objective < reports[0].objective < before
    assert [report.n_iter for report in reports] == [1, 2]


def test_simultaneous_runs_equal_single_runs():
    X, y, W, c = problem(2)
    options = {"lengthscale": 1.5, "noise_variance": 0.2, "max_iter": 3}
    both = prototypes.fit_gplvq(X, np.stack([y, y[::-1]]), W, np.stack([c, -c]), **options)
    one, other = fit_run(X, y, W, c, **options), fit_run(X, y[::-1], W, -c, **options)
    np.testing.assert_array_equal(both.prototypes, np.concatenate([one.prototypes, other.prototypes]))
    assert both.objective == pytest.approx(one.objective + other.objective)


def test_samples_on_prototypes_without_noise_are_finite():
    X, y = np.repeat(np.eye(2), 2, axis=0), np.array([1.0, -1.0, 1.0, -1.0])
    W, c = np.eye(2), np.array([1.0, -1.0])
    fit = fit_run(X, y, W, c, lengthscale=1.0, noise_variance=0.0, learning_rate=1.0, decay=False, max_iter=10)
    assert np.isfinite(fit.prototypes).all()
    assert np.isfinite(fit.objective)


@each_noise
def test_process_equals_scikit_learn(noise):
    X, _, W, c = problem(5)
    latent = PrototypeProcess(W, c, 1.3, noise)(X)
    peer = GaussianProcessRegressor(RBF(1.3), alpha=noise, optimizer=None).fit(W, c)
    mean, deviation = peer.predict(X, return_std=True)
    np.testing.assert_allclose(latent.loc[:, 0], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(latent.scale[:, 0], deviation, rtol=1e-8)


def test_duplicate_prototypes_without_noise_are_finite():
    X, _, W, c = problem(6)
    once = PrototypeProcess(W, c, 1.3, 0.0)(X)
    twice = PrototypeProcess(np.vstack([W, W]), np.tile(c, 2), 1.3, 0.0)(X)
    np.testing.assert_allclose(twice.loc, once.loc, atol=1e-4)
    np.testing.assert_allclose(twice.scale, once.scale, atol=1e-4)
    against = PrototypeProcess(np.vstack([W, W]), np.concatenate([c, -c]), 1.3, 0.0)(X)
    np.testing.assert_allclose(against.loc, 0.0, atol=1e-4)


def test_contributions_sum_to_the_mean():
    X, _, W, c = problem(7)
    process = PrototypeProcess(W, c, 1.3, 0.2)
    np.testing.assert_allclose(process.contributions(X).sum(axis=1), process(X).loc[:, 0], rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    X = X + 1e-6 * np.random.default_rng(0).normal(size=X.shape)  # rows that all differ
    return X[::2], y[::2], X[1::2], y[1::2]


def test_all_samples_as_prototypes_give_the_exact_gaussian_process(iris):
    X, y, X_test, _ = (part[: 2 * len(part) // 3] for part in iris)  # two classes
    classifier = ds.GPLVQ(len(X), max_iter=0, lengthscale=1.2, noise_variance=0.1).fit(X, y)
    assert len(classifier.prototypes_) == len(X)
    center, width = X.mean(axis=0), X.std(axis=0)
    exact = GaussianProcessRegressor(RBF(1.2), alpha=0.1, optimizer=None).fit((X - center) / width, 2.0 * y - 1.0)
    mean, deviation = exact.predict((X_test - center) / width, return_std=True)
    latent = classifier.predict_latent(X_test)
    np.testing.assert_allclose(latent.loc[:, 0], mean, rtol=1e-8)
    np.testing.assert_allclose(latent.scale[:, 0], deviation, rtol=1e-8)
    p = norm.cdf(mean / deviation)
    np.testing.assert_allclose(classifier.predict_proba(X_test), np.column_stack([1 - p, p]), rtol=1e-7, atol=1e-12)


def test_multiclass_probabilities_from_one_process_per_class(iris):
    X, y, X_test, _ = iris
    classifier = ds.GPLVQ(len(X), max_iter=0, lengthscale=1.2, noise_variance=0.1).fit(X, y)
    latent = classifier.predict_latent(X_test)
    assert latent.loc.shape == latent.scale.shape == (len(X_test), 3)
    for c in range(3):
        alone = ds.GPLVQ(len(X), max_iter=0, lengthscale=1.2, noise_variance=0.1).fit(X, y == c).predict_latent(X_test)
        np.testing.assert_allclose(latent.loc[:, [c]], alone.loc, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(latent.scale[:, [c]], alone.scale, rtol=1e-7)
    z = latent.loc / latent.scale
    alone = np.stack([norm.cdf(z[:, c]) * norm.sf(np.delete(z, c, axis=1)).prod(axis=1) for c in range(3)], axis=1)
    np.testing.assert_allclose(classifier.predict_proba(X_test), alone / alone.sum(axis=1, keepdims=True), rtol=1e-6)


def test_prototype_runs_and_labels(iris):
    X, y, *_ = iris
    names = np.array(["setosa", "versicolor", "virginica"])
    classifier = ds.GPLVQ(3).fit(X, names[y])
    assert classifier.prototype_runs_.tolist() == np.repeat(names, 9).tolist()
    assert classifier.prototype_labels_.tolist() == np.tile(np.repeat(names, 3), 3).tolist()
    np.testing.assert_array_equal(classifier.wins_.reshape(3, 9).sum(axis=1), len(X))
    two = ds.GPLVQ(3).fit(X[y > 0], names[y[y > 0]])
    assert two.prototype_runs_.tolist() == ["virginica"] * 6
    assert two.prototype_labels_.tolist() == ["versicolor"] * 3 + ["virginica"] * 3


@pytest.mark.parametrize("classes", [2, 3])
def test_explained_weights_sum_to_the_mean(iris, classes):
    X, y, X_test, _ = iris
    classifier = ds.GPLVQ(3).fit(X[y < classes], y[y < classes])
    explained, predicted = classifier.explain(X_test, k=100), classifier.predict(X_test)
    assert explained.indices.shape == (len(X_test), 3 * classes)
    assert (np.diff(explained.distances, axis=1) >= 0).all()
    np.testing.assert_array_equal(explained.labels, classifier.prototype_labels_[explained.indices])
    loc = classifier.predict_latent(X_test).loc
    if classes == 2:
        expected = np.abs(loc[:, 0])
    else:
        expected = loc[np.arange(len(loc)), predicted]
        runs = classifier.prototype_runs_[explained.indices]
        np.testing.assert_array_equal(runs, np.repeat(predicted[:, None], runs.shape[1], axis=1))
    np.testing.assert_allclose(explained.weights.sum(axis=1), expected, rtol=1e-9, atol=1e-12)
    scaled = (X_test[:, None] - classifier.prototypes_) / classifier.width_
    np.testing.assert_allclose(
        explained.distances, np.take_along_axis(np.sum(scaled**2, axis=2), explained.indices, axis=1), rtol=1e-9
    )


def test_median_lengthscale_is_median_distance_of_scaled_samples(iris):
    X, y, *_ = iris
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    assert ds.GPLVQ(max_iter=0).fit(X, y).lengthscale_ == pytest.approx(median_distance(scaled))
    many = np.random.default_rng(0).normal(size=(3000, 2))
    length = ds.GPLVQ(max_iter=0).fit(many, many[:, 0] > 0).lengthscale_
    assert length == pytest.approx(median_distance(many[:1000] / many.std(axis=0)), rel=0.05)


def test_log_probabilities_of_certain_samples_are_at_least_the_floor():
    X, y = np.array([[0.0], [1e-9], [1.0], [1.0 + 1e-9]]), np.array([0, 0, 1, 1])
    classifier = ds.GPLVQ(2, noise_variance=0.0, max_iter=0, lengthscale=3.0).fit(X, y)
    logarithms = classifier.predict_log_proba(X)
    np.testing.assert_allclose(logarithms.min(), np.log(np.finfo(float).tiny))
    assert np.isfinite(classifier.decision_function(X)).all()


def test_prediction_far_from_prototypes_follows_sign_of_mean():
    X, y = np.array([[-1.0], [-0.9], [0.9], [1.0]]), np.array([0, 0, 1, 1])
    classifier = ds.GPLVQ(2, max_iter=0, lengthscale=0.3).fit(X, y)
    far = np.array([[-9.0], [9.0], [-99.0], [99.0]])
    np.testing.assert_allclose(classifier.predict_proba(far), 0.5, rtol=1e-12)
    assert classifier.predict(far).tolist() == [0, 1, 0, 1]
    assert (classifier.decision_function(far) > 0).tolist() == [False, True, False, True]


def test_log_odds_are_continuous_near_zero():
    z = np.linspace(0.9e-5, 1.1e-5, 100)
    np.testing.assert_allclose(log_odds(z) / z, np.sqrt(8 / np.pi), rtol=1e-8)
