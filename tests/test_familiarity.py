"""Familiarity separates samples like the training samples from others: densities, classifiers, files and exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor

import deepsimplex as ds
from deepsimplex.calibration import DENSITIES

METHODS = list(DENSITIES)


def draw(seed, samples, n=3, d=4):
    """Features around a center for each class, one of them constant, in different units."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n, samples)
    z = rng.normal(size=(samples, d)) + 3 * np.eye(n, d)[y]
    z[:, -1] = 7.0
    return z * [1, 10, 0.1, 1], y


@pytest.mark.parametrize("method", METHODS)
def test_familiarity_is_uniform_on_training_distribution_and_zero_far_away(method):
    density = DENSITIES.get(method).fit(*draw(0, 1000))
    z, _ = draw(1, 1000)
    familiarity = density.familiarity(z)
    np.testing.assert_allclose(np.histogram(familiarity, 5, (0, 1))[0] / 1000, 0.2, atol=0.06)
    assert density.familiarity(z * [8, 8, 8, 1]).mean() < 0.05
    np.testing.assert_array_equal(density.familiarity(z[:3]), familiarity[:3])


def test_density_scores_match_formulas():
    z, y = draw(0, 300)
    points = draw(1, 20)[0]
    density = DENSITIES.get("gaussian").fit(z, y)
    standard, points = ((part - z.mean(axis=0)) / np.array([*z.std(axis=0)[:-1], 1.0]) for part in (z, points))
    regular = 1e-6 * np.eye(4)
    terms = []
    for k in range(3):
        rows = standard[y == k]
        covariance = ledoit_wolf(rows)[0] + regular
        terms.append(np.log(len(rows) / 300) + multivariate_normal(rows.mean(axis=0), covariance).logpdf(points))
    np.testing.assert_allclose(density._score(points), logsumexp(terms, axis=0), rtol=1e-9)

    relative = DENSITIES.get("relative_mahalanobis").fit(z, y)
    centers = np.stack([standard[y == k].mean(axis=0) for k in range(3)])
    within = np.linalg.inv(ledoit_wolf(standard - centers[y], assume_centered=True)[0] + regular)
    overall = np.linalg.inv(ledoit_wolf(standard, assume_centered=True)[0] + regular)
    squared = [[(point - center) @ within @ (point - center) for center in centers] for point in points]
    expected = np.einsum("nd,de,ne->n", points, overall, points) - np.min(squared, axis=1)
    np.testing.assert_allclose(relative._score(points), expected, rtol=1e-9)

    neighbors = DENSITIES.get({"name": "nearest_neighbors", "k": 3}).fit(z, y)
    distances = np.sort(np.linalg.norm(points[:, None] - standard, axis=2), axis=1)
    np.testing.assert_allclose(neighbors._score(points), -distances[:, 2], rtol=1e-6)


@pytest.mark.parametrize(
    ("precision", "score", "quantile"),
    [(np.float64, {"rtol": 1e-6, "atol": 1e-6}, {"rtol": 1e-5}), (np.float32, {"atol": 1e-4}, {"atol": 1e-4})],
)
def test_feature_norms_are_clipped_to_upper_quantile(precision, score, quantile, monkeypatch):
    monkeypatch.setattr("deepsimplex.calibration.neighbor_distance._PRECISION", precision)
    z, y = draw(0, 1300)
    density = DENSITIES.get({"name": "nearest_neighbors", "k": 4, "max_samples": 1001}).fit(z, y, variance_share=1.0)
    points = [*draw(1, 20)[0], z.mean(axis=0), z.mean(axis=0) + 1e4, z[0]]

    def shortened(point):
        length = np.linalg.norm(point)
        return point * (min(length, median) + max(length - longest, 0.0)) / max(length, 1e-9)

    components = (z - z.mean(axis=0)) @ density.projection_
    lengths = np.linalg.norm(components, axis=1)
    median, longest = np.median(lengths), np.quantile(lengths, 0.99)
    kept = np.random.default_rng(0).permutation(1300)[:1001]
    neighbors = np.array([shortened(row) for row in components[kept]])
    assert 0.4 < np.mean(np.isclose(np.linalg.norm(neighbors, axis=1), median)) < 0.6
    slow = [
        np.sort(np.linalg.norm(shortened((point - z.mean(axis=0)) @ density.projection_) - neighbors, axis=1))[3]
        for point in points
    ]
    np.testing.assert_allclose(density.scores(np.array(points)), -np.array(slow), **score)
    # Of a sample that is kept the nearest is itself.
    rows = [
        np.sort(np.linalg.norm(shortened(row) - neighbors, axis=1))[4 if number in kept else 3]
        for number, row in enumerate(components)
    ]
    expected = np.quantile(-np.array(rows), (np.arange(1000) + 0.5) / 1000)
    np.testing.assert_allclose(density.quantiles_, expected, **quantile)


@pytest.mark.parametrize("method", ["gaussian", "nearest_neighbors"])
def test_single_outlier_does_not_make_others_familiar(method):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(1000, 8)), rng.integers(0, 3, 1000)
    outlier = np.concatenate([z, 300 * z[:1]]), np.concatenate([y, y[:1]])
    density = DENSITIES.get(method).fit(*outlier, variance_share=1.0)
    assert density.familiarity(8 * z[1:200]).mean() < 0.02


@pytest.mark.parametrize("method", METHODS)
def test_new_groups_are_as_familiar_as_those_of_training(method):
    """Without groups, samples of a new patient would look unfamiliar: training samples are near those of their own."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(120), 12)
    known, y = groups < 80, groups % 2
    z = rng.normal(size=(120, 3))[groups] + 3 * y[:, None] + 0.05 * rng.normal(size=(1440, 3))
    together = DENSITIES.get(method).fit(z[known], y[known], groups=groups[known]).familiarity(z[~known]).mean()
    alone = DENSITIES.get(method).fit(z[known], y[known]).familiarity(z[~known]).mean()
    assert together == pytest.approx(0.5, abs=0.1)
    assert alone < (0.01 if method == "nearest_neighbors" else together - 0.03)
    with pytest.raises(ValueError, match="groups must hold at least two"):
        DENSITIES.get(method).fit(z, y, groups=0 * y)
    with pytest.raises(ValueError, match="groups must have a value for each row of z"):
        DENSITIES.get(method).fit(z, y, groups=y[:3])


@pytest.mark.parametrize("max_samples", [50, 1000])
def test_familiarity_with_few_kept_samples(max_samples):
    density = DENSITIES.get({"name": "nearest_neighbors", "max_samples": max_samples}).fit(*draw(0, 1000))
    familiarity = density.familiarity(draw(1, 1000)[0])
    np.testing.assert_allclose(np.histogram(familiarity, 5, (0, 1))[0] / 1000, 0.2, atol=0.06)
    assert density.neighbors_.shape == (max_samples, 4)


def test_invalid_density_input_raises():
    z, y = draw(0, 50)
    with pytest.raises(ValueError, match=r"^z must.*found shape \[4, 4\]"):
        DENSITIES.get("gaussian").fit(z[:4], y[:4])
    with pytest.raises(ValueError, match="z must be finite"):
        DENSITIES.get("gaussian").fit(np.where(z > 5, np.nan, z), y)
    with pytest.raises(ValueError, match="not fitted"):
        DENSITIES.get("gaussian").familiarity(z)
    with pytest.raises(ValueError, match="method"):
        DENSITIES.get("histogram")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gaussian", "nearest_neighbors"])
def test_model_files_and_exports_keep_density(method, four, tmp_path):
    (x, y), (x_test, _) = four
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([8]), "vertices", 4, head="gaussian")
    model.compile(keras.optimizers.Adam(0.02), run_eagerly=True)
    model.fit(x, y, batch_size=50, verbose=0)
    familiarity = model.fit_density(x, y, method).familiarity(x_test)
    assert 0.35 < familiarity.mean() < 0.65
    model.save(tmp_path / "m.keras")
    np.testing.assert_allclose(ds.load(tmp_path / "m.keras").familiarity(x_test), familiarity, atol=1e-6)
    model.export(tmp_path / "served")
    served = ds.export.load_served(tmp_path / "served").predict(x_test)["familiarity"]
    np.testing.assert_allclose(served, familiarity, atol=2e-3)  # a thousandth for every quantile
    with pytest.warns(UserWarning, match="training changes the features"):
        model.fit(x[:50], y[:50], verbose=0)
    with pytest.raises(ValueError, match="familiarity needs fit_density"):
        model.familiarity(x_test)


@pytest.mark.parametrize("variance_share", [None, 0.98])
@pytest.mark.parametrize("method", METHODS)
def test_familiarity_is_scale_invariant_and_zero_for_overflows(method, variance_share):
    z, y = draw(0, 300)
    familiarity = DENSITIES.get(method).fit(z, y, variance_share).familiarity(z[:50])
    density = DENSITIES.get(method).fit(1e15 * z, y, variance_share)
    np.testing.assert_allclose(density.familiarity(1e15 * z[:50]), familiarity, atol=2e-3)
    infinite = tf.constant([[np.inf, 1.0, -np.inf, 0.0]], tf.float64)
    np.testing.assert_array_equal(density.familiarity(infinite), [0.0])
    assert np.isfinite(density.variance_factor(infinite)).all()


def test_network_features_are_projected_to_principal_components():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    z = np.concatenate([rng.normal(size=(500, 3)) + 4 * np.eye(3)[y], 0.01 * rng.normal(size=(500, 5))], axis=1)
    z = z @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
    density = DENSITIES.get("gaussian").fit(z, y, variance_share=0.98)
    components = PCA(0.98).fit(z)
    assert density.projection_.shape == (8, components.n_components_) == (8, 3)
    slow = DENSITIES.get("gaussian").fit(components.transform(z), y, variance_share=1.0)
    np.testing.assert_allclose(density.familiarity(z), slow.familiarity(components.transform(z)), atol=2e-3)
    assert DENSITIES.get("gaussian").fit(z, y, variance_share=1.0).projection_.shape == (8, 8)
    with pytest.raises(ValueError, match=r"variance_share must.*found 1\.5"):
        DENSITIES.get("gaussian").fit(z, y, variance_share=1.5)


@pytest.mark.parametrize("method", ["gaussian", "relative_mahalanobis", "nearest_neighbors"])
def test_variances_grow_linearly_beyond_the_least_familiar_tenth(method):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(300, 3)), np.repeat([0, 1, 2], 100)
    density = DENSITIES.get(method).fit(z + 4 * y[:, None], y)
    samples = (z + 4 * y[:, None])[::6] + rng.normal(size=(50, 3)) * np.linspace(0, 4, 50)[:, None]
    standardized = tf.constant((samples - density.mean_) * density.projection_)
    low, high = np.quantile(density.quantiles_, 0.1), np.quantile(density.quantiles_, 0.9)
    slow = [max(1.0, 1.0 + 2 * (low - score) / (high - low)) for score in density._score(standardized).numpy()]
    factor = density.variance_factor(tf.constant(samples)).numpy()
    np.testing.assert_allclose(factor, slow, rtol=1e-6)
    familiarity = density.familiarity(samples)
    near = np.abs(familiarity - 0.1) < 0.003
    np.testing.assert_array_equal((factor > 1) | near, (familiarity < 0.1) | near)
    assert 0 < np.mean(factor == 1) < 1


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["isotropic", "full"])
def test_density_widens_latents_of_unfamiliar_samples(covariance, four, tmp_path):
    (x, y), (x_test, _) = four
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([8]), "vertices", 4, covariance)
    model.compile(keras.optimizers.Adam(0.02), run_eagerly=True)
    model.fit(x, y, batch_size=100, epochs=4, verbose=0)
    both = np.concatenate([x_test, 1 - x_test])
    before = model.predict_latent(both), model.predict_proba(both)
    model.calibrate(x[:100], y[:100]).conformalize(x[:100], y[:100])
    with pytest.warns(UserWarning, match="fit_density changes") as warned:
        model.fit_density(x, y, "gaussian")
    assert len([warning for warning in warned if "fit_density changes" in str(warning.message)]) == 2
    assert model.calibration is model.prediction_sets is None
    after = model.predict_latent(both)
    factor = model.density.variance_factor(tf.constant(model.predict_features(both))).numpy()
    shape = (-1, 1) if covariance == "isotropic" else (-1, 1, 1)
    np.testing.assert_allclose(after.scale, before[0].scale * np.sqrt(factor).reshape(shape), rtol=1e-4)
    np.testing.assert_array_equal(after.loc, before[0].loc)
    p = model.predict_proba(both)
    np.testing.assert_allclose(model(both), p, atol=1e-6)
    assert p[100:].max(axis=1).mean() < before[1][100:].max(axis=1).mean() - 0.02
    model.save(tmp_path / "m.keras")
    np.testing.assert_allclose(ds.load(tmp_path / "m.keras").predict_proba(both), p, atol=1e-6)
    if covariance == "isotropic":
        model.export(tmp_path / "served")
        served = ds.export.load_served(tmp_path / "served").predict(both)
        np.testing.assert_allclose(served["class_probabilities"], p, atol=1e-5)
    np.testing.assert_allclose(model.fit_density(None).predict_proba(both), before[1], atol=1e-6)


def test_density_keeps_probabilities_that_do_not_depend_on_the_scale():
    X, y = load_wine(return_X_y=True)
    process = ds.SimplexGaussianProcess().fit(X[::2], y[::2])
    network = ds.SimplexClassifier(keras.Sequential([keras.Input((13,))]), num_classes=3)
    network.compile()
    network.fit(X[::2], y[::2], verbose=0)
    for classifier in (process, network):
        classifier.calibrate(X[1::2], y[1::2]).conformalize(X[1::2], y[1::2])
        p, latent, sets = (
            predict(3 * X) for predict in (classifier.predict_proba, classifier.predict_latent, classifier.predict_set)
        )
        classifier.fit_density(X[::2], y[::2])  # without a warning
        np.testing.assert_array_equal(classifier.predict_proba(3 * X), p)
        np.testing.assert_array_equal(classifier.predict_set(3 * X), sets)
        assert classifier.predict_latent(3 * X).scale.mean() > 1.5 * latent.scale.mean()


CLASSIFIERS = {
    "process": ds.SimplexGaussianProcess("dirichlet", readout="argmax", max_iter=3),
    "lvq": ds.GLVQ(max_iter=5),
    "network": ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [4]}, head="gaussian", epochs=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.filterwarnings("ignore:the hyperparameters were still moving")
def test_estimators_have_familiarity(name, tmp_path):
    X, y = load_wine(return_X_y=True)
    classifier = CLASSIFIERS[name].fit(X[::2], y[::2])
    familiarity = classifier.fit_density(X[::2], y[::2]).familiarity(X[1::2])
    assert familiarity.mean() > 0.3
    assert classifier.familiarity(3 * X).mean() < 0.1
    if name == "network":
        return
    classifier.save(tmp_path / "c.npz")
    np.testing.assert_allclose(ds.load(tmp_path / "c.npz").familiarity(X[1::2]), familiarity)
    assert not hasattr(classifier.fit(X[::2], y[::2]), "density_")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the hyperparameters were still moving")
def test_density_widens_latents_of_estimators(tmp_path):
    X, y = load_wine(return_X_y=True)
    strange = 3 * X
    classifier = ds.SimplexGaussianProcess("ilr", max_iter=3).fit(X[::2], y[::2])
    latent, p, (low, high) = classifier.predict_latent(X), classifier.predict_proba(X), classifier.class_intervals(X)
    classifier.calibrate(X[1::2], y[1::2]).conformalize(X[1::2], y[1::2])
    with (
        pytest.warns(UserWarning, match="fit_density changes the outputs"),
        pytest.warns(UserWarning, match="fit_density changes the probabilities"),
    ):
        classifier.fit_density(X[::2], y[::2])
    assert not hasattr(classifier, "calibration_")
    assert not hasattr(classifier, "prediction_sets_")
    factor, wider = classifier.density_.variance_factor(X).numpy(), classifier.predict_latent(X)
    unfamiliar = factor > 1.1
    assert 5 < unfamiliar.sum() < 60
    np.testing.assert_allclose(wider.scale, np.sqrt(factor)[:, None] * latent.scale, rtol=1e-9)
    np.testing.assert_array_equal(wider.loc, latent.loc)
    widened_p, (lower, upper) = classifier.predict_proba(X), classifier.class_intervals(X)
    assert np.all(widened_p[unfamiliar].max(axis=1) < p[unfamiliar].max(axis=1))
    assert np.all((upper - lower)[unfamiliar].mean(axis=1) > (high - low)[unfamiliar].mean(axis=1))
    classifier.save(tmp_path / "c.npz")
    np.testing.assert_allclose(ds.load(tmp_path / "c.npz").predict_proba(X), widened_p, atol=1e-9)
    network = CLASSIFIERS["network"].fit(X[::2], y[::2])
    before = network.predict_proba(strange)
    assert network.fit_density(X[::2], y[::2]).predict_proba(strange).max() < before.max()
    np.testing.assert_array_equal(network.fit_density(None).predict_proba(strange), before)
    forest = ds.LatentRegressionClassifier(RandomForestRegressor(5), "ilr").fit(X[::2], y[::2])
    with pytest.raises(ValueError, match=r"fit_density\(None\)"):
        forest.fit_density(X[::2], y[::2]).export(tmp_path / "c.onnx", format="onnx")


@pytest.mark.parametrize("value", [0.0, 1e-3, 1e6])
@pytest.mark.parametrize("method", METHODS)
def test_changed_constant_is_unfamiliar_whatever_its_unit(method, value):
    z, y = draw(0, 300)
    z[:, -1] = value
    density = DENSITIES.get(method).fit(z, y)
    z[:, -1] = 100.0 * value or 100.0
    assert density.familiarity(z).max() < 0.01
