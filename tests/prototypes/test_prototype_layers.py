"""Prototypes as Keras layers: a Gaussian process on them, and the scores of LVQ."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import deepsimplex as ds
from deepsimplex.heads import PrototypeGaussianProcess, PrototypeScores
from deepsimplex.prototypes.relative_distance import RelativeDistanceCost, activate
from tests.eager_steps import eagerly
from tests.layer_contract import assert_layer_contract
from tests.reference import variational as reference

D = 5
FEATURES = np.random.default_rng(0).normal(size=(6, D)).astype("float32")
LAYERS = {
    "process": lambda **options: PrototypeGaussianProcess(4, 2, **options),
    "ard": lambda **options: PrototypeGaussianProcess(4, 3, ard=True, kernel="matern52", **options),
    "two classes": lambda **options: PrototypeGaussianProcess(2, 1, learn_latents=True, **options),
    "scores": lambda **options: PrototypeScores(4, 2, **options),
    "matrix": lambda **options: PrototypeScores(3, metric="matrix", rank=2, **options),
}
each_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def moved(layer, features=D):
    """No weight is where it began."""
    layer.build((None, features))
    rng = np.random.default_rng(1)
    layer.set_weights([w.numpy() + rng.normal(scale=0.3, size=w.shape) for w in layer.weights])
    return layer


@pytest.mark.slow
@each_layer
def test_layer_contract(make, tmp_path):
    assert_layer_contract(lambda: moved(make()), FEATURES, tmp_path)


# The Gaussian process


def kernels_of(layer, X):
    W, lengthscale = np.asarray(layer.prototypes, "float64"), np.exp(np.asarray(layer.log_lengthscale, "float64"))
    return (reference.kernel_matrix(layer.kernel, rows, W, lengthscale, 1.0) for rows in (W, X))


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52"])
def test_process_equals_formula(kernel, ard):
    layer = moved(PrototypeGaussianProcess(4, 3, kernel=kernel, ard=ard, learn_latents=True, scale_floor=0.1))
    K, k = kernels_of(layer, FEATURES.astype("float64"))
    noise = np.exp(float(layer.log_noise)) + layer.noise_floor
    inverse = np.linalg.inv(K + noise * np.eye(len(K)))
    variance = np.exp(float(layer.log_variance)) * (1.0 - np.einsum("nm,mk,nk->n", k, inverse, k))
    outputs = layer(FEATURES)
    np.testing.assert_allclose(outputs["loc"], k @ inverse @ np.asarray(layer.latents, "float64"), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs["scale"][:, 0], np.sqrt(variance + 0.01), rtol=1e-4)


def test_two_classes_equal_scikit_learn_regression():
    layer = PrototypeGaussianProcess(2, 4, noise_variance=0.3, scale_floor=1e-9, dtype="float64")
    X = np.random.default_rng(0).normal(size=(30, D))
    y = np.arange(30) % 2
    layer.adapt(X, y)
    lengthscale = float(np.exp(layer.log_lengthscale.numpy()))
    noise = float(np.exp(layer.log_noise.numpy())) + layer.noise_floor
    assert noise == pytest.approx(0.3)
    peer = GaussianProcessRegressor(RBF(lengthscale), alpha=noise, optimizer=None)
    peer.fit(np.asarray(layer.prototypes), 1.0 - 2.0 * layer.prototype_labels)
    mean, deviation = peer.predict(X, return_std=True)
    outputs = layer(X)
    np.testing.assert_allclose(outputs["loc"][:, 0], mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(outputs["scale"][:, 0], deviation, rtol=1e-6)


def test_latents_start_at_vertices():
    corners = ds.geometry.vertices(3)[[0, 0, 1, 1, 2, 2]]
    for learn in (False, True):
        layer = PrototypeGaussianProcess(3, 2, learn_latents=learn)
        layer.build((None, D))
        np.testing.assert_allclose(layer.latents, corners, rtol=1e-6)
        assert layer.prototype_labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert layer.latents.trainable == learn
        assert any(variable is layer.latents for variable in layer.weights)  # so that files hold them


@pytest.mark.parametrize("far", [0.0, 1e3])
def test_duplicates_and_features_far_from_zero_are_finite_in_float32(far):
    """The noise floor keeps the factorization and its gradient finite."""
    layer = PrototypeGaussianProcess(3, 8, noise_variance=1.01e-3)
    layer.build((None, D))
    W = np.repeat(np.random.default_rng(0).normal(size=(3, D)), 8, axis=0) + far
    layer.prototypes.assign(W)
    with tf.GradientTape() as tape:
        outputs = layer(tf.constant(W, tf.float32))
        loss = tf.reduce_sum(tf.math.log(outputs["scale"])) + tf.reduce_sum(outputs["loc"] ** 2)
    for gradient in tape.gradient(loss, layer.trainable_variables):
        assert np.isfinite(gradient).all()
    assert outputs["loc"].dtype == "float32"
    p = ds.readout.argmax(ds.LatentGaussian.of(outputs))
    assert np.asarray(p).argmax(axis=1).tolist() == layer.prototype_labels.tolist()


def test_classes_far_from_prototypes_are_equally_likely():
    layer = moved(PrototypeGaussianProcess(4, 2))
    p = ds.readout.argmax(ds.LatentGaussian.of(layer(1e3 * FEATURES)))
    np.testing.assert_allclose(p, 0.25, atol=1e-5)


def test_explained_weights_sum_to_the_score_of_the_predicted_class():
    layer = moved(PrototypeGaussianProcess(4, 2))
    explained = layer.explain(FEATURES, k=8)
    scores = np.asarray(layer(FEATURES)["loc"]) @ ds.geometry.vertices(4).T
    np.testing.assert_allclose(explained.weights.sum(axis=1), scores.max(axis=1), rtol=1e-4)
    assert (np.diff(explained.distances, axis=1) >= 0).all()
    one = layer.explain(FEATURES, k=1)
    np.testing.assert_array_equal(one.indices, explained.indices[:, :1])
    np.testing.assert_array_equal(one.labels, layer.prototype_labels[one.indices])
    with pytest.raises(ValueError, match=r"^k must.*found 0"):
        layer.explain(FEATURES, k=0)


# Scores and their loss: GLVQ and GMLVQ


@pytest.mark.parametrize("activation", ["linear", "sigmoid"])
@pytest.mark.parametrize("rank", [None, 2, D])
def test_cost_and_gradient_equal_the_classifiers(activation, rank):
    """GLVQ and GMLVQ of NumPy, whose gradients are held against finite differences."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, D)), rng.integers(3, size=40)
    options = {} if rank is None else {"metric": "matrix", "rank": rank}
    layer = moved(PrototypeScores(3, 2, dtype="float64", **options))
    loss = ds.losses.GLVQ(activation, 3.0, reduction="sum", dtype="float64")
    with tf.GradientTape() as tape:
        cost = loss(y, layer(X))
    gradients = tape.gradient(cost, layer.trainable_variables)
    W, Omega = np.asarray(layer.prototypes), None if rank is None else np.asarray(layer.omega)
    expected, *gradient = RelativeDistanceCost(X, y, layer.prototype_labels, activation, 3.0)(W, Omega)
    np.testing.assert_allclose(cost, expected, rtol=1e-8)
    np.testing.assert_allclose(gradients[0], gradient[0], rtol=1e-6, atol=1e-9)
    if rank is not None:
        np.testing.assert_allclose(gradients[1], gradient[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("activation", ["linear", "sigmoid"])
def test_loss_takes_labels_of_every_form(activation):
    scores = np.array([[0.5, -0.5, -0.7], [-0.2, 0.2, -0.3]], "float32")
    loss = ds.losses.GLVQ(activation, 4.0, reduction=None)
    expected = activate(-scores[[0, 1], [1, 1]], activation, 4.0)[0]
    for labels in (np.array([1, 1]), np.array([[1.0], [1.0]]), np.eye(3)[[1, 1]]):
        np.testing.assert_allclose(loss(labels, scores), expected, rtol=1e-6)
    soft = np.array([[0.5, 0.5, 0.0]] * 2)
    np.testing.assert_allclose(
        loss(soft, scores)[0], 0.5 * (activate(-scores[0, :2], activation, 4.0)[0]).sum(), rtol=1e-6
    )
    assert np.isnan(loss(np.array([3, 1]), scores)).tolist() == [True, False]  # there is no class 3
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert (twin.activation, twin.steepness) == (activation, 4.0)


def test_sample_on_prototypes_of_two_classes_is_finite():
    layer = PrototypeScores(2)
    layer.build((None, D))
    layer.prototypes.assign(np.zeros((2, D)))
    with tf.GradientTape() as tape:
        scores = layer(np.zeros((3, D), "float32"))
        cost = ds.losses.GLVQ()(np.zeros(3), scores)
    np.testing.assert_array_equal(scores, 0.0)
    assert np.isfinite(tape.gradient(cost, layer.prototypes.value)).all()


def test_scores_use_the_nearest_prototype_of_every_class():
    layer = moved(PrototypeScores(3, 2, metric="matrix"))
    explained = layer.explain(FEATURES, k=6)
    scores = np.asarray(layer(FEATURES))
    np.testing.assert_array_equal(explained.labels[:, 0], scores.argmax(axis=1))
    np.testing.assert_allclose(explained.weights.sum(axis=1), scores.sum(axis=1), rtol=1e-4, atol=1e-5)
    assert ((explained.weights != 0).sum(axis=1) == 3).all()
    gaps = (FEATURES[:, None] - np.asarray(layer.prototypes)) @ np.asarray(layer.omega).T
    distances = np.sort(np.sum(gaps**2, axis=2), axis=1)
    np.testing.assert_allclose(explained.distances, distances, rtol=1e-3)
    assert layer.relevance.sum() == pytest.approx(1.0)
    assert moved(PrototypeScores(3)).relevance is None


# Where they start


@each_layer
def test_adapt_chooses_samples_of_the_class(make):
    rng = np.random.default_rng(0)
    layer = make()
    y = np.arange(60) % layer.num_classes
    X = rng.normal(size=(60, D)) + 5.0 * y[:, None]
    assert not layer.adapted
    assert layer.adapt(X, y) is layer
    assert layer.adapted
    samples = {label: {tuple(row) for row in X[y == label].astype("float32")} for label in range(layer.num_classes)}
    for row, label in zip(np.asarray(layer.prototypes), layer.prototype_labels, strict=True):
        assert tuple(row) in samples[label]
    again = make().adapt(X, np.eye(layer.num_classes)[y])
    np.testing.assert_array_equal(again.prototypes, layer.prototypes)
    other = make(initialization="samples").adapt(X, y, seed=1)
    assert not np.array_equal(other.prototypes, layer.prototypes)
    means = make(initialization="means").adapt(X, y)
    for label in range(layer.num_classes):
        center = np.asarray(means.prototypes)[means.prototype_labels == label].mean()
        assert center == pytest.approx(5.0 * label, abs=1.5)


@pytest.mark.slow
def test_adapt_reads_a_data_set_once_and_draws_from_rare_classes():
    """Prototypes of a rare class are drawn too."""
    reads = []
    X = np.random.default_rng(0).normal(size=(2000, 3)).astype("float32")
    y = (np.arange(2000) % 400 == 399).astype("int64")

    def rows():
        reads.append(1)
        yield from zip(X, y, strict=True)

    signature = (tf.TensorSpec((3,), "float32"), tf.TensorSpec((), "int64"))
    samples = tf.data.Dataset.from_generator(rows, output_signature=signature).batch(500)
    layer = PrototypeGaussianProcess(2, 5).adapt(samples)
    assert len(reads) == 1
    rare = {tuple(row) for row in X[y == 1]}
    assert {tuple(row) for row in np.asarray(layer.prototypes)[5:]} == rare


def test_adapt_uses_features_in_training_mode_and_keeps_backbone():
    """A new backbone's averages for inference mean nothing: all of its features would be elsewhere in training."""
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential(
        [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.ReLU(), keras.layers.Dropout(0.3)]
    )
    X = np.random.default_rng(0).normal(loc=5.0, scale=0.01, size=(200, D)).astype("float32")
    layer = PrototypeGaussianProcess(2, 3).adapt(X, np.arange(200) % 2, backbone)
    before = [variable.numpy() for variable in backbone.variables]
    PrototypeGaussianProcess(2, 3).adapt(X, np.arange(200) % 2, backbone)
    for variable, value in zip(backbone.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    scale = np.asarray(layer(backbone(X, training=True))["scale"])
    assert np.median(scale) < 0.9  # the prior's is 1


@pytest.mark.parametrize(
    ("samples", "labels", "message"),
    [
        (np.eye(6, D), [0, 1], r"samples and y must.*found 6 and 2"),
        (np.eye(6, D), [0, 1, 2, 3, 4, 0], r"^y must.*found 4 in row 4"),
        (np.eye(8, D), [0, 0, 0, 1, 1, 2, 2, 3], r"samples must.*found 1"),
        (np.ones((8, D)), np.arange(8) % 4, r"samples must.*found 1 of class 0"),
        (np.full((8, D), np.nan), np.arange(8) % 4, "samples must be finite"),
        (np.eye(8, D + 1), np.arange(8) % 4, r"samples must.*found 6"),
        (np.zeros((8, 2, 2)), np.arange(8) % 4, "Pass the backbone that the layer follows"),
    ],
)
def test_adapt_to_invalid_samples_raises(samples, labels, message):
    with pytest.raises(ValueError, match=message):
        moved(PrototypeGaussianProcess(4, 2)).adapt(samples, labels)


def network(head, num_classes=3, target="vertices"):
    return ds.SimplexClassifier(ds.backbones.mlp([8]), target, num_classes, head=head)


def test_adapt_to_invalid_arguments_raises():
    for y in (keras.layers.Flatten(), None):
        with pytest.raises(TypeError, match=rf"y must.*found {type(y).__name__}"):
            PrototypeScores(2).adapt(np.eye(4), y)
    with pytest.raises(TypeError, match=r"ard must.*found 'yes'"):
        PrototypeGaussianProcess(2, ard="yes")
    rows = tf.data.Dataset.from_tensor_slices((np.eye(8, D), np.arange(8) % 2))
    with pytest.raises(ValueError, match="samples must be a finite stream"):
        PrototypeScores(2).adapt(rows.batch(4).repeat())
    with pytest.raises(ValueError, match=r"samples must.*found none"):
        PrototypeScores(2).adapt(rows.take(0).batch(4))
    with pytest.raises(ValueError, match=r"a tf\.data\.Dataset must.*found \(TensorSpec\(shape=\(5,\)"):
        PrototypeScores(2).adapt(rows)


def test_small_last_batch_is_joined():
    """Batch normalization would make zeros of one sample."""
    X = np.random.default_rng(0).normal(loc=3.0, size=(61, D)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((X, np.arange(61) % 2)).batch(30)
    layer = PrototypeGaussianProcess(2, 30).adapt(rows, backbone=keras.layers.BatchNormalization())
    assert np.abs(np.asarray(layer.prototypes)).max(axis=1).min() > 1e-3


def test_adapt_to_several_inputs():
    inputs = {name: keras.Input((2,), name=name) for name in "ab"}
    backbone = keras.Model(inputs, keras.layers.Concatenate()([inputs["a"], inputs["b"]]))
    X = np.random.default_rng(0).normal(size=(20, 2)).astype("float32")
    layer = PrototypeGaussianProcess(2, 3).adapt({"a": X, "b": -X}, np.arange(20) % 2, backbone)
    np.testing.assert_allclose(layer.prototypes[:, :2], -layer.prototypes[:, 2:])
    assert layer.wins({"a": X, "b": -X}, backbone).sum() == 20


def test_adapt_to_soft_labels_uses_the_likeliest_class():
    X = np.random.default_rng(0).normal(size=(20, D))
    soft = np.where(np.eye(2)[np.arange(20) % 2] > 0, 0.9, 0.1)
    hard = PrototypeScores(2, 3).adapt(X, np.arange(20) % 2)
    np.testing.assert_array_equal(PrototypeScores(2, 3).adapt(X, soft).prototypes, hard.prototypes)


def test_features_of_large_standard_deviation_warn():
    X = np.random.default_rng(0).uniform(0, 255, size=(40, D))
    with pytest.warns(
        UserWarning, match=r"features have a standard deviation of 7.\.?.*: .* Scale the samples, images to \[0, 1\]"
    ) as caught:
        PrototypeScores(2, 3).adapt(X, np.arange(40) % 2)
    assert caught[0].filename == __file__


def test_adapt_keeps_state_of_spectral_normalization():
    backbone = keras.layers.SpectralNormalization(keras.layers.Dense(4))
    backbone.build((None, D))
    before = [variable.numpy() for variable in backbone.variables]
    PrototypeScores(2, 3).adapt(FEATURES, np.arange(6) % 2, backbone)
    for variable, value in zip(backbone.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_median_distance_uses_at_most_2000_rows(monkeypatch):
    from deepsimplex.heads import prototype_gaussian_process as gaussian_process

    seen = []
    monkeypatch.setattr(gaussian_process, "median_distance", lambda rows: seen.append(len(rows)) or 1.0)
    y = np.repeat(np.arange(300), 20)
    PrototypeGaussianProcess(300, 1).adapt(np.random.default_rng(0).normal(size=(6000, 2)), y)
    assert max(seen) <= 2000


@pytest.mark.parametrize("target", ["ilr", "dirichlet", "one_hot", "casimac", "vertices"])
def test_process_uses_positions_of_its_target(target, few):
    """At the prototypes of one class alone, far from the others, the class is that; explanations speak for it."""
    layer = PrototypeGaussianProcess(3, 2, target=target)
    layer.build((None, D))
    layer.prototypes.assign(np.repeat(100.0 * np.eye(3, D), 2, axis=0) + 0.1 * np.eye(6, D))
    outputs = layer(np.asarray(layer.prototypes))
    scores = layer.target.scores(3)
    assert (np.asarray(outputs["loc"]) @ scores.T).argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 2]
    explained = layer.explain(np.asarray(layer.prototypes), k=1)
    assert (explained.weights > 0).all()
    assert explained.labels.ravel().tolist() == [0, 0, 1, 1, 2, 2]
    assert layer.latents.trainable == (target == "casimac")
    far = layer(np.full((1, D), -1e4))
    np.testing.assert_allclose((np.asarray(far["loc"]) @ scores.T).std(), 0.0, atol=1e-5)
    assert PrototypeGaussianProcess.from_config(layer.get_config()).get_config() == layer.get_config()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ilr", pytest.param("casimac", marks=pytest.mark.slow)])
def test_classifier_with_other_targets_learns_digits(target, four):
    (x, y), (x_test, y_test) = four
    keras.utils.set_random_seed(0)
    backbone = ds.backbones.mlp([32])
    head = PrototypeGaussianProcess(4, 2, target=target).adapt(x, y, backbone)
    model = ds.SimplexClassifier(backbone, target, 4, head=head, readout="argmax")
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    model.fit(x, y, epochs=15, verbose=0)
    assert np.mean(np.asarray(model(x_test)).argmax(axis=1) == y_test) > 0.8


@pytest.mark.slow
def test_classifier_trains_with_xla(four):
    (x, y), _ = four
    model = classifier(x, y, "latent")
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=ds.losses.LatentNLL(), jit_compile=True)
    history = model.fit(x[:64], y[:64], batch_size=32, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]


def test_data_set_without_or_beside_labels_raises():
    rows = tf.data.Dataset.from_tensor_slices(np.eye(8, D)).batch(4)
    with pytest.raises(ValueError, match=r"must yield \(x, label\)"):
        PrototypeScores(2).adapt(rows)
    with pytest.raises(ValueError, match="y must not be given beside batches"):
        PrototypeScores(2).adapt(rows, np.zeros(8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrototypeGaussianProcess(1), r"num_classes must.*found 1"),
        (lambda: PrototypeGaussianProcess(3, 0), r"prototypes_per_class must.*found 0"),
        (lambda: PrototypeGaussianProcess(3, kernel="rbt"), r"kernel must.*did you mean 'rbf'"),
        (lambda: PrototypeGaussianProcess(3, variance=0.0), r"variance, unless it is None, must.*found 0\.0"),
        (lambda: PrototypeGaussianProcess(3, scale_floor=0.0), r"scale_floor must.*found 0.0"),
        (lambda: PrototypeGaussianProcess(3, noise_variance=1e-3), r"noise_variance must.*found 0\.001"),
        (lambda: PrototypeGaussianProcess(3, noise_variance=np.inf), r"noise_variance must.*found inf"),
        (lambda: PrototypeGaussianProcess(3).explain(FEATURES), "no prototypes yet: call adapt"),
        (lambda: moved(PrototypeScores(3))(FEATURES[:, :2]), r"features must.*found 2"),
        (lambda: network(PrototypeGaussianProcess(3), target="ilr"), "target=ILR"),
        (lambda: network(PrototypeGaussianProcess(3), 4), r"head must.*found one for 3"),
        (lambda: network(PrototypeScores(3)).build((None, 5)), r"head must.*found PrototypeScores, which gives"),
        (lambda: PrototypeScores(3, metric="matrx"), r"metric must.*found 'matrx'"),
        (lambda: PrototypeScores(3, rank=2), r"rank must.*found 2"),
        (lambda: PrototypeScores(3, metric="matrix", rank=0), r"rank must.*found 0"),
        (lambda: moved(PrototypeScores(3, metric="matrix", rank=6)), r"rank must.*found 6"),
        (lambda: ds.losses.GLVQ("relu"), r"activation must.*found 'relu'"),
        (lambda: ds.losses.GLVQ(steepness=0.0), r"steepness must.*found 0.0"),
    ],
)
def test_invalid_argument_raises(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# On real digits


LOSSES = {"class": "sparse_categorical_crossentropy", "latent": None, "hybrid": "hybrid"}


def classifier(x, y, loss, num_classes=4, **options):
    keras.utils.set_random_seed(0)
    backbone = ds.backbones.mlp([64])
    head = PrototypeGaussianProcess(num_classes, 4, **options).adapt(x, y, backbone)
    model = ds.SimplexClassifier(backbone, "vertices", num_classes, head=head)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=LOSSES[loss])
    return model


@pytest.fixture(scope="module")
def fitted(four):
    (x, y), _ = four
    model = classifier(x, y, "hybrid")
    model.fit(x, y, epochs=18, verbose=0)
    return model


@pytest.mark.slow
def test_classifier_learns_digits(fitted, four):
    _, (x_test, y_test) = four
    p = fitted.predict_proba(x_test)
    assert np.mean(p.argmax(axis=1) == y_test) > 0.97
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.1
    latent = fitted.predict_latent(x_test)
    assert latent.covariance == "isotropic"
    np.testing.assert_allclose(ds.readout.argmax(latent), p, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["class", "latent"])
def test_every_loss_trains_all_weights(objective, four):
    (x, y), _ = four
    model = classifier(x, y, objective, learn_latents=True)
    before = [weight.numpy() for weight in model.head.trainable_weights]
    history = model.fit(x, y, epochs=6, batch_size=32, verbose=0).history["loss"]
    assert history[-1] < 0.8 * history[0]
    for weight, value in zip(model.head.trainable_weights, before, strict=True):
        assert not np.array_equal(weight, value), weight.name


@pytest.mark.slow
def test_classifier_learns_raw_pixels(four):
    """With a median distance for its length, which the thesis's algorithm lacks where it fails on images."""
    (x, y), (x_test, y_test) = four
    flatten = keras.layers.Flatten()
    model = ds.SimplexClassifier(flatten, "vertices", 4, head={"name": "prototypes", "prototypes_per_class": 4})
    model.compile(optimizer=keras.optimizers.Adam(0.02), loss="sparse_categorical_crossentropy")
    model.fit(x, y, epochs=10, verbose=0)
    assert np.mean(np.asarray(model(x_test)).argmax(axis=1) == y_test) > 0.95


@pytest.mark.slow
def test_network_ending_in_lvq_trains_and_reloads(few, tmp_path):
    (x, y), (x_test, y_test) = few
    keras.utils.set_random_seed(0)
    backbone = ds.backbones.mlp([32])
    head = PrototypeScores(10, 2, metric="matrix", rank=16).adapt(x, y, backbone)
    model = keras.Sequential([keras.Input(x.shape[1:]), backbone, head])
    model.compile(keras.optimizers.Adam(0.01), loss=ds.losses.GLVQ(), metrics=["accuracy"])
    model.fit(x, y, epochs=15, verbose=0)
    model.save(tmp_path / "lvq.keras")
    reloaded = keras.models.load_model(tmp_path / "lvq.keras")
    assert reloaded.layers[-1].adapted
    with eagerly(model):
        assert model.evaluate(x_test, y_test, verbose=0)[1] > 0.8
    np.testing.assert_allclose(reloaded(x_test), model(x_test), atol=1e-6)
