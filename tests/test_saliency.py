"""Saliency: integrated gradients by their formula and their sum, maps of classifiers, and the figure."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.readout import integrated_gradients


def test_parts_of_linear_function_are_its_terms():
    rng = np.random.default_rng(0)
    x, w, baseline = rng.normal(size=(5, 2, 3)), rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    parts = integrated_gradients(lambda x: tf.reduce_sum(x * w, axis=(1, 2)), x, baseline=baseline, steps=3)
    np.testing.assert_allclose(parts, w * (x - baseline), atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_parts_sum_to_difference_of_values(batch_size):
    x = np.random.default_rng(1).normal(size=(6, 4))
    parts = integrated_gradients(lambda x: tf.tanh(tf.reduce_sum(x**3, axis=1)), x, steps=400, batch_size=batch_size)
    np.testing.assert_allclose(parts.sum(axis=1), np.tanh((x**3).sum(axis=1)), atol=1e-3)


@pytest.fixture(scope="module")
def digits():
    (x, y), (x_test, _) = ds.datasets.load("digits")
    pixels, pixels_test = (np.round(255 * part[..., np.newaxis]).astype(np.uint8) for part in (x, x_test))
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(8, 3, activation="relu", bias_initializer="random_normal", name="convolution"),
            keras.layers.Flatten(),
        ],
        trainable=False,
    )
    model = ds.SimplexClassifier(backbone, class_names=[f"digit {k}" for k in range(10)])
    model.compile()
    model.fit(pixels[:400], y[:400], verbose=0)
    return model.fit_density(pixels[:400], y[:400]), pixels_test[:6]


def test_map_sums_to_difference_of_log_probabilities(digits):
    model, x = digits
    gray = np.full((1, 8, 8, 1), 128.0)
    maps = model.saliency(x, baseline=128.0, steps=256)
    assert maps.shape == (6, 8, 8)
    p, p_gray = model.predict(x, verbose=0), model.predict(gray, verbose=0)[0]
    classes = p.argmax(axis=1)
    np.testing.assert_allclose(maps.sum(axis=(1, 2)), np.log(p.max(axis=1) / p_gray[classes]), rtol=0.05, atol=0.05)
    np.testing.assert_array_equal(model.saliency(x, labels=classes, baseline=128.0, steps=256), maps)
    np.testing.assert_array_equal(
        model.saliency(x[:2], labels="digit 3", steps=2), model.saliency(x[:2], labels=[3, 3], steps=2)
    )


def test_gradients_equal_differences(digits):
    model, x = digits
    step = np.zeros(x.shape[1:])
    step[3, 4] = 0.5
    maps = model.saliency(x, method="gradients", labels=3)
    above, below = (np.log(model.predict(x + sign * step, verbose=0)[:, 3]) for sign in (1, -1))
    np.testing.assert_allclose(maps[:, 3, 4], np.abs(above - below), rtol=0.05, atol=1e-3)


def test_unlike_pixels_lower_the_familiarity(digits):
    model, x = digits
    strange = x.copy()
    strange[:, 0, :2] = 255  # no digit reaches that corner
    maps = model.saliency(strange, of="familiarity", baseline=x[0])
    assert np.all(maps[:, 0, :2].sum(axis=1) < 0)


def test_grad_cam_is_large_where_channels_raise_the_class(digits):
    model, x = digits
    maps = model.saliency(x, method="grad_cam")
    assert maps.shape == (6, 8, 8)
    assert maps.min() >= 0
    assert maps.max() > 0
    np.testing.assert_array_equal(model.saliency(x, method="grad_cam", layer="convolution"), maps)


def test_maps_of_tables_have_the_shape_of_the_samples():
    x, y = np.random.default_rng(0).normal(size=(60, 3)).astype("float32"), np.arange(60) % 2
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((3,))]), num_classes=2)
    model.compile()
    model.fit(x, y, verbose=0)
    assert model.saliency(x[:4], steps=2).shape == (4, 3)
    with pytest.raises(ValueError, match=r"needs images \[N, H, W, C\]"):
        model.saliency(x, method="grad_cam")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "class"}, "of must be"),
        ({"method": "cam"}, "method must be"),
        ({"labels": 10}, "labels must be among .*; found 10"),
        ({"labels": "digit 11"}, "labels must be among .*; found 'digit 11'"),
        ({"layer": "convolution"}, "layer is for method='grad_cam' only"),
        ({"method": "grad_cam", "layer": "flatten"}, "layer must be one of rescaling, convolution|No such layer"),
        ({"baseline": np.zeros(3)}, r"baseline must be a number or have the shape \(8, 8, 1\)"),
        ({"steps": 0}, "steps must be"),
    ],
)
def test_invalid_arguments_of_saliency_raise(digits, options, message):
    model, x = digits
    with pytest.raises(ValueError, match=message):
        model.saliency(x, **options)


def test_familiarity_without_density_raises():
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((3,))]), num_classes=2)
    with pytest.raises(ValueError, match="needs fit_density first"):
        model.saliency(np.zeros((2, 3)), of="familiarity")


def test_figure_has_a_map_beside_each_image():
    rng = np.random.default_rng(0)
    figure = ds.plots.saliency(rng.random((5, 4, 4, 3)), rng.normal(size=(5, 4, 4)), list("abcde"), columns=2)
    assert len(figure.axes) == 10
    for images, maps, options, message in [
        ((5, 4, 4), (5, 4, 3), {}, "maps must have the size of images"),
        ((5, 4, 4), (4, 4, 4), {}, "images must have shape"),
        ((5, 4, 4), (5, 4, 4), {"titles": ["a"]}, "titles must be 5"),
    ]:
        with pytest.raises(ValueError, match=message):
            ds.plots.saliency(np.zeros(images), np.zeros(maps), **options)
