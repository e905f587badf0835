import keras
import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.geometry import helmert, vertices
from deepsimplex.readout import ArgmaxReadout, SoftmaxReadout, argmax, softmax

SCALES = {"isotropic": (1,), "diagonal": (3,), "full": (3, 3)}
LAYERS = [
    (ArgmaxReadout, {"num_points": 32}, argmax),
    (ArgmaxReadout, {"num_points": 32, "scores": helmert(4).T, "method": "quasi_monte_carlo", "seed": 3}, argmax),
    (SoftmaxReadout, {"num_points": 64, "scores": helmert(4).T, "seed": 2}, softmax),
]
each_layer = pytest.mark.parametrize(("layer", "arguments", "function"), LAYERS)


def latent_of(kind, rows=5, dtype="float32"):
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.3, 1.0, (rows, *SCALES[kind]))
    scale = np.tril(scale) if kind == "full" else scale
    return {"loc": rng.normal(size=(rows, 3)).astype(dtype), "scale": scale.astype(dtype)}


def tensors(latent):
    """The latent as tensors, which functions compute step by step: arrays would have a graph traced."""
    return {key: tf.constant(value) for key, value in latent.items()}


def model_with(layer, kind):
    inputs = {"loc": keras.Input((3,), name="loc"), "scale": keras.Input(SCALES[kind], name="scale")}
    return keras.Model(inputs, layer(inputs))


@each_layer
@pytest.mark.parametrize("kind", list(SCALES))
def test_layer_agrees_with_function(layer, arguments, function, kind):
    latent = latent_of(kind)
    expected = function(tensors(latent), **arguments)
    np.testing.assert_allclose(layer(**arguments)(latent), expected, atol=1e-6)
    model = model_with(layer(**arguments), kind)
    assert model.output.shape == (None, 4)
    np.testing.assert_allclose(model.predict(latent, verbose=0), expected, atol=1e-6)


@each_layer
def test_config_round_trip(layer, arguments, function):
    first = layer(**arguments, name="readout")
    config = keras.saving.serialize_keras_object(first)
    second = keras.saving.deserialize_keras_object(config)
    assert second.get_config() == first.get_config()
    np.testing.assert_array_equal(second(latent_of("diagonal")), first(latent_of("diagonal")))


@each_layer
def test_output_shapes_and_dtypes_are_static(layer, arguments, function):
    readout = layer(**arguments)
    assert readout.compute_output_shape({"loc": (None, 3), "scale": (None, 1)}) == (None, 4)
    spec = readout.compute_output_spec({"loc": keras.KerasTensor((None, 3)), "scale": keras.KerasTensor((None, 3))})
    assert (spec.shape, spec.dtype) == ((None, 4), "float32")


@each_layer
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_gives_float32(layer, arguments, function, dtype):
    half = {key: tf.cast(value, dtype) for key, value in latent_of("diagonal").items()}
    readout = layer(**arguments, dtype="mixed_" + dtype)
    p = readout(half)
    assert p.dtype == tf.float32
    exact = function({key: tf.cast(value, tf.float32) for key, value in half.items()}, **arguments)
    np.testing.assert_allclose(p, exact, atol=1e-6)
    full_precision = readout(latent_of("diagonal"))  # float32 inputs are not cast down either
    np.testing.assert_allclose(full_precision, function(tensors(latent_of("diagonal")), **arguments), atol=1e-6)
    model = model_with(readout, "diagonal")
    assert model.output.dtype == "float32"


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "arguments", "function"), LAYERS[1:])
def test_model_ending_in_layer_trains_reloads_and_exports(layer, arguments, function, tmp_path):
    inputs = keras.Input((6,))
    loc = keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(1))(inputs)
    scale = keras.layers.Dense(2, "softplus", kernel_initializer=keras.initializers.GlorotUniform(2))(inputs)
    three_classes = {**arguments, "scores": helmert(3).T}
    model = keras.Model(inputs, layer(**three_classes)({"loc": loc, "scale": scale}))
    model.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", run_eagerly=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 6)).astype("float32")
    y = rng.integers(0, 3, 32)
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, epochs=3, batch_size=32, verbose=0)
    assert model.evaluate(x, y, verbose=0) < before
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    again.run_eagerly = True
    np.testing.assert_array_equal(again.predict(x, verbose=0), expected)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(x), expected, atol=1e-6)
    np.testing.assert_allclose(served.serve(x[:3]), expected[:3], atol=1e-6)


def test_mismatched_scores_and_methods_raise_at_build():
    with pytest.raises(ValueError, match=r"scores must.*found \(4, 4\)"):
        model_with(ArgmaxReadout(scores=np.eye(4)), "diagonal")
    with pytest.raises(ValueError, match="method='exact' needs"):
        model_with(ArgmaxReadout(method="exact"), "diagonal")
    with pytest.raises(ValueError, match=r"method must.*found 'guess'"):
        ArgmaxReadout(method="guess")  # type: ignore[arg-type]


@pytest.mark.parametrize("layer", [ArgmaxReadout, SoftmaxReadout])
@pytest.mark.parametrize(
    "changes",
    [{"scores": helmert(4).T}, {"scores": None}, {"method": "quasi_monte_carlo", "num_points": 16}, {"seed": 5}],
)
def test_changed_settings_count_after_a_call(layer, changes):
    latent = tensors(latent_of("diagonal"))
    given = {"scores": 2 * vertices(4), "num_points": 32} | (
        {"method": "quasi_monte_carlo"} if "seed" in changes else {}
    )
    readout = layer(**given)
    before = readout(latent).numpy()
    for name, value in changes.items():
        setattr(readout, name, value)
    np.testing.assert_array_equal(readout(latent), layer(**(given | changes))(latent))
    assert layer is ArgmaxReadout or np.abs(readout(latent) - before).max() > 0


@pytest.mark.parametrize("layer", [ArgmaxReadout, SoftmaxReadout])
@pytest.mark.parametrize("scale", [(1, 1), (2, 1), (1, 2), (4, 2, 2), (3, 2, 1)])
def test_used_layer_checks_shapes_as_a_fresh_one(layer, scale):
    readout, loc = layer(), tf.zeros([3, 2])
    for kind in (1,), (2,), (2, 2):
        readout({"loc": loc, "scale": tf.ones([3, *kind])})
    for each in (readout, layer()):
        for compute in (each, each.log_probabilities, each.predict):
            with pytest.raises(ValueError, match=r"scale must have shape \[N, 1\].*loc of shape \(3, 2\)"):
                compute({"loc": loc, "scale": tf.ones(scale)})


def test_training_uses_few_points_unless_formula_is_cheap():
    latent = {"loc": np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4), "scale": np.ones((2, 4), "float32")}
    fine, coarse = (ArgmaxReadout(seed=3)(latent, training=training).numpy() for training in (False, True))
    np.testing.assert_allclose(coarse, fine, atol=0.03)
    assert np.abs(coarse - fine).max() > 1e-5
    sixteen = ArgmaxReadout(method="quasi_monte_carlo", num_points=16, seed=3)
    np.testing.assert_array_equal(coarse, sixteen(latent))
    shared = {**latent, "scale": np.ones((2, 1), "float32")}
    np.testing.assert_array_equal(ArgmaxReadout()(shared, training=True), ArgmaxReadout()(shared))
    sampled = SoftmaxReadout(method="quasi_monte_carlo", num_points=16)(shared)
    np.testing.assert_array_equal(SoftmaxReadout()(shared, training=True), sampled)
    two_classes = {"loc": latent["loc"][:, :1], "scale": shared["scale"]}
    np.testing.assert_array_equal(SoftmaxReadout()(two_classes, training=True), SoftmaxReadout()(two_classes))


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("readout", [ArgmaxReadout, SoftmaxReadout])
def test_training_of_many_classes_tells_the_likeliest_class(readout, kind):
    n, rows = 100, 30
    rng = np.random.default_rng(0)
    label = rng.integers(0, n, rows)
    loc = 8.0 * vertices(n)[label] + 0.1 * rng.normal(size=(rows, n - 1))
    shape = {"isotropic": (rows, 1), "diagonal": (rows, n - 1), "full": (rows, n - 1, n - 1)}[kind]
    scale = np.broadcast_to(np.eye(n - 1) if kind == "full" else 1.0, shape)
    latent = {"loc": tf.constant(loc, tf.float32), "scale": tf.constant(scale, tf.float32)}
    p = readout()(latent, training=True).numpy()
    exact = readout()({**latent, "scale": tf.ones((rows, 1))}).numpy()
    assert (p.argmax(axis=1) == label).all()
    likelihood, expected = (np.log(shares[np.arange(rows), label]).mean() for shares in (p, exact))
    assert likelihood == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "kind", "method"),
    # The argmax of a full scale goes the way of a diagonal one, from a factor that the softmax has too; that of one
    # variance is compiled in a classifier (tests/test_classifier_losses.py).
    [
        (ArgmaxReadout, "diagonal", "quasi_monte_carlo"),
        (SoftmaxReadout, "isotropic", "auto"),
        (SoftmaxReadout, "full", "auto"),
    ],
)
def test_training_compiles_with_xla(layer, kind, method):
    """Three classes, in batches of a size that the graph does not know, as fit makes them."""
    inputs = keras.Input((6,))
    shape = {"isotropic": (1,), "diagonal": (2,), "full": (2, 2)}[kind]
    scale = keras.layers.Reshape(shape)(keras.layers.Dense(int(np.prod(shape)), "softplus")(inputs))
    readout = layer(method=method, num_points=16)
    latent = {"loc": keras.layers.Dense(2)(inputs), "scale": scale}
    model = keras.Model(inputs, readout(latent))
    latent_model = keras.Model(inputs, latent)
    log_p = tf.function(lambda x: tf.reduce_mean(readout.log_probabilities(latent_model(x))), autograph=False)
    x = np.random.default_rng(0).normal(size=(16, 6)).astype("float32")
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
    assert np.isfinite(model.fit(x, np.arange(16) % 3, batch_size=8, verbose=0).history["loss"]).all()
    assert np.isfinite(log_p(x))


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("layer", [ArgmaxReadout, SoftmaxReadout])
def test_graph_has_no_python_functions(layer, kind):
    """Such a graph could be exported, but would run in no other process."""
    signature = {"loc": tf.TensorSpec([None, 3]), "scale": tf.TensorSpec([None, *SCALES[kind]])}
    traced = tf.function(layer(), input_signature=[signature], autograph=False)
    graph = traced.get_concrete_function().graph.as_graph_def()
    functions = [node for function in graph.library.function for node in function.node_def]
    operations = {node.op for node in [*graph.node, *functions]}
    assert len(operations) > 5
    assert not {operation for operation in operations if "PyFunc" in operation}
