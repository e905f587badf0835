"""Inputs of every dtype and shape: fit, predict and exports take what keras.Input or the first samples state."""

from contextlib import nullcontext

import keras
import numpy as np
import onnxruntime
import pandas as pd
import pytest
import tensorflow as tf
from keras import layers
from sklearn.linear_model import Ridge

import deepsimplex as ds
from deepsimplex.samples import Samples
from tests.eager_steps import eagerly

y = np.arange(24) % 2
TEXTS = np.array(["good film", "awful plot"] * 12)
RNG = np.random.default_rng(0)


def classifier(backbone, target="vertices", num_classes=2, epochs=0, **options):
    model = ds.SimplexClassifier(backbone, target, num_classes, head="gaussian", **options)
    model.compile(keras.optimizers.Adam(0.05))
    return model


def fitted(backbone, x, labels=y, epochs=1, **options):
    model = classifier(backbone, **options)
    with eagerly(model):
        model.fit(x, labels, epochs=epochs, verbose=0)
    return model


def text_backbone(*inputs):
    keras.utils.set_random_seed(0)
    words = layers.TextVectorization(output_sequence_length=2, vocabulary=["good", "film", "awful", "plot"])
    return keras.Sequential([*inputs, words, layers.Embedding(6, 8), layers.GlobalAveragePooling1D()])


# Text

KINDS_OF_TEXT = {
    "str": TEXTS,
    "column": TEXTS[:, None],
    "bytes": TEXTS.astype(np.bytes_),
    "objects": TEXTS.astype(object),
    "StringDType": TEXTS.astype(np.dtypes.StringDType()),
    "tensor": tf.constant(TEXTS),
    "series": pd.Series(TEXTS),
    "frame": pd.DataFrame({"text": TEXTS}),
}


@pytest.mark.parametrize("kind", KINDS_OF_TEXT)
def test_text_of_every_kind_becomes_the_same_tensors(kind):
    (batch, labels), *_ = Samples.of(KINDS_OF_TEXT[kind], y).for_keras(24)
    assert batch.dtype == tf.string
    assert batch.numpy().astype(np.str_).ravel().tolist() == TEXTS.tolist()
    np.testing.assert_array_equal(labels, y)


@pytest.fixture(scope="module", params=["stated", "stated as scalars", "not stated"])
def text_model(request):
    inputs = {"stated": [keras.Input((1,), dtype="string")], "stated as scalars": [keras.Input((), dtype="string")]}
    return fitted(text_backbone(*inputs.get(request.param, [])), TEXTS, epochs=8)


def test_text_is_fitted_calibrated_saved_and_served(text_model, tmp_path):
    p = text_model.predict_proba(TEXTS)
    np.testing.assert_array_equal(p.argmax(axis=1), y)
    batches = tf.data.Dataset.from_tensor_slices((TEXTS, y)).batch(7)
    for held_out in ((TEXTS, y), (batches,)):
        text_model.conformalize(None).calibrate(None).fit_density(*held_out)
        text_model.calibrate(*held_out, method="platt").conformalize(*held_out)
    assert text_model.predict_set(TEXTS).shape == (24, 2)
    p = text_model.predict_proba(TEXTS)
    text_model.save(tmp_path / "m.keras")
    np.testing.assert_allclose(ds.load(tmp_path / "m.keras").predict_proba(TEXTS), p, atol=1e-6)
    text_model.export(tmp_path / "m")
    served = ds.export.load_served(tmp_path / "m")
    assert [spec.dtype for spec in served.inputs.values()] == [tf.string]
    np.testing.assert_allclose(served.predict(TEXTS)["class_probabilities"], p, atol=1e-5)
    with pytest.raises(ValueError, match=r"input_dtype must be 'string' for the input 'image'.*found 'float32'"):
        text_model.export(tmp_path / "n", input_dtype="float32")
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize(("format", "name"), [("onnx", "m.onnx"), ("litert", "m.tflite")])
def test_text_raises_before_a_file_that_cannot_hold_it(format, name, tmp_path):
    model = classifier(text_backbone(keras.Input((1,), dtype="string")))
    with pytest.raises(ValueError, match=f"format='{format}' cannot hold this model"):
        model.export(tmp_path / name, format=format)
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_text_are_not_confused(text_model):
    with pytest.raises(TypeError, match=r"^x must hold text; found dtype float64"):
        text_model.predict_proba(np.zeros((3, 1)))
    numbers = classifier(keras.Sequential([keras.Input((1,)), layers.Dense(2)]))
    with pytest.raises(TypeError, match=r"^x must hold numbers, .*float32; found dtype string"):
        numbers.fit(TEXTS[:, None], y)
    with pytest.raises(TypeError, match=r"x must hold real numbers; found dtype <U10"):
        classifier(text_backbone(), "casimac").fit(TEXTS, y)


# Identifiers and other dtypes

FIRST = 2**24
IDENTIFIERS = (FIRST + np.arange(24) % 4)[:, None]


def identifier_backbone(dtype):
    keras.utils.set_random_seed(0)
    known = layers.IntegerLookup(vocabulary=[FIRST + k for k in range(4)])
    return keras.Sequential([keras.Input((1,), dtype=dtype), known, layers.Embedding(6, 8), layers.Flatten()])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_identifiers_above_the_integers_of_float32_are_served(dtype, tmp_path):
    x, labels = IDENTIFIERS.astype(dtype), np.arange(24) % 4
    model = fitted(identifier_backbone(dtype), x, labels, 25, num_classes=4)
    # Floats, as in a table with missing values, are converted in double precision.
    for samples in (x, x.astype("float64")):
        np.testing.assert_array_equal(model.predict_proba(samples).argmax(axis=1), labels)
    for asked in [None, "int64"][: 1 + (dtype != "int64")]:
        model.export(tmp_path / "m", input_dtype=asked)
        np.testing.assert_array_equal(ds.export.load_served(tmp_path / "m").predict(x)["class_id"], labels)
    with pytest.raises(ValueError, match=r"^input_dtype must be an integer dtype.*found 'float32'"):
        model.export(tmp_path / "m", input_dtype="float32")
    with pytest.raises(ValueError, match=rf"samples must be of dtype int64, as exported; found 1 to {2**63}"):
        ds.export.load_served(tmp_path / "m").predict(np.array([[2**63], [1]], "uint64"))


def lookup(dtype):
    """A network of numbers that are given as a dtype, from 0 to 7."""
    cast = layers.Lambda(lambda x: keras.ops.cast(x, "float32"))
    return keras.Sequential([keras.Input((3,), dtype=dtype), cast, layers.Dense(4, "tanh")])


def run(path, format, x):
    """Class probabilities of a file, in batches of different sizes."""
    parts = x[:1], x[1:]
    if format == "tf_saved_model":
        served = ds.export.load_served(path)
        assert {spec.dtype.as_numpy_dtype for spec in served.inputs.values()} == {x.dtype.type}
        outputs = [served.predict(part)["class_probabilities"] for part in parts]
    elif format == "onnx":
        session = onnxruntime.InferenceSession(path)
        outputs = [session.run(["class_probabilities"], {"image": part})[0] for part in parts]
    else:
        serve = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
        outputs = [serve(image=part)["class_probabilities"] for part in parts]
    return np.concatenate(outputs)


NAMES = {"tf_saved_model": "m", "onnx": "m.onnx", "litert": "m.tflite"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
@pytest.mark.parametrize(
    ("dtype", "formats"),
    [
        ("bool", ["tf_saved_model", "onnx", "litert"]),
        ("int8", ["tf_saved_model", "onnx"]),
        ("int32", ["tf_saved_model", "litert"]),
        ("int64", ["tf_saved_model", "onnx"]),
        ("uint16", ["tf_saved_model", "litert"]),
        ("float16", ["tf_saved_model", "onnx", "litert"]),
        ("float64", ["tf_saved_model", "litert"]),
    ],
)
def test_formats_take_the_dtype_of_the_input(dtype, formats, tmp_path):
    """Conversions take long: each dtype has one, and those of which a converter may know least have both."""
    x = RNG.integers(0, 8, (24, 3)).astype(dtype)
    model = fitted(lookup(dtype), x)
    for format in formats:
        path = tmp_path / NAMES[format]
        model.export(path, format=format)
        np.testing.assert_allclose(run(path, format, x), model.predict_proba(x), atol=1e-6, err_msg=format)


def test_first_samples_state_the_dtype_of_a_backbone_without_inputs(tmp_path):
    x = RNG.integers(0, 8, (24, 3))
    embedding = keras.Sequential([layers.Embedding(8, 4), layers.GlobalAveragePooling1D()])
    model = fitted(embedding, x)
    model.save(tmp_path / "m.keras")
    for one in (model, ds.load(tmp_path / "m.keras")):
        one.export(tmp_path / "m")
        np.testing.assert_allclose(run(tmp_path / "m", "tf_saved_model", x), model.predict_proba(x), atol=1e-6)


def test_double_precision_inputs_are_not_rounded(tmp_path):
    x = 1.7e9 + 10.0 * np.stack([y, 1 - y], axis=1)
    scaled = layers.Normalization(mean=[1.7e9 + 5] * 2, variance=[25.0] * 2, dtype="float64")
    model = fitted(keras.Sequential([keras.Input((2,), dtype="float64"), scaled, layers.Dense(4)]), x, epochs=15)
    np.testing.assert_array_equal(model.predict_proba(x).argmax(axis=1), y)
    model.export(tmp_path / "m")
    np.testing.assert_allclose(run(tmp_path / "m", "tf_saved_model", x), model.predict_proba(x), atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_named_inputs_of_mixed_dtypes_are_served(tmp_path):
    inputs = {
        "text": keras.Input((), dtype="string", name="text"),
        "word": keras.Input((3,), dtype="int64", name="word"),
        "table": keras.Input((2,), name="table"),
    }
    x = {"table": RNG.normal(size=(24, 2)), "word": RNG.integers(0, 8, (24, 3)), "text": TEXTS}
    words = layers.GlobalAveragePooling1D()(layers.Embedding(8, 4)(inputs["word"]))
    text = text_backbone()(inputs["text"])
    for names, parts in ((["word", "table"], [words, inputs["table"]]), ([*inputs], [words, inputs["table"], text])):
        features = layers.Concatenate()(parts)
        given = {name: x[name] for name in names}
        model = fitted(keras.Model({name: inputs[name] for name in names}, features), given)
        p = model.predict_proba(given)
        model.export(tmp_path / "m")
        served = ds.export.load_served(tmp_path / "m").predict(given)
        np.testing.assert_allclose(served["class_probabilities"], p, atol=1e-6)
        if "text" not in names:
            model.export(tmp_path / "m.tflite", format="litert")
            serve = tf.lite.Interpreter(str(tmp_path / "m.tflite")).get_signature_runner("serving_default")
            fed = {**given, "table": given["table"].astype("float32")}
            np.testing.assert_allclose(serve(**fed)["class_probabilities"], p, atol=1e-6)


# Pixels

PIXELS = (RNG.integers(0, 100, (24, 4, 4, 1)) + 150 * y[:, None, None, None]).astype("uint8")


@pytest.mark.parametrize("container", ["array", "tf.data"])
@pytest.mark.parametrize(
    ("rescaling", "convert"),
    [(True, lambda x: x.astype("float32")), (True, lambda x: x), (False, lambda x: x / np.float32(255))],
    ids=["floats to 255", "bytes", "floats to 1"],
)
def test_pixels_are_scaled_once(rescaling, convert, container, tmp_path):
    x = convert(PIXELS)
    scale = [layers.Rescaling(1 / 255)] if rescaling else []
    model = classifier(keras.Sequential([keras.Input((4, 4, 1)), *scale, layers.Flatten(), layers.Dense(4)]))
    with eagerly(model):
        samples = (x, y) if container == "array" else (tf.data.Dataset.from_tensor_slices((x, y)).batch(8),)
        model.fit(*samples, verbose=0)
        # What was fitted first counts.
        with nullcontext() if rescaling else pytest.warns(UserWarning, match="divide x by 255$"):
            model.fit(PIXELS, y, epochs=0, verbose=0)
    model.save(tmp_path / "m.keras")
    ds.load(tmp_path / "m.keras").export(tmp_path / "m", input_dtype="uint8")
    np.testing.assert_allclose(run(tmp_path / "m", "tf_saved_model", PIXELS), model.predict_proba(x), atol=1e-6)


def test_pixels_of_another_scale_raise(tmp_path):
    model = fitted(keras.Sequential([keras.Input((4, 4, 1)), layers.Flatten()]), PIXELS / 127.5 - 1)
    with pytest.raises(ValueError, match=r"^input_dtype must not be 'uint8' for the input 'image'"):
        model.export(tmp_path / "m", input_dtype="uint8")
    model.export(tmp_path / "m", input_dtype="uint8", pixel_scale=127.5)
    expected = model.predict_proba(PIXELS / 127.5)
    np.testing.assert_allclose(run(tmp_path / "m", "tf_saved_model", PIXELS), expected, atol=1e-6)


# Shapes

IMAGES = [(RNG.random((6, 5 + k, 8 - k, 1)).astype("float32"), y[:6]) for k in (0, 0, 0, 1)]


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        return IMAGES[index]


def image_data_set():
    specs = tf.TensorSpec((None, None, None, 1), tf.float32), tf.TensorSpec((None,), tf.int64)
    batches = tf.data.Dataset.from_generator(lambda: iter(IMAGES), output_signature=specs)
    return batches.apply(tf.data.experimental.assert_cardinality(len(IMAGES)))


@pytest.mark.parametrize(("stated", "head"), [(True, "variational"), (False, "gaussian")])
def test_images_of_several_sizes(stated, head):
    inputs = [keras.Input((None, None, 1))] if stated else []
    backbone = keras.Sequential([*inputs, layers.Conv2D(4, 3), layers.GlobalAveragePooling2D()])
    model = ds.SimplexClassifier(backbone, "vertices", 2, head=head)
    model.compile(metrics=["accuracy"])
    with eagerly(model):
        model.fit(image_data_set(), verbose=0, validation_data=image_data_set())
    expected = np.concatenate([model.predict_proba(images) for images, _ in IMAGES])
    np.testing.assert_allclose(model.predict_proba(image_data_set()), expected, atol=1e-6)
    for batches in (image_data_set(), Batches(), iter(IMAGES)):
        model.calibrate(batches, method="platt")
    model.calibrate(None)
    for batches in (image_data_set(), Batches()):
        model.conformalize(None).fit_density(batches).conformalize(batches)
    assert model.predict_set(image_data_set()).shape == (24, 2)


def test_images_of_several_sizes_have_no_distances():
    model = classifier(keras.Sequential([layers.Conv2D(4, 3), layers.GlobalAveragePooling2D()]), "casimac")
    with pytest.raises(
        ValueError, match=r"samples must have one shape.*found batches of shapes \[5, 8, 1\] and \[6, 7, 1\]"
    ):
        model.fit(Batches(), verbose=0)


@pytest.mark.parametrize("batched", [False, True])
def test_ragged_tokens(batched):
    tokens = tf.ragged.constant([[1, 2, 3], [4]] * 12)
    backbone = keras.Sequential(
        [keras.Input((None,), dtype="int32"), layers.Embedding(5, 4), layers.GlobalAveragePooling1D()]
    )
    model = ds.SimplexClassifier(backbone, "vertices", 2)
    model.compile()
    samples = (tf.data.Dataset.from_tensor_slices((tokens, y)).batch(7),) if batched else (tokens, y)
    with eagerly(model):
        model.fit(*samples, verbose=0)
    model.fit_density(*samples).calibrate(*samples, method="platt")
    expected = [model.predict_proba(np.array([row]))[0] for row in tokens.to_list()[:2]] * 12
    np.testing.assert_allclose(model.predict_proba(samples[0]), expected, atol=1e-4)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("shape", [(4, 4, 1), (4,)])
def test_single_sample_raises(shape, stated):
    x = RNG.random((24, *shape))
    model = fitted(keras.Sequential([*([keras.Input(shape)] if stated else []), layers.Flatten(), layers.Dense(3)]), x)
    for method in ("predict", "predict_proba", "predict_latent", "predict_features", "predict_on_batch"):
        with pytest.raises(ValueError, match=r"^x must hold samples \[N, ...\] of shape.*without a batch dimension"):
            getattr(model, method)(x[0])


# Estimators

TIMES = np.column_stack([1.7e9 + 300 * y + 40 * RNG.normal(size=24), RNG.normal(size=24)])
ROUNDED = r"float32 rounds 1 of 2 features; feature 0, from 1\.?699999\d* to 1\.?7\d*, to multiples of 128"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "format"),
    [
        (ds.SimplexGaussianProcess("ilr", max_iter=2), "tf_saved_model"),
        (ds.CategoricalGaussianProcess(inducing=5, epochs=1), "tf_saved_model"),
        (ds.GLVQ(max_iter=2), "onnx"),
        (ds.GPLVQ(max_iter=1), "tf_saved_model"),
        (ds.LatentRegressionClassifier(Ridge(), "vertices", cv=2), "onnx"),
    ],
    ids=["exact", "categorical", "GLVQ", "GPLVQ", "regression"],
)
def test_estimators_are_served_in_double_precision(estimator, format, tmp_path):
    expected, path = estimator.fit(TIMES, y).predict_proba(TIMES), tmp_path / NAMES[format]
    with pytest.warns(UserWarning, match=ROUNDED):
        estimator.export(path, format=format)
    estimator.export(path, format=format, input_dtype="float64")
    if format == "onnx":
        (p,) = onnxruntime.InferenceSession(path).run(["class_probabilities"], {"features": TIMES})
    else:
        p = ds.export.load_served(path).predict(TIMES)["class_probabilities"]
    np.testing.assert_allclose(p, expected, atol=1e-9)


def test_networks_warn_of_features_that_they_round(tmp_path):
    network = ds.estimators.SimplexNetworkClassifier({"name": "mlp", "hidden": [2]}, "vertices", epochs=0)
    with pytest.warns(UserWarning, match=ROUNDED):
        network.fit(TIMES, y)
    with pytest.raises(ValueError, match=r"^input_dtype must.*found 'float64'"):
        network.export(tmp_path / "m", input_dtype="float64")


def test_ranges_of_streams_are_those_of_arrays():
    batches = tf.data.Dataset.from_tensor_slices((TIMES, y)).batch(7)
    process = ds.CategoricalGaussianProcess(inducing=5, epochs=0).fit(batches)
    np.testing.assert_array_equal(process.feature_range_, [TIMES.min(axis=0), TIMES.max(axis=0)])
