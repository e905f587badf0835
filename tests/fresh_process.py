"""What every classifier that is saved and exported must do where nothing of it is in memory."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

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
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outputs, latent = np.load(tmp_path / "outputs.npz"), model.predict_latent(x)
    for name in ("p", "class_probabilities"):
        np.testing.assert_allclose(outputs[name], model.predict_proba(x), atol=1e-5)
    for name in ("loc", "latent_mean"):
        np.testing.assert_allclose(outputs[name], latent.loc, atol=1e-4)
    for name in ("scale", "latent_scale"):
        np.testing.assert_allclose(outputs[name], latent.scale, atol=1e-4)
