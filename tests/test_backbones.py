"""Backbones: the bounded convolution against its matrix, residual blocks, and all of them as parts of a classifier."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.backbones import ResidualBlock, SpectralConv2D
from tests.layer_contract import assert_layer_contract

X = np.random.default_rng(0).random((4, 6, 5, 2)).astype("float32")
FORMS = {
    "same": {"padding": "same"},
    "valid": {"padding": "valid"},
    "strides": {"padding": "same", "strides": 2},
}


def largest_gain(layer, shape=(6, 5, 2)):
    """The largest singular value of the layer's matrix, column by column."""
    basis = np.eye(np.prod(shape), dtype="float32").reshape(-1, *shape)
    return np.linalg.norm(np.asarray(layer(basis)).reshape(len(basis), -1), 2)


@pytest.mark.parametrize("form", FORMS)
def test_gain_is_bounded(form):
    keras.utils.set_random_seed(0)
    layer = SpectralConv2D(3, 3, use_bias=False, bound=0.8, iterations=50, **FORMS[form])
    layer(X)
    kernel = 3.0 * layer.kernel.numpy()
    layer.kernel.assign(kernel)
    layer(X, training=True)
    assert largest_gain(layer) == pytest.approx(0.8, rel=1e-3)
    free = keras.layers.Conv2D(3, 3, use_bias=False, **FORMS[form])
    free(X)
    free.kernel.assign(kernel)
    np.testing.assert_allclose(layer(X), free(X) * 0.8 / largest_gain(free), rtol=1e-3, atol=1e-5)
    # The matrix of the kernel has another norm.
    assert np.linalg.norm(kernel.reshape(-1, 3), 2) != pytest.approx(largest_gain(free), rel=0.05)


def test_a_small_kernel_is_left_alone_and_inference_keeps_the_direction():
    layer = SpectralConv2D(3, 3, bound=0.95, activation="relu", iterations=3)
    layer(X)
    layer.kernel.assign(0.01 * layer.kernel.numpy())
    layer.bias.assign([0.1, -0.2, 0.3])
    before = layer.direction.numpy()
    expected = tf.nn.relu(tf.nn.conv2d(X, layer.kernel.numpy(), 1, "VALID") + layer.bias.numpy())
    np.testing.assert_allclose(layer(X), expected, atol=1e-6)
    np.testing.assert_array_equal(layer.direction.numpy(), before)
    layer(X, training=True)
    assert np.any(layer.direction.numpy() != before)


def test_one_iteration_in_every_step_is_enough():
    keras.utils.set_random_seed(1)
    layer = SpectralConv2D(4, 3, padding="same", use_bias=False, bound=0.5)
    model = keras.Sequential([keras.Input((6, 5, 2)), layer, keras.layers.GlobalAveragePooling2D()])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    model.fit(X, 5.0 * np.ones((4, 4), "float32"), epochs=40, verbose=0)
    assert largest_gain(layer) == pytest.approx(0.5, rel=0.05)
    assert np.linalg.norm(layer.kernel.numpy()) > 1.0  # it would gain more


@pytest.mark.parametrize(
    "make",
    [
        lambda: SpectralConv2D(3, 3, padding="same", bound=0.7),
        lambda: ResidualBlock(2),
        lambda: ResidualBlock(5, strides=2, spectral_bound=0.9),
    ],
)
def test_layers_keep_the_contract(make, tmp_path):
    assert_layer_contract(make, X, tmp_path, half="float16")


def test_a_block_adds_to_what_it_is_given():
    block = ResidualBlock(2)
    block.build(X.shape)
    block.second_norm.gamma.assign([0.0, 0.0])
    np.testing.assert_allclose(block(X), X, atol=1e-6)


@pytest.mark.slow
def test_a_residual_network_learns_digits(few):
    (x, y), (x_test, y_test) = few
    keras.utils.set_random_seed(0)
    backbone = ds.backbones.resnet([8, 16], spectral_bound=0.95)
    model = ds.SimplexClassifier(backbone, "vertices", 10, head="gaussian")
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    model.fit(x, y, epochs=16, batch_size=30, verbose=0)
    assert model.predict_features(x_test).shape == (100, 16)
    assert np.mean(model.predict_proba(x_test).argmax(axis=1) == y_test) > 0.7


def test_stages_have_as_many_blocks_as_asked_for():
    blocks = [layer for layer in ds.backbones.resnet([4, 8], blocks=2).layers if isinstance(layer, ResidualBlock)]
    assert [(block.filters, block.strides) for block in blocks] == [(4, 1), (4, 1), (8, 2), (8, 1)]


def test_a_bounded_convolutional_network_is_made_by_name():
    network = ds.backbones.backbone("cnn", filters=[4], units=8, spectral_bound=0.9)
    assert network(X[..., 0]).shape == (4, 8)
    assert [layer.bound for layer in network.layers if isinstance(layer, SpectralConv2D)] == [0.9]
    assert ds.backbones.backbone("resnet", filters=[4])(X).shape == (4, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpectralConv2D(2, 3, bound=0.0), "bound must be a number above 0; found 0.0"),
        (lambda: SpectralConv2D(2, 3, iterations=0), "iterations must be a whole number, at least 1; found 0"),
        (lambda: SpectralConv2D(2, 3, groups=2), "SpectralConv2D takes no groups"),
        (lambda: SpectralConv2D(2, 3)(keras.Input((None, None, 2))), "needs images of a known size"),
        (lambda: ds.backbones.resnet([0]), "filters must be a list of positive whole numbers"),
        (lambda: ds.backbones.resnet(blocks=0), "blocks must be a whole number, at least 1; found 0"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
