"""Run programs in fresh processes, and test saved and exported classifiers there.

A process is forked from a server that has imported TensorFlow and Keras and done nothing with them, which saves the six
seconds of the imports. Nothing of the tests, nor of deepsimplex, is in its memory.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tensorflow", "keras"])


def run(program: str, *arguments: Any, folder: Path | None = None, exitcode: int = 0) -> str:
    """Run a program with command-line arguments in ``folder``, check its exit code, and return what it printed."""
    with tempfile.TemporaryDirectory() as outputs:
        process = start(program, *arguments, folder=folder, outputs=outputs)
        process.join()
        printed, errors = ((Path(outputs) / name).read_text() for name in ("stdout", "stderr"))
    assert process.exitcode == exitcode, errors
    return printed


def start(program: str, *arguments: Any, outputs: str | Path, folder: Path | None = None) -> Any:
    """Start a program with command-line arguments in ``folder``: its process, which prints to files in ``outputs``."""
    process = SERVER.Process(target=_execute, args=(program, [*map(str, arguments)], folder, str(outputs)))
    process.start()
    return process


def _execute(program: str, arguments: list[str], folder: Path | None, outputs: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        file = os.open(f"{outputs}/{stream.name.strip('<>')}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, stream.fileno())
    if folder:
        os.chdir(folder)
    sys.argv = ["program", *arguments]
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})


IN_A_FRESH_PROCESS = """
import sys, numpy as np, tensorflow as tf
folder = sys.argv[1]
x = np.load(folder + "/x.npy")
serve = tf.saved_model.load(folder + "/served").signatures["serving_default"]
served = {name: value.numpy() for name, value in serve(image=tf.constant(x)).items()}
assert "deepsimplex" not in sys.modules
import keras, deepsimplex
model = keras.models.load_model(folder + "/model.keras")
latent = model.predict_latent(x)
np.savez(folder + "/outputs.npz", p=model.predict(x, verbose=0), loc=latent.loc, scale=latent.scale, **served)
"""


def assert_reloads_and_serves(model: Any, x: Any, tmp_path: Path) -> None:
    """A fitted SimplexClassifier gives the same answers from its .keras file and its SavedModel."""
    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "served")
    np.save(tmp_path / "x.npy", x)
    run(IN_A_FRESH_PROCESS, tmp_path)
    outputs, latent = np.load(tmp_path / "outputs.npz"), model.predict_latent(x)
    for name in ("p", "class_probabilities"):
        np.testing.assert_allclose(outputs[name], model.predict_proba(x), atol=1e-5)
    for name in ("loc", "latent_mean"):
        np.testing.assert_allclose(outputs[name], latent.loc, atol=1e-4)
    for name in ("scale", "latent_scale"):
        np.testing.assert_allclose(outputs[name], latent.scale, atol=1e-4)
