"""The Gaussian head and the backbones."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

import deepsimplex as ds
from tests.layer_contract import assert_layer_contract

COVARIANCES = ["isotropic", "diagonal", "full"]
FEATURES = np.random.default_rng(0).normal(size=(5, 7)).astype("float32")


@pytest.mark.parametrize(("covariance", "latent_dim"), [*[(one, 4) for one in COVARIANCES], ("full", 1)])
def test_gaussian_head_keeps_the_layer_contract(covariance, latent_dim, tmp_path):
    assert_layer_contract(lambda: ds.heads.GaussianHead(latent_dim, covariance), FEATURES, tmp_path)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_initial_scale_is_one_plus_floor(covariance):
    head = ds.heads.GaussianHead(3, covariance, scale_floor=0.25)
    scale = np.asarray(head(100 * FEATURES[:2])["scale"])
    expected = {"isotropic": np.full((2, 1), 1.25), "diagonal": np.full((2, 3), 1.25)}
    np.testing.assert_allclose(scale, expected.get(covariance, np.tile(1.25 * np.eye(3), (2, 1, 1))), rtol=1e-6)


def test_full_scale_is_lower_triangular_with_floor():
    head = ds.heads.GaussianHead(4, "full", scale_floor=0.1)
    head.build((None, 7))
    head._raw_scale.set_weights([np.zeros((7, 10)), np.arange(1.0, 11.0)])
    factor = np.asarray(head(FEATURES)["scale"])[0]
    np.testing.assert_array_equal(factor, np.tril(factor))
    np.testing.assert_allclose(np.diag(factor), np.log1p(np.exp(np.arange(1.0, 5.0))) + 0.1, rtol=1e-6)
    np.testing.assert_allclose(factor[np.tril_indices(4, -1)], np.arange(5.0, 11.0))


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_scale_floor_holds_for_extreme_features(covariance):
    head = ds.heads.GaussianHead(3, covariance)
    head.build((None, 7))
    kernel, bias = head._raw_scale.get_weights()
    head._raw_scale.set_weights([np.random.default_rng(0).normal(size=kernel.shape), bias])
    scale = np.asarray(head(np.float32(1e4) * FEATURES)["scale"])
    deviations = scale if scale.ndim == 2 else np.diagonal(scale, axis1=1, axis2=2)
    assert deviations.min() >= 1e-3 * (1 - 1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_keeps_variances_in_float32(policy):
    head = ds.heads.GaussianHead(3, "diagonal", dtype=policy)
    outputs = head(FEATURES.astype("float16"))
    assert {name: value.dtype for name, value in outputs.items()} == {"loc": tf.float32, "scale": tf.float32}
    assert {w.dtype for w in head.weights} == {"float32"}
    head = ds.heads.GaussianHead(3, dtype=policy)
    assert head.compute_output_spec(keras.KerasTensor((None, 4)))["loc"].dtype == "float32"
    head.dtype_policy = "float64"
    assert head.compute_output_spec(keras.KerasTensor((None, 4)))["loc"].dtype == "float64"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"latent_dim": 0}, r"latent_dim must.*found 0"),
        ({"latent_dim": 2.5}, r"latent_dim must.*found 2\.5"),
        ({"latent_dim": 2, "covariance": "round"}, r"covariance must.*found 'round'"),
        ({"latent_dim": 2, "scale_floor": 0.0}, r"scale_floor must.*found 0.0"),
    ],
)
def test_invalid_argument_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        ds.heads.GaussianHead(**arguments)


@pytest.mark.parametrize("head", [ds.heads.GaussianHead, ds.heads.VariationalGaussianProcess, ds.heads.PrototypeScores])
def test_features_with_spatial_axes_raise(head):
    with pytest.raises(ValueError, match=rf"{head.__name__} needs features .* GlobalAveragePooling2D"):
        head(3)(np.zeros((2, 4, 4, 8), "float32"))


def test_backbones_build_on_gray_and_color_images(tmp_path):
    assert ds.backbones.cnn([8, 16], units=5)(keras.Input((28, 28))).shape == (None, 5)
    assert ds.backbones.cnn([8], units=5, dropout=0.1)(keras.Input((32, 32, 3))).shape == (None, 5)
    assert ds.backbones.mlp([9, 4], dropout=0.1)(keras.Input((28, 28, 3))).shape == (None, 4)
    assert_layer_contract(
        ds.backbones.networks.EnsureChannels, np.zeros((4, 6, 6), "float32"), tmp_path, half="float16"
    )


@pytest.mark.slow
def test_cnn_learns_a_hundred_images():
    """Batch normalization's averages must have left their start after 60 steps."""
    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    few, test = np.flatnonzero(y < 3)[:96], y_test < 3
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.cnn([16, 32], units=32), "casimac", 3, head="gaussian")
    model.compile(loss=ds.losses.LatentNLL(beta=0.5))
    model.fit(x[few], y[few], epochs=20, verbose=0)
    assert ds.evaluation.negative_log_likelihood(y_test[test], model.predict_proba(x_test[test])) < 0.2


def test_invalid_backbone_raises():
    with pytest.raises(ValueError, match="did you mean 'mlp'"):
        ds.backbones.backbone("mlpp")
    with pytest.raises(ValueError, match=r"hidden must.*found \[0\]"):
        ds.backbones.mlp([0])
    with pytest.raises(ValueError, match=r"images must.*found \(None, 5\)"):
        ds.backbones.cnn()(keras.Input((5,)))


def digits_model(covariance="diagonal"):
    return ds.SimplexClassifier(ds.backbones.mlp([32]), "vertices", 4, covariance)


@pytest.fixture(scope="module")
def digits():
    """Digits with latents that a network can learn: three projections of the image."""
    x = (load_digits().images[:300] / 16.0).astype("float32")
    projection = np.random.default_rng(1).normal(size=(64, 3)) / 8.0
    return x, (x.reshape(300, 64) @ projection).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_classifier_of_latents_trains_and_reloads(covariance, digits, tmp_path):
    x, latents = digits
    keras.utils.set_random_seed(0)
    model = digits_model(covariance)
    model.compile(optimizer=keras.optimizers.Adam(3e-2), loss=ds.losses.LatentNLL(), run_eagerly=True)
    observation = ds.LatentGaussian(latents, np.full((300, 1), 0.05, "float32"))
    options = {"epochs": 5, "batch_size": 100, "verbose": 0}
    history = model.fit(x, observation, validation_data=(x[:50], observation[:50]), **options).history
    assert history["loss"][-1] < history["loss"][0] - 0.5
    assert history["val_loss"][-1] < history["val_loss"][0]
    model.save(tmp_path / "latent.keras")
    reloaded = keras.models.load_model(tmp_path / "latent.keras")
    np.testing.assert_allclose(reloaded.predict_latent(x).scale, model.predict_latent(x).scale, rtol=1e-5)
    loss = model.evaluate(x, observation, batch_size=300, verbose=0)
    assert reloaded.evaluate(x, observation, batch_size=300, verbose=0) == pytest.approx(loss, rel=1e-5)


@pytest.mark.slow
def test_latents_of_every_form_have_equal_loss(digits):
    x, latents = digits
    model = digits_model()
    model.compile(loss=ds.losses.LatentNLL(), run_eagerly=True)
    observation = ds.LatentGaussian(latents, np.full((300, 1), 0.05, "float32"))
    loss = model.evaluate(x, observation, batch_size=300, verbose=0)
    assert model.evaluate(x, observation.as_dict(), batch_size=300, verbose=0) == pytest.approx(loss)
    stream = tf.data.Dataset.from_tensor_slices((x, observation.as_dict())).batch(60)
    assert model.evaluate(stream, verbose=0) == pytest.approx(loss, rel=1e-5)
    weighted = model.evaluate(x, observation, batch_size=300, sample_weight=np.full(300, 2.0), verbose=0)
    assert weighted == pytest.approx(2 * loss, rel=1e-5)


@pytest.mark.slow
def test_plain_latents_have_no_noise(digits):
    x, latents = digits
    model = digits_model()
    model.compile(loss=ds.losses.LatentNLL(), run_eagerly=True)
    plain = model.evaluate(x, latents, batch_size=300, verbose=0)
    without_noise = ds.LatentGaussian(latents, np.zeros((300, 1)))
    assert plain == pytest.approx(model.evaluate(x, without_noise, batch_size=300, verbose=0))
    assert isinstance(model.loss, ds.losses.LatentNLL)


def test_frozen_head_stays_frozen():
    head = ds.heads.GaussianHead(3, trainable=False)
    head.build((None, 7))
    assert head.trainable_weights == []
    assert len(ds.heads.GaussianHead.from_config(ds.heads.GaussianHead(3).get_config()).weights) == 0
    assert ds.heads.GaussianHead.from_config(head.get_config())._loc.trainable is False


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("head", ["gaussian", "variational", "prototypes"])
def test_graph_of_any_batch_size_has_static_latent_dimension(head, num_classes):
    model = ds.SimplexClassifier(keras.layers.Identity(), "vertices", num_classes, head=head)
    model(np.zeros((1, 5), "float32"))
    traced = tf.function(model.latent, input_signature=[tf.TensorSpec((None, 5))])
    assert traced.get_concrete_function().structured_outputs["loc"].shape.as_list() == [None, num_classes - 1]


def plain_head(latent_dim=3):
    features = keras.Input((7,))
    outputs = {"loc": keras.layers.Dense(latent_dim)(features), "scale": keras.layers.Dense(1, "softplus")(features)}
    return keras.Model(features, outputs)


@pytest.mark.parametrize("head", [*ds.heads.HEADS.values(), ds.heads.PrototypeScores])
def test_adapt_has_one_signature(head):
    assert list(inspect.signature(head.adapt).parameters) == ["self", "x", "y", "backbone", "seed"]


def test_layer_head_keeps_the_layer_contract(tmp_path):
    assert_layer_contract(lambda: ds.heads.LayerHead(plain_head()), FEATURES, tmp_path, half="float16")


def test_plain_layer_is_a_head_with_defaults(tmp_path):
    layer = plain_head()
    model = ds.SimplexClassifier(keras.layers.Identity(), "vertices", 4, head=layer)
    model.compile(optimizer="adam", run_eagerly=True)
    before = [weight.numpy() for weight in layer.trainable_weights]
    model.fit(FEATURES, np.arange(5) % 4, verbose=0)
    assert model.head.layer is layer
    assert model.head.adapted
    assert any(not np.array_equal(new, old) for new, old in zip(layer.trainable_weights, before, strict=True))
    with pytest.raises(ValueError, match="found LayerHead"):
        model.explain(FEATURES)
    model.save(tmp_path / "plain.keras")
    np.testing.assert_allclose(ds.load(tmp_path / "plain.keras").predict_proba(FEATURES), model.predict_proba(FEATURES))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda: plain_head(2), r"scores must.*found \(4, 3\)"),
        (lambda: ds.heads.GaussianHead(2), r"head must.*found 2"),
    ],
)
def test_wrong_latent_dimension_raises(head, message):
    with pytest.raises(ValueError, match=message):
        ds.SimplexClassifier(keras.layers.Identity(), "vertices", 4, head=head()).build((None, 7))
