"""Agreement of ONNX and LiteRT files with the classifier that they were exported from.

    python -m training.benchmarks.portable_formats [--output portable_formats.json]

A row for every head, covariance and readout, of two classes and of four, after an epoch of the digits: the largest
difference of a class probability from ``predict_proba`` over 100 test images, and the sizes of the files.
"""

import itertools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnxruntime
import tensorflow as tf
import typer

import deepsimplex as ds
from training.results import Output, ResultTable

HEADS: dict[str, dict[str, Any]] = {
    "Gaussian, isotropic": {"covariance": "isotropic"},
    "Gaussian, diagonal": {"covariance": "diagonal"},
    "Gaussian, full": {"covariance": "full"},
    "prototypes": {"head": "prototypes"},
    "variational": {"head": "variational"},
}
SUFFIXES = {"onnx": ".onnx", "litert": ".tflite"}


def served_by_onnx(path: Path, x: np.ndarray) -> np.ndarray:
    """Class probabilities [N, n] that onnxruntime computes."""
    return onnxruntime.InferenceSession(path).run(["class_probabilities"], {"image": x})[0]


def served_by_litert(path: Path, x: np.ndarray) -> np.ndarray:
    """Class probabilities [N, n] that LiteRT's interpreter computes, image by image."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LiteRT's interpreter will move to another package
        serve = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
    return np.concatenate([serve(image=one[None])["class_probabilities"] for one in x])


def main(output: Output = None) -> None:
    """Fit, export, run, and print."""
    (x, y), (x_test, _) = ds.datasets.load("digits")
    table = ResultTable("training.benchmarks.portable_formats")
    for (head, arguments), readout, n in itertools.product(HEADS.items(), ("argmax", "softmax"), (2, 4)):
        keras.utils.set_random_seed(0)
        model = ds.SimplexClassifier(ds.backbones.mlp([16]), "vertices", n, readout=readout, **arguments)
        model.compile(keras.optimizers.Adam(0.01))
        model.fit(x[y < n], y[y < n], verbose=0)
        p = model.predict_proba(x_test[:100])
        row: dict[str, Any] = {}
        for format, served in {"onnx": served_by_onnx, "litert": served_by_litert}.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"model{SUFFIXES[format]}"
                model.export(path, format=format, verbose=False)
                row[f"{format}: difference"] = f"{np.abs(served(path, x_test[:100]) - p).max():.1e}"
                row[f"{format}: kB"] = round(path.stat().st_size / 1024)
        table.add(head=head, readout=readout, classes=n, **row)
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
