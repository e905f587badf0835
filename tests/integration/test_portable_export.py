"""ONNX and LiteRT files give what the classifier gives: run by onnxruntime and by LiteRT's interpreter."""

import json

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import scipy.special
import tensorflow as tf
from sklearn.datasets import load_wine
from tf2onnx.handler import tf_op

import deepsimplex as ds
from deepsimplex._utils import portable_operations as portable
from tests.portable_files import RUNNERS, run_litert

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("onnx_without_copies")]

KINDS = {
    "argmax of two": {"n": 2},
    "argmax of three": {"n": 3},
    "argmax, isotropic": {"n": 10},
    "argmax, independent": {"n": 4, "target": "one_hot", "covariance": "diagonal"},
    "argmax, full": {"n": 4, "covariance": "full"},
    "softmax of two": {"n": 2, "readout": "softmax"},
    "softmax, isotropic": {"n": 4, "readout": "softmax"},
    "softmax, full": {"n": 4, "readout": "softmax", "covariance": "full"},
    "prototypes": {"n": 4, "head": "prototypes"},
    "variational": {"n": 4, "head": {"name": "variational", "inducing": 20}},
}
# Conversions take seconds: one format each where both have the same operations, and calibrations on the way.
SERVED = {
    "onnx": dict.fromkeys(KINDS)
    | {"argmax of three": "isotonic", "argmax, full": "temperature", "prototypes": "platt"},
    "litert": {
        "argmax of three": "isotonic",
        "argmax, isotropic": "latent",
        "argmax, full": "bias_corrected_temperature",
        "softmax, isotropic": None,
        "prototypes": "platt",
        "variational": None,
    },
}
# Of RiskControl.
MISSES = (0.4, "false_negative_rate", 0.1, "learn_then_test", None, 1)


@pytest.fixture(scope="module")
def samples(few):
    (x, y), _ = few
    return x[:200], y[:200]


def make(samples, n, target="vertices", **arguments):
    """An untrained classifier whose head is adapted to the samples."""
    keras.utils.set_random_seed(0)
    x, y = samples
    backbone = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Flatten(), keras.layers.Dense(6, "tanh")])
    model = ds.SimplexClassifier(backbone, target, n, **{"head": "gaussian", **arguments})
    if not model.head.adapted:
        model.head.adapt(x[y < n], y[y < n], backbone)
    model(x[:2])
    return model


each_format = pytest.mark.parametrize("format", RUNNERS)


def assert_serves(model, x, format, folder, fed=None, **options):
    name, runner = RUNNERS[format]
    model.export(folder / name, format=format, **options)
    outputs = runner(folder / name, x if fed is None else fed)
    sets = [] if model.prediction_sets is None else ["prediction_set"]
    density = [] if model.density is None else ["familiarity"]
    unknown = [] if model.unknown is None else ["unknown"]
    rule = [] if model.decision_rule is None else ["decision"]
    expected = ["class_id", "class_probabilities", *rule, *density, "latent_mean", "latent_scale", *sets, *unknown]
    assert sorted(outputs) == expected
    for name in density:  # a thousandth for every quantile
        np.testing.assert_allclose(outputs[name], model.familiarity(x), atol=2e-3)
    for name in unknown:
        np.testing.assert_allclose(outputs[name], model.unknown_score(x), atol=5e-3)
    for name in rule:
        np.testing.assert_array_equal(outputs[name], model.decide(x))
    for name in sets:
        np.testing.assert_array_equal(outputs[name], model.predict_set(x))
    p, latent = model.predict_proba(x), model.predict_latent(x)
    np.testing.assert_allclose(outputs["class_probabilities"], p, atol=1e-5)
    np.testing.assert_array_equal(outputs["class_id"], outputs["class_probabilities"].argmax(axis=1))
    np.testing.assert_allclose(outputs["latent_mean"], latent.loc, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs["latent_scale"], latent.scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("format", "kind"), [(format, kind) for format in SERVED for kind in SERVED[format]])
def test_every_readout_head_and_calibration_is_served(format, kind, samples, tmp_path):
    model, (x, _) = make(samples, **KINDS[kind]), samples
    if kind == "softmax, isotropic":
        # Branches that are not taken overflow, and so do scales from 89 on in a softplus that is not careful.
        kernel, *others, bias = model.head.get_weights()
        model.head.set_weights([kernel, others[0], 300 * kernel[:, :1], bias - 150])
        scale = model.predict_latent(x[:7]).scale
        assert scale.min() < 1
        assert scale.max() > 100
    if method := SERVED[format][kind]:
        y = model.predict_proba(x).argmax(axis=1)
        y[::6] = (y[::6] + 1) % model.num_classes  # labels that its probabilities know something of
        model.calibrate(x, y, method=method)
        n, with_costs = model.num_classes, method in ("platt", "isotonic")
        model.set_priors(np.arange(n) + 1.0, trained=np.ones(n))
        model.conformalize(x, y, method="aps" if method == "platt" else "lac")
        rule = ds.calibration.ExpectedCost(1 - np.eye(n), 0.4) if with_costs else ds.calibration.RiskControl(*MISSES)
        model.set_decision(rule, *(() if with_costs else (x, y)))
    assert_serves(model, x[:7], format, tmp_path)


@pytest.mark.parametrize("format", SERVED)
def test_nearest_neighbor_density_is_served(format, samples, tmp_path):
    model, (x, _) = make(samples, **KINDS["argmax, isotropic"]), samples
    model.fit_density(x, model.predict_proba(x).argmax(axis=1)).fit_unknown(x)
    assert_serves(model, np.concatenate([x[:7], 3 * x[:2]]), format, tmp_path)


@each_format
def test_closed_form_head_is_served_with_unknown_score(format, samples, tmp_path):
    x, y = samples
    backbone = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Flatten()])
    model = ds.SimplexClassifier(backbone, num_classes=10, head={"name": "closed_form", "inducing": 150})
    model.compile()
    model.fit(x, y, verbose=0)
    assert_serves(model, np.concatenate([x[:7], 1 - x[:3]]), format, tmp_path)
    model.conformalize(x, y, 0.8, left_out=True)
    assert_serves(model, x[:7], format, tmp_path)


@pytest.mark.parametrize(
    "classifier",
    [
        ds.SimplexGaussianProcess("dirichlet", max_iter=3),
        ds.SimplexGaussianProcess(
            "ilr", inference="collapsed", inducing=10, kernel="matern52", ard=True, readout="argmax", max_iter=3
        ),
        ds.CategoricalGaussianProcess(inducing=10, epochs=1),
    ],
    ids=["exact", "collapsed", "categorical"],
)
def test_gaussian_processes_are_served_by_onnx(classifier, tmp_path):
    X, y = load_wine(return_X_y=True)
    X = X.astype("float32")
    classifier.fit(X[::2], y[::2]).export(tmp_path / "m.onnx", format="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (p,) = session.run(["class_probabilities"], {"features": X[1::2]})
    np.testing.assert_allclose(p, classifier.predict_proba(X[1::2]), atol=1e-8)
    with pytest.raises(ValueError, match="format must be one of"):
        classifier.export(tmp_path / "m.tflite", format="litert")


@each_format
def test_integer_pixels_are_served(format, samples, tmp_path):
    x = np.round(samples[0][:5] * 255).astype("uint8")
    assert_serves(make(samples, 3), x / np.float32(255), format, tmp_path, fed=x, input_dtype="uint8")


def test_onnx_keeps_class_names(samples, tmp_path):
    make(samples, 2, class_names=["Wörth", "b"]).export(tmp_path / "m.onnx", format="onnx")
    (names,) = [each.value for each in onnx.load(tmp_path / "m.onnx").metadata_props if each.key == "class_names"]
    assert json.loads(names) == ["Wörth", "b"]


def test_tf2onnx_conversions_are_restored_after_export(samples, tmp_path):
    make(samples, 2).export(tmp_path / "m.onnx", format="onnx")
    handlers = [opset[name][0] for opset in tf_op.get_opsets()[""] for name in ("SelectV2", "Log") if name in opset]
    assert handlers
    assert all(handler.__module__.startswith("tf2onnx.") for handler in handlers)


def test_litert_weights_of_fewer_bits(samples, tmp_path):
    model, (x, _) = make(samples, 3), samples
    for optimizations in ([], [tf.lite.Optimize.DEFAULT]):
        model.export(tmp_path / "m.tflite", format="litert", optimizations=optimizations)
        p = run_litert(tmp_path / "m.tflite", x[:7])["class_probabilities"]
        np.testing.assert_allclose(p, model.predict_proba(x[:7]), atol=0.02 if optimizations else 1e-5)
    for wrong in ("DEFAULT", ["DEFAULT"], tf.lite.Optimize.DEFAULT):
        with pytest.raises(TypeError, match=r"^optimizations must be a list, such as .*found .*DEFAULT"):
            model.export(tmp_path / "m.tflite", format="litert", optimizations=wrong)
    with pytest.raises(TypeError, match=r"^optimizations must be given with format='litert'.*found format='onnx'"):
        model.export(tmp_path / "m.onnx", format="onnx", optimizations=[])
    with pytest.raises(ValueError, match=r"^representative_dataset must not be given"):
        model.export(tmp_path / "n.tflite", format="litert", representative_dataset=lambda: iter(()))
    with pytest.raises(ValueError, match="optimisations"):
        model.export(tmp_path / "n.tflite", format="litert", optimisations=[])
    assert {path.name for path in tmp_path.iterdir()} == {"m.tflite", "m.tflite.md"}  # with its model card


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_litert_of_quantized_model_raises_before_writing(samples, tmp_path):
    model = make(samples, 3)
    model.quantize("int8")
    with pytest.raises(ValueError, match=r"^format='litert' cannot hold this model: .*export before it") as raised:
        model.export(tmp_path / "m.tflite", format="litert")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@each_format
def test_unsupported_operations_raise_before_writing(format, samples, tmp_path):
    model = make(samples, 3, readout="softmax")
    model.readout.call = lambda latent, training=None: tf.math.igamma(2.0, latent["loc"] @ np.eye(2, 3, dtype="f"))
    with pytest.raises(ValueError, match=f"format='{format}' cannot hold this model: .*Igamma"):
        model.export(tmp_path / RUNNERS[format][0], format=format)
    assert list(tmp_path.iterdir()) == []


def test_constant_tensors_are_constants_in_onnx(samples, tmp_path):
    x, _ = samples
    normalization = keras.layers.Normalization(axis=(1, 2))
    normalization.adapt(x)
    backbone = keras.Sequential([keras.Input(x.shape[1:]), normalization, keras.layers.Flatten()])
    assert_serves(ds.SimplexClassifier(backbone, "vertices", 3), x[:7], "onnx", tmp_path)


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("m.onnx", "onxx", "format must be one of"),
        ("m.pb", "onnx", r"filepath must.*found 'm.pb'"),
        ("m", "litert", r"filepath must end in .tflite"),
        ("m.onnx", "tf_saved_model", r"must be a folder for .*for 'm.onnx' give format='onnx'"),
    ],
)
def test_invalid_format_or_suffix_raises(name, format, message, samples, tmp_path):
    with pytest.raises(ValueError, match=message):
        make(samples, 2).export(tmp_path / name, format=format)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_portable_operations_match_tensorflow(dtype):
    eps = np.finfo(dtype).eps
    x = np.linspace(-8, 8 if dtype == "float32" else 25, 2001).astype(dtype)
    small = np.concatenate([np.geomspace(1e-12, 0.9, 200), -np.geomspace(1e-12, 0.9, 200)]).astype(dtype)
    with portable.portable_operations("onnx"):
        # exp(-x^2) is as precise as x^2 is.
        expected = scipy.special.erfc(x.astype("float64"))
        np.testing.assert_allclose(portable.erfc(x), expected, rtol=2 * eps * (4 + x.max() ** 2))
        np.testing.assert_allclose(portable.log1p(small), np.log1p(small.astype("float64")), rtol=8 * eps)
        np.testing.assert_allclose(portable.expm1(small), np.expm1(small.astype("float64")), rtol=8 * eps)
