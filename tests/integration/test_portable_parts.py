"""ONNX and LiteRT files of classifiers with several inputs, and with prediction sets from left-out samples."""

import copy

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from tests import test_jackknife_plus, test_several_inputs
from tests.portable_files import RUNNERS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("onnx_without_copies")]
data, model, network = test_several_inputs.data, test_several_inputs.model, test_jackknife_plus.network


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
@pytest.mark.parametrize(("format", "name", "run"), [("onnx", "m.onnx", run_onnx), ("litert", "m.tflite", run_litert)])
def test_export_has_a_named_tensor_per_input(format, name, run, model, data, tmp_path):
    model.export(tmp_path / name, format=format)
    np.testing.assert_allclose(run(tmp_path / name, data[0]), model.expected, atol=1e-5)


@pytest.mark.parametrize("format", ["onnx", "litert"])
def test_portable_files_keep_sets(format, network, tmp_path):
    classifier, X, y = network
    classifier = copy.deepcopy(classifier).conformalize(X, y, 0.8, left_out=True)
    name, run = RUNNERS[format]
    classifier.export(tmp_path / name, format=format)
    x = X[:7].astype(np.float32)
    served = run(tmp_path / name, x)
    np.testing.assert_array_equal(served["prediction_set"], classifier.predict_set(x))
