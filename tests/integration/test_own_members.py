"""A module beside the configuration file defines members of every kind; a run reaches them by name."""

import sys
from pathlib import Path

import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex import experiments
from deepsimplex.experiments import RunFolder, load_config, load_predictions
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
        self.share_ = float(np.mean(probabilities.argmax(axis=1) == y))
        return self

    def apply_probabilities(self, p):
        return self.share_ * p + (1 - self.share_) / p.shape[-1]


@keras.saving.register_keras_serializable(package="members")
class Chebyshev(ds.distances.Distance):
    symmetric = True

    def __init__(self, power=1.0):
        self.power = power

    def __call__(self, a, b):
        return np.abs(a - b).max() ** self.power

    def get_config(self):
        return {"power": self.power}


def features(units=8):
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(units, activation="relu")])
"""
CONFIG = """
name: own
data: {limit: 240, validation_fraction: 0.25}
target: {name: "own_run_members:Corners", size: 2.0}
model:
  backbone: {name: "own_run_members:features", units: 16}
  head: {name: "own_run_members:Affine", scale: 0.2}
  readout: {name: "own_run_members:Squared", floor: 0.01}
training: {epochs: 1, batch_size: 6, learning_rate: 0.02, loss: "own_run_members:SquaredError"}
cache_dir: null
"""
DISTANCE_AND_CALIBRATION = [
    "target={name: casimac, distance: {name: 'own_run_members:Chebyshev', power: 2.0}}",
    "calibration.method=own_run_members:Softened",
    "training.epochs=2",
    "training.batch_size=45",
]
IN_A_FRESH_PROCESS = """
import sys, numpy as np, tensorflow as tf
modules, x, *folders = sys.argv[1:]
x = np.load(x)
outputs = {}
for folder in folders:
    serve = tf.saved_model.load(folder + "/served").signatures["serving_default"]
    outputs[folder] = serve(image=tf.constant(x))
assert not {"deepsimplex", "own_run_members"} & set(sys.modules)
sys.path.insert(0, modules)
import own_run_members, deepsimplex as ds
for folder, served in outputs.items():
    model = ds.load(folder + "/model.keras")
    parts = model.head.layer, model.readout, model.loss, model.calibration
    latent = {"loc": served["latent_mean"], "scale": served["latent_scale"]}
    lower, upper = model.readout.intervals(latent)
    np.savez(
        folder + "/fresh.npz", p=model.predict_proba(x), served=served["class_probabilities"],
        read_out=model.readout.predict(latent), lower=lower, upper=upper,
        members=" ".join([str(model.target), *(type(part).__name__ for part in parts)]),
    )
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory, four) -> Path:
    place = tmp_path_factory.mktemp("own")
    (place / "own_run_members.py").write_text(MODULE)
    (x, y), (x_test, y_test) = four
    np.savez(place / "four.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    (place / "own.yaml").write_text(f"{CONFIG}output: {place / 'runs'}\n")
    before = list(sys.path)
    yield place / "own.yaml"
    sys.path[:] = before


@pytest.fixture(scope="module")
def runs(config, four) -> list[RunFolder]:
    """A run with a target, and one with a distance and a calibration; what a fresh process predicts is beside them."""
    data = f"data.name={config.parent / 'four.npz'}"
    with without_pictures(eager=True):
        settings = ([], DISTANCE_AND_CALIBRATION)
        folders = [experiments.train(load_config(config, [data, *changes]), verbose=0) for changes in settings]
    np.save(config.parent / "x.npy", four[1][0])
    run(IN_A_FRESH_PROCESS, config.parent, config.parent / "x.npy", *(folder.path for folder in folders))
    return folders


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calibrated", "members"),
    [
        (False, "Corners(size=2.0) Affine Squared SquaredError NoneType"),
        (True, "CASIMAC(distance=Chebyshev(power=2.0)) Affine Squared SquaredError Softened"),
    ],
    ids=["target", "distance and calibration"],
)
def test_run_with_user_defined_members(four, runs, calibrated, members, tmp_path):
    """Every own member trains, is saved, loaded, exported and served, has its intervals and shows in the report."""
    folder = runs[calibrated]
    _, (x_test, y_test) = four
    kept = load_predictions(folder.test_predictions)
    assert np.mean(kept.p.argmax(axis=1) == y_test) > 0.5
    served = ds.export.load_served(folder.served).predict(x_test)
    np.testing.assert_allclose(served["class_probabilities"], kept.p, atol=1e-5)

    fresh = np.load(folder.path / "fresh.npz")
    assert fresh["members"] == members
    for name in ("p", "served"):
        np.testing.assert_allclose(fresh[name], kept.p, atol=1e-5)
    assert np.all((fresh["lower"] <= fresh["read_out"] + 0.05) & (fresh["read_out"] <= fresh["upper"] + 0.05))

    # The report draws the intervals of the readout that made the probabilities, with its own arguments.
    page = experiments.write_report(tmp_path / "report.html", [folder.path], resamples=20).read_text()
    assert ("A gray band" in page) == (not calibrated)
    if calibrated:
        assert kept.readout is None
        assert np.abs(fresh["read_out"] - kept.p).max() > 0.01
    else:
        intervals = kept.readout.with_scores(kept.scores).intervals(kept.latent)
        np.testing.assert_allclose([fresh["lower"], fresh["upper"]], intervals, atol=1e-4)
    more = ("Chebyshev", "Softened") if calibrated else ("Corners",)
    for name in ("features", "Affine", "Squared", "SquaredError", *more):
        assert f"own_run_members:{name}\n" in page
