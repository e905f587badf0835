"""Classifiers on backbones with nothing to train: the head is solved in closed form, features are computed once."""

import re
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepsimplex as ds
from deepsimplex import kernels
from deepsimplex.classifier import network
from deepsimplex.classifier.given_features import GivenFeatures, fixed_statistics, inner_layers, rescales_bytes
from deepsimplex.geometry import vertices
from deepsimplex.heads import ClosedFormHead, VariationalGaussianProcess
from deepsimplex.readout import ArgmaxReadout, LeftOutSoftmax
from deepsimplex.samples import ArraySamples
from deepsimplex.targets import CASIMAC, ILR, Vertices


def make_backbone(*layers, trainable=False):
    """Make random convolutions for digits, as a stand-in for a pretrained network."""
    initializer = keras.initializers.GlorotUniform(seed=0)
    backbone = keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Reshape((8, 8, 1)),
            *layers,
            keras.layers.Conv2D(16, 3, activation="relu", kernel_initializer=initializer),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
        ]
    )
    backbone.trainable = trainable
    return backbone


def make_flatten():
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten()])


def make_identity():
    return keras.Sequential([keras.Input((64,))])


def make_model(backbone=None, num_classes=10, inducing=None, eager=True, **arguments):
    """Eager for few batches: tracing them would take longer."""
    head = {} if inducing is None else {"head": {"name": "closed_form", "inducing": inducing}}
    model = ds.SimplexClassifier(backbone or make_backbone(), num_classes=num_classes, **head, **arguments)
    model.compile(metrics=["accuracy"], run_eagerly=eager)
    return model


def make_tuned_at_rate_zero(x, y, **arguments):
    """Solve the head, and let the backbone be trained through it, where nothing moves."""
    model = make_model(inducing=50)
    model.fit(x, y, verbose=0, **arguments)
    model._set_unknown(None)  # whose removal would warn
    model.backbone.trainable = True
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    return model


@pytest.fixture(scope="module", autouse=True)
def _eager_batches_of_all_samples():
    """Networks that run eagerly predict and evaluate arrays in one batch: several took ten seconds of these tests."""
    predict, to_evaluate = network.predictions, ds.SimplexClassifier._to_evaluate

    def size(model, samples, given, steps):
        at_once = given is None and not steps and model.run_eagerly and isinstance(samples, ArraySamples)
        return 1000 if at_once else given

    def predictions(model, samples, batch_size, verbose, **options):
        return predict(model, samples, size(model, samples, batch_size, options), verbose, **options)

    def _to_evaluate(model, samples, batch_size=None, steps=None):
        return to_evaluate(model, samples, size(model, samples, batch_size, steps), steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "predictions", predictions)
        patch.setattr(ds.SimplexClassifier, "_to_evaluate", _to_evaluate)
        yield


@pytest.fixture(scope="module")
def digits():
    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    return x[:200], y[:200], x_test[:150], y_test[:150]


@pytest.fixture(scope="module")
def fitted(digits):
    model = make_model(inducing=220)
    model.fit(*digits[:2], verbose=0)
    return model


@pytest.fixture(scope="module")
def flattened(digits):
    """A model of pixels, which others are compared with."""
    model = make_model(make_flatten(), inducing=50)
    model.fit(*digits[:2], verbose=0)
    return model


# Defaults


@pytest.mark.parametrize("backbone", [make_backbone, make_flatten, make_identity, keras.layers.Flatten])
def test_closed_form_is_default_for_backbone_with_nothing_to_train(backbone):
    backbone = backbone()
    if isinstance(backbone, keras.layers.Flatten):
        backbone.trainable = False  # a layer that is not built has no weights yet
    model = ds.SimplexClassifier(backbone, num_classes=10)
    assert [type(part) for part in (model.target, model.head, model.readout)] == [
        Vertices,
        ClosedFormHead,
        LeftOutSoftmax,
    ]


@pytest.mark.parametrize(
    ("backbone", "arguments", "parts"),
    [
        (make_backbone, {"target": "ilr"}, (ILR, VariationalGaussianProcess)),
        (make_backbone, {"target": "casimac"}, (CASIMAC, VariationalGaussianProcess)),
        (make_backbone, {"head": "variational"}, (Vertices, VariationalGaussianProcess)),
        (make_backbone, {"covariance": "diagonal"}, (Vertices, ds.heads.GaussianHead)),
        (make_backbone, {"readout": "argmax"}, (Vertices, ClosedFormHead, ArgmaxReadout)),
        (make_backbone, {"target": "ilr", "head": "closed_form"}, (ILR, ClosedFormHead, LeftOutSoftmax)),
        (lambda: make_backbone(trainable=True), {}, (Vertices, VariationalGaussianProcess)),
        (lambda: keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)]), {}, (Vertices,)),
    ],
)
def test_named_parts_and_trainable_backbones_keep_their_way(backbone, arguments, parts):
    model = ds.SimplexClassifier(backbone(), num_classes=3, **arguments)
    for part, expected in zip((model.target, model.head, model.readout), parts, strict=False):
        assert type(part) is expected


# Fit


def test_fit_equals_solving_the_head_by_hand(digits, fitted):
    x, y, x_test, y_test = digits
    backbone = make_backbone()
    head, readout = ClosedFormHead(10, 220), LeftOutSoftmax()
    left_out = head.solve(backbone.predict(x, verbose=0), y)
    p = readout.adapt(left_out)(head(backbone.predict(x_test, verbose=0)))
    np.testing.assert_allclose(fitted.predict(x_test, verbose=0), p, atol=1e-5)
    assert ds.evaluation.accuracy(y_test, p.numpy()) > 0.85


def test_history_holds_metrics_of_left_out_samples_and_of_validation(digits):
    x, y, x_test, y_test = digits
    model, calls = make_model(inducing=220), []
    callback = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: calls.append(model.head.adapted),
        on_epoch_end=lambda epoch, logs: calls.append(logs),
    )
    stopping = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    history = model.fit(x, y, validation_data=(x_test, y_test), callbacks=[callback, stopping], verbose=0)
    left_out = ClosedFormHead(10, 220).solve(make_backbone().predict(x, verbose=0), y)
    p = np.exp(LeftOutSoftmax().cross_fit(left_out))
    values = {name: value for name, (value,) in history.history.items()}
    assert values["loss"] == pytest.approx(ds.evaluation.negative_log_likelihood(y, p), rel=1e-3)
    assert values["accuracy"] == pytest.approx(ds.evaluation.accuracy(y, p))
    evaluated = model.evaluate(x_test, y_test, verbose=0, return_dict=True)
    assert {f"val_{name}": value for name, value in evaluated.items()} == pytest.approx(
        {name: value for name, value in values.items() if name.startswith("val_")}, rel=1e-4
    )
    assert calls[0] is True
    assert calls[1].keys() == values.keys()


def test_validation_split_is_held_out(digits):
    x, y, *_ = digits
    model, other = make_model(make_flatten(), inducing=50), make_model(make_flatten(), inducing=50)
    assert "val_accuracy" in model.fit(x, y, validation_split=0.2, verbose=0).history
    other.fit(x[:160], y[:160], verbose=0)
    for weight, expected in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.columns = x, y

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return tuple(column[index * 50 : (index + 1) * 50] for column in self.columns)


def generate(x, y):
    yield from (Batches(x, y)[index] for index in range(4))


@pytest.mark.parametrize(
    ("stream", "options"),
    [
        (lambda x, y: tf.data.Dataset.from_tensor_slices((x, y)).batch(70), {}),
        (lambda x, y: tf.data.Dataset.from_tensor_slices((x, y)).batch(50).repeat(), {"steps_per_epoch": 4}),
        (lambda x, y: tf.data.Dataset.from_tensor_slices((x, np.eye(10)[y])).batch(200), {}),
        (Batches, {}),
        (generate, {"steps_per_epoch": 4}),
    ],
    ids=["dataset", "endless", "soft", "pydataset", "generator"],
)
def test_streams_give_the_same_model_as_arrays(stream, options, digits, flattened):
    x, y, x_test, _ = digits
    model = make_model(make_flatten(), inducing=50)
    model.fit(stream(x, y), verbose=0, **options)
    np.testing.assert_allclose(model.predict(x_test, verbose=0), flattened.predict(x_test, verbose=0), atol=1e-5)


def test_groups_are_left_out_together(digits):
    x, y, x_test, _ = digits
    groups = np.arange(200) % 100
    x = np.concatenate([x[:100], x[:100] + 0.01])
    y = np.tile(y[:100], 2)
    model, alone = make_model(make_flatten(), inducing=200), make_model(make_flatten(), inducing=200)
    together, separate = (model.fit(x, y, groups=groups, verbose=0), alone.fit(x, y, verbose=0))
    assert separate.history["accuracy"] == [1.0]
    assert together.history["accuracy"][0] < 0.99
    head = ClosedFormHead(10, 200)
    head.solve(x.reshape(200, 64), y, groups=groups)
    np.testing.assert_allclose(
        model.head(x_test.reshape(-1, 64))["loc"], head(x_test.reshape(-1, 64))["loc"], atol=1e-6
    )


def test_names_of_groups_and_groups_of_one_do_not_matter(digits):
    x, y, x_test, _ = digits
    predicted = []
    for groups in (None, np.arange(200)[::-1], np.array([f"patient {number}" for number in range(200)])):
        model = make_model(make_flatten(), inducing=50)
        model.fit(x, y, groups=groups, verbose=0)
        predicted.append(model.predict_proba(x_test))
    np.testing.assert_allclose(predicted[1], predicted[0], atol=1e-5)
    np.testing.assert_array_equal(predicted[2], predicted[1])


# Weights

WEIGHTS = np.where(np.arange(200) % 4 == 3, 0.0, 1.0)


@pytest.fixture(scope="module")
def weighted_rows(digits):
    """Predictions and history of fits to the rows whose weight is not zero: of all classes, and without class three."""
    x, y, x_test, _ = digits
    results = []
    for rows in (WEIGHTS > 0, (WEIGHTS > 0) & (y != 3)):
        model = make_model(make_flatten(), inducing=150)
        history = model.fit(x[rows], y[rows], verbose=0).history
        results.append((model.predict(x_test, verbose=0), history))
    return results


@pytest.mark.parametrize(
    "arguments",
    [
        lambda x, y: {"x": x, "y": y, "sample_weight": WEIGHTS},
        lambda x, y: {"x": x, "y": np.eye(10)[y], "sample_weight": WEIGHTS[:, None]},
        lambda x, y: {"x": tf.data.Dataset.from_tensor_slices((x, y, WEIGHTS)).batch(70)},
        lambda x, y: {"x": x[y != 3], "y": y[y != 3], "sample_weight": WEIGHTS[y != 3]},
        lambda x, y: {"x": x, "y": y, "sample_weight": WEIGHTS, "class_weight": {3: 0.0}},
    ],
    ids=["arrays", "soft labels", "stream", "class left out", "class of weight zero"],
)
def test_samples_of_weight_zero_are_left_out(arguments, digits, weighted_rows):
    x, y, x_test, _ = digits
    model = make_model(make_flatten(), inducing=150)
    arguments = arguments(x, y)
    lacks_three = "class_weight" in arguments or len(arguments["x"]) not in (200, 3)
    history = model.fit(**arguments, verbose=0).history
    p, expected = weighted_rows[lacks_three]
    np.testing.assert_allclose(model.predict(x_test, verbose=0), p, atol=1e-4)
    assert {name: pytest.approx(value, rel=1e-3) for name, value in history.items()} == expected


@pytest.mark.parametrize("inducing", [100, 300])
def test_sample_of_weight_two_counts_as_two_in_every_update(inducing, digits):
    x, y, x_test, _ = digits
    weights = 1.0 + np.arange(200) % 2
    model = make_model(make_flatten(), inducing=inducing)
    model.fit(x[:150], y[:150], sample_weight=weights[:150], verbose=0)
    model.partial_fit(x[150:], y[150:], sample_weight=weights[150:]).forget(x[:20], y[:20], sample_weight=weights[:20])
    regression = model.head.regression
    rows = np.repeat(np.arange(20, 200), weights[20:].astype(int))
    expected = kernels.LabelRegression(regression.kernel, regression.points, 10)
    expected = expected.add(x[rows].reshape(-1, 64), np.eye(10)[y[rows]]).solve(regression.noise)
    mean = expected.predict(x_test.reshape(-1, 64)).mean @ vertices(10)
    np.testing.assert_allclose(model.predict_latent(x_test).loc, mean, atol=1e-5)
    assert model.head.num_rows == 180
    with pytest.raises(ValueError, match=r"^x must hold samples that the head was solved with"):
        model.forget(x[21:22], y[21:22])  # without its weight


@pytest.fixture(scope="module")
def rare():
    """Two classes in one dimension, the second one of a fifth of the samples; then test samples."""
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.2).astype(int)
    x = (rng.normal(size=(3000, 1)) + 2.0 * y[:, None]).astype("float32")
    return x[:1000], y[:1000], x[1000:], y[1000:]


@pytest.mark.parametrize("soft", [False, True])
def test_effect_of_class_weights_on_probabilities_is_taken_out(soft, rare):
    x, y, x_test, y_test = rare
    labels = np.eye(2)[y] if soft else y
    plain, weighted = (make_model(keras.Sequential([keras.Input((1,))]), 2, 100) for _ in range(2))
    weighted.compile(metrics=["accuracy"], weighted_metrics=["accuracy"], run_eagerly=True)
    plain.fit(x, labels, verbose=0)
    history = weighted.fit(x, labels, class_weight={1: 5.0}, verbose=0).history
    p, expected = (model.predict(x_test, verbose=0) for model in (weighted, plain))
    np.testing.assert_allclose(p, expected, atol=0.08)
    learned = weighted.readout(weighted.predict_latent(x_test).as_dict()).numpy()
    assert learned[:, 1].mean() > 0.3
    assert p[:, 1].mean() == pytest.approx(0.2, abs=0.03)
    error, nll = ds.evaluation.expected_calibration_error, ds.evaluation.negative_log_likelihood
    assert max(error(y_test, p), error(y_test, expected)) < 0.03 < 0.1 < error(y_test, learned)
    assert nll(y_test, p) < nll(y_test, expected) + 0.01
    left_out = weighted.head.leave_out(x, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    p = weighted.unweighted_readout({"loc": left_out.loc, "scale": left_out.scale}).numpy()
    right = p.argmax(axis=1) == y
    counts = np.where(y == 1, 5.0, 1.0)
    assert history["accuracy"][0] == pytest.approx(right.mean(), abs=0.01)
    assert history["weighted_accuracy"][0] == pytest.approx(np.average(right, weights=counts), abs=0.01)


def test_updates_count_class_weights_as_fit_does(rare):
    x, y, x_test, _ = rare
    model = make_model(keras.Sequential([keras.Input((1,))]), 2, 100)
    model.fit(x, y, class_weight={1: 5.0}, verbose=0)
    before = model.predict(x_test, verbose=0)
    model.partial_fit(x_test[:300], np.ones(300, int))
    assert np.abs(model.predict(x_test, verbose=0) - before).max() > 0.1
    model.forget(x_test[:300], np.ones(300, int))
    np.testing.assert_allclose(model.predict(x_test, verbose=0), before, atol=1e-5)


def test_a_second_fit_equals_a_first_one(digits, flattened):
    x, y, *_ = digits
    model = make_model(make_flatten(), inducing=50)
    model.fit(x[:100], 9 - y[:100], verbose=0)
    model.fit(x, y, verbose=0)
    for weight, expected in zip(model.get_weights(), flattened.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-9)


def test_several_epochs_warn_and_none_report_nothing(digits):
    x, y, *_ = digits
    model = make_model(make_flatten(), inducing=50)
    with pytest.warns(UserWarning, match=r"^epochs=5 has no effect"):
        assert model.fit(x, y, epochs=5, verbose=0).epoch == [0]
    assert model.fit(x, y, epochs=0, verbose=0).epoch == []


# Features


def test_random_layers_warn(digits):
    x, y, x_test, _ = digits
    layers = keras.layers.RandomFlip(name="flip"), keras.layers.Dropout(0.5, name="drop")
    model = make_model(make_backbone(*layers), inducing=50)
    with pytest.warns(UserWarning, match=r"^random layers of the backbone, flip, drop among them, have no effect"):
        model.fit(x, y, verbose=0)
    for _ in range(2):  # once is enough
        model.fit(x, y, verbose=0)
    model.partial_fit(x[:1], y[:1]).forget(x[:1], y[:1])
    other = make_model(inducing=50)
    other.fit(x, y, verbose=0)
    np.testing.assert_allclose(model.predict(x_test, verbose=0), other.predict(x_test, verbose=0), atol=1e-6)


def test_batch_normalization_of_a_frozen_backbone_is_in_inference_mode(digits, flattened):
    x, y, x_test, _ = digits
    inputs = keras.Input((8, 8))
    outputs = keras.layers.BatchNormalization()(keras.layers.Flatten()(inputs), training=True)
    backbone = keras.Model(inputs, outputs)
    model = make_model(backbone, head="closed_form")
    with pytest.raises(ValueError, match=r"^backbone must have nothing to train.*2 trainable weights.*/gamma"):
        model.fit(x, y, verbose=0)
    backbone.trainable = False
    model = make_model(backbone, inducing=50)
    model.fit(x, y, verbose=0)
    np.testing.assert_allclose(model.predict(x_test, verbose=0), flattened.predict(x_test, verbose=0), atol=0.01)


def test_many_features_are_mapped_into_memory(digits):
    x, y, *_ = digits
    model = make_model()
    blocks = [(x[:100], y[:100]), (x[100:], y[100:])]
    features, (labels,) = GivenFeatures(model.backbone, model._features_model(), memory=2**15).compute(blocks)
    assert isinstance(features, np.memmap)
    np.testing.assert_allclose(features, model.predict_features(x), atol=1e-6)
    np.testing.assert_array_equal(labels, y)


@keras.saving.register_keras_serializable(package="tests")
class Counting(keras.layers.Layer):
    """Flatten, and count samples; without a gradient, as a frozen network needs none."""

    count = 0

    def call(self, inputs):
        return tf.ensure_shape(tf.numpy_function(self.flatten, [inputs], tf.float32), (None, 64))

    def flatten(self, values):
        Counting.count += len(values)
        return values.reshape(len(values), -1)

    def compute_output_shape(self, shape):
        return (shape[0], 64)


def make_counting(*layers):
    Counting.count = 0
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential([keras.Input((8, 8)), Counting(), *layers, keras.layers.Dense(20, "relu")])
    backbone.trainable = False
    return backbone


@pytest.mark.filterwarnings("ignore:.*and removes")
def test_fits_after_training_reuse_features_of_the_same_samples(digits):
    x, y, x_test, y_test = digits
    model = make_model(make_counting(), inducing=50)
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(100), verbose=0, validation_data=(x_test, y_test))
    model.fit_density(x, y, "gaussian").calibrate(x_test[:120], y_test[:120]).conformalize(x_test[:120], y_test[:120])
    assert Counting.count == 200 + len(x_test)
    model.calibrate(x_test[40:120], y_test[40:120], "platt").fit_unknown(x_test[:100].copy()).fit(x, y, verbose=0)
    assert Counting.count == 200 + len(x_test)
    x[0] += 0.01
    model.fit(x, y, verbose=0)
    x[0] -= 0.01
    assert Counting.count == 400 + len(x_test)
    model.backbone.set_weights([-weight for weight in model.backbone.get_weights()])
    model.fit_density(x_test[:120], y_test[:120], "gaussian")
    assert Counting.count == 400 + len(x_test) + 120


def test_fits_by_given_features_equal_those_by_samples(digits, monkeypatch):
    """Density, calibration, prediction sets and unknown score, and epochs of a head that is trained."""
    x, y, x_test, y_test = digits

    def fitted(eager):
        keras.utils.set_random_seed(0)
        model = ds.SimplexClassifier(make_counting(), num_classes=10, head={"name": "variational", "inducing": 20})
        model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], run_eagerly=eager)
        history = model.fit(x, y, epochs=3, batch_size=100, validation_data=(x_test, y_test), verbose=0).history
        count = Counting.count
        model.fit_density(x, y).calibrate(x_test[:120], y_test[:120]).conformalize(x_test[:120], y_test[:120])
        return model.fit_unknown(x_test), history, count

    model, history, count = fitted(eager=False)
    assert 0 <= count - 200 - len(x_test) <= 4  # two samples show that features are the same in training
    with monkeypatch.context() as patch:
        patch.setattr(ds.SimplexClassifier, "_is_frozen", lambda *_: False)
        patch.setattr(ds.SimplexClassifier, "_computed_once", lambda self, x: x)
        other, expected, count = fitted(eager=True)
    assert count >= 3 * (200 + len(x_test))
    for name, values in history.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, err_msg=name)
    weights, others = model.get_weights(), other.get_weights()
    for weight, value in zip(weights, others, strict=True):
        if weight.dtype.kind == "f":
            np.testing.assert_allclose(weight, value, rtol=1e-3, atol=1e-4)
    for weight, value in zip(model.head.get_weights(), other.head.get_weights(), strict=True):
        np.testing.assert_allclose(weight, value, atol=1e-5)
    np.testing.assert_allclose(model.predict(x_test, verbose=0), other.predict(x_test, verbose=0), atol=1e-4)


@pytest.mark.parametrize(
    "layer",
    [keras.layers.Dropout(0.5, name="dropout"), keras.layers.BatchNormalization(center=False, scale=False)],
    ids=["dropout", "batch statistics"],
)
def test_features_that_training_changes_are_computed_in_every_epoch(layer, digits):
    x, y, *_ = digits
    backbone = make_counting(layer)
    if not isinstance(layer, keras.layers.Dropout):
        backbone.trainable = True
        backbone.layers[-1].trainable = False  # nothing is trained, but the moving averages change
    model = make_model(backbone, head="gaussian")
    if isinstance(layer, keras.layers.Dropout):
        with pytest.warns(UserWarning, match=r"^random layers of the backbone, dropout among.*every epoch"):
            model.fit(x, y, epochs=1, verbose=0)
        model.fit(x, y, epochs=1, verbose=0)
    else:
        model.fit(x, y, epochs=2, verbose=0)
    assert Counting.count >= 400


# Copies


def test_copies_predict_the_same(digits, fitted, tmp_path):
    *_, x_test, _ = digits
    expected = fitted.predict(x_test, verbose=0)
    fitted.save(tmp_path / "model.keras")
    fitted.save_weights(tmp_path / "model.weights.h5")
    loaded = ds.load(tmp_path / "model.keras")
    twin = keras.models.clone_model(fitted)
    twin.set_weights(fitted.get_weights())
    other = ds.SimplexClassifier.from_config(fitted.get_config())
    other.load_weights(tmp_path / "model.weights.h5")
    for copy in (loaded, twin, other):
        assert copy.head.adapted
        np.testing.assert_allclose(copy.predict(x_test, verbose=0), expected, atol=1e-6)


def test_copies_by_weights_forget(digits, fitted):
    x, y, *_ = digits
    twin, again = (keras.models.clone_model(fitted) for _ in range(2))
    twin.set_weights(fitted.get_weights())
    twin.forget(x[:20], y[:20])
    again.set_weights(twin.get_weights())
    assert again.head.num_rows == 180
    with pytest.raises(ValueError, match=r"^x must hold samples that the head was solved with"):
        again.forget(x[:1], y[:1])
    again.set_weights(twin.get_weights()[: len(twin.weights)])
    with pytest.raises(ValueError, match=r"^forget recognizes samples by what get_weights of a head alone"):
        again.forget(x[20:21], y[20:21])


@pytest.mark.parametrize("changed", ["partial_fit", "forget"])
def test_loaded_models_go_on(changed, digits, fitted, tmp_path):
    x, y, x_test, y_test = digits
    fitted.save(tmp_path / "model.keras")
    models = [ds.load(tmp_path / "model.keras") for _ in range(2)]
    for model, rows in zip(models, (slice(0, 20), slice(0, 20)), strict=True):
        assert (
            getattr(model, changed)(*((x[rows], y[rows]) if changed == "forget" else (x_test[rows], y_test[rows])))
            is model
        )
    np.testing.assert_array_equal(*(model.predict(x_test, verbose=0) for model in models))
    assert np.abs(models[0].predict(x_test, verbose=0) - fitted.predict(x_test, verbose=0)).max() > 1e-3


def test_head_is_computed_once(fitted, digits, monkeypatch, tmp_path):
    """Probabilities, latents and the unknown score share it: its products take most of the time behind a backbone."""
    calls, call = [], ClosedFormHead.call
    monkeypatch.setattr(
        ClosedFormHead, "call", lambda self, x, **options: (calls.append(x), call(self, x, **options))[1]
    )
    x = digits[2]
    for compute in (fitted.predict_all, fitted.predict_or_unknown, fitted.predict_latent, fitted.predict_proba):
        calls.clear()
        compute(x)
        assert len(calls) == 1
    fitted.export(tmp_path / "served")
    graph = tf.saved_model.load(tmp_path / "served").signatures["serving_default"].graph.as_graph_def()
    names = (node.name for function in graph.library.function for node in function.node_def)
    assert len({name.split("/")[0] for name in names if name.startswith("closed_form_head")}) == 1


def test_export_equals_predictions(digits, fitted, tmp_path):
    *_, x_test, _ = digits
    fitted.export(tmp_path / "served")
    served = ds.export.load_served(tmp_path / "served").predict(x_test[:20])
    np.testing.assert_allclose(served["class_probabilities"], fitted.predict(x_test[:20], verbose=0), atol=1e-6)


# Adding and forgetting


def test_added_and_forgotten_samples_equal_fitting_without_them(digits):
    """Also samples of a class that fit has not seen; the choice of kernel and noise stays that of fit."""
    x, y, x_test, _ = digits
    model = make_model(make_flatten(), inducing=220)
    known = np.flatnonzero(y < 9)
    new = np.flatnonzero(y == 9)
    model.fit(x[known], y[known], verbose=0)
    before = model.predict_latent(x_test).loc
    model.partial_fit(x[new], y[new])
    assert np.abs(model.predict_latent(x_test).loc - before).max() > 0.1
    model.forget(x[new], y[new])
    np.testing.assert_allclose(model.predict_latent(x_test).loc, before, atol=1e-6)


def test_new_class_is_predicted_with_calibrated_probabilities():
    """About as well as by a fit of all samples, which chooses the kernel anew."""
    new, ((x, y), (x_test, y_test)) = 9, ds.datasets.load("digits")
    known, added = np.flatnonzero(y != new)[:700], np.flatnonzero(y == new)[:20]
    model, fresh = (make_model(make_flatten(), inducing=500) for _ in range(2))
    model.fit(x[known], y[known], verbose=0)
    rejected = model.predict_or_unknown(x_test) == -1
    model.partial_fit(x[added], y[added])
    rows = np.concatenate([known, added])
    fresh.fit(x[rows], y[rows], verbose=0)
    p, expected = (each.predict(x_test, verbose=0) for each in (model, fresh))
    nll = ds.evaluation.negative_log_likelihood
    assert nll(y_test, p) < nll(y_test, expected) + 0.03 < 0.2
    assert ds.evaluation.expected_calibration_error(y_test, p) < 0.04
    assert ds.evaluation.accuracy(y_test, p) > 0.94
    now = model.predict_or_unknown(x_test) == -1
    is_new = y_test == new
    assert now[is_new].mean() < rejected[is_new].mean() - 0.1
    assert now[~is_new].mean() < 0.12


def test_threshold_of_unknown_samples_takes_up_new_ones(digits):
    x, y, x_test, y_test = digits
    model = make_model(make_flatten(), inducing=100)
    model.fit(x, y, verbose=0)
    noise = np.random.default_rng(0).random((100, 8, 8))
    assert (model.predict_or_unknown(noise) == -1).mean() > 0.9
    model.partial_fit(noise, np.random.default_rng(1).integers(10, size=100))
    assert (model.predict_or_unknown(noise) == -1).mean() < 0.5
    assert (model.predict_or_unknown(x_test) == -1).mean() < 0.05
    assert model.fit_unknown(None).partial_fit(x_test[:5], y_test[:5]).unknown is None


def test_updates_remove_what_was_fitted_to_the_outputs(digits):
    x, y, x_test, y_test = digits
    model = make_model(make_flatten(), inducing=50)
    model.fit(x, y, verbose=0)
    model.conformalize(x_test, y_test)
    with pytest.warns(UserWarning, match="partial_fit changes the probabilities"):
        model.partial_fit(x_test[:5], y_test[:5])
    assert model.prediction_sets is None


def test_solved_head_stays_while_the_backbone_is_trained(digits):
    x, y, *_ = digits
    model = make_model(make_backbone(), inducing=50)
    history = model.fit(x, y, verbose=0)
    before = model.head.get_weights()
    model.backbone.trainable = True
    model.compile(keras.optimizers.Adam(1e-4))
    with pytest.warns(UserWarning, match="^training changes the latents"):
        losses = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0] < 2 * history.history["loss"][0]
    for weight, expected in zip(model.head.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)
    with pytest.raises(ValueError, match=r"^forget needs a head that fit has solved"):
        model.forget(x[:2], y[:2])


@pytest.mark.parametrize("weighted", [False, True])
def test_samples_are_left_out_of_their_predictions_while_the_backbone_is_trained(weighted, digits):
    """At rate zero the loss is that of left-out samples, in a second fit too, and of other samples the usual one."""
    x, y, x_test, y_test = digits
    weights = {"sample_weight": np.arange(200) % 3} if weighted else {}
    model = make_model(inducing=50)
    model.fit(x, y, verbose=0, **weights)
    left_out = model.head.leave_out(model.predict_features(x), y, **weights)
    log_p = np.asarray(model.readout.log_probabilities({"loc": left_out.loc, "scale": left_out.scale}))
    losses = -log_p[np.arange(len(log_p)), y[left_out.rows]]
    expected = np.sum(losses * weights.get("sample_weight", np.ones(200))[left_out.rows]) / 200
    fitted = model.evaluate(x, y, verbose=0, **weights)[0]
    model.backbone.trainable = True
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    with pytest.warns(UserWarning, match="^training changes the latents"):
        history = model.fit(x, y, verbose=0, **weights).history
    assert expected > 1.3 * fitted
    assert history["loss"] == pytest.approx([expected], rel=1e-3)
    assert model.fit(x[::-1], y[::-1], verbose=0).history["loss"][0] > 1.3 * fitted
    usual = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["loss"]
    with pytest.warns(UserWarning, match="^150 of 150 samples are none of those that the head was solved with"):
        history = model.fit(x_test, y_test, verbose=0).history
    assert history["loss"] == pytest.approx([usual], rel=1e-4)


def test_tuning_keeps_the_class_weights_that_the_head_was_solved_with(digits):
    x, y, x_test, _ = digits
    model = make_tuned_at_rate_zero(x, y, class_weight={3: 5.0})
    before = model.predict_proba(x_test)
    for weights in ({1: 3.0}, dict.fromkeys(range(10), 2.0)):
        model._hide("_influence", None)
        with pytest.warns(UserWarning, match="^[0-9]+ samples have other labels or weights than the head was solved"):
            model.fit(x, y, class_weight=weights, verbose=0)
    np.testing.assert_allclose(model.predict_proba(x_test), before, atol=1e-6)


def test_validation_samples_that_the_head_was_solved_with_warn(digits):
    x, y, x_test, y_test = digits
    model = make_tuned_at_rate_zero(x, y)
    with pytest.warns(UserWarning, match="^validation needs samples that were held out of training; found 40 training"):
        model.fit(x, y, validation_split=0.2, verbose=0)
    model.fit(x, y, validation_data=(x_test, y_test), verbose=0)
    model.head.signatures = model.head.signatures + 1.0  # as of features that tuning has changed
    with pytest.warns(UserWarning, match="^validation needs samples that were held out of training; found 40 training"):
        model.fit(x, y, validation_split=0.2, verbose=0)


def test_layer_that_is_unfrozen_in_a_frozen_backbone_raises(digits):
    x, y, *_ = digits
    layers = [keras.layers.Flatten(), keras.layers.Dense(8), keras.layers.Dense(8, name="last")]
    backbone = keras.Sequential([keras.Input((8, 8)), *layers])
    backbone.trainable = False
    model = make_model(backbone, inducing=50)
    model.fit(x, y, verbose=0)
    backbone.layers[-1].trainable = True
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"^backbone.trainable must be True.*layer 'last' unfrozen"):
        model.fit(x, y, verbose=0)


def test_copies_of_images_warn_at_the_callers_line(digits):
    x, y, *_ = digits
    rows = np.r_[:200, np.flatnonzero(y == 3)]
    model = make_model(inducing=50)
    with pytest.warns(
        UserWarning, match=f"^{len(rows) - 200} of {len(rows)} samples have the features and the label of another"
    ) as warned:
        model.fit(x[rows], y[rows], verbose=0)
    assert warned[0].filename == __file__
    model.fit(x[rows], y[rows], groups=rows, verbose=0)
    table = make_model(make_identity(), inducing=50)
    table.fit(x[rows].reshape(-1, 64), y[rows], verbose=0)


def test_images_of_integers_warn_where_training_images_lie_between_0_and_1(digits):
    x, y, x_test, _ = digits
    model = make_model(make_flatten(), inducing=50)
    model.fit(x, y, verbose=0)
    with pytest.warns(UserWarning, match=r"divide x by 255$"):
        model.predict_proba((255 * x_test[:5]).astype("uint8"))
    model.predict_proba(np.eye(8, dtype=int)[None])
    with pytest.warns(UserWarning, match=r"^x holds pixels up to 255, .* divide x by 255$"):
        model.predict_proba(255 * x_test[:5])
    model.predict_proba(1.2 * x_test[:5])  # brightened


def test_images_between_0_and_1_warn_where_training_images_have_pixels(digits):
    x, y, x_test, _ = digits
    model = make_model(make_flatten(), inducing=50)
    model.fit(255 * x, y, verbose=0)
    with pytest.warns(UserWarning, match=r"^x lies in \[0, 1\], .* multiply x by 255$"):
        model.predict_proba(x_test[:5])
    for call in (model.evaluate, model.partial_fit):
        with pytest.warns(UserWarning, match=r"multiply x by 255$"):
            call(x[:5], y[:5])
    model.predict_proba(255 * x_test[:5])
    model.predict_proba(np.zeros((1, 8, 8), np.float32))
    first = make_model(make_flatten(), inducing=50)
    with pytest.warns(UserWarning, match=r"multiply x by 255$"):
        first.fit(255 * x, y, validation_data=(x[:5], y[:5]), verbose=0)


def test_black_images_say_nothing_of_the_scale_of_pixels(digits):
    x, y, *_ = digits
    model = ds.SimplexClassifier(make_backbone(trainable=True), num_classes=10, head="gaussian")
    model.compile(run_eagerly=True)
    model.fit(np.zeros_like(x[:40]), y[:40], verbose=0)
    assert model.class_probabilities.pixel_scale == 0.0
    model.fit(255 * x, y, verbose=0)
    assert model.class_probabilities.pixel_scale == 1.0


def test_backbone_that_is_frozen_too_late_is_said(digits, capsys):
    x, y, *_ = digits
    model = make_model(make_backbone(trainable=True))
    model.backbone.trainable = False
    model.compile(run_eagerly=True)
    model.fit(x[:20], y[:20], verbose=2)
    assert "was frozen after SimplexClassifier was made" in capsys.readouterr().out
    model.trainable = False
    model.compile(run_eagerly=True)
    with pytest.raises(ValueError, match=r"^fit must find weights to train; found none"):
        model.fit(x[:20], y[:20], verbose=0)


def test_tuned_model_that_is_loaded_warns_that_samples_are_not_left_out(digits, tmp_path):
    x, y, *_ = digits
    model = make_model(inducing=50)
    model.fit(x, y, verbose=0)
    model._set_unknown(None)
    model.backbone.trainable = True
    with pytest.raises(ValueError, match=r"^the model must be compiled again after trainable was set"):
        model.fit(x, y, verbose=0)
    model.compile(keras.optimizers.Adam(1e-3), run_eagerly=True)
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "tuned.keras")
    loaded = ds.load(tmp_path / "tuned.keras")
    with pytest.warns(UserWarning, match=r"^none of the samples is recognized as one that the head was solved with"):
        loaded.fit(x, y, verbose=0)


def test_changed_backbone_adds_and_forgets_no_samples(digits):
    x, y, x_test, y_test = digits
    model, other = (make_model(make_backbone(), inducing=50) for _ in range(2))
    other.backbone.set_weights([weight + 0.05 for weight in other.backbone.get_weights()])
    for each in (model, other):
        each.fit(x, y, verbose=0)
    model.backbone.set_weights([weight + 0.1 for weight in model.backbone.get_weights()])
    for change, data in ((model.partial_fit, (x_test, y_test)), (model.forget, (x, y))):
        with pytest.raises(ValueError, match="needs the backbone that the head was solved with; found changed weights"):
            change(*data)
    model.set_weights(other.get_weights())
    model.partial_fit(x_test, y_test)
    model.backbone.trainable = True
    with pytest.raises(ValueError, match=r"found ClosedFormHead, on a backbone that is trained$"):
        model.partial_fit(x_test, y_test)


def test_streams_that_a_backbone_is_tuned_with_warn(digits):
    x, y, *_ = digits
    model = make_tuned_at_rate_zero(x, y)
    with pytest.warns(UserWarning, match="without leaving samples out of their own predictions.*: pass arrays"):
        model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(100), verbose=0)


def test_batch_normalization_keeps_its_statistics_while_the_backbone_is_trained(digits):
    """The head was solved with features by these statistics; scale, shift and random layers are trained as they are."""
    x, y, *_ = digits
    normalization, dropout = keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=0)
    inside = keras.Sequential([keras.layers.Dense(8, activation="relu"), normalization])
    model = make_model(keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Flatten(), inside]), inducing=50)
    model.backbone.trainable = False
    model.fit(x, y, verbose=0)
    expected = model.predict_latent(x).loc
    model.backbone.trainable = True
    np.testing.assert_allclose(model.latent(x, training=True)["loc"], expected, atol=1e-5)
    before = normalization.get_weights()
    model.compile(keras.optimizers.Adam(1e-4))
    with pytest.warns(UserWarning, match="^training changes the latents"):
        model.fit(x, y, verbose=0)
    for weight, start, changes in zip(normalization.weights, before, (True, True, False, False), strict=True):
        assert np.array_equal(weight, start) != changes, weight.path
    assert normalization.trainable
    inside.add(dropout)
    assert np.mean(model.latent(x, training=True)["loc"] != model.latent(x)["loc"]) > 0.9


class Block(keras.layers.Layer):
    """A layer that calls others, which it holds in a list, a dict or attributes."""

    def __init__(self, layers, kind=list):
        super().__init__()
        self.parts = layers if kind is list else {layer.name: layer for layer in layers}

    def call(self, x, training=None):
        for layer in self.parts if isinstance(self.parts, list) else self.parts.values():
            x = layer(x, training=training) if isinstance(layer, keras.layers.BatchNormalization) else layer(x)
        return x


@pytest.mark.parametrize(
    "around",
    [
        lambda layer: layer,
        lambda layer: Block([layer]),
        lambda layer: Block([keras.layers.Dense(2), layer], dict),
        lambda layer: keras.Sequential([keras.layers.Dense(2), Block([Block([layer])])]),
        lambda layer: keras.Sequential([keras.layers.Reshape((2, 1)), keras.layers.TimeDistributed(layer)]),
    ],
)
def test_statistics_are_fixed_wherever_a_network_holds_its_normalization(around):
    """What was frozen before, such as the scale alone, stays so, after an error too."""
    x, normalization = np.random.default_rng(0).normal(size=(9, 2)).astype("float32"), keras.layers.BatchNormalization()
    network = around(normalization)
    expected = network(x, training=False)
    normalization.gamma.trainable = False
    with fixed_statistics(network):
        np.testing.assert_allclose(network(x, training=True), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"incompatible|shape"), fixed_statistics(network):
        network(x[:, :1], training=True)
    flags = [part.trainable for part in (normalization, *normalization.weights)]
    assert flags == [True, False, True, False, False]
    normalization.trainable = False
    with fixed_statistics(network):
        pass
    assert not any(part.trainable for part in (normalization, *normalization.weights))


def test_inner_layers_are_those_of_networks_and_of_other_layers():
    shared, scaling = keras.layers.Dense(2, name="shared"), keras.layers.Rescaling(1 / 255, name="scaling")
    network = keras.Sequential([Block([scaling, shared]), keras.Sequential([shared, keras.layers.ReLU(name="relu")])])
    assert [layer.name for layer in inner_layers(network)][1:] == ["scaling", "shared", "relu"]
    assert rescales_bytes(network)
    assert inner_layers(None) == inner_layers(shared) == []


# Invalid input


def with_nan(x, y):
    return np.where(np.arange(len(x))[:, None, None] == 3, np.nan, x), y


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda x, y: (x, y), {"sample_weight": np.zeros(200)}, r"^sample_weight must be.*not all zero"),
        (lambda x, y: (x, y), {"sample_weight": np.ones(199)}, r"^sample_weight must.*199"),
        (lambda x, y: (x, y), {"groups": np.zeros(199)}, r"^groups must have a value for each sample.*\(199,\)"),
        (lambda x, y: (x, y), {"groups": np.zeros(200)}, r"^groups must have at least two values"),
        (lambda x, y: (x[:10], np.arange(10)), {}, r"^y must have a class of at least two samples"),
        (with_nan, {}, r"^x must be finite"),
        (lambda x, y: (x[:, :7], y), {}, r"^x must hold samples of shape \[8, 8\]"),
        (lambda x, y: (x, y + 1), {}, r"^y must.*10"),
    ],
)
def test_invalid_arguments_of_fit_raise_and_leave_the_model(change, options, message, digits, fitted):
    x, y, *_ = digits
    before = fitted.get_weights()
    with pytest.raises(ValueError, match=message):
        fitted.fit(*change(x, y), verbose=0, **options)
    for weight, expected in zip(fitted.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_features_that_are_not_finite_raise(digits):
    x, y, *_ = digits
    backbone = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Lambda(tf.math.log)])
    with pytest.raises(ValueError, match=r"^backbone must give finite features.*200 of 200"):
        make_model(backbone).fit(x, y, verbose=0)


def test_class_of_a_single_sample_warns_and_is_predicted(digits):
    x, y, *_ = digits
    rows = np.append(np.flatnonzero(y < 9), np.flatnonzero(y == 9)[0])
    model = make_model(make_flatten(), inducing=220)
    with pytest.warns(UserWarning, match=r"^1 samples are the only ones, or the only group, of their class"):
        model.fit(x[rows], y[rows], verbose=0)
    p = model.predict(x, verbose=0)
    assert np.isfinite(p).all()
    assert p[rows[-1], 9] > np.delete(p[:, 9], rows[-1]).max() / 2


def test_backbone_in_bfloat16_gives_features(digits):
    x, y, x_test, y_test = digits
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = make_model(inducing=100)
        model.fit(x, y, verbose=0)
        model.fit_density(x, y)
        assert np.mean(model.predict(x_test, verbose=0).argmax(axis=1) == y_test) > 0.85
        assert np.all(model.familiarity(x_test[:2]) > 0)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_samples_of_one_class_warn(digits):
    x, *_ = digits
    with pytest.warns(UserWarning, match="all samples are of one class"):
        make_model(inducing=20).fit(x[:50], np.full(50, 3), verbose=0)


@pytest.mark.filterwarnings("ignore:57 of 60 samples have the features and the label of another")
def test_equal_samples_predict_shares_of_the_classes():
    y = np.repeat([0, 1, 2], [30, 20, 10])
    model = make_model(make_flatten(), 3)
    model.fit(np.ones((60, 8, 8)), y, verbose=0)
    np.testing.assert_allclose(model.predict(np.ones((1, 8, 8)), verbose=0)[0], [0.5, 0.33, 0.17], atol=0.05)


def test_trainable_backbone_raises(digits):
    x, y, *_ = digits
    model = make_model(make_backbone(trainable=True), inducing=50)
    with pytest.raises(ValueError, match=r"^backbone must have nothing to train.*2 trainable weights"):
        model.fit(x, y, verbose=0)


def test_strategies_raise(digits):
    x, y, *_ = digits
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = make_model(make_flatten(), inducing=50)
    with pytest.raises(ValueError, match=r"^a head in closed form is solved on one device"):
        model.fit(x, y, verbose=0)


@pytest.mark.parametrize("method", ["partial_fit", "forget"])
def test_updates_need_a_solved_head(method, digits):
    x, y, *_ = digits
    for model in (make_model(make_flatten(), inducing=50), make_model(ds.backbones.mlp([4]), target="vertices")):
        with pytest.raises(ValueError, match=rf"^{method} needs a head that fit has solved"):
            getattr(model, method)(x, y)


@pytest.mark.parametrize(
    ("rows", "shift", "message"),
    [(slice(0, 5), 1, "^x must hold samples that the head was solved with"), (slice(0, 200), 0, "^x must leave")],
)
def test_invalid_rows_to_forget_raise_and_leave_the_model(rows, shift, message, digits):
    x, y, *_ = digits
    model = make_model(make_flatten(), inducing=50)
    model.fit(x, y, verbose=0)
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        model.forget(x[rows], (y[rows] + shift) % 10)
    for weight, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)


# Unknown samples


@pytest.fixture(scope="module")
def seven(digits):
    """A model of seven classes, and test samples with whether their class is unknown to it."""
    x, y, *_ = digits
    _, (x_test, y_test) = ds.datasets.load("digits")
    model = make_model(make_flatten(), 7)
    model.fit(x[y < 7], y[y < 7], verbose=0)
    return model, x_test, y_test >= 7


def area_under_curve(unknown, score):
    return (score[unknown][:, None] > score[~unknown]).mean() + 0.5 * (
        score[unknown][:, None] == score[~unknown]
    ).mean()


def test_unknown_score_detects_classes_and_what_is_unlike_all_images(seven):
    model, x_test, unknown = seven
    score, largest = model.unknown_score(x_test), model.predict(x_test, verbose=0).max(axis=1)
    assert score.min() >= 0
    assert score.max() < 1
    assert area_under_curve(unknown, score) > area_under_curve(unknown, -largest) - 0.02 > 0.8
    x, far = np.concatenate([x_test[~unknown], 1 - x_test]), np.repeat([False, True], [(~unknown).sum(), len(x_test)])
    largest = model.predict(x, verbose=0).max(axis=1)
    assert area_under_curve(far, model.unknown_score(x)) > max(area_under_curve(far, -largest), 0.95)
    assert model.unknown_score(np.random.default_rng(0).random((50, 8, 8))).min() > 0.9


@pytest.mark.parametrize("rejected", [0.0, 0.05, 0.3])
def test_share_of_known_samples_is_rejected(rejected, seven):
    model, x_test, unknown = seven
    classes = model.predict_or_unknown(x_test, rejected)
    known = classes[~unknown]
    assert np.mean(known == -1) == pytest.approx(rejected, abs=0.06)
    p = model.predict(x_test[~unknown], verbose=0)
    np.testing.assert_array_equal(known[known >= 0], p.argmax(axis=1)[known >= 0])
    stream = tf.data.Dataset.from_tensor_slices(x_test).batch(50)
    np.testing.assert_array_equal(model.predict_or_unknown(stream, rejected), classes)


def test_unknown_score_is_copied_and_exported(seven, tmp_path):
    model, x_test, _ = seven
    expected = model.unknown_score(x_test[:50])
    model.save(tmp_path / "model.keras")
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    for copy in (ds.load(tmp_path / "model.keras"), twin):
        np.testing.assert_allclose(copy.unknown_score(x_test[:50]), expected, atol=1e-6)
    model.export(tmp_path / "served")
    served = ds.export.load_served(tmp_path / "served").predict(x_test[:50])
    np.testing.assert_allclose(served["unknown"], expected, atol=1e-6)


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_trained_networks_need_held_out_samples(covariance, digits):
    x, y, x_test, _ = digits
    x, y = x[y < 3], y[y < 3]  # a readout of few classes is traced in less time
    model = ds.SimplexClassifier(ds.backbones.mlp([8]), "vertices", 3, covariance=covariance)
    model.compile(loss=ds.losses.LatentNLL(), run_eagerly=True)
    model.fit(x, y, batch_size=100, verbose=0)
    with pytest.raises(ValueError, match=r"^unknown_score needs.*fit_unknown\(x_held\)"):
        model.predict_or_unknown(x_test)
    rejected = model.fit_unknown(x_test).predict_or_unknown(x_test, 0.1) == -1
    assert rejected.mean() == pytest.approx(0.1, abs=0.01)
    with pytest.warns(UserWarning, match="^training changes the latents"):
        model.fit(x, y, verbose=0)
    assert model.unknown is None
    assert model.fit_unknown(x_test).fit_unknown(None).unknown is None


@pytest.mark.parametrize("rejected", [-0.1, 1.0, float("nan")])
def test_invalid_share_of_rejected_samples_raises(rejected, seven):
    with pytest.raises(ValueError, match=r"^rejected must"):
        seven[0].predict_or_unknown(seven[1], rejected)


@pytest.mark.parametrize(
    ("front", "warns"), [([], True), ([keras.layers.Rescaling(255)], False)], ids=["0..1", "0..255"]
)
def test_pixels_of_another_scale_than_the_backbone_rescales_warn(front, warns, digits):
    x, y, *_ = digits
    network = keras.Sequential([keras.layers.Rescaling(1 / 127.5, offset=-1), keras.layers.Flatten()])
    network.trainable = False
    model = ds.SimplexClassifier(keras.Sequential([keras.Input(x.shape[1:]), *front, network]), num_classes=10)
    model.compile()
    expected = pytest.warns(UserWarning, match=r"x lies in \[0, 1\].*Rescaling\(255\)") if warns else nullcontext()
    with expected:
        model.fit(x, y, verbose=0)


def classifying(layer: Any, units: int = 3) -> keras.Sequential:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(units, name="before"), layer])


def functional(function: Any) -> keras.Model:
    inputs = keras.Input((4,))
    return keras.Model(inputs, function(keras.layers.Dense(3)(inputs)))


@pytest.mark.parametrize(
    ("backbone", "warns"),
    [
        (classifying(keras.layers.Dense(3, activation="softmax")), True),
        (classifying(keras.layers.Activation("softmax")), True),
        (classifying(keras.layers.Softmax()), True),
        (classifying(keras.layers.Dense(1, activation="sigmoid")), True),
        (keras.Sequential([classifying(keras.layers.Softmax())]), True),
        (keras.layers.Dense(3, activation="softmax"), True),
        (functional(keras.ops.softmax), True),
        (functional(keras.layers.Softmax()), True),
        (functional(keras.layers.Dense(3, activation="softmax")), True),
        (classifying(keras.layers.Dense(3, activation="sigmoid")), False),
        (classifying(keras.layers.Dense(1)), False),
        (keras.Sequential([classifying(keras.layers.Softmax()), keras.layers.Dense(2)]), False),
        (functional(keras.ops.relu), False),
    ],
)
def test_backbone_of_class_probabilities_warns_once(backbone, warns):
    x, y = np.random.default_rng(0).normal(size=(6, 4)).astype("float32"), np.arange(6) % 2
    model = ds.SimplexClassifier(backbone, num_classes=2, head="gaussian")
    model.compile(run_eagerly=True)
    expected = pytest.warns(UserWarning, match="ends in class probabilities.*pass the layer before")
    with expected if warns else nullcontext():
        model.fit(x, y, verbose=0)
    model.fit(x, y, verbose=0)


def normalized(moved: float) -> keras.Sequential:
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization()])
    network.layers[1].moving_mean.assign_add(np.full(3, moved))
    return network


def biased(value: float) -> keras.Sequential:
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")])
    network.layers[0].bias.assign_add(np.full(3, value))
    return network


def shifted(value: float) -> keras.Sequential:
    """Normalization whose offset begins with ones."""
    network = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(beta_initializer="ones")])
    network.layers[0].moving_mean.assign_add(np.full(4, value))
    return network


def part_frozen() -> keras.Sequential:
    network = keras.Sequential([keras.Input((4,)), biased(1.0), keras.layers.Dense(3)])
    network.layers[0].trainable = False
    return network


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: normalized(1.0), 21),
        (lambda: biased(1.0), 15),
        (lambda: keras.Sequential([keras.layers.Rescaling(2.0), biased(1.0)]), 15),
        (lambda: keras.Sequential([keras.Input((4,)), Block([biased(1.0)])]), 15),
        (lambda: shifted(1.0), 8),
        (lambda: shifted(0.0), None),
        (lambda: keras.Sequential([keras.Input((4,)), Block([part_frozen()])]), None),
        (lambda: normalized(0.0), None),
        (lambda: biased(0.0), None),
        (part_frozen, None),
        (lambda: ds.backbones.mlp([3]), None),
        (lambda: ds.backbones.mlp([3], normalize=True), None),
        (lambda: keras.Sequential([keras.layers.Reshape((4, 1)), keras.layers.LSTM(2)]), None),
    ],
)
def test_training_of_weights_that_were_trained_before_is_noted_once(make, count, capsys):
    x, y = np.random.default_rng(0).normal(size=(6, 4)).astype("float32"), np.arange(6) % 2
    model = ds.SimplexClassifier(make(), num_classes=2, head="gaussian")
    model.compile(run_eagerly=True)
    for repeat in range(2):
        model.fit(x, y, verbose=2)
        noted = re.findall(r"fit trains all (\d+) weights of backbone", capsys.readouterr().out)
        assert noted == ([str(count)] if count and not repeat else [])
    quiet = ds.SimplexClassifier(make(), num_classes=2, head="gaussian")
    quiet.compile(run_eagerly=True)
    quiet.fit(x, y, verbose=0)
    assert capsys.readouterr().out == ""
