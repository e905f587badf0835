"""Class weights of a training, whose effect on class probabilities is taken out."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds

RATE = 0.2
WEIGHTS = {0: 1.0, 1: 5.0}


def samples(count, seed):
    """Two classes in one dimension, whose log-odds are 2 x - 2 + log(rate / (1 - rate))."""
    rng = np.random.default_rng(seed)
    y = (rng.random(count) < RATE).astype(int)
    return (rng.normal(size=(count, 1)) + 2.0 * y[:, None]).astype("float32"), y


def true_probability(x):
    return 1.0 / (1.0 + np.exp(-(2.0 * x[:, 0] - 2.0 + np.log(RATE / (1.0 - RATE)))))


def make(loss="sparse_categorical_crossentropy", eager=False, **options):
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(8, "tanh")])
    model = ds.SimplexClassifier(network, "vertices", num_classes=2, head="gaussian", readout="softmax", **options)
    metrics = [ds.metrics.NegativeLogLikelihood(name="nll"), "accuracy"]
    model.compile(keras.optimizers.Adam(0.03), loss, metrics=metrics, run_eagerly=eager)
    return model


@pytest.fixture(scope="module")
def weighted():
    x, y = samples(3000, 0)
    model = make()
    model.fit(x, y, epochs=4, batch_size=50, verbose=0, class_weight=WEIGHTS)
    return model


@pytest.fixture(scope="module")
def test_samples():
    return samples(4000, 1)


def test_probabilities_are_those_without_class_weights(weighted, test_samples):
    x, y = test_samples
    p = weighted.predict(x, verbose=0)[:, 1]
    learned = weighted.readout(weighted.predict_latent(x).as_dict()).numpy()[:, 1]
    assert learned.mean() > 1.5 * RATE
    assert p.mean() == pytest.approx(RATE, abs=0.03)
    np.testing.assert_allclose(p, learned / (learned + 5.0 * (1.0 - learned)), rtol=1e-4)
    assert np.abs(p - true_probability(x)).mean() < 0.03
    error = ds.evaluation.expected_calibration_error
    assert error(y, np.stack([1 - p, p], 1)) < 0.03 < 0.1 < error(y, np.stack([1 - learned, learned], 1))


def test_predictions_metrics_and_calibrations_agree(weighted, test_samples):
    x, y = test_samples
    p = weighted.predict(x, verbose=0)
    np.testing.assert_allclose(weighted(x), p, atol=1e-6)
    results = weighted.evaluate(x, y, verbose=0, return_dict=True)
    expected = ds.evaluation.negative_log_likelihood(y, p)
    assert results["nll"] == pytest.approx(expected, rel=1e-4)
    assert results["loss"] == pytest.approx(expected, rel=1e-4)
    for method in ("temperature", "latent"):  # of probabilities, of latents
        calibrated = weighted.calibrate(x, y, method).predict(x, verbose=0)
        assert ds.evaluation.negative_log_likelihood(y, calibrated) <= expected + 1e-4, method
        assert calibrated[:, 1].mean() == pytest.approx(RATE, abs=0.03), method
    weighted.calibrate(None)
    np.testing.assert_array_equal(weighted.predict(x, verbose=0), p)


def test_class_weights_travel_with_the_weights(weighted, test_samples, tmp_path):
    x = test_samples[0][:50]
    expected = weighted.predict(x, verbose=0)
    weighted.save(tmp_path / "model.keras")
    weighted.save_weights(tmp_path / "model.weights.h5")
    weighted.export(tmp_path / "served")
    set_weights, from_file = make(eager=True), ds.SimplexClassifier.from_config(weighted.get_config())
    set_weights.set_weights(weighted.get_weights())
    from_file.load_weights(tmp_path / "model.weights.h5")
    for model in (ds.load(tmp_path / "model.keras"), set_weights, from_file):
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-6)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    ((name, _),) = served.structured_input_signature[1].items()
    np.testing.assert_allclose(served(**{name: tf.constant(x)})["class_probabilities"], expected, atol=1e-6)


def test_class_weights_are_those_of_the_latest_training():
    x, y = samples(60, 2)
    model = make(eager=True)
    for method in (model.fit, model.train_on_batch):
        options = {"verbose": 0} if method == model.fit else {}
        method(x, y, class_weight={1: 3.0, 0: 0}, **options)  # of a class of weight 0 nothing is known
        np.testing.assert_array_equal(model.unweighted_readout.class_weight, [1.0, 3.0])
        method(x, y, **options)
        np.testing.assert_array_equal(model.unweighted_readout.class_weight, [1.0, 1.0])


def test_evaluation_before_training_does_not_keep_its_class_weights():
    x, y = samples(60, 4)
    network = keras.Sequential([keras.layers.Dense(4, "tanh")])  # built by the first samples
    model = ds.SimplexClassifier(network, "vertices", num_classes=2, head="gaussian")
    model.compile(loss="sparse_categorical_crossentropy", run_eagerly=True)
    model.evaluate(x, y, verbose=0)
    model.fit(x, y, class_weight={1: 50.0}, verbose=0)
    expected = ds.evaluation.negative_log_likelihood(y, model.predict(x, verbose=0))
    assert model.evaluate(x, y, verbose=0) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("readout", ["argmax", "softmax"])
def test_equal_class_weights_change_nothing(readout):
    x, _ = samples(40, 3)
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), "vertices", num_classes=3, head="gaussian", readout=readout)
    model.run_eagerly = True
    p = model.predict(x, verbose=0)
    latent = model.predict_latent(x).as_dict()
    np.testing.assert_allclose(p, model.readout(latent), rtol=1e-6)
    log_p = model.unweighted_readout.log_probabilities(latent)
    np.testing.assert_array_equal(log_p, model.readout.log_probabilities(latent))
