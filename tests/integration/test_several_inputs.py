"""Backbones of several inputs: served by name in every format, and CASIMAC by an Embedding that takes them."""

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import deepsimplex as ds
from tests.eager_steps import eagerly

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("onnx_without_copies")]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    table = (np.eye(3)[y] + 0.1 * rng.random((60, 3))).astype("f")
    return {"table": table, "image": rng.random((60, 4, 4)).astype("f")}, y


def inputs():
    return {"table": keras.Input((3,), name="table"), "image": keras.Input((4, 4), name="image")}


def network(form, units=6):
    """A network whose inputs are a dict or a list."""
    named = inputs()
    both = keras.layers.Concatenate()([keras.layers.Flatten()(named["image"]), named["table"]])
    return keras.Model(named if form == "dict" else list(named.values()), keras.layers.Dense(units, "tanh")(both))


def arrays(x, form):
    return x if form == "dict" else list(x.values())


@pytest.fixture(scope="module", params=["dict", "list"])
def model(request, data):
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(network(request.param), "vertices", 3, head="gaussian")
    model.expected = model.predict_proba(arrays(data[0], request.param))
    return model


def run_saved_model(path, x):
    served = ds.export.load_served(path)
    assert {name: spec.shape.as_list() for name, spec in served.inputs.items()} == {
        "table": [None, 3],
        "image": [None, 4, 4],
    }
    return served.predict(x)["class_probabilities"]


def run_onnx(path, x):
    session = onnxruntime.InferenceSession(path)
    assert {each.name for each in session.get_inputs()} == {"table", "image"}
    return session.run(["class_probabilities"], x)[0]


@pytest.mark.filterwarnings("ignore")  # the interpreter is about to have a package of its own
def run_litert(path, x):
    serve = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
    parts = [serve(**{name: array[rows] for name, array in x.items()}) for rows in (slice(0, 1), slice(1, None))]
    return np.concatenate([part["class_probabilities"] for part in parts])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("format", "name", "run"),
    [("tf_saved_model", "m", run_saved_model), ("onnx", "m.onnx", run_onnx), ("litert", "m.tflite", run_litert)],
)
def test_export_has_a_named_tensor_per_input(format, name, run, model, data, tmp_path):
    model.export(tmp_path / name, format=format)
    np.testing.assert_allclose(run(tmp_path / name, data[0]), model.expected, atol=1e-5)


def test_input_dtype_of_single_inputs(data, tmp_path):
    model = ds.SimplexClassifier(network("dict"), "vertices", 3, head="gaussian")
    pixels = (255 * data[0]["image"]).astype("uint8")
    model.export(tmp_path / "m", input_dtype={"image": "uint8"})
    p = ds.export.load_served(tmp_path / "m").predict({**data[0], "image": pixels})["class_probabilities"]
    np.testing.assert_allclose(p, model.predict_proba({**data[0], "image": pixels / np.float32(255)}), atol=1e-5)
    with pytest.raises(ValueError, match=r"a key of input_dtype must.*found 'images'"):
        model.export(tmp_path / "n", input_dtype={"images": "uint8"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"image": x["image"]}, r"samples must.*found \['image'\]"),
        (lambda x: x["image"], r"samples must.*found ndarray"),
        (lambda x: {**x, "more": x["table"]}, "found .*'more'"),
        (lambda x: {**x, "table": x["table"][:, :2]}, r"samples\['table'\] must have shape \['N', 3\], as exported"),
        (lambda x: {**x, "table": x["table"][:5]}, "as many rows in every input; found .*5"),
        (lambda x: {**x, "table": x["table"] * np.nan}, r"samples\['table'\] must be finite"),
    ],
)
def test_invalid_inputs_raise(change, message, data, served):
    with pytest.raises(ValueError, match=message):
        served.predict(change(data[0]))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several") / "m"
    ds.SimplexClassifier(network("dict"), "vertices", 3, head="gaussian").export(folder)
    return ds.export.load_served(folder)


def test_other_inputs_than_those_of_the_backbone_raise(data):
    classifier = ds.SimplexClassifier(network("dict"), "vertices", 3, head="gaussian")
    with pytest.raises(
        ValueError, match=r"x must be a dict of the inputs table, image; found \['again', 'image', 'table'\]"
    ):
        classifier.predict_proba({**data[0], "again": data[0]["table"]})


def test_unnamed_inputs_raise(data, tmp_path):
    class Pair(keras.Model):
        def call(self, samples):
            return keras.ops.concatenate([keras.ops.reshape(samples[1], (-1, 16)), samples[0]], axis=1)

    model = ds.SimplexClassifier(Pair(), "vertices", 3, head="gaussian")
    model.predict_proba(tuple(data[0].values()))
    with pytest.raises(ValueError, match=r"backbone must be a functional model of a dict or a list of keras.Input"):
        model.export(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def one_input(name):
    """A network of one of the inputs."""
    return keras.Sequential([inputs()[name], keras.layers.Flatten()])


@pytest.mark.parametrize("form", ["dict", "list"])
@pytest.mark.parametrize("embedding", [network("dict", 4), network("list", 4)], ids=["dict", "list"])
def test_casimac_with_embedding_of_several_inputs(embedding, form, data):
    x, y = data
    target = ds.targets.CASIMAC(ds.distances.Embedding(embedding))
    features = embedding.predict(arrays(x, "dict" if isinstance(embedding.input, dict) else "list"), verbose=0)
    expected = ds.targets.CASIMAC().fit_transform(features, y).loc
    loc = target.fit_transform(x if form == "dict" else tuple(x.values()), y).loc
    np.testing.assert_allclose(loc, expected, rtol=1e-5, atol=1e-6)  # float32, in other batches
    model = ds.SimplexClassifier(network(form), target, 3, head="gaussian")
    model.compile()
    with eagerly(model):
        history = model.fit(arrays(x, form), y, validation_data=(arrays(x, form), y), verbose=0).history
    assert np.isfinite(history["val_loss"][0])


def test_casimac_with_one_named_input(data):
    x, y = data
    target = ds.targets.CASIMAC(ds.distances.Embedding(one_input("table")))
    expected = ds.targets.CASIMAC().fit_transform(x["table"], y).loc
    np.testing.assert_allclose(target.fit_transform(x, y).loc, expected)
    both = ds.targets.Mean([target, ds.targets.CASIMAC(ds.distances.Embedding(one_input("image")))])
    assert both.fit_transform(x, y).loc.shape == (60, 2)


@pytest.mark.parametrize(
    ("distance", "message"),
    [
        (
            "euclidean",
            r"x must.*found several inputs. Give",
        ),
        (
            ds.distances.Embedding(keras.Sequential([keras.Input((2,), name="other"), keras.layers.Identity()])),
            r"x must.*model's inputs.*\{'other': \(2,\)\}; found",
        ),
    ],
)
def test_inputs_missing_from_distance_raise(distance, message, data):
    with pytest.raises(ValueError, match=message):
        ds.targets.CASIMAC(distance).fit(*data)
