"""A module beside the configuration file defines members of every kind; a run reaches them by name."""

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex import experiments
from deepsimplex.experiments import load_config, load_predictions
from tests.fresh_process import run
from tests.quick_runs import without_pictures

MODULE = """
import keras
import numpy as np
import tensorflow as tf

import deepsimplex as ds


@keras.saving.register_keras_serializable(package="members")
class Corners(ds.targets.LabelTarget):
    default_readout = "softmax"

    def __init__(self, size=1.0):
        self.size = size

    def scores(self, n):
        return np.eye(n)

    def latents(self, memberships):
        return ds.LatentGaussian(self.size * memberships, np.zeros((len(memberships), 1)))


@keras.saving.register_keras_serializable(package="members")
class Squared(ds.readout.Readout):
    def __init__(self, floor=1e-3, **options):
        super().__init__(**options)
        self.floor = floor

    def class_probabilities(self, points):
        squares = tf.square(tf.nn.relu(self.score(points))) + self.floor
        return squares / tf.reduce_sum(squares, axis=-1, keepdims=True)

    def get_config(self):
        return {**super().get_config(), "floor": self.floor}


@keras.saving.register_keras_serializable(package="members")
class Affine(keras.layers.Layer):
    def __init__(self, latent_dim, scale=0.3, **options):
        super().__init__(**options)
        self.latent_dim, self.scale = latent_dim, scale
        self.dense = keras.layers.Dense(latent_dim)

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, features):
        loc = self.dense(features)
        return {"loc": loc, "scale": self.scale * keras.ops.ones_like(loc[:, :1])}

    def get_config(self):
        return {**super().get_config(), "latent_dim": self.latent_dim, "scale": self.scale}


@keras.saving.register_keras_serializable(package="members")
class SquaredError(ds.losses.LatentLoss):
    def call(self, observation, latent):
        return keras.ops.sum((observation["loc"] - latent["loc"]) ** 2, axis=-1)


@keras.saving.register_keras_serializable(package="members")
class Softened(ds.calibration.Calibration):
    fitted_attributes = ("share_",)

    def fit_outputs(self, y, *, probabilities, latent=None, readout=None, sample_weight=None):
        self.share_ = 0.9
        return self

    def apply_probabilities(self, p):
        return self.share_ * p + (1 - self.share_) / p.shape[-1]


@keras.saving.register_keras_serializable(package="members")
class Chebyshev(ds.distances.Distance):
    symmetric = True

    def __call__(self, a, b):
        return np.abs(a - b).max()

    def get_config(self):
        return {}


def features(units=8):
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(units, activation="relu")])
"""
CONFIG = """
name: own
data: {name: digits, limit: 300, validation_fraction: 0.2}
target: {name: "own_run_members:Corners", size: 2.0}
model:
  backbone: {name: "own_run_members:features", units: 16}
  head: {name: "own_run_members:Affine", scale: 0.2}
  readout: {name: "own_run_members:Squared", floor: 0.01}
training: {epochs: 3, batch_size: 12, learning_rate: 0.01, loss: "own_run_members:SquaredError"}
cache_dir: null
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("own")
    (place / "own_run_members.py").write_text(MODULE)
    (place / "own.yaml").write_text(f"{CONFIG}output: {place / 'runs'}\n")
    before = list(sys.path)
    yield place / "own.yaml"
    sys.path[:] = before


IN_A_FRESH_PROCESS = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import own_run_members, deepsimplex as ds
for path in sys.argv[3:]:
    model = ds.load(path)
    print(type(model.target).__name__, type(getattr(model.target, "distance", None)).__name__)
    np.save(path + ".npy", model.predict_proba(np.load(sys.argv[2])))
"""


@pytest.mark.slow
def test_a_distance_of_ones_own_and_files_in_a_fresh_process(config, tmp_path):
    few = ["training.epochs=1", "training.batch_size=60"]
    distance = {"name": "casimac", "distance": "own_run_members:Chebyshev"}
    checked = load_config(config, [f"target={distance}", "model.readout=null", "name=distance", *few])
    with without_pictures(export=False, eager=True):
        fresh = load_config(config, ["name=fresh", *few])
        folders = [experiments.train(each, verbose=0) for each in (checked, fresh)]
    assert type(ds.load(folders[0].model).target.distance).__name__ == "Chebyshev"
    (_, _), (x_test, _) = ds.datasets.load("digits")
    np.save(tmp_path / "x.npy", x_test)
    paths = [str(folder.model) for folder in folders]
    printed = run(IN_A_FRESH_PROCESS, Path(config).parent, tmp_path / "x.npy", *paths)
    assert printed.split()[-4:] == ["CASIMAC", "Chebyshev", "Corners", "NoneType"]
    for path in paths:
        np.testing.assert_allclose(np.load(path + ".npy"), ds.load(path).predict_proba(x_test), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, "own_run_members:Softened"])
def test_a_run_of_own_members(config, method, tmp_path):
    checked = load_config(
        config, [f"name=own{'' if method is None else '-calibrated'}", f"calibration.method={method or 'null'}"]
    )
    with without_pictures() if method else nullcontext():
        folder = experiments.train(checked, verbose=0)
    (_, _), (x_test, y_test) = ds.datasets.load("digits")
    model, kept = ds.load(folder.model), load_predictions(folder.test_predictions)
    p = model.predict_proba(x_test)
    assert np.mean(p.argmax(axis=1) == y_test) > 0.5
    np.testing.assert_allclose(kept.p, p, atol=1e-5)
    served = ds.export.load_served(folder.served).predict(x_test)
    np.testing.assert_allclose(served["class_probabilities"], p, atol=1e-5)
    # Intervals are those of the readout that made the probabilities, with its own arguments.
    page = experiments.write_report(tmp_path / "report.html", [folder.path], resamples=20).read_text()
    assert ("A gray band" in page) == (method is None)
    if method is None:
        assert kept.readout.floor == 0.01
        lower, upper = kept.readout.with_scores(kept.scores).intervals(kept.latent[:5])
        assert np.all((lower <= kept.p[:5] + 0.05) & (kept.p[:5] <= upper + 0.05))
    assert "own_run_members:Squared" in page
