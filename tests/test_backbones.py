"""Backbones: the bounded convolution against its matrix, residual blocks, and all of them as parts of a classifier."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.backbones import ResidualBlock, SpectralConv2D
from tests.layer_contract import assert_layer_contract
from tests.reference.convolution import convolution_matrix

X = np.random.default_rng(0).random((4, 6, 5, 2)).astype("float32")
FORMS = {"same": {"padding": "same"}, "valid": {"padding": "valid"}, "strides": {"padding": "same", "strides": 2}}


def largest_gain(layer, shape=(6, 5, 2)):
    """The largest singular value of the layer's matrix, column by column."""
    basis = np.eye(np.prod(shape), dtype="float32").reshape(-1, *shape)
    return np.linalg.norm(np.asarray(layer(basis)).reshape(len(basis), -1), 2)


@pytest.mark.parametrize("form", FORMS)
def test_gain_is_bounded(form):
    keras.utils.set_random_seed(0)
    layer = SpectralConv2D(3, 3, use_bias=False, bound=0.8, power_iterations=50, **FORMS[form])
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


@pytest.mark.parametrize(("padding", "stride"), [("same", 1), ("valid", 1), ("same", 2), ("valid", 2), ("valid", 3)])
def test_gain_equals_that_of_the_convolution_matrix(padding, stride):
    layer = SpectralConv2D(3, 3, use_bias=False, bound=0.9, power_iterations=80, padding=padding, strides=stride)
    layer(X)
    kernel = 2.0 * np.random.default_rng(1).normal(size=layer.kernel.shape).astype("float32")
    layer.kernel.assign(kernel)
    layer(X, training=True)
    matrix = convolution_matrix(kernel.astype("float64"), 6, 5, stride, padding)
    sigma = np.linalg.norm(matrix, 2)
    expected = X.reshape(len(X), -1) @ matrix.T * 0.9 / sigma
    np.testing.assert_allclose(np.asarray(layer(X)).reshape(len(X), -1), expected, rtol=1e-3, atol=1e-4)


def test_gain_is_bounded_after_a_kernel_of_zeros():
    layer = SpectralConv2D(3, 3, use_bias=False, kernel_initializer="zeros")
    layer(X, training=True)
    layer.kernel.assign(np.ones(layer.kernel.shape))
    for _ in range(10):
        layer(X, training=True)
    assert largest_gain(layer) == pytest.approx(0.95, rel=1e-3)


def test_frozen_layer_keeps_weights_and_new_layers_are_equal():
    layers = [SpectralConv2D(3, 3, trainable=False, kernel_initializer="ones") for _ in range(2)]
    outputs = [np.asarray(layer(X)) for layer in layers]
    np.testing.assert_array_equal(*outputs)
    before = layers[0].get_weights()
    layers[0](X, training=True)
    for weight, expected in zip(layers[0].get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_direction_is_saved(tmp_path):
    model = keras.Sequential([keras.Input((6, 5, 2)), SpectralConv2D(3, 3, bound=0.1)])
    for _ in range(4):
        model(X, training=True)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for weight, expected in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_small_kernel_is_not_scaled_and_inference_keeps_direction():
    layer = SpectralConv2D(3, 3, bound=0.95, activation="relu", power_iterations=3)
    layer(X)
    layer.kernel.assign(0.01 * layer.kernel.numpy())
    layer.bias.assign([0.1, -0.2, 0.3])
    before = layer.direction.numpy()
    expected = tf.nn.relu(tf.nn.conv2d(X, layer.kernel.numpy(), 1, "VALID") + layer.bias.numpy())
    np.testing.assert_allclose(layer(X), expected, atol=1e-6)
    np.testing.assert_array_equal(layer.direction.numpy(), before)
    layer(X, training=True)
    assert np.any(layer.direction.numpy() != before)


def test_gain_is_bounded_in_training():
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
        lambda: ResidualBlock(5, strides=2, dropout=0.2, spectral_bound=0.9),
    ],
)
def test_layer_contract(make, tmp_path):
    assert_layer_contract(make, X, tmp_path, half="float16")


def test_block_with_zero_residual_is_the_identity():
    block = ResidualBlock(2)
    block.build(X.shape)
    block.second_norm.gamma.assign([0.0, 0.0])
    np.testing.assert_allclose(block(X), X, atol=1e-6)


@pytest.mark.parametrize("options", [{"dtype": "mixed_float16"}, {"trainable": False}])
def test_block_passes_options_to_sublayers(options):
    block = ResidualBlock(5, strides=2, dropout=0.2, spectral_bound=0.9, **options)
    assert block(X).dtype == ("float16" if "dtype" in options else "float32")
    assert bool(block.trainable_weights) == ("dtype" in options)


def test_dropout_is_active_in_training_only():
    network = ds.backbones.resnet([4], dropout=0.5)
    expected = network(X)
    np.testing.assert_array_equal(network(X), expected)
    block = next(layer for layer in network.layers if isinstance(layer, ResidualBlock))
    images = np.ones((1, 6, 5, 4), "float32")
    assert np.any(np.asarray(block(images, training=True)) != np.asarray(block(images, training=True)))


@pytest.mark.slow
def test_resnet_learns_digits(few):
    (x, y), (x_test, y_test) = few
    keras.utils.set_random_seed(0)
    backbone = ds.backbones.resnet([8, 16], spectral_bound=0.95)
    model = ds.SimplexClassifier(backbone, "vertices", 10, head="gaussian")
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    model.fit(x, y, epochs=16, batch_size=30, verbose=0)
    assert model.predict_features(x_test).shape == (100, 16)
    assert np.mean(model.predict_proba(x_test).argmax(axis=1) == y_test) > 0.7


def test_number_of_blocks():
    blocks = [layer for layer in ds.backbones.resnet([4, 8], blocks=2).layers if isinstance(layer, ResidualBlock)]
    assert [(block.filters, block.strides) for block in blocks] == [(4, 1), (4, 1), (8, 2), (8, 1)]


def test_perceptron_normalizes_columns_in_different_units():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    layers = ds.backbones.mlp([], normalize=True)
    normalized = layers(x * [1e-4, 1, 1e4] + [0, 1, 1e4], training=True)
    np.testing.assert_allclose(normalized, (x - x.mean(axis=0)) / x.std(axis=0), atol=0.02)
    assert ds.backbones.mlp([])(x).shape == x.shape


def test_backbone_of_a_file_is_frozen_by_default(tmp_path):
    network = ds.backbones.cnn([4], units=3)
    features = keras.ops.convert_to_numpy(network(X))
    network.save(tmp_path / "net.keras")
    for options in ({}, {"trainable": True}):
        loaded = ds.backbones.backbone(str(tmp_path / "net.keras"), **options)
        assert bool(loaded.trainable_variables) == loaded.trainable == bool(options)
        np.testing.assert_allclose(loaded(X), features, atol=1e-6)
    with pytest.raises(ValueError, match=r"net\.keras' has no argument 'pooling'"):
        ds.backbones.backbone(str(tmp_path / "net.keras"), pooling="avg")
    keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 3)]).save(tmp_path / "maps.keras")
    with pytest.raises(ValueError, match=r"maps\.keras' must give features \[N, d\]; .*\(None, 2, 2, 2\)"):
        ds.backbones.backbone(str(tmp_path / "maps.keras"))


def test_backbone_by_name_with_spectral_bound():
    network = ds.backbones.backbone("cnn", filters=[4], units=8, spectral_bound=0.9)
    assert network(X[..., 0]).shape == (4, 8)
    assert [layer.bound for layer in network.layers if isinstance(layer, SpectralConv2D)] == [0.9]
    assert ds.backbones.backbone("resnet", filters=[4])(X).shape == (4, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpectralConv2D(2, 3, bound=0.0), r"bound must.*found 0.0"),
        (lambda: SpectralConv2D(2, 3, power_iterations=0), r"power_iterations must.*found 0"),
        (lambda: SpectralConv2D(2, 3, groups=2), r"groups and dilation_rate must.*found \{'groups'"),
        (lambda: SpectralConv2D(2, 3)(keras.Input((None, None, 2))), "needs images of a known size"),
        (lambda: ds.backbones.resnet([0]), r"filters must.*found \[0\]"),
        (lambda: ds.backbones.resnet([]), r"filters must.*found none"),
        (lambda: ds.backbones.resnet(dropout=1.0), r"dropout must.*found 1.0"),
        (lambda: ds.backbones.resnet(spectral_bound=-1), r"spectral_bound must.*found -1"),
        (lambda: ds.backbones.cnn(spectral_bound=0), r"spectral_bound must.*found 0"),
        (lambda: ds.backbones.resnet(blocks=0), r"blocks must.*found 0"),
    ],
)
def test_invalid_argument_raises(make, message):
    with pytest.raises(ValueError, match=message):
        make()
