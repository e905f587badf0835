"""SimplexClassifier as a Keras model: fit, evaluate, predict, save, reload, resume."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from tests.fresh_process import run

TARGETS = {
    "casimac": lambda: ds.targets.CASIMAC("euclidean"),
    "ilr": lambda: ds.targets.ILR(0.99),
    "dirichlet": lambda: ds.targets.Dirichlet(0.01),
    "one_hot": lambda: ds.targets.OneHot(),
    "mean": lambda: ds.targets.Mean([ds.targets.CASIMAC("euclidean"), ds.targets.CASIMAC("cityblock")]),
}


def make(target="casimac", num_classes=10, seed=0, compiled=True, hidden=(24,), eager=True, loss=None, **arguments):
    """Eager for a few steps: tracing them would take longer, and Adam half of each step."""
    keras.utils.set_random_seed(seed)
    target = TARGETS[target]() if isinstance(target, str) else target
    model = ds.SimplexClassifier(
        ds.backbones.mlp(list(hidden)), target, num_classes, **{"head": "gaussian", **arguments}
    )
    if compiled:
        optimizer = keras.optimizers.SGD(0.05) if eager else keras.optimizers.Adam(1e-2)
        model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], run_eagerly=eager)
    return model


@pytest.fixture(scope="module")
def fitted(four):
    """One model fitted on digits, not eagerly, shared by tests that only look at it."""
    (x, y), _ = four
    model = make(
        "casimac", num_classes=4, compiled=False, covariance="diagonal", class_names=[f"digit {k}" for k in range(4)]
    )
    model.compile(optimizer=keras.optimizers.Adam(1e-2), metrics=["accuracy", ds.metrics.ExpectedCalibrationError()])
    model.fit(x, y, epochs=10, verbose=0)
    return model


# Fitting


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "covariance"),
    [
        ("casimac", "isotropic"),
        ("ilr", "isotropic"),
        ("one_hot", "isotropic"),
        ("dirichlet", "diagonal"),
        ("mean", "full"),
    ],
)
def test_every_target_and_covariance_learns_digits(target, covariance, few, four):
    num_classes = 10 if covariance == "isotropic" else 4
    (x, y), (x_test, y_test) = few if num_classes == 10 else four
    model = make(target, num_classes, eager=False, covariance=covariance)
    history = model.fit(
        x, y, epochs=12, batch_size=32, verbose=0, validation_data=(x_test, y_test), validation_freq=12
    ).history
    assert sorted(history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert history["loss"][-1] < history["loss"][0]
    p = model(x_test).numpy()  # not predict, which would be traced
    assert p.shape == (100, num_classes)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-5)
    assert p.min() >= 0.0
    least = {10: 0.4, 4: 0.85}[num_classes]  # a small network, 300 images, 12 epochs; chance is 0.1 and 0.25
    assert np.mean(p.argmax(axis=1) == y_test) > least
    assert history["val_accuracy"][-1] == pytest.approx(np.mean(p.argmax(axis=1) == y_test), abs=1e-6)


@pytest.mark.slow
def test_call_predict_and_read_out_agree(fitted, four):
    _, (x_test, _) = four
    p = fitted.predict_proba(x_test)
    np.testing.assert_array_equal(p, fitted.predict(x_test, verbose=0))
    np.testing.assert_allclose(fitted(x_test), p, atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(x_test, batch_size=7), p, atol=1e-6)
    latent = fitted.predict_latent(x_test)
    assert latent.covariance == "diagonal"
    np.testing.assert_allclose(ds.readout.argmax(latent), p, atol=1e-5)


@pytest.mark.slow
def test_predictions_of_arrays_and_streams_agree(fitted, four, capsys):
    """Predictions without a progress bar or callbacks take a faster path."""
    _, (x_test, _) = four
    p = fitted.predict(x_test, verbose=0)
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(fitted.predict(tf.constant(x_test), 32, verbose=0), p)
    np.testing.assert_array_equal(fitted.predict(x_test, verbose=2), p)
    assert "4/4" in capsys.readouterr().out
    np.testing.assert_array_equal(fitted.predict(tf.data.Dataset.from_tensor_slices(x_test).batch(32), verbose=0), p)
    np.testing.assert_array_equal(fitted.predict(x_test.astype("float64"), verbose=0), p)
    np.testing.assert_allclose(fitted.predict(x_test, verbose=0, steps=2), p, atol=1e-6)  # Keras: two batches
    seen = []
    callback = keras.callbacks.LambdaCallback(on_predict_batch_end=lambda batch, logs: seen.append(batch))
    np.testing.assert_array_equal(fitted.predict(x_test, 50, verbose=0, callbacks=[callback]).shape, p.shape)
    assert seen == [0, 1]
    latent = fitted.predict_latent(x_test)
    np.testing.assert_array_equal(fitted.predict_latent(x_test, verbose=2).loc, latent.loc)
    np.testing.assert_array_equal(fitted.predict_features(x_test, verbose=2), fitted.predict_features(x_test))


@pytest.mark.slow
def test_target_noise_is_added_to_latents(four):
    (x, y), (x_test, _) = four
    model = make("ilr", 4)
    model.fit(x, y, batch_size=100, verbose=0)
    latent = model.predict_latent(x_test)
    sigma = ds.targets.ILR(0.99).noise(4)
    assert latent.scale.min() > sigma.max()
    scores = ds.geometry.helmert(4).T
    np.testing.assert_allclose(ds.readout.softmax(latent, scores=scores), model.predict_proba(x_test), atol=1e-5)


@pytest.mark.slow
def test_seed_determines_weights(few):
    (x, y), _ = few

    def weights(seed):
        keras.utils.set_random_seed(3)
        model = ds.SimplexClassifier(ds.backbones.mlp([8], dropout=0.3), "one_hot", 10, seed=seed, head="gaussian")
        model.compile("sgd", run_eagerly=True)
        model.fit(x, y, epochs=2, batch_size=150, verbose=0)
        return np.concatenate([w.ravel() for w in model.get_weights()])

    first = weights(1)
    np.testing.assert_array_equal(first, weights(1))
    assert np.abs(first - weights(2)).max() > 1e-4


def test_order_differs_between_epochs_and_fits():
    """The order comes from the training step, which goes on from one call of fit to the next."""
    from deepsimplex.classifier.model import SeededEpochs

    class Clock:
        variables: tuple = ()
        weights: tuple = ()

        def __init__(self):
            self.optimizer = keras.optimizers.SGD()

    epochs, clock = SeededEpochs(seed=5), Clock()
    epochs.set_model(clock)
    seen = []
    for step in (0, 10, 20):
        clock.optimizer.iterations.assign(step)
        epochs.on_epoch_begin(0)
        order = epochs.order(50)
        np.testing.assert_array_equal(np.sort(order), np.arange(50))
        np.testing.assert_array_equal(order, epochs.order(50))
        seen.append(tuple(order))
    assert len(set(seen)) == 3


@pytest.mark.slow
def test_validation_split_is_excluded_from_training_and_neighbors(few):
    (x, y), _ = few
    model = make("casimac")
    split = model.fit(x, y, epochs=2, batch_size=80, verbose=0, validation_split=0.2).history
    other = make("casimac")
    samples, held_out = (x[:240], y[:240]), (x[240:], y[240:])
    by_hand = other.fit(*samples, epochs=2, batch_size=80, verbose=0, validation_data=held_out).history
    assert split == by_hand
    with pytest.raises(ValueError, match="validation_split must leave samples on both sides"):
        model.fit(x[:4], y[:4], validation_split=0.999)


@pytest.mark.slow
def test_sample_weight_equals_class_weight(few):
    (x, y), _ = few
    weights = np.where(y == 3, 5.0, 1.0)
    by_class, by_sample, plain, both, doubled = (make("one_hot") for _ in range(5))
    by_class.fit(x, y, epochs=1, batch_size=150, verbose=0, class_weight={3: 5.0})
    by_sample.fit(x, y, epochs=1, batch_size=150, verbose=0, sample_weight=weights)
    plain.fit(x, y, epochs=1, batch_size=150, verbose=0)
    for one, other in zip(by_class.trainable_variables, by_sample.trainable_variables, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    assert np.abs(by_class.get_weights()[0] - plain.get_weights()[0]).max() > 1e-4
    both.fit(x, y, epochs=1, batch_size=150, verbose=0, class_weight={3: 5.0}, sample_weight=np.full(len(y), 2.0))
    doubled.fit(x, y, epochs=1, batch_size=150, verbose=0, sample_weight=2.0 * weights)
    np.testing.assert_allclose(both.get_weights()[0], doubled.get_weights()[0], atol=1e-7)


@pytest.mark.slow
def test_zero_weight_removes_samples_from_loss(few):
    (x, y), (x_test, y_test) = few
    model = make("one_hot")
    model.fit(x, y, batch_size=100, verbose=0)
    halves = np.repeat([1.0, 0.0], 50)
    loss = model.evaluate(x_test, y_test, sample_weight=halves, verbose=0, batch_size=100)[0]
    half = model.evaluate(x_test[:50], y_test[:50], verbose=0, batch_size=50)[0]
    assert 2 * loss == pytest.approx(half, rel=1e-4)  # Keras divides by the number of samples, not by their weight


@pytest.mark.slow
def test_soft_labels_train_label_targets(four):
    (x, y), _ = four
    soft = 0.9 * np.eye(4)[y] + 0.025
    for data in ((x, soft), (tf.data.Dataset.from_tensor_slices((x, soft.astype("float32"))).batch(50),)):
        model = make("one_hot", 4, eager=False)
        history = model.fit(*data, epochs=5, verbose=0).history
        assert history["loss"][-1] < history["loss"][0]
        assert history["accuracy"][-1] > 0.5


@pytest.mark.slow
def test_fit_accepts_latents_in_place_of_labels(few):
    (x, y), (x_test, y_test) = few
    target = ds.targets.CASIMAC("euclidean")
    latent = target.fit_transform(x, y)
    by_label, by_latent, by_array = (make("casimac", loss=ds.losses.LatentNLL()) for _ in range(3))
    options = {"epochs": 2, "batch_size": 150, "verbose": 0}
    by_label.fit(x, y, **options)
    by_latent.fit(x, latent, **options, validation_data=(x_test, target.transform(x_test, y_test)))
    by_array.fit(x, latent.loc.astype("float32"), **options)
    for one, other, third in zip(*(m.get_weights() for m in (by_label, by_latent, by_array)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
        np.testing.assert_allclose(one, third, atol=1e-7)


# Data sets


@pytest.mark.slow
@pytest.mark.parametrize("target", ["casimac", "one_hot"])
def test_dataset_of_labels_trains_like_arrays(target, few):
    (x, y), (x_test, y_test) = few
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(150)
    validation = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(60)
    model = make(target)
    streamed = model.fit(dataset, epochs=2, shuffle=False, verbose=0, validation_data=validation).history
    arrays = make(target)
    arrays.fit(x, y, epochs=2, batch_size=150, shuffle=False, verbose=0)
    for one, other in zip(model.weights, arrays.weights, strict=True):
        if one.name != "antialias":  # how new files are scaled follows what the samples came as
            np.testing.assert_allclose(one, other, atol=1e-5)
    as_arrays = model.evaluate(x_test, y_test, batch_size=60, verbose=0)
    assert as_arrays == pytest.approx([streamed["val_loss"][-1], streamed["val_accuracy"][-1]], rel=1e-4)
    assert model.evaluate(validation, verbose=0) == pytest.approx(as_arrays, rel=1e-4)
    assert model.predict(validation, verbose=0).shape == (100, 10)


@pytest.mark.slow
def test_dataset_of_latents_is_streamed(few):
    (x, y), _ = few
    latent = ds.targets.CASIMAC("euclidean").fit_transform(x, y)
    loc = latent.loc.astype("float32")
    dicts = tf.data.Dataset.from_tensor_slices((x, {"loc": loc, "scale": latent.scale.astype("float32")})).batch(150)
    plain = tf.data.Dataset.from_tensor_slices((x, loc)).batch(150)
    loss = ds.losses.LatentNLL()
    arrays = make("casimac", loss=loss)
    arrays.fit(x, y, epochs=2, batch_size=150, shuffle=False, verbose=0)
    for dataset in (dicts, plain):
        model = make("casimac", loss=loss)
        history = model.fit(dataset, epochs=2, verbose=0).history
        assert "accuracy" in history
        np.testing.assert_allclose(model.get_weights()[0], arrays.get_weights()[0], atol=1e-5)


@pytest.mark.slow
def test_dataset_with_sample_weights_and_class_weight(few):
    (x, y), _ = few
    weights = np.where(y == 3, 5.0, 1.0).astype("float32")
    weighted = make("one_hot")
    weighted.fit(tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(150), epochs=1, verbose=0)
    by_class = make("one_hot")
    by_class.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(150), epochs=1, verbose=0, class_weight={3: 5.0})
    arrays = make("one_hot")
    arrays.fit(x, y, epochs=1, batch_size=150, shuffle=False, verbose=0, sample_weight=weights)
    for model in (weighted, by_class):
        np.testing.assert_allclose(model.get_weights()[0], arrays.get_weights()[0], atol=1e-6)


def test_endless_dataset_with_distance_target_raises(few):
    (x, y), _ = few
    with pytest.raises(ValueError, match=r"without repeat"):
        make("casimac").fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(50).repeat(), verbose=0)


def test_invalid_labels_in_stream_raise(few):
    (x, y), _ = few
    with pytest.raises(ValueError, match=r"^y must.*found 14 in row 1"):
        make("one_hot").fit(tf.data.Dataset.from_tensor_slices((x, y + 5)).batch(50), verbose=0)


# What is wrong is said before any work is done


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y + 1), r"^y must.*found 10 in row 1"),
        (lambda x, y: (x, y - 1), r"^y must.*found -1 in row"),
        (lambda x, y: (x, y + 0.5), r"^y must.*found 3\.5 in row 0"),
        (lambda x, y: (x, y[:-1]), r"x and y must.*found 300 and 299"),
        (lambda x, y: (np.where(np.arange(300)[:, None, None] == 7, np.nan, x), y), "the first at index 7"),
        (lambda x, y: (np.where(np.arange(300)[:, None, None] == 9, np.inf, x), y), "the first at index 9"),
        (lambda x, y: (x[y != 4], y[y != 4]), "class 4"),
        (lambda x, y: (x, None), "y must be given"),
        (lambda x, y: ([1, 2, 3], y), r"^x must.*found tuple"),
    ],
)
def test_invalid_samples_raise(change, message, few):
    with pytest.raises(ValueError, match=message):
        make("casimac").fit(*change(*few[0]), verbose=0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: np.where(np.arange(100)[:, None, None] == 7, np.nan, x), ValueError, "the first at index 7"),
        (lambda x: 1e300 * (1 + x.astype(float)), ValueError, r"^x must.*found .* in 100 of 100"),
        (lambda x: x.astype(str), TypeError, r"^x must.*found dtype (<U|string)"),
        (lambda x: x.astype(complex), TypeError, r"^x must.*found dtype complex128"),
        (lambda x: x[:0], ValueError, r"^x must.*found shape \[0, 8, 8\]"),
        (lambda x: x[:, :7], ValueError, r"^x must.*found shape \[100, 7, 8\]"),
        (lambda x: np.ma.masked_greater(x, 0.9), ValueError, "x must not be masked; found"),
    ],
)
def test_invalid_samples_in_predict_raise(change, error, message, fitted, four):
    _, (x_test, y_test) = four
    x = change(x_test)
    for work in (fitted.predict, fitted.predict_proba, fitted.predict_latent, lambda x: fitted.evaluate(x, y_test)):
        if "shape" in message and work not in (fitted.predict, fitted.predict_proba, fitted.predict_latent):
            continue  # Keras' own words, or that x and y differ in number
        with pytest.raises(error, match=message):
            work(x)


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 8, 8, 1)])
def test_channel_axis_may_be_omitted(shape):
    backbone = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    model = ds.SimplexClassifier(backbone, "ilr", 3, head="gaussian")
    assert model.predict(np.zeros(shape, "float32"), verbose=0).shape == (2, 3)


@pytest.mark.slow
def test_attraction_with_a_single_sample_raises(few):
    (x, y), _ = few
    keep = (y != 4) | (np.arange(len(y)) == np.flatnonzero(y == 4)[0])
    with pytest.raises(ValueError, match="class 4"):
        make(ds.targets.CASIMAC(gamma=0.5)).fit(x[keep], y[keep], verbose=0)
    make(ds.targets.CASIMAC(gamma=1.0)).fit(x[keep], y[keep], batch_size=300, verbose=0)


def test_ssim_without_data_range_raises(few):
    (x, y), _ = few
    with pytest.raises(ValueError, match=r"Set data_range, e\.g\. SSIM\(window=5, data_range=255\)"):
        make(ds.targets.CASIMAC(ds.distances.SSIM(5))).fit(x * 255, y, verbose=0)


@pytest.mark.slow
def test_fit_does_not_depend_on_pixel_units(few):
    """With a rescaling layer, pixels 0 to 255, bytes and thousandths give the same probabilities.

    The target is a mean of two distance targets, neither of which may depend on the unit.
    """
    (x, y), (x_test, _) = few
    x, x_test = (np.round(255 * part) / 255 for part in (x, x_test))  # what bytes hold

    def trained(unit, dtype):
        keras.utils.set_random_seed(0)
        backbone = keras.Sequential([keras.layers.Rescaling(1 / unit), ds.backbones.mlp([24])])
        model = ds.SimplexClassifier(backbone, TARGETS["mean"](), 10, head="gaussian")
        model.compile(keras.optimizers.SGD(0.05), run_eagerly=True)
        model.fit((unit * x).astype(dtype), y, epochs=2, batch_size=150, verbose=0)
        return np.asarray(model((unit * x_test).astype(dtype)))

    expected = trained(1.0, "float32")
    for unit, dtype in ((255.0, "float32"), (255.0, "uint8"), (1e-3, "float64")):
        np.testing.assert_allclose(trained(unit, dtype), expected, atol=1e-4)


@pytest.mark.slow
def test_label_targets_accept_absent_class(few):
    (x, y), (x_test, _) = few
    model = make("one_hot")
    model.fit(x[y != 4], y[y != 4], batch_size=300, verbose=0)
    assert model.predict(x_test, verbose=0).shape == (100, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"class_names": ["a"]}, r"class_names must.*found \['a'\]"),
        ({"class_names": ["a"] * 10}, r"class_names must.*found \['a', 'a', 'a', 'a', 'a', 'a', 'a'"),
        ({"class_names": "abcdefghij"}, r"class_names must.*found 'abcdefghij'"),
        ({"head": ds.heads.GaussianHead(4)}, r"head must.*found 4"),
        ({"head": ds.heads.GaussianHead(9), "covariance": "full"}, "covariance must not be given beside head"),
        ({"readout": "argmin"}, r"readout must.*found 'argmin'; did you mean 'argmax'"),
        ({"num_classes": 1}, r"num_classes must.*found 1"),
        ({"target": "casimak"}, "casimac"),
        ({"backbone": "mpl"}, r"backbone must.*found 'mpl'"),
        ({"backbone": 3}, r"backbone must.*found int"),
    ],
)
def test_incompatible_parts_raise(arguments, message):
    pieces = {"backbone": ds.backbones.mlp([4]), "target": "casimac", "num_classes": 10}
    with pytest.raises(ValueError, match=message):
        ds.SimplexClassifier(**{**pieces, **arguments})


def test_class_names_are_a_list_that_other_names_replace():
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), class_names=["cat", "dog"])
    model.class_names = ["Katze", "Hund"]
    assert pickle.loads(pickle.dumps(model.class_names)) == ["Katze", "Hund"]
    with pytest.raises(ValueError, match=r"class_names must.*found \['cat'\]"):
        model.class_names = ["cat"]


def test_backbone_without_pooling_raises():
    backbone = keras.Sequential([keras.layers.Conv2D(4, 3)])
    model = ds.SimplexClassifier(backbone, "ilr", 10, head="gaussian")
    with pytest.raises(ValueError, match='pooling="avg"'):
        model(np.zeros((2, 8, 8, 1), "float32"))


# Any Keras model, any precision


@pytest.mark.slow
def test_functional_backbone_with_augmentation_and_dropout(few):
    (x, y), (x_test, _) = few
    inputs = keras.Input((8, 8, 3))
    h = keras.layers.RandomTranslation(0.1, 0.1)(inputs)
    h = keras.layers.Conv2D(8, 3, activation="relu")(h)
    h = keras.layers.GlobalAveragePooling2D()(h)
    backbone = keras.Model(inputs, keras.layers.Dropout(0.2)(h))
    model = ds.SimplexClassifier(backbone, "casimac", 10, head="gaussian")
    model.compile(metrics=["accuracy"])
    color = np.repeat(x[:96, ..., None], 3, axis=-1)
    model.fit(color, y[:96], epochs=1, verbose=0)
    assert model.predict(np.repeat(x_test[..., None], 3, axis=-1), verbose=0).shape == (100, 10)


@pytest.mark.slow
class DropoutHead(ds.heads.GaussianHead):
    """A head with layers that differ in training."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.normalization, self.dropout = keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dropout(0.5)

    def build(self, input_shape):
        self.normalization.build(input_shape)
        super().build(input_shape)

    def call(self, features, training=None):
        return super().call(self.dropout(self.normalization(features, training=training), training=training))


def test_training_mode_is_used_by_fit_only(few):
    (x, y), _ = few
    model = ds.SimplexClassifier(ds.backbones.mlp([16]), "vertices", 10, head=DropoutHead(9), seed=0)
    model.compile(optimizer=keras.optimizers.SGD(0.0))
    model.fit(x, y, epochs=2, verbose=0)
    features = model.predict_features(x)
    # Nothing is learned at a rate of zero: the moving averages alone have gone from 0 to the features' means.
    np.testing.assert_allclose(model.head.normalization.moving_mean, features.mean(axis=0), rtol=0.5, atol=0.1)
    assert np.abs(features.mean(axis=0)).max() > 0.3
    first, second = (np.asarray(model.latent(x, training=True)["loc"]) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    moved = np.asarray(model.head.normalization.moving_mean)
    np.testing.assert_array_equal(model.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(model.head.normalization.moving_mean, moved)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_probabilities_are_float32(policy, four, tmp_path):
    (x, y), (x_test, _) = four
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = make("casimac", num_classes=4, eager=False, covariance="diagonal")
        history = model.fit(x, y, epochs=3, verbose=0).history
        assert history["loss"][-1] < history["loss"][0]
        p = model.predict(x_test, verbose=0)
        assert p.dtype == np.float32
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-5)
        model.save(tmp_path / "half.keras")
    finally:
        keras.mixed_precision.set_global_policy("float32")
    np.testing.assert_allclose(ds.load(tmp_path / "half.keras").predict(x_test, verbose=0), p, atol=1e-6)


@pytest.mark.slow
def test_two_classes(few):
    (x, y), (x_test, y_test) = few
    model = make("casimac", num_classes=2, eager=False)
    model.fit(x, (y > 4).astype(int), epochs=15, verbose=0)
    p = model.predict(x_test, verbose=0)
    assert p.shape == (100, 2)
    assert np.mean(p.argmax(axis=1) == (y_test > 4)) > 0.75


@pytest.mark.slow
def test_classifier_as_layer_of_another_model(fitted, four):
    _, (x_test, _) = four
    inputs = keras.Input((8, 8))
    ensemble = keras.Model(inputs, keras.layers.Average()([fitted(inputs), fitted(inputs)]))
    np.testing.assert_allclose(ensemble.predict(x_test, verbose=0), fitted.predict(x_test, verbose=0), atol=1e-6)


class PlainBackbone(keras.Model):
    """A subclassed model as users write them: layers and call, nothing else."""

    def __init__(self):
        super().__init__()
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(16, activation="relu")

    def call(self, images):
        return self.dense(self.flatten(images))


@pytest.mark.slow
def test_subclassed_backbone(few):
    (x, y), (x_test, _) = few
    model = ds.SimplexClassifier(PlainBackbone(), "ilr", 10, head="gaussian")
    assert model.predict(x_test, verbose=0).shape == (100, 10)  # before any training too
    model.compile("sgd", run_eagerly=True)
    assert model.fit(x, y, batch_size=100, verbose=0).history["loss"][0] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "shuffle"), [(list, True), (dict, False)])
def test_several_inputs_with_label_target(kind, shuffle, few):
    (x, y), (x_test, _) = few
    names = ("left", "right")
    inputs = [keras.Input((8, 4), name=name) for name in names]
    halves = keras.layers.Concatenate()([keras.layers.Flatten()(half) for half in inputs])
    wires = dict(zip(names, inputs, strict=True)) if kind is dict else inputs
    model = ds.SimplexClassifier(
        keras.Model(wires, keras.layers.Dense(16, activation="relu")(halves)), "one_hot", 10, head="gaussian"
    )
    model.compile(metrics=["accuracy"], run_eagerly=True)

    def parts(images):
        both = [images[..., :4], images[..., 4:]]
        return dict(zip(names, both, strict=True)) if kind is dict else both

    options = {"epochs": 3, "batch_size": 90, "validation_split": 0.1}
    history = model.fit(parts(x), y, verbose=0, shuffle=shuffle, **options).history
    assert history["loss"][-1] < history["loss"][0]
    assert model.predict(parts(x_test), verbose=0).shape == (100, 10)
    with pytest.raises(ValueError, match="x must be a single array for a distance between arrays"):
        make_compiled(model.backbone, "casimac").fit(parts(x), y, verbose=0)


def make_compiled(backbone, target, num_classes=10, **arguments):
    model = ds.SimplexClassifier(backbone, target, num_classes, **{"head": "gaussian", **arguments})
    model.compile(optimizer=keras.optimizers.Adam(1e-2), metrics=["accuracy"])
    return model


@pytest.fixture(scope="module")
def binary(few):
    """Labels of two classes, and the first weights of a model that learned them as whole numbers."""
    (x, y), _ = few
    labels = (y > 4).astype(int)
    model = make("casimac", num_classes=2)
    model.fit(x, labels, epochs=2, batch_size=150, verbose=0, class_weight={1: 2.0})
    return labels, model.get_weights()[0]


@pytest.mark.slow
@pytest.mark.parametrize("form", [np.ndarray.tolist, lambda y: y[:, None].astype("float32"), lambda y: y.astype(bool)])
def test_binary_labels_of_every_form(form, few, binary):
    (x, _), _ = few
    labels, expected = binary
    model = make("casimac", num_classes=2)
    weights = {"class_weight": {1: 2.0}, "sample_weight": [1.0] * len(labels)}
    model.fit(x, form(labels), epochs=2, batch_size=150, verbose=0, **weights)
    np.testing.assert_allclose(model.get_weights()[0], expected, atol=1e-6)


@pytest.mark.slow
def test_streamed_binary_labels_as_columns(few, binary):
    (x, _), _ = few
    labels, _ = binary
    column = tf.data.Dataset.from_tensor_slices((x, labels[:, None].astype("float32"))).batch(150)
    streamed, arrays = make("one_hot", num_classes=2), make("one_hot", num_classes=2)
    streamed.fit(column, epochs=2, verbose=0)
    arrays.fit(x, labels, epochs=2, batch_size=150, shuffle=False, verbose=0)
    np.testing.assert_allclose(streamed.get_weights()[0], arrays.get_weights()[0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "layer"),
    [
        (ds.targets.ILR(0.99), lambda: ds.readout.SoftmaxReadout(num_points=512)),
        (ds.targets.CASIMAC(construction="helmert"), lambda: ds.readout.ArgmaxReadout(num_points=64)),
        (ds.targets.Dirichlet(), lambda: ds.readout.SoftmaxReadout(num_points=512)),
    ],
)
def test_readout_layer_uses_scores_of_target(target, layer, four):
    (x, y), (x_test, _) = four
    keras.utils.set_random_seed(0)
    model = make_compiled(ds.backbones.mlp([16]), target, 4, readout=layer())
    assert model.fit(x, y, epochs=5, verbose=0).history["accuracy"][-1] > 0.6
    default = ds.SimplexClassifier(model.backbone, target, 4, head=model.head)
    np.testing.assert_allclose(model(x_test), default(x_test), atol=0.01)


def test_readout_with_other_number_of_classes_raises(few):
    (x, _), _ = few
    model = ds.SimplexClassifier(
        ds.backbones.mlp([4]), "dirichlet", 10, readout=ds.readout.ArgmaxReadout(np.eye(10)[:9])
    )
    with pytest.raises(ValueError, match=r"readout must.*found \(None, 9\)"):
        model(x)


def test_train_test_and_predict_on_batch(few):
    (x, y), _ = few
    model = make("one_hot")
    before = model.test_on_batch(x, y, return_dict=True)["loss"]
    for _ in range(5):
        model.train_on_batch(x, y)
    assert model.test_on_batch(x, y, return_dict=True)["loss"] < before
    distances = make("casimac", loss=ds.losses.LatentNLL())
    with pytest.raises(ValueError, match="y must hold latents in train_on_batch"):
        distances.train_on_batch(x, y)
    assert np.isfinite(distances.train_on_batch(x, distances.target.fit_transform(x, y))[0])


def test_nan_in_stream_raises(few):
    (x, y), _ = few
    broken = np.where(np.arange(300)[:, None, None] == 70, np.nan, x).astype("float32")
    with pytest.raises(ValueError, match=r"^x must be finite; .*Remove or repair such samples$"):
        make("one_hot").fit(tf.data.Dataset.from_tensor_slices((broken, y)).batch(50), verbose=0)


def test_incompatible_parts_raise_before_target_is_computed(few, monkeypatch):
    (x, y), _ = few
    model = make_compiled(keras.Sequential([keras.layers.Conv1D(4, 3)]), "casimac")
    monkeypatch.setattr(ds.targets.CASIMAC, "fit_transform", lambda *arguments: pytest.fail("worked in vain"))
    with pytest.raises(ValueError, match=r"backbone must.*found <KerasTensor shape=\(None, 6, 4\)"):
        model.fit(x, y, verbose=0)
    model = make_compiled(keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten()]), "casimac")
    for data in [(x[:, :7], y), (tf.data.Dataset.from_tensor_slices((x[:, :7], y)).batch(50),)]:
        with pytest.raises(ValueError, match=r"^x must.*found shape \[\w+, 7, 8\]"):
            model.fit(*data, verbose=0)
    with pytest.raises(ValueError, match=r"beta must.*found 0\.5"):
        make("casimac", covariance="full").compile(loss=ds.losses.LatentNLL(beta=0.5))


@pytest.mark.slow
def test_keras_callbacks(few, tmp_path):
    (x, y), (x_test, y_test) = few
    model = make("casimac")
    best = tmp_path / "best.keras"
    callbacks = [
        keras.callbacks.ModelCheckpoint(best, monitor="val_accuracy", save_best_only=True),
        keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(),
    ]
    options = {"epochs": 4, "batch_size": 100, "validation_data": (x_test, y_test)}
    history = model.fit(x, y, verbose=0, callbacks=callbacks, **options).history
    p = np.asarray(ds.load(best)(x_test))
    assert np.mean(p.argmax(axis=1) == y_test) == pytest.approx(max(history["val_accuracy"]))


@pytest.mark.slow
def test_each_step_is_traced_once(four, monkeypatch):
    """A sampling readout takes seconds to trace."""
    traced = []
    for name in ("train_step", "test_step"):
        step = getattr(ds.SimplexClassifier, name)
        monkeypatch.setattr(
            ds.SimplexClassifier, name, lambda self, data, name=name, step=step: traced.append(name) or step(self, data)
        )
    (x, y), (x_test, y_test) = four
    model = make("ilr", num_classes=4, eager=False)
    model.fit(x, y, epochs=2, verbose=0, validation_data=(x_test, y_test))
    assert traced == ["train_step", "test_step"]
    model.compile(metrics=["accuracy"])
    model.evaluate(x_test, y_test, verbose=0)
    assert traced == ["train_step", "test_step", "test_step"]


def test_latents_features_and_calibrations_run_eagerly_if_asked_for(four):
    (x, y), _ = four
    eagerly = []

    class Noting(keras.layers.Layer):
        def call(self, x):
            eagerly.append(tf.executing_eagerly())
            return x

    backbone = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), Noting()])
    model = ds.SimplexClassifier(backbone, "vertices", 4, head="gaussian")
    model.compile(keras.optimizers.Adam(0.1), run_eagerly=True)
    model.fit(x, y, verbose=0)  # better than chance, as the calibration needs
    for asked in (True, False):
        model.compile("sgd", run_eagerly=asked)
        eagerly.clear()
        model.calibrate(x, y, "latent").predict_latent(x[:5])
        model.predict_features(x[:5])
        assert set(eagerly) == {asked}
    backbone = keras.Sequential([backbone, keras.layers.Dense(9, trainable=False)])  # whose features are computed once
    frozen = ds.SimplexClassifier(backbone, "vertices", 4, head="gaussian")
    for number, asked in enumerate((False, True, False), 1):
        frozen.compile("sgd", run_eagerly=asked)
        frozen.build((None, 8, 8))
        eagerly.clear()
        frozen.fit_density(x[:20] / number, y[:20])
        assert set(eagerly) == {asked}


@pytest.mark.slow
def test_summary_omits_internal_layers(fitted):
    lines = []
    fitted.summary(print_fn=lines.append)
    assert "coarser" not in "".join(lines)
    assert "unbuilt" not in "".join(lines)


# Files


@pytest.mark.slow
def test_save_and_reload_in_fresh_process(fitted, four, tmp_path):
    _, (x_test, _) = four
    fitted.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", x_test)
    script = """
import sys, numpy as np, keras, deepsimplex
model = keras.models.load_model(sys.argv[1] + "/model.keras")
assert model.class_names[3] == "digit 3" and type(model.target) is deepsimplex.targets.CASIMAC
np.save(sys.argv[1] + "/p.npy", model.predict(np.load(sys.argv[1] + "/x.npy"), verbose=0))
"""
    run(script, tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), fitted.predict(x_test, verbose=0), atol=1e-5)


@pytest.mark.slow
def test_reloaded_model_evaluates_and_warns_if_target_is_unfitted(fitted, four, tmp_path):
    (x, y), (x_test, y_test) = four
    fitted.save(tmp_path / "model.keras")
    model = ds.load(tmp_path / "model.keras")
    expected = fitted.evaluate(x_test, y_test, verbose=0, return_dict=True)
    with pytest.warns(UserWarning, match="target.fit"):
        scores = model.evaluate(x_test, y_test, verbose=0, return_dict=True)
    with (
        pytest.warns(UserWarning, match="target.fit"),
        pytest.raises(ValueError, match=r"y must hold class numbers 0\.\.3"),
    ):
        model.evaluate(x_test, y_test + 5, verbose=0)
    assert scores == pytest.approx({name: value for name, value in expected.items() if name != "loss"})
    model.target.fit(x, y, 4)
    assert model.evaluate(x_test, y_test, verbose=0, return_dict=True) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_reloaded_model_continues_training(fitted, four, tmp_path):
    (x, y), _ = four
    fitted.save(tmp_path / "model.keras")
    model = ds.load(tmp_path / "model.keras")
    before = model.optimizer.iterations.numpy()
    history = model.fit(x, y, epochs=1, verbose=0).history
    assert history["accuracy"][0] > 0.9  # an untrained one begins at 0.25
    assert model.optimizer.iterations.numpy() == before + 10


def test_load_weights_into_built_model(tmp_path):
    x = np.random.default_rng(0).random((5, 8, 8)).astype("float32")

    def made(seed):
        keras.utils.set_random_seed(seed)
        inputs = keras.Input((8, 8))
        features = keras.layers.Dense(4)(keras.layers.Flatten()(inputs))
        return ds.SimplexClassifier(keras.Model(inputs, features), "casimac", 3, head="gaussian")

    one, other = made(0), made(1)
    one.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(x), one(x))


def test_damaged_or_missing_file_raises(fitted, tmp_path):
    path = tmp_path / "model.keras"
    with pytest.raises(FileNotFoundError, match="there is no model"):
        ds.load(path)
    fitted.save(path)
    whole = path.read_bytes()
    for length in (0, 100, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged or cut short"):
            ds.load(path)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="damaged"):
        ds.load(path)


def test_failed_save_keeps_earlier_file(fitted, tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    fitted.save(path)
    whole = path.read_bytes()

    def full_disk(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("keras.src.saving.saving_lib._save_model_to_fileobj", full_disk)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(path)
    assert path.read_bytes() == whole
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.keras"]
    with pytest.raises(FileExistsError, match="overwrite=True"):
        fitted.save(path, overwrite=False)
    with pytest.raises(ValueError, match=r"filepath must.*found .*h5"):
        fitted.save(tmp_path / "model.h5")


# Resuming


class Cut(keras.callbacks.Callback):
    """Break off in the middle of an epoch, as a kill would."""

    def __init__(self, epoch: int):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.now == self.epoch and batch == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_resumed_fit_equals_uninterrupted_fit(few, tmp_path):
    (x, y), _ = few

    def model():
        keras.utils.set_random_seed(4)
        made = ds.SimplexClassifier(
            ds.backbones.mlp([16], dropout=0.4), ds.targets.CASIMAC("euclidean"), 10, seed=11, head="gaussian"
        )
        made.compile(run_eagerly=True)
        made(x[:1])
        return made

    options = {"epochs": 3, "batch_size": 150, "verbose": 0}
    whole = model()
    whole.fit(x, y, **options)
    backup = str(tmp_path / "backup")
    cut = model()
    with pytest.raises(KeyboardInterrupt):
        cut.fit(x, y, **options, callbacks=[keras.callbacks.BackupAndRestore(backup), Cut(1)])
    resumed = model()
    resumed.fit(x, y, **options, callbacks=[keras.callbacks.BackupAndRestore(backup)])
    for one, other in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_default_head_and_loss(few):
    (x, y), (x_test, y_test) = few
    model = ds.SimplexClassifier(ds.backbones.mlp([24]), num_classes=10)
    model.compile(keras.optimizers.SGD(0.3), metrics=["accuracy"], run_eagerly=True)
    assert isinstance(model.target, ds.targets.Vertices)
    assert isinstance(model.head, ds.heads.VariationalGaussianProcess)
    assert isinstance(model.training_loss, ds.losses.Composition)
    history = model.fit(x, y, epochs=3, batch_size=100, verbose=0, validation_data=(x_test, y_test)).history
    assert history["accuracy"][-1] > 0.5
    assert np.isfinite(history["val_loss"]).all()
    assert isinstance(ds.SimplexClassifier(ds.backbones.mlp([4]), "ilr", 3, "diagonal").head, ds.heads.GaussianHead)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ilr", "dirichlet", "one_hot", "casimac"])
def test_prototype_head_by_name_uses_target_of_classifier(target, few, tmp_path):
    (x, y), (x_test, _) = few
    head = {"name": "prototypes", "prototypes_per_class": 2}
    model = ds.SimplexClassifier(ds.backbones.mlp([24]), target, 10, head=head)
    expected = ds.targets.Vertices() if target == "casimac" else model.target
    np.testing.assert_array_equal(model.head.target.table(10).loc, expected.table(10).loc)
    other = ds.heads.PrototypeGaussianProcess(10, target="ilr" if target == "casimac" else "vertices")
    with pytest.raises(ValueError, match=r"head must have .*target="):
        ds.SimplexClassifier(ds.backbones.mlp([24]), target, 10, head=other)
    if target in ("dirichlet", "one_hot"):  # trained and saved as with "ilr": the head has the classifier's target
        return
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", run_eagerly=True)
    model.fit(x, y, batch_size=100, verbose=0)
    model.save(tmp_path / "m.keras")
    np.testing.assert_array_equal(ds.load(tmp_path / "m.keras").predict_proba(x_test), model.predict_proba(x_test))


def test_default_head_fits_few_samples():
    x, y = np.random.default_rng(0).random((12, 5), dtype=np.float32), np.arange(12) % 3
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), num_classes=3)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    model.fit(x, y, verbose=0)
    assert np.isfinite(model.predict_proba(x)).all()


@pytest.mark.parametrize("kind", ["data set", "PyDataset", "generator"])
def test_invalid_samples_in_predicted_stream_raise(kind, few):
    class Rows(keras.utils.PyDataset):
        def __init__(self, x):
            super().__init__()
            self.x = x

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return (self.x[20 * index : 20 * (index + 1)],)

    streams = {
        "data set": lambda x: tf.data.Dataset.from_tensor_slices(x).batch(20),
        "PyDataset": Rows,
        "generator": lambda x: ((x[rows],) for rows in (slice(20), slice(20, 40))),
    }
    (x, _), _ = few
    model, x = make("one_hot"), x[:40].astype("float32")
    model.run_eagerly = True
    np.testing.assert_allclose(model.predict(streams[kind](x), steps=2, verbose=0), model.predict_proba(x), atol=1e-5)
    broken = np.where(np.arange(40)[:, None, None] == 30, np.nan, x).astype("float32")
    for samples, message in ((broken, "^x must be finite"), (x[:, 1:], r"^x must.*found shape \[\w+, 7, 8\]")):
        with pytest.raises(ValueError, match=message):
            model.predict(streams[kind](samples), steps=2, verbose=0)


def test_loss_weights_raise():
    model = ds.SimplexClassifier(ds.backbones.mlp([4]), num_classes=3)
    with pytest.raises(ValueError, match=r"loss_weights must be None, as there is one loss; found 0\.5"):
        model.compile(loss_weights=0.5)
