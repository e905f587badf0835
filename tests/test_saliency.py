"""Saliency: integrated gradients by their formula and their sum, maps of classifiers, and the figure."""

import keras
import numpy as np
import pytest
import sklearn.base
import sklearn.datasets
import tensorflow as tf
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge

import deepsimplex as ds
from deepsimplex.readout import feature_gradients, integrated_gradients


def test_parts_of_linear_function_are_its_terms():
    rng = np.random.default_rng(0)
    x, w, baseline = rng.normal(size=(5, 2, 3)), rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    parts = integrated_gradients(lambda x: tf.reduce_sum(x * w, axis=(1, 2)), x, baseline=baseline, steps=3)
    np.testing.assert_allclose(parts, w * (x - baseline), atol=1e-12)


@pytest.mark.parametrize("batch_size", [50, 1000])
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
            keras.layers.Flatten(name="flatten"),
        ],
        trainable=False,
    )
    model = ds.SimplexClassifier(backbone, class_names=[f"digit {k}" for k in range(10)])
    model.compile(run_eagerly=True)
    model.fit(pixels[:400], y[:400], verbose=0)
    return model.fit_density(pixels[:400], y[:400]), pixels_test[:6]


def test_map_sums_to_difference_of_log_probabilities(digits):
    model, x = digits
    x, gray, options = x[:3], np.full((1, 8, 8, 1), 128.0), {"baseline": 128.0, "steps": 256}
    maps = model.saliency(x, **options)
    assert maps.shape == (3, 8, 8)
    p, p_gray = model.predict(x, verbose=0), model.predict(gray, verbose=0)[0]
    classes = p.argmax(axis=1)
    np.testing.assert_allclose(maps.sum(axis=(1, 2)), np.log(p.max(axis=1) / p_gray[classes]), rtol=0.05, atol=0.05)


def test_labels_of_saliency_are_numbers_or_names(digits):
    model, x = digits
    classes = model.predict(x[:2], verbose=0).argmax(axis=1)
    maps = model.saliency(x[:2], steps=2)
    for labels in (classes, classes[:, np.newaxis], [f"digit {k}" for k in classes]):
        np.testing.assert_array_equal(model.saliency(x[:2], labels=labels, steps=2), maps)
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


def nested():
    inner = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Conv2D(4, 3, padding="same", name="inner")])
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Reshape((8, 8, 1)),
            inner,
            keras.layers.ReLU(name="rectified"),
            keras.layers.MaxPooling2D(name="smaller"),
            keras.layers.GlobalAveragePooling2D(),
        ],
    )


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.network = nested()

    def call(self, x):
        return self.network(x)


@pytest.mark.parametrize("backbone", [nested, Subclassed, lambda: ds.backbones.cnn([4], units=6)])
def test_grad_cam_takes_the_last_convolution_with_its_activation(backbone, images):
    x, y = images
    keras.utils.set_random_seed(0)
    network = backbone()
    network.trainable = False
    model = ds.SimplexClassifier(network, num_classes=10)
    model.compile(run_eagerly=True)
    model.fit(x, y, verbose=0)
    maps = model.saliency(x[:3], method="grad_cam")
    assert maps.shape == (3, 8, 8)
    if backbone is nested:
        np.testing.assert_array_equal(model.saliency(x[:3], method="grad_cam", layer="rectified"), maps)
        assert not np.array_equal(model.saliency(x[:3], method="grad_cam", layer="smaller"), maps)
    assert "call" not in vars(model.backbone.layers[-1])


def test_grad_cam_of_averaged_channels_is_their_sum_weighted_by_gradients(images):
    x, y = images
    convolution = keras.layers.Conv2D(4, 3, padding="same", activation="relu")
    layers = [keras.Input((8, 8)), keras.layers.Reshape((8, 8, 1)), convolution, keras.layers.GlobalAveragePooling2D()]
    model = ds.SimplexClassifier(keras.Sequential(layers, trainable=False), num_classes=10)
    model.compile(run_eagerly=True)
    model.fit(x, y, verbose=0)

    def value(features):
        latent = model.predictive_latent(model.latent_of_features(features), calibrated=True)
        return tf.math.log(model.probabilities(latent))

    activations = convolution(x[:3, ..., np.newaxis]).numpy()
    gradients = feature_gradients(value, activations.mean(axis=(1, 2)))[:, 2] / 64
    expected = np.maximum(np.einsum("nhwc,nc->nhw", activations, gradients), 0.0)
    np.testing.assert_allclose(model.saliency(x[:3], labels=2, method="grad_cam"), expected, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def images():
    (x, y), _ = ds.datasets.load("digits")
    return x[:60].astype("float32"), y[:60]


def test_maps_of_tables_have_the_shape_of_the_samples():
    x, y = np.random.default_rng(0).normal(size=(60, 3)).astype("float32"), np.arange(60) % 2
    model = ds.SimplexClassifier(keras.Sequential([keras.Input((3,))]), num_classes=2)
    model.compile(run_eagerly=True)
    model.fit(x, y, verbose=0)
    options = {"labels": 1, "steps": 2, "baseline": [0.5, -0.2, 0.1]}
    maps = model.saliency(x[:4], **options)
    assert maps.shape == (4, 3)
    assert np.all(maps != 0)
    model.calibrate(x + 0.1, y, "venn_abers")  # steps, which are left out
    np.testing.assert_array_equal(model.saliency(x[:4], **options), maps)
    with pytest.raises(ValueError, match=r"needs images \[N, H, W\]"):
        model.saliency(x, method="grad_cam")


def test_input_of_integers_has_the_gradients_of_floats(images):
    x, y = images
    pixels = np.round(255 * x[..., np.newaxis]).astype(np.uint8)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(2, 3), keras.layers.Flatten(name="flatten")]
    maps = []
    for inputs in (keras.Input((8, 8, 1), dtype="uint8"), keras.Input((8, 8, 1))):
        model = ds.SimplexClassifier(keras.Sequential([inputs, *layers], trainable=False), num_classes=10)
        model.compile(run_eagerly=True)
        model.fit(pixels, y, verbose=0)
        maps.append(model.saliency(pixels[:2], labels=1, steps=2, baseline=pixels.mean(axis=0)))
    assert np.abs(maps[1]).max() > 0.01
    np.testing.assert_allclose(maps[0], maps[1], rtol=1e-3, atol=1e-5)


def test_parts_that_miss_a_jump_at_the_baseline_are_warned_of():
    (x, y), _ = ds.datasets.load("digits")
    layers = [keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(32, "relu", use_bias=False)]
    model = ds.SimplexClassifier(keras.Sequential(layers, trainable=False), num_classes=10)
    model.compile()
    model.fit(x[:300], y[:300], verbose=0)
    assert model.head.kernel_numbers[7] == 1.0  # features of length one
    with pytest.warns(UserWarning, match="maps sum to .* while values differ by .* Pass another baseline"):
        model.saliency(x[:5])
    maps = model.saliency(x[:5], baseline=x.mean(axis=0))
    assert np.median(np.abs(maps.sum(axis=(1, 2)))) > 1


def test_grad_cam_without_convolution_raises(images):
    x, _ = images
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), num_classes=10)
    with pytest.raises(ValueError, match="needs a convolution, or layer=NAME"):
        model.saliency(x[:2], method="grad_cam")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "class"}, "of must be"),
        ({"method": "cam"}, "method must be"),
        ({"labels": 10}, "labels must .*found 10"),
        ({"labels": "digit 11"}, "labels must .*digit 11"),
        ({"labels": [-1] * 6}, "labels must .*found -1"),
        ({"labels": [1, 2]}, "labels must .*found .*2"),
        ({"labels": 3, "of": "familiarity"}, "labels are for of='probability' only; found labels=3"),
        ({"layer": "convolution"}, "layer is for method='grad_cam' only"),
        ({"method": "grad_cam", "layer": "flatten"}, r"layer must have an output \[N, h, w, c\]; found 'flatten'"),
        ({"method": "grad_cam", "layer": "pool"}, "layer must be one of .*, convolution, .*; found 'pool'"),
        ({"baseline": np.zeros(3)}, r"baseline must be a number or have the shape \(8, 8, 1\)"),
        ({"baseline": np.nan}, "baseline must be finite"),
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


def plain_network(outputs, images):
    """A Keras classifier of images of integers, without the heads of this package."""
    x, y = images
    keras.utils.set_random_seed(0)
    last = keras.layers.Dense(outputs, activation="sigmoid" if outputs == 1 else "softmax")
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten()]
    model = keras.Sequential([keras.Input((8, 8, 1), dtype="uint8"), *layers, last])
    model.compile(
        "adam", "binary_crossentropy" if outputs == 1 else "sparse_categorical_crossentropy", run_eagerly=True
    )
    pixels = np.round(255 * x[..., np.newaxis]).astype(np.uint8)
    model.fit(pixels, np.minimum(y, max(outputs - 1, 1)), epochs=3, verbose=0)
    return model, pixels


@pytest.mark.parametrize("outputs", [1, 10])
def test_any_keras_classifier_has_maps_that_sum_to_difference_of_calibrated_logarithms(outputs, images):
    model, pixels = plain_network(outputs, images)
    labels = np.minimum(images[1], max(outputs - 1, 1))
    classifier = ds.AfterTraining(model, classes=[f"digit {k}" for k in range(max(outputs, 2))])
    classifier.calibrate(pixels, np.array(classifier.classes_)[labels])
    maps = classifier.saliency(pixels[:3], labels="digit 1", steps=96)
    p, p_black = classifier.predict_proba(pixels[:3])[:, 1], classifier.predict_proba(0 * pixels[:1])[0, 1]
    assert maps.shape == (3, 8, 8)
    np.testing.assert_allclose(maps.sum(axis=(1, 2)), np.log(p / p_black), rtol=0.02, atol=0.02)
    heat = classifier.saliency(pixels[:3], method="grad_cam")
    assert heat.shape == (3, 8, 8)
    assert heat.max() > 0


def test_wrapped_model_has_the_maps_of_the_model(digits):
    model, x = digits
    for options in ({"steps": 4}, {"method": "grad_cam", "labels": "digit 3"}):
        np.testing.assert_allclose(
            ds.AfterTraining(model).saliency(x[:2], **options), model.saliency(x[:2], **options), rtol=1e-3, atol=1e-4
        )


ESTIMATORS = {
    "LVQ1": ds.LVQ1(),
    "GMLVQ": ds.GMLVQ(),
    "LGMLVQ": ds.LGMLVQ(),
    "GPLVQ": ds.GPLVQ(1),
    "closed form": ds.SimplexGaussianProcess(),
    "named target": ds.SimplexGaussianProcess("casimac", max_iter=3),
    "categorical": ds.CategoricalGaussianProcess(epochs=1, inducing=5),
    "network": ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [4]}, epochs=1),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parts_of_columns_sum_to_difference_of_log_probabilities(name):
    X, y = sklearn.datasets.load_iris(return_X_y=True, as_frame=True)
    X, names, baseline = X[::3], np.array(["a", "b", "c"])[y[::3]], X.mean(axis=0)
    classifier = sklearn.base.clone(ESTIMATORS[name]).fit(X, names).fit_density(X, names)
    held = np.where(np.arange(len(X)) % 7 == 0, "b", names)  # with errors, as a calibration needs
    classifier.calibrate(X + 0.1, held).set_priors([2, 1, 1])
    steps = 256 if name == "named target" else 96  # whose argmax of narrow latents turns sharply
    # What wraps a classifier asks it for its gradients.
    for wrapped in [classifier, *([ds.AfterTraining(classifier)] if name in ("closed form", "network") else [])]:
        parts = wrapped.saliency(X[:3], labels=["a", "b", "c"], baseline=baseline, steps=steps, batch_size=1000)
        p, p_mean = wrapped.predict_proba(X[:3]), wrapped.predict_proba(baseline.to_frame().T)[0]
        np.testing.assert_allclose(parts.sum(axis=1), np.log(np.diag(p) / p_mean), rtol=0.02, atol=0.02)
    likeliest = classifier.saliency(X[:3], method="gradients")
    np.testing.assert_array_equal(classifier.saliency(X[:3], labels="a", method="gradients"), likeliest)
    far = X[:1].assign(**{X.columns[1]: 50.0})
    assert classifier.saliency(far, of="familiarity", baseline=X.iloc[0]).argmin() == 1
    classifier.set_priors(None).calibrate(X + 0.1, held, "venn_abers")  # steps, which are left out
    uncalibrated = classifier.saliency(X[:2], labels="b")
    np.testing.assert_array_equal(classifier.calibrate(None).saliency(X[:2], labels="b"), uncalibrated)


def test_classifiers_without_gradient_raise():
    X, y = sklearn.datasets.load_iris(return_X_y=True)
    forest, table = RandomForestClassifier(2).fit(X, y), np.full((3, 3), 1 / 3)
    for classifier, samples, message in [
        (ds.AfterTraining(forest), X, r"found RandomForest.*permutation_importance\(classifier, X, y\) and shap"),
        (ds.AfterTraining(classes=range(3)), table, "found probabilities alone"),
        (ds.LatentRegressionClassifier(Ridge(), "ilr").fit(X, y), X, r"found the regressor Ridge\(\)"),
    ]:
        with pytest.raises(ValueError, match=f"^saliency needs a gradient.*{message}"):
            classifier.saliency(samples)
    inner = ds.SimplexGaussianProcess().fit(X, y)
    through = ds.AfterTraining(inner, features=lambda X: X[:, :2]).fit_density(X, y)
    with pytest.raises(ValueError, match="no gradient through features"):
        through.saliency(X, of="familiarity")
    for options, message in [
        ({"labels": "versicolor"}, "labels must hold one of the classes 0, 1, 2; found 'versicolor'"),
        ({"labels": [0, 1]}, "labels must hold one label for each of the 150 rows of X"),
        ({"of": "familiarity"}, "needs fit_density first"),
        ({"method": "grad_cam"}, "needs images"),
        ({"baseline": [0.0, 1.0]}, "baseline must"),
    ]:
        with pytest.raises(ValueError, match=message):
            inner.saliency(X, **options)
    with pytest.raises(ValueError, match="X has 3 features"):
        inner.saliency(X[:, :3])


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
