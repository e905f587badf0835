"""Gradients with respect to the features, against finite differences and closed forms."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.geometry import vertices
from deepsimplex.readout import argmax, decision_function, feature_gradients, softmax

FEATURES = 4


def random_regressor(n, kind):
    """A smooth map from features to latents of one kind of covariance."""
    rng = np.random.default_rng(n)
    dims = n - 1
    slopes = rng.normal(size=(FEATURES, dims))
    widths = {"isotropic": 1, "diagonal": dims, "full": dims * dims}[kind]
    scale_slopes = 0.3 * rng.normal(size=(FEATURES, widths))

    def regressor(x):
        scale = 0.3 + tf.nn.softplus(x @ scale_slopes)
        if kind == "full":
            scale = tf.linalg.band_part(tf.reshape(scale, [-1, dims, dims]), -1, 0)
        return {"loc": tf.tanh(x @ slopes), "scale": scale}

    return regressor


def central_differences(function, x, step):
    """Derivatives [N, ..., features] of function(x) [N, ...] by each feature."""
    by_feature = []
    for move in step * np.eye(x.shape[-1], dtype=x.dtype):
        by_feature.append((np.asarray(function(x + move)) - np.asarray(function(x - move))) / (2 * step))
    return np.stack(by_feature, axis=-1)


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("readout", [argmax, softmax])
def test_gradients_of_probabilities_agree_with_finite_differences(readout, n, kind):
    regressor = random_regressor(n, kind)
    x = np.random.default_rng(0).normal(size=(3, FEATURES))

    def function(x):
        # Enough nodes for the exact ways, whose error would be another in the derivatives; Sobol points need no more.
        return readout(regressor(tf.convert_to_tensor(x)), num_points=64)

    gradients = feature_gradients(function, x)
    assert gradients.shape == (3, n, FEATURES)
    assert gradients.dtype == np.float64
    np.testing.assert_allclose(gradients, central_differences(function, x, 1e-5), rtol=1e-6, atol=5e-9)
    # Probabilities sum to one, so that their derivatives sum to zero.
    np.testing.assert_allclose(gradients.sum(axis=1), 0.0, atol=1e-12)


def test_gradient_of_linear_model_is_constant():
    slopes, x = np.random.default_rng(1).normal(size=(5, 3)), np.zeros((4, 5))
    difference = vertices(4)[2] - vertices(4)[0]
    gradients = feature_gradients(
        lambda x: decision_function({"loc": x @ slopes, "scale": np.ones((4, 1))}, 2, 0), x, batch_size=4
    )
    expected = slopes @ difference / np.linalg.norm(difference)
    np.testing.assert_allclose(gradients, np.broadcast_to(expected, (4, 5)), rtol=1e-14)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([8], activation="tanh"), "casimac", 3, covariance="diagonal")
    model(np.zeros((1, FEATURES), "float32"))
    return model


@pytest.mark.slow
def test_gradients_of_a_classifier_agree_with_finite_differences(model):
    x = np.random.default_rng(2).normal(size=(5, FEATURES)).astype("float32")

    def probabilities(x):
        return model(x, training=False)

    def decision(x):
        return decision_function(model.latent(x), 0, 1)

    for function, shape in ((probabilities, (5, 3, FEATURES)), (decision, (5, FEATURES))):
        gradients = feature_gradients(function, x)
        assert gradients.shape == shape
        assert gradients.dtype == np.float32
        np.testing.assert_allclose(gradients, central_differences(function, x, 1e-2), atol=2e-3)


def test_gradients_keep_the_dtype_of_x(model):
    x = np.random.default_rng(3).normal(size=(2, FEATURES))
    gradients = feature_gradients(lambda x: model(x, training=False), x)
    assert gradients.dtype == np.float64
    single = feature_gradients(lambda x: model(x, training=False), x.astype("float32"))
    np.testing.assert_allclose(gradients, single, atol=1e-6)


@pytest.mark.parametrize(
    "wrap", [lambda function: function, pytest.param(tf.function, marks=pytest.mark.slow)], ids=["eager", "graph"]
)
def test_gradients_do_not_depend_on_batches_or_graphs(wrap):
    regressor = random_regressor(3, "diagonal")
    x = np.random.default_rng(4).normal(size=(7, FEATURES))

    def function(x):
        return softmax(regressor(x), num_points=16)

    wrapped = wrap(function)
    whole = feature_gradients(function, x)
    for batch_size in (1, 3, 100):
        np.testing.assert_allclose(feature_gradients(wrapped, x, batch_size), whole, atol=1e-13)
    np.testing.assert_allclose(feature_gradients(wrapped, tf.constant(x)), whole, atol=1e-13)
    assert feature_gradients(wrapped, x[:0]).shape == (0, 3, FEATURES)


def test_gradients_of_images_keep_shape():
    x = np.random.default_rng(5).normal(size=(3, 4, 5, 1))
    by_class = feature_gradients(lambda x: tf.stack([tf.reduce_sum(x**2, axis=[1, 2, 3]), x[:, 0, 0, 0]], axis=1), x)
    np.testing.assert_allclose(by_class[:, 0], 2 * x)
    assert by_class[:, 1].sum() == 3
    assert by_class.shape == (3, 2, 4, 5, 1)


def test_constant_function_has_gradient_zero():
    gradients = feature_gradients(lambda x: tf.stack([x[:, 0], 0 * x[:, 0] + 1.0], axis=1), np.ones((2, 3)))
    np.testing.assert_array_equal(gradients, [[[1, 0, 0], [0, 0, 0]]] * 2)


@pytest.mark.parametrize(("function", "x", "error", "message"), [
    (lambda x: x, np.ones((2, 3), int), TypeError, r"^x must.*found dtype int64"),
    (lambda x: x, 1.0, ValueError, r"^x must.*found shape \(\)"),
    (lambda x: x.numpy(), np.ones((2, 3)), TypeError, r"function must.*found ndarray"),
    (lambda x: {"loc": x}, np.ones((2, 3)), TypeError, r"function must.*found dict"),
    (lambda x: tf.argmax(x, axis=1), np.ones((2, 3)), TypeError, r"function must.*found int64"),
    (lambda x: tf.constant(x.numpy()), np.ones((2, 3)), ValueError, r"function must.*found an answer without a path"),
    (lambda x: x[:1], np.ones((2, 3)), ValueError, r"function must.*found \(1, 3\)"),
    (tf.reduce_sum, np.ones((2, 3)), ValueError, r"function must.*found \(\)"),
    (lambda x: x[:, :, None], np.ones((2, 3)), ValueError, r"function must.*found \(2, 3, 1\)"),
])  # fmt: skip
def test_invalid_function_or_samples_raise(function, x, error, message):
    with pytest.raises(error, match=message):
        feature_gradients(function, x)


def test_invalid_batch_size_raises():
    with pytest.raises(ValueError, match=r"batch_size must.*found 0"):
        feature_gradients(lambda x: x, np.ones((2, 3)), batch_size=0)
