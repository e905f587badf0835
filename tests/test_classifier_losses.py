"""The losses of a classifier: each is its formula, and is saved, resumed, weighted and configured."""

import json

import keras
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

import deepsimplex as ds
from deepsimplex.losses import Composition, Hybrid, LatentNLL
from deepsimplex.readout.layers import readout_layer

LOSSES = {
    "latent": LatentNLL,
    "class": lambda: "sparse_categorical_crossentropy",
    "hybrid": Hybrid,
    "composition": Composition,
}
THROUGH_THE_READOUT = [name for name in LOSSES if name != "latent"]


def make(loss="class", target="casimac", num_classes=10, hidden=(24,), eager=False, **arguments):
    """``eager`` for a few steps: tracing them would take longer, and Adam half of each step."""
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(
        ds.backbones.mlp(list(hidden)), target, num_classes, **{"head": "gaussian", **arguments}
    )
    loss = LOSSES[loss]() if isinstance(loss, str) and loss in LOSSES else loss
    optimizer = keras.optimizers.SGD(0.05) if eager else keras.optimizers.Adam(1e-2)
    model.compile(optimizer, loss, metrics=["accuracy"], run_eagerly=eager)
    return model


def tau_of(model):
    return model.training_loss.tau


def batched(*parts, size=50):
    return tf.data.Dataset.from_tensor_slices(parts).batch(size)


def first_weight(model):
    """First trainable weight; the scale of compositions precedes it."""
    return model.trainable_weights[0].numpy()


@keras.saving.register_keras_serializable(package="tests")
class NearestScore(ds.readout.Readout):
    """A readout as users write them, that may underflow to zero."""

    def call(self, latent, training=None):
        return tf.nn.softmax(40.0 * self.score(latent["loc"]) / latent["scale"])


# The formulas


@pytest.fixture(scope="module")
def briefly(four):
    """One small network under every loss: the weights are the same."""
    (x, y), _ = four
    first = make("latent", num_classes=4, covariance="diagonal", eager=True)
    first.fit(x, y, epochs=2, batch_size=50, verbose=0)
    models = {"latent": first}
    tau = ds.losses.composition_tau(first.target.fit_transform(x, y, 4).loc, y, first.target.scores(4))
    for name, loss in {**LOSSES, "composition": lambda: Composition(tau=tau)}.items():
        if name != "latent":
            models[name] = ds.SimplexClassifier(first.backbone, first.target, 4, head=first.head)
            models[name].compile(loss=loss(), metrics=["accuracy"], run_eagerly=True)
    return models


def expected_loss(objective, model, x, y):
    """Each objective in NumPy, from predicted latents, read-out probabilities and the target's latents."""
    predicted, target = model.predict_latent(x), model.target
    p = np.asarray(ds.readout.argmax(predicted), float)
    observed = target.transform(x, y).loc
    if objective == "latent":
        return -np.mean(np.sum(scipy.stats.norm.logpdf(observed, predicted.loc, predicted.scale), axis=1))
    if objective == "class":
        return -np.mean(np.log(p[np.arange(len(y)), y]))
    if objective == "hybrid":
        return 0.5 * expected_loss("latent", model, x, y) + 0.5 * expected_loss("class", model, x, y)
    tau, scores = tau_of(model), target.scores(p.shape[1])
    shares = scipy.special.softmax(tau * observed @ scores.T, axis=1)
    return -np.mean(np.sum(shares * np.log(p), axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("objective", LOSSES)
def test_objectives_equal_formulas(objective, briefly, four):
    _, (x_test, y_test) = four
    model = briefly[objective]
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=100, verbose=0)
    assert loss == pytest.approx(expected_loss(objective, model, x_test, y_test), rel=2e-4)
    assert accuracy == pytest.approx(np.mean(model.predict(x_test, verbose=0).argmax(axis=1) == y_test), abs=1e-6)
    assert model.test_on_batch(x_test, y_test)[0] == pytest.approx(loss, rel=1e-5)


@pytest.mark.slow
def test_hybrid_equals_weighted_mean(briefly, four):
    _, (x_test, y_test) = four
    first = briefly["latent"]
    model = ds.SimplexClassifier(first.backbone, first.target, 4, head=first.head)
    model.compile(loss=Hybrid(0.1), run_eagerly=True)
    latent, class_loss = (briefly[name].evaluate(x_test, y_test, verbose=0)[0] for name in ("latent", "class"))
    loss = model.evaluate(x_test, y_test, verbose=0)
    assert loss == pytest.approx(0.9 * latent + 0.1 * class_loss, rel=1e-5)
    model.compile(loss=Hybrid(0.1, LatentNLL(reduction="sum")), run_eagerly=True)  # the class term is summed with it
    total = model.evaluate(x_test, y_test, batch_size=100, verbose=0)
    assert total == pytest.approx(100 * loss, rel=1e-5)


@pytest.mark.slow
def test_hybrid_with_custom_latent_loss(few):
    (x, y), _ = few
    model = make(Hybrid(0.25, LatentNLL(beta=0.5)), eager=True)
    model.fit(x, y, batch_size=100, verbose=0)
    predicted, observed = model.predict_latent(x), model.target.fit_transform(x, y, 10)
    terms = scipy.stats.norm.logpdf(observed.loc, predicted.loc, predicted.scale)
    latent = -np.mean(np.sum(predicted.scale * terms, axis=1))
    class_loss = expected_loss("class", model, x, y)
    loss = model.evaluate(x, observed, batch_size=300, verbose=0)[0]
    assert loss == pytest.approx(0.75 * latent + 0.25 * class_loss, rel=1e-4)


@pytest.mark.slow
def test_cross_entropy_of_two_classes_is_probit_likelihood(few):
    """Phi(mu / sigma) [CASIMAC Eq. 36]: the vertices are +1 and -1."""
    (x, y), _ = few
    binary = (y > 4).astype(int)
    model = make("class", num_classes=2, eager=True)
    model.fit(x, binary, epochs=2, batch_size=100, verbose=0)
    latent = model.predict_latent(x)
    z = np.asarray(latent.loc / latent.scale, float)[:, 0] * np.where(binary == 0, 1, -1)
    expected = -np.mean(scipy.special.log_ndtr(z))
    assert model.evaluate(x, binary, batch_size=300, verbose=0)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_composition_of_label_target_is_label_smoothing(few):
    (x, y), _ = few
    model = make(Composition(0.9), target="one_hot", eager=True)
    model.fit(x, y, batch_size=100, verbose=0)
    smoothed = np.where(np.eye(10)[y] == 1, 0.9, 0.1 / 9)
    p = np.asarray(model.predict(x, verbose=0), float)
    expected = -np.mean(np.sum(smoothed * np.log(p), axis=1))
    assert model.evaluate(x, y, batch_size=300, verbose=0)[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mass", [None, 0.98, 0.7])
def test_compositions_have_requested_mass(mass, few):
    (x, y), (x_test, y_test) = few
    model = make("composition" if mass is None else Composition(mass), eager=True)
    model.fit(x, y, batch_size=100, verbose=0, validation_data=(x_test, y_test))
    loc = model.target.fit_transform(x, y, 10).loc
    shares = ds.losses.composition(loc, model.target.scores(10), tau_of(model))
    true_shares = shares[np.arange(len(y)), y]
    error = ds.distances.neighbor_error(x, y)
    assert error == pytest.approx(1 / 30)
    assert true_shares.mean() == pytest.approx(mass or 1 - error / 10, abs=1e-5)
    assert np.ptp(true_shares) > 0.01  # soft labels of each sample's own


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "covariance"), [("hybrid", "full"), ("composition", "diagonal")])
def test_objectives_train_through_sampling_readout(objective, covariance, four):
    """Few points and three classes keep the graph small. The hybrid objective contains the class objective."""
    (x, y), (x_test, y_test) = ((x[y < 3], y[y < 3]) for x, y in four)
    readout = ds.readout.ArgmaxReadout(method="quasi_monte_carlo", num_points=16)
    model = make(objective, num_classes=3, covariance=covariance, readout=readout)
    history = model.fit(x, y, epochs=5, verbose=0, validation_data=(x_test, y_test)).history
    assert sorted(history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert np.isfinite([history["loss"], history["val_loss"]]).all()
    assert history["loss"][-1] < history["loss"][0]
    assert history["val_accuracy"][-1] > 0.9  # chance is 0.33


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "target"),
    [("class", "ilr"), ("class", "dirichlet"), ("class", "one_hot"), ("hybrid", "ilr"), ("composition", "dirichlet")],
)
def test_every_objective_trains_label_targets(objective, target, four):
    x, y = (part[:60] for part in four[0])
    history = make(objective, target, num_classes=4, eager=True).fit(x, y, epochs=3, batch_size=60, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["class", "composition"])
def test_objectives_learn_digits(objective, four):
    (x, y), (x_test, y_test) = four
    model = make(objective, num_classes=4, hidden=(64,))
    model.fit(x, y, epochs=6, verbose=0)
    p = np.asarray(model(x_test))
    assert np.mean(p.argmax(axis=1) == y_test) > 0.96  # chance is 0.25


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("objective", THROUGH_THE_READOUT)
def test_gradients_of_extreme_latents_are_finite(objective, covariance, four):
    x, y = (part[:50] for part in four[0])
    model = make(objective, num_classes=4, covariance=covariance)
    model.build((None, 8, 8))
    if objective == "composition":
        model.training_loss.tau = 2.0
    latent = model.target.fit_transform(x, y, 4)
    y = {"label": y} | model.training_loss.latent_labels(latent, model.target.scores(4))
    y = {name: tf.cast(part, "int64" if name == "label" else "float32") for name, part in y.items()}
    head = model.head
    for stretch in (1.0, 30.0):
        head.set_weights([stretch * weight for weight in head.get_weights()])
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model.latent(x, training=True), None)
        assert np.isfinite(loss)
        for gradient in tape.gradient(loss, model.trainable_weights):
            assert np.isfinite(gradient).all()


@pytest.mark.slow
def test_probabilities_of_custom_readout_are_clipped(few):
    (x, y), (x_test, y_test) = few
    latent = {"loc": 100.0 * ds.geometry.vertices(10).astype("float32"), "scale": np.ones((10, 1), "float32")}
    layer = NearestScore()
    assert (np.asarray(layer(latent)) == 0).any()
    logarithms = layer.log_probabilities(latent)
    assert np.isfinite(logarithms).all()
    assert logarithms.dtype == tf.float32
    model = make("class", readout=NearestScore())
    history = model.fit(x, y, epochs=5, verbose=0, validation_data=(x_test, y_test)).history
    assert history["val_accuracy"][-1] > 0.5


@pytest.mark.parametrize("readout", ["argmax", "softmax"])
def test_log_probabilities_equal_log_of_probabilities(readout):
    rng = np.random.default_rng(0)
    latent = {"loc": rng.normal(size=(5, 3)).astype("float32"), "scale": np.ones((5, 3), "float32")}
    layer = readout_layer(readout)
    np.testing.assert_allclose(np.exp(layer.log_probabilities(latent)), layer(latent), rtol=1e-5)


@pytest.mark.slow
def test_readout_is_computed_once_per_step(four, monkeypatch):
    (x, y), _ = four
    model = make("class", num_classes=4, covariance="diagonal", eager=True)
    calls = []
    for name in ("call", "log_probabilities"):
        original = getattr(ds.readout.ArgmaxReadout, name)
        monkeypatch.setattr(
            ds.readout.ArgmaxReadout,
            name,
            lambda self, latent, call=original, **options: calls.append(options.get("training")) or call(self, latent),
        )
    model.train_on_batch(x[:50], y[:50])
    calls.clear()  # the first call built the metrics
    model.train_on_batch(x[:50], y[:50])
    assert calls == [None]  # the full readout, not the coarser one of running metrics
    model.test_on_batch(x[:50], y[:50])
    assert calls == [None, None]


# Labels alone


@pytest.mark.slow
def test_cross_entropy_does_not_fit_distance_target(few, monkeypatch, recwarn):
    (x, y), (x_test, y_test) = few
    for method in ("fit", "fit_transform", "transform"):
        monkeypatch.setattr(ds.targets.CASIMAC, method, lambda *arguments: pytest.fail("asked for latents"))
    monkeypatch.setattr("deepsimplex.targets.casimac.nearest_neighbors", lambda *a, **k: pytest.fail("neighbors"))
    model = make("class", eager=True)
    history = model.fit(x, y, batch_size=100, verbose=0, validation_data=(x_test, y_test)).history
    loss, _ = model.evaluate(x_test, y_test, verbose=0)
    assert loss == pytest.approx(history["val_loss"][-1], rel=1e-5)
    assert model.evaluate(batched(x_test, y_test), verbose=0)[0] == pytest.approx(loss, rel=1e-5)
    assert np.isfinite(model.train_on_batch(x, y)[0])
    assert not recwarn.list


@pytest.mark.slow
@pytest.mark.parametrize("target", ["casimac", "ilr"])
def test_cross_entropy_streams_every_data_set(target, four):
    (x, y), _ = four
    arrays, streamed, endless = (make("class", target, 4, eager=True, readout="argmax") for _ in range(3))
    arrays.fit(x, y, epochs=2, batch_size=150, shuffle=False, verbose=0)
    streamed.fit(batched(x, y, size=150), epochs=2, verbose=0)
    endless.fit(batched(x, y, size=150).repeat(), epochs=2, steps_per_epoch=2, verbose=0)
    for model in (streamed, endless):
        np.testing.assert_allclose(first_weight(model), first_weight(arrays), atol=1e-5)


@pytest.mark.slow
def test_cross_entropy_with_several_inputs_and_distance_target(few):
    (x, y), _ = few
    inputs = [keras.Input((8, 4)), keras.Input((8, 4))]
    both = keras.layers.Concatenate()([keras.layers.Flatten()(half) for half in inputs])
    model = ds.SimplexClassifier(keras.Model(inputs, both), "casimac", 10, head="gaussian")
    model.compile(loss="categorical_crossentropy")
    history = model.fit([x[..., :4], x[..., 4:]], y, epochs=2, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["casimac", "ilr"])
def test_cross_entropy_with_soft_labels(target, few):
    x, y = (part[:100] for part in few[0])
    soft = (0.9 * np.eye(10)[y] + 0.01).astype("float32")
    arrays, streamed = (make("class", target, eager=True, readout="argmax") for _ in range(2))
    arrays.fit(x, soft, epochs=2, batch_size=50, shuffle=False, verbose=0, class_weight={3: 2.0})
    streamed.fit(batched(x, soft), epochs=2, verbose=0, class_weight={3: 2.0})
    np.testing.assert_allclose(first_weight(streamed), first_weight(arrays), atol=1e-5)
    p = np.asarray(arrays.predict(x, verbose=0), float)
    expected = -np.mean(np.sum(soft * np.log(p), axis=1))
    assert arrays.evaluate(x, soft, batch_size=100, verbose=0)[0] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match=r"^every row of y must sum to 1"):
        streamed.fit(batched(x, 2 * soft), verbose=0)


@pytest.mark.slow
def test_cross_entropy_uses_class_of_latents(few):
    (x, y), _ = few
    latent = ds.targets.CASIMAC("euclidean").fit_transform(x, y, 10)
    by_label, by_latent, streamed = (make("class", eager=True) for _ in range(3))
    by_label.fit(x, y, epochs=1, batch_size=100, shuffle=False, verbose=0)
    by_latent.fit(x, latent, epochs=1, batch_size=100, shuffle=False, verbose=0)
    streamed.fit(batched(x, latent.loc.astype("float32"), size=100), epochs=1, verbose=0)
    for model in (by_latent, streamed):
        np.testing.assert_allclose(first_weight(model), first_weight(by_label), atol=1e-5)


# Compositions of streams


@pytest.mark.slow
def test_composition_tau_of_streams_equals_arrays(four):
    x, y = (part[:100] for part in four[0])
    soft = (0.9 * np.eye(4)[y] + 0.025).astype("float32")
    latent = ds.targets.CASIMAC("euclidean").fit_transform(x, y, 4)
    loc, scale = latent.loc.astype("float32"), latent.scale.astype("float32")

    def scale_of(target, *data):
        model = make(Composition(0.8), target, 4, eager=True, readout="argmax")
        history = model.fit(*data, batch_size=100 if len(data) > 1 else None, verbose=0).history
        assert np.isfinite(history["loss"]).all()
        return tau_of(model)

    as_dicts, weighted = batched(x, {"loc": loc, "scale": scale}), batched(x, soft, np.ones(len(y), "float32"))
    for target, labels, others in (
        ("ilr", y, ()),
        ("ilr", soft, [weighted]),
        ("casimac", y, [as_dicts]),
        ("casimac", loc, ()),
    ):
        expected = scale_of(target, x, labels)
        for stream in (batched(x, labels), *others):
            assert scale_of(target, stream) == pytest.approx(expected, rel=1e-5)


def test_composition_of_soft_label_is_mean_of_classes(few):
    (x, y), _ = few
    soft = np.random.default_rng(0).dirichlet(np.ones(10), size=len(y)).astype("float32")
    model = make(Composition(0.9), "ilr", eager=True, readout="argmax")
    model.fit(batched(x, soft).repeat(), epochs=1, steps_per_epoch=2, verbose=0)
    expected = 0.9 * soft + 0.1 / 9 * (1 - soft)
    log_p = np.log(np.asarray(model.predict(x, verbose=0), float))
    loss = model.evaluate(x, soft, batch_size=300, verbose=0)[0]
    assert loss == pytest.approx(-np.mean(np.sum(expected * log_p, axis=1)), rel=1e-4)


# Weights


@pytest.mark.slow
@pytest.mark.parametrize("objective", THROUGH_THE_READOUT)
def test_sample_weight_equals_class_weight(objective, few):
    x, y = (part[:100] for part in few[0])
    weights = np.where(y == 3, 5.0, 1.0).astype("float32")
    by_class, by_sample, plain = (make(objective, eager=True) for _ in range(3))
    by_class.fit(x, y, epochs=1, batch_size=50, shuffle=False, verbose=0, class_weight={3: 5.0})
    by_sample.fit(x, y, epochs=1, batch_size=50, shuffle=False, verbose=0, sample_weight=weights)
    plain.fit(x, y, epochs=1, batch_size=50, shuffle=False, verbose=0)
    np.testing.assert_allclose(first_weight(by_class), first_weight(by_sample), atol=1e-6)
    if objective == "class":  # for the others a distance target reads the data set, as tests/test_classifier.py has it
        streamed = make(objective, eager=True)
        streamed.fit(batched(x, y, weights), epochs=1, verbose=0)
        np.testing.assert_allclose(first_weight(streamed), first_weight(by_sample), atol=1e-6)
    assert np.abs(first_weight(by_class) - first_weight(plain)).max() > 1e-4
    half = plain.evaluate(x[:50], y[:50], batch_size=50, verbose=0)[0]
    masked = plain.evaluate(x, y, sample_weight=np.repeat([1.0, 0.0], 50), batch_size=100, verbose=0)[0]
    assert 2 * masked == pytest.approx(half, rel=1e-4)


# Files


@pytest.mark.slow
def test_reloaded_model_has_equal_loss_and_goes_on(four, tmp_path):
    (x, y), (x_test, y_test) = four
    losses = {"class": "sparse_categorical_crossentropy", "hybrid": Hybrid(0.3), "composition": Composition(0.9)}
    for name, loss in losses.items():
        model = make(loss, num_classes=4, eager=True)
        model.fit(x, y, epochs=2, batch_size=150, verbose=0)
        model.save(tmp_path / f"{name}.keras")
        reloaded = ds.load(tmp_path / f"{name}.keras")
        if reloaded.training_loss.needs_latents:
            reloaded.target.fit(x, y, 4)
        losses_of_both = [each.evaluate(x_test, y_test, batch_size=100, verbose=0)[0] for each in (reloaded, model)]
        assert losses_of_both[0] == pytest.approx(losses_of_both[1], rel=1e-5)
        if name == "class":
            assert reloaded.loss.name == "sparse_categorical_crossentropy"
            continue
        configs = [keras.saving.serialize_keras_object(each.loss)["config"] for each in (reloaded, model)]
        assert configs[0] == json.loads(json.dumps(configs[1]))
        if name == "composition":
            assert tau_of(reloaded) == tau_of(model) > 0
        reloaded.fit(x, y, batch_size=150, verbose=0)  # goes on


@pytest.mark.slow
def test_weights_contain_composition_tau(few, tmp_path):
    (x, y), _ = few
    model, other = (make("composition", eager=True) for _ in range(2))
    model.fit(x, y, batch_size=100, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    other.build((None, 8, 8))
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "model.weights.h5")
    assert float(other.class_probabilities.tau.value.numpy()) == tau_of(model) > 0


@pytest.mark.slow
def test_resumed_fit_equals_uninterrupted_fit(four, tmp_path):
    """The scale of compositions is computed before the first step."""
    (x, y), _ = four

    class Cut(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == 3:  # in the middle of the second epoch
                raise KeyboardInterrupt

    def model():
        keras.utils.set_random_seed(4)
        made = ds.SimplexClassifier(ds.backbones.mlp([16], dropout=0.4), "casimac", 4, seed=11, head="gaussian")
        made.compile(loss=Composition(), run_eagerly=True)
        return made

    whole, cut, resumed = model(), model(), model()
    whole.fit(x, y, epochs=3, batch_size=150, verbose=0)
    backup = str(tmp_path / "backup")
    with pytest.raises(KeyboardInterrupt):
        cut.fit(x, y, epochs=3, batch_size=150, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(backup), Cut()])
    resumed.fit(x, y, epochs=3, batch_size=150, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(backup)])
    for one, other in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_xla_equals_eager_training(four):
    """Keras compiles with XLA on a GPU."""
    (x, y), _ = four
    losses = []
    for compiled in (False, True):
        model = make("class", "vertices", 4)
        model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=compiled, run_eagerly=not compiled)
        losses.append(model.fit(x, y, batch_size=150, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "covariance"), [("hybrid", "diagonal"), ("composition", "isotropic")])
def test_mixed_precision_trains(objective, covariance, four):
    (x, y), _ = four
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make(objective, num_classes=4, covariance=covariance)
        model.run_eagerly = covariance == "diagonal"  # one of them in a graph
        history = model.fit(x, y, epochs=2, batch_size=100, verbose=0).history
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert np.isfinite(history["loss"]).all()
    assert history["loss"][-1] < history["loss"][0]


# What is wrong is said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "hybird"}, r"loss must.*did you mean 'hybrid'"),
        ({"loss": lambda: Hybrid(1.0)}, r"weight must.*found 1.0"),
        ({"loss": lambda: Composition(1.0)}, r"mass must.*found 1.0"),
        ({"loss": lambda: Composition(0.1)}, r"mass must.*found 0\.1"),
        (
            {"loss": "class", "readout": ds.readout.ArgmaxReadout(method="monte_carlo")},
            r"readout must.*found method 'monte_carlo', which counts draws",
        ),
    ],
)
def test_incompatible_loss_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**{key: value() if callable(value) and key == "loss" else value for key, value in arguments.items()})


def test_sampling_readout_without_gradient_is_accepted():
    make("latent", readout=ds.readout.ArgmaxReadout(method="monte_carlo"))


@pytest.mark.slow
def test_composition_without_fit_raises(few):
    (x, y), _ = few
    model = make("composition", target="one_hot", eager=True)
    with pytest.raises(ValueError, match=r"call fit first, or compile with losses\.Composition\(tau=\.\.\.\)"):
        model.train_on_batch(x, y)
    with pytest.warns(UserWarning, match="what fit computes"):
        accuracy = model.evaluate(x, y, verbose=0)
    assert 0 <= accuracy <= 1
    model.fit(x, y, batch_size=100, verbose=0)
    assert np.isfinite(model.train_on_batch(x, y)[0])


def test_unreachable_mass_raises_before_training(few):
    (x, y), _ = few
    twins, their_labels = np.concatenate([x, x]), np.concatenate([y, (y + 1) % 10])  # every image in two classes
    with pytest.raises(ValueError, match=r"mass 0\.98 cannot be reached.* below 0\.5"):
        make(Composition(0.98)).fit(twins, their_labels, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["hybrid", "composition"])
def test_latent_loss_of_reloaded_distance_target_warns(objective, few, tmp_path):
    (x, y), (x_test, y_test) = few
    model = make(objective, eager=True)
    model.fit(x, y, batch_size=100, verbose=0)
    model.save(tmp_path / "model.keras")
    reloaded = ds.load(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="target.fit"):
        accuracy = reloaded.evaluate(x_test, y_test, verbose=0)
    assert accuracy == pytest.approx(model.evaluate(x_test, y_test, verbose=0)[1])
