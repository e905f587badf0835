"""Calibrated classifiers: predictions, files, SavedModels, further training."""

import re
import warnings
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.datasets import load_wine

import deepsimplex as ds
from deepsimplex import evaluation, experiments
from deepsimplex.experiments.configuration import ConfigurationError, load_config
from deepsimplex.experiments.training_run import load_split
from tests.eager_steps import eagerly
from tests.fresh_process import run
from tests.quick_runs import without_pictures

METHODS = ["temperature", "bias_corrected_temperature", "matrix", "latent", "platt", "isotonic"]
each_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def data(digits):
    """Digits 0 to 4 to train with, to calibrate with and to judge."""
    train, (x_test, y_test) = digits
    x, y = (part[train[1] < 5] for part in train)
    return (x[:100], y[:100]), (x[250:450], y[250:450]), (x_test[y_test < 5][:100], y_test[y_test < 5][:100])


def make(data, target="vertices", epochs=1, loss=None) -> ds.SimplexClassifier:
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([32]), target, 5, head="gaussian")
    model.compile(keras.optimizers.Adam(0.03), loss, metrics=[ds.metrics.NegativeLogLikelihood()])
    with eagerly(model):
        model.fit(*data, epochs=epochs, batch_size=100, verbose=0)
    return model


@pytest.fixture(scope="module")
def overconfident(data):
    """Trained on its class likelihood for long, as with cross-entropy."""
    return make(data[0], "vertices", epochs=15, loss="sparse_categorical_crossentropy")


@pytest.fixture
def model(overconfident):
    yield overconfident
    overconfident.calibrate(None)


@pytest.fixture
def eager(model):
    """The same, for tests that calibrate often: every calibration has its predictions traced anew."""
    with eagerly(model):
        yield model


@pytest.mark.slow
@each_method
def test_calibration_improves_overconfident_classifier(method, eager, data):
    model, (_, held_out, (x_test, y_test)) = eager, data
    raw = model.predict_proba(x_test)
    assert model.calibrate(*held_out, method) is model
    p = model.predict_proba(x_test)
    assert raw.max(axis=1).mean() > evaluation.accuracy(y_test, raw) + 0.02
    if method in ("temperature", "latent"):
        assert evaluation.negative_log_likelihood(y_test, p) < 0.7 * evaluation.negative_log_likelihood(y_test, raw)
        np.testing.assert_array_equal(p.argmax(axis=1), raw.argmax(axis=1))
    else:
        assert evaluation.accuracy(y_test, p) > evaluation.accuracy(y_test, raw) - 0.03
    assert p.dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "eager"),
    [
        ("temperature", False),
        ("bias_corrected_temperature", True),
        ("matrix", True),
        ("latent", False),
        ("platt", True),
        ("isotonic", True),
    ],
)
def test_all_prediction_methods_are_calibrated(method, eager, model, data):
    with eagerly(model) if eager else nullcontext():
        check_all_prediction_methods(method, model, data)


def check_all_prediction_methods(method, model, data):
    _, held_out, (x_test, y_test) = data
    raw, raw_latent = model.predict(x_test, verbose=0), model.predict_latent(x_test)  # traces what must be made anew
    loss_before, _ = model.evaluate(x_test, y_test, verbose=0)
    model.calibrate(*held_out, method)
    p = model.predict(x_test, verbose=0)
    assert np.abs(p - raw).max() > 0.01
    np.testing.assert_allclose(model(x_test), p, atol=1e-5)
    np.testing.assert_allclose(model(x_test, training=True), raw, atol=1e-5)
    latent = model.predict_latent(x_test)
    if method == "latent":
        np.testing.assert_allclose(model.readout(latent.as_dict()), p, atol=1e-5)
    else:
        np.testing.assert_array_equal(latent.scale, raw_latent.scale)
        np.testing.assert_allclose(p, model.calibration.transform(raw), atol=1e-5)
    loss, nll = model.evaluate(x_test, y_test, verbose=0)
    assert nll == pytest.approx(evaluation.negative_log_likelihood(y_test, p), rel=1e-4)
    assert loss == pytest.approx(loss_before, rel=1e-6)
    model.calibrate(None)
    assert model.calibration is None
    np.testing.assert_array_equal(model.predict(x_test, verbose=0), raw)


@pytest.mark.slow
def test_second_calibration_replaces_first(eager, data):
    model, (_, held_out, (x_test, _)) = eager, data
    model.calibrate(*held_out, "temperature")
    first = model.predict_proba(x_test)
    for method in ("platt", "latent", "temperature"):
        model.calibrate(*held_out, method)
    np.testing.assert_array_equal(model.predict_proba(x_test), first)
    given = ds.calibration.TemperatureScaling()
    model.calibrate(*held_out, given)
    assert model.calibration.temperature_ > 1
    assert not given.is_fitted


@pytest.mark.slow
def test_calibrate_accepts_datasets_weights_and_one_hot_labels(eager, data):
    model, (_, (x, y), _) = eager, data
    weights = np.random.default_rng(0).uniform(size=len(y)).astype(np.float32)
    expected = model.calibrate(x, y, "temperature", sample_weight=weights).calibration.temperature_
    shuffled = tf.data.Dataset.from_tensor_slices((x, y, weights)).shuffle(400).batch(37)
    assert model.calibrate(shuffled, method="temperature").calibration.temperature_ == pytest.approx(expected, rel=1e-5)
    one_hot = model.calibrate(x, np.eye(5)[y], "temperature", sample_weight=weights, batch_size=200)
    assert one_hot.calibration.temperature_ == pytest.approx(expected, rel=1e-5)
    assert model.calibrate(x, y, "temperature").calibration.temperature_ != pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_failed_calibration_leaves_model_unchanged(eager, data):
    model, (_, (x, y), (x_test, _)) = eager, data
    model.calibrate(x, y)
    p, calibration = model.predict_proba(x_test), model.calibration
    least_likely = model.predict_proba(x).argmin(axis=1)
    for arguments, message in [
        ((x, y, "warmth"), r"method must.*found 'warmth'"),
        ((x, least_likely), "no likelier under their probabilities than by chance"),
        ((x[y > 0], y[y > 0], "platt"), r"PlattScaling needs held-out samples of every class; found none of \[0\]"),
        ((x, y[1:]), r"x and y must.*found 200 and 199"),
        ((x, y + 1), "y must hold class numbers"),
        ((np.where(np.arange(200)[:, None, None] == 3, np.nan, x), y), "x must be finite .* the first at index 3"),
        ((x, np.full((200, 5), 0.2)), "y must name one class per sample here; found soft labels"),
        ((x, model.predict_latent(x)), r"y must.*found latents"),
        ((x, None), "y must be given"),
        ((None, y), "y must not be given without samples"),
        ((tf.data.Dataset.from_tensor_slices((x, y)).batch(9).repeat(),), "must be a finite stream"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.calibrate(*arguments)
        assert model.calibration is calibration
    np.testing.assert_array_equal(model.predict_proba(x_test), p)


@pytest.mark.slow
def test_training_removes_calibration(data):
    train, held_out, (x_test, _) = data
    models = [make(train, loss="sparse_categorical_crossentropy") for _ in range(2)]
    for model in models:
        model.run_eagerly = True
    models[1].calibrate(*held_out)
    message = "training changes the outputs, and removes the calibration"
    models[0].fit(*train, epochs=1, batch_size=50, verbose=0)
    with pytest.warns(UserWarning, match=message):
        models[1].fit(*train, epochs=1, batch_size=50, verbose=0)
    assert models[1].calibration is None
    np.testing.assert_array_equal(*(model.predict_proba(x_test) for model in models))
    models[1].calibrate(*held_out)
    with pytest.warns(UserWarning, match=message):
        models[1].train_on_batch(train[0][:50], train[1][:50])
    assert models[1].calibration is None


@pytest.mark.slow
def test_compiled_and_mixed_precision_predictions_are_calibrated(data):
    train, held_out, (x_test, _) = data
    policy = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_float16")
        model = make(train)
        model.compile(jit_compile=True)
        raw = model.predict(x_test, batch_size=100, verbose=0)
        p = model.calibrate(*held_out, "isotonic", batch_size=100).predict(x_test, batch_size=100, verbose=0)
        np.testing.assert_allclose(p, model.calibration.transform(raw), atol=2e-3)
    finally:
        keras.config.set_dtype_policy(policy)


# scikit-learn's classifiers


@pytest.fixture(scope="module")
def wine():
    data = load_wine()
    X = data.data.astype("float32").astype("float64")  # the same numbers in a SavedModel
    X = X[:, [0, 2]]  # so that some are classified wrongly
    return [(X[start::3], data.target_names[data.target][start::3]) for start in range(3)]


CLASSIFIERS = {
    "process": lambda: ds.SimplexGaussianProcess("ilr", max_iter=5, readout="argmax"),
    "dirichlet": lambda: ds.SimplexGaussianProcess("dirichlet", max_iter=5),
    "categorical": lambda: ds.CategoricalGaussianProcess(inducing=10, epochs=2, batch_size=30),
    "lvq": lambda: ds.LVQ1(),
    "gmlvq": lambda: ds.GMLVQ(),
    "gplvq": lambda: ds.GPLVQ(prototypes_per_class=1, max_iter=5),
}


# Every method calibrates a classifier with latents and one without; the others have one of either kind of map.
CALIBRATED_WITH = {
    "process": METHODS,
    "lvq": [method for method in METHODS if method != "latent"],
    "dirichlet": ["temperature", "latent"],
    "categorical": ["temperature", "latent"],
}


@pytest.fixture(scope="module")
def fitted(wine):
    return {name: make().fit(*wine[0]) for name, make in CLASSIFIERS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_estimators_are_calibrated(name, fitted, wine):
    classifier, (X_test, y_test) = fitted[name], wine[2]
    numbers = np.searchsorted(classifier.classes_, y_test)
    raw = classifier.predict_proba(X_test)
    for method in CALIBRATED_WITH.get(name, ["temperature", "isotonic"]):
        assert classifier.calibrate(*wine[1], method) is classifier
        p = classifier.predict_proba(X_test)
        assert np.abs(p - raw).max() > 1e-3, method
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-9)
        np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X_test)), p, atol=1e-9)
        np.testing.assert_array_equal(classifier.predict(X_test), classifier.classes_[p.argmax(axis=1)])
        decisions = classifier.decision_function(X_test)
        assert np.isfinite(decisions).all()
        np.testing.assert_array_equal(decisions.argmax(axis=1), p.argmax(axis=1))
        if method == "temperature":
            assert evaluation.negative_log_likelihood(numbers, p) < 1.05 * evaluation.negative_log_likelihood(
                numbers, raw
            )
    classifier.calibrate(None)
    assert not hasattr(classifier, "calibration_")
    np.testing.assert_array_equal(classifier.predict_proba(X_test), raw)


def test_estimators_are_calibrated_by_one_hot_labels(wine):
    classifier = ds.LVQ1(max_iter=2).fit(*wine[0])
    X, y = wine[1]
    rows = np.eye(3)[np.searchsorted(classifier.classes_, y)]
    expected = classifier.calibrate(X, y).predict_proba(X)
    np.testing.assert_array_equal(classifier.calibrate(X, rows).predict_proba(X), expected)
    sets = classifier.conformalize(X, y).predict_set(X)
    np.testing.assert_array_equal(classifier.conformalize(X, rows).predict_set(X), sets)
    with pytest.raises(ValueError, match=r"^y must name one class per sample here; found soft labels"):
        classifier.calibrate(X, 0.9 * rows + 0.1 / 3)


IN_A_FRESH_PROCESS = """
import sys, pathlib, numpy as np, tensorflow as tf
x = {kind: np.load(f"x_{kind}.npy") for kind in ("images", "tables")}
for place in sorted(pathlib.Path(".").glob("served_*")):
    rows = x[place.name.split("_")[1]]
    signature = tf.saved_model.load(str(place)).signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    served = [signature(**{name: tf.constant(part)}) for part in (rows[:1], rows[1:])]
    np.savez(place.name + ".npz", **{key: np.concatenate([part[key].numpy() for part in served]) for key in served[0]})
assert "deepsimplex" not in sys.modules
import deepsimplex as ds
for path in sorted(pathlib.Path(".").glob("model_*")):
    model = ds.load(path)
    model.run_eagerly = True  # of networks: one batch needs no trace
    np.save(path.stem + ".npy", model.predict_proba(x[path.stem.split("_")[1]]))
"""


# Each method is met once, in files of images or of tables.
SAVED_IMAGES = ["bias_corrected_temperature", "matrix", "latent"]
SAVED_WITH = {
    "process": ["temperature"],
    "dirichlet": ["latent"],
    "lvq": ["platt"],
    "gmlvq": ["isotonic", "auto", "venn_abers"],
    "gplvq": ["vector"],
}


@pytest.fixture(scope="module")
def served(overconfident, data, fitted, wine, tmp_path_factory):
    """A folder of models and SavedModels with what another process makes of them, and what this one expects."""
    place, expected = tmp_path_factory.mktemp("served"), {}
    _, held_out, (x_test, _) = data
    with eagerly(overconfident):
        for method in SAVED_IMAGES:
            model, name = overconfident.calibrate(*held_out, method), f"images_{method}"
            model.save(place / f"model_{name}.keras")
            model.export(place / f"served_{name}")
            expected[name] = model.predict_proba(x_test), model.predict_latent(x_test)
            again = ds.load(place / f"model_{name}.keras")
            assert again.calibration.get_config() == model.calibration.get_config()
    np.save(place / "x_images.npy", x_test)
    X_test = wine[2][0]
    for key, classifier in fitted.items():
        for method in SAVED_WITH.get(key, ["temperature"]):
            classifier.calibrate(*wine[1], method)
            name = f"tables_{key}_{method}"
            expected[name] = classifier.predict_proba(X_test), None
            classifier.save(place / f"model_{name}.npz")
            classifier.export(place / f"served_{name}")
        classifier.calibrate(None)
    np.save(place / "x_tables.npy", X_test.astype("float32"))
    run(IN_A_FRESH_PROCESS, folder=place)
    return place, expected


@pytest.mark.slow
def test_model_files_are_calibrated_in_another_process(served):
    place, expected = served
    for method in SAVED_IMAGES:
        p, latent = expected[f"images_{method}"]
        outputs = np.load(place / f"served_images_{method}.npz")
        np.testing.assert_allclose(np.load(place / f"model_images_{method}.npy"), p, atol=1e-6, err_msg=method)
        np.testing.assert_allclose(outputs["class_probabilities"], p, atol=1e-6, err_msg=method)
        np.testing.assert_array_equal(outputs["class_id"], outputs["class_probabilities"].argmax(axis=1))
        np.testing.assert_allclose(outputs["latent_scale"], latent.scale, rtol=1e-5, err_msg=method)


@pytest.mark.slow
def test_estimator_files_are_calibrated_in_another_process(served):
    place, expected = served
    tables = {key: p for key, (p, _) in expected.items() if key.startswith("tables")}
    assert len(tables) == 8
    for key, p in tables.items():
        np.testing.assert_allclose(np.load(place / f"model_{key}.npy"), p, rtol=1e-9, err_msg=key)
        outputs = np.load(place / f"served_{key}.npz")
        np.testing.assert_allclose(outputs["class_probabilities"], p, atol=1e-6, err_msg=key)


@pytest.mark.slow
def test_fit_removes_calibration_and_failed_fit_keeps_it(wine):
    classifier = ds.SimplexGaussianProcess("ilr", max_iter=3).fit(*wine[0]).calibrate(*wine[1])
    before = classifier.predict_proba(wine[2][0])
    with pytest.raises(ValueError, match="NaN"):
        classifier.fit(np.full_like(wine[0][0], np.nan), wine[0][1])
    np.testing.assert_array_equal(classifier.predict_proba(wine[2][0]), before)
    assert not hasattr(clone(classifier), "calibration_")
    assert not hasattr(classifier.fit(*wine[0]), "calibration_")


@pytest.mark.slow
def test_intervals_need_latent_calibration(fitted, wine):
    classifier = fitted["dirichlet"]
    raw = classifier.class_intervals(wine[2][0])
    classifier.calibrate(*wine[1], "latent")
    assert np.abs(classifier.class_intervals(wine[2][0]).upper - raw.upper).max() > 1e-3
    classifier.calibrate(*wine[1], "temperature")
    with pytest.raises(ValueError, match=r"which TemperatureScaling\(temperature_=.*calibrate with method='latent'"):
        classifier.class_intervals(wine[2][0])
    classifier.calibrate(None)


@pytest.mark.slow
def test_invalid_held_out_samples_raise(fitted, wine):
    classifier, (X, y) = fitted["lvq"], wine[1]
    for arguments, message in [
        ((X, y, "latent"), "method 'latent' scales latent Gaussians, which these probabilities are not"),
        ((X, None), "y must be given beside X"),
        ((None, y), "y must not be given without samples"),
        ((X, np.char.upper(y)), "y holds labels that classes="),
        ((X, np.full((len(X), 3), 1 / 3)), r"y must.*found soft labels"),
        ((X, y[1:]), "y must hold one label for each of the"),
        ((X[:, :1], y), "features"),
    ]:
        with pytest.raises(ValueError, match=message):
            classifier.calibrate(*arguments)
        assert not hasattr(classifier, "calibration_")


# Configurations

CONFIG = """
name: calibrated
data: {name: digits, limit: 300, validation_fraction: 0.3}
target: ilr
model: {backbone: {name: mlp, hidden: [16]}, head: gaussian, readout: argmax}
training: {epochs: 2, batch_size: 70, learning_rate: 0.02}
calibration: {method: temperature}
"""


def written(tmp_path) -> str:
    path = tmp_path / "calibrated.yaml"
    path.write_text(f"{CONFIG}output: {tmp_path / 'runs'}\ncache_dir: null\n")
    return path


@pytest.mark.slow
def test_configured_calibration_uses_validation_samples(tmp_path, capsys):
    config = load_config(written(tmp_path))
    with without_pictures(eager=True):
        folder = experiments.train(config)
    split, model = load_split(config), ds.load(folder.model)
    assert "calibrated on 90 validation samples: TemperatureScaling(temperature_=" in capsys.readouterr().out
    p = model.predict_proba(split.x_test)
    metrics = folder.read_metrics()
    assert metrics["negative_log_likelihood"] == pytest.approx(
        evaluation.negative_log_likelihood(split.y_test, p), rel=1e-4
    )
    raw = model.calibrate(None).predict_proba(split.x_test)
    assert metrics["negative_log_likelihood"] < evaluation.negative_log_likelihood(split.y_test, raw)
    expected = ds.calibration.TemperatureScaling().fit(model.predict_proba(split.x_validation), split.y_validation)
    np.testing.assert_allclose(expected.transform(raw), p, atol=1e-5)
    served = ds.export.load_served(folder.served).predict(split.x_test)
    np.testing.assert_allclose(served["class_probabilities"], p, atol=1e-5)


@pytest.mark.slow
def test_model_is_saved_if_calibration_fails(tmp_path):
    few = ["data.validation_fraction=0.01", "calibration.method=platt", "training.epochs=1"]
    with without_pictures(export=False, eager=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        experiments.train(load_config(written(tmp_path), few), verbose=0)
    assert any(re.search(r"lacks calibration\.method .* every class", str(warning.message)) for warning in caught)
    (saved,) = (tmp_path / "runs").rglob("model.keras")
    assert ds.load(saved).calibration is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.validation_fraction=0", "calibration.method temperature is fitted to validation samples"),
        ("calibration.method=heat", r"calibration\.method: method must.*found 'heat'"),
        ("calibration.methd=platt", "unknown key 'calibration.methd'; did you mean 'method'"),
    ],
)
def test_invalid_calibration_configuration_raises(override, message, tmp_path):
    with pytest.raises(ConfigurationError, match=message):
        load_config(written(tmp_path), [override])


def test_no_calibration_by_default(tmp_path):
    assert load_config(written(tmp_path), ["calibration=null"]).calibration.method is None
