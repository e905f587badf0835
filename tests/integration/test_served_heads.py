"""Heads that adapt to samples, saved and exported, give the same answers in another process."""

import keras
import numpy as np
import pytest

import deepsimplex as ds
from tests.fresh_process import run

HEADS = {
    "variational": {"name": "variational", "inducing": 20},
    "prototypes": {"name": "prototypes", "prototypes_per_class": 2},
}
IN_A_FRESH_PROCESS = """
import sys, numpy as np, tensorflow as tf
x = np.load("x.npy")
outputs = {}
for name in sys.argv[1:]:
    serve = tf.saved_model.load(name).signatures["serving_default"]
    outputs[name] = {key: value.numpy() for key, value in serve(image=tf.constant(x)).items()}
assert "deepsimplex" not in sys.modules
import keras, deepsimplex
for name, served in outputs.items():
    model = keras.models.load_model(name + ".keras")
    latent = model.predict_latent(x)
    np.savez(name + ".npz", p=model.predict(x, verbose=0), loc=latent.loc, scale=latent.scale, **served)
"""


@pytest.mark.slow
def test_classifiers_reload_and_serve_in_a_fresh_process(four, tmp_path):
    (x, y), (x_test, _) = four
    models = {}
    for name, head in HEADS.items():
        keras.utils.set_random_seed(0)
        model = models[name] = ds.SimplexClassifier(ds.backbones.mlp([16]), "vertices", 4, head=head)
        model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
        model.fit(x, y, batch_size=100, verbose=0)
        model.save(tmp_path / f"{name}.keras")
        model.export(tmp_path / name)
    np.save(tmp_path / "x.npy", x_test[:23])
    run(IN_A_FRESH_PROCESS, *models, folder=tmp_path)
    for name, model in models.items():
        outputs, latent = np.load(tmp_path / f"{name}.npz"), model.predict_latent(x_test[:23])
        for key in ("p", "class_probabilities"):
            np.testing.assert_allclose(outputs[key], model.predict_proba(x_test[:23]), atol=1e-5)
        for key in ("loc", "latent_mean"):
            np.testing.assert_allclose(outputs[key], latent.loc, atol=1e-4)
        for key in ("scale", "latent_scale"):
            np.testing.assert_allclose(outputs[key], latent.scale, atol=1e-4)
