"""ONNX and LiteRT files, run by ONNX Runtime and by LiteRT's interpreter on arrays."""

import warnings

import numpy as np
import onnxruntime
import tensorflow as tf


def run_onnx(path, x):
    session = onnxruntime.InferenceSession(path)
    assert [each.name for each in session.get_inputs()] == ["image"]
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, {"image": x}), strict=True))


def run_litert(path, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the interpreter is about to move to another package
        serve = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
    outputs = [serve(image=part) for part in (x[:1], x[1:])]  # batches of any size
    return {name: np.concatenate([output[name] for output in outputs]) for name in outputs[0]}


RUNNERS = {"onnx": ("model.onnx", run_onnx), "litert": ("model.tflite", run_litert)}
