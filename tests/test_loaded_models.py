"""Loaded models can be trained further in a fresh process, with any target."""

import zipfile

import keras
import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex.targets import TARGETS
from tests.eager_steps import eagerly
from tests.fresh_process import run

pytestmark = pytest.mark.slow


def embedding():
    keras.utils.set_random_seed(1)
    return ds.distances.Embedding(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)]))


def targets():
    named = {name: TARGETS.get(name) for name in TARGETS if name != "mean"}
    embedded = ds.targets.CASIMAC(embedding())
    return named | {
        "embedding": embedded,
        "mean of an embedding": ds.targets.Mean([embedded, ds.targets.CASIMAC("cityblock")]),
        "embedding of an embedding": ds.targets.CASIMAC(
            ds.distances.Embedding(keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)]), embedding())
        ),
    }


FIT_ON = """
import sys, numpy as np, keras, deepsimplex as ds
data = np.load("data.npz")
for path in sys.argv[1:]:
    model = ds.load(path)
    model.run_eagerly = True
    model.fit(data["x"], data["y"], batch_size=48, verbose=0)
    np.save(path + ".npy", np.concatenate([weight.ravel() for weight in model.get_weights()]))
"""


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(48) % 3
    return (np.eye(3, 4)[y] + rng.normal(size=(48, 4))).astype("f"), y


def test_loaded_models_train_as_the_saved_one(data, tmp_path):
    x, y = data
    np.savez(tmp_path / "data.npz", x=x, y=y)
    models = {}
    for name, target in targets().items():
        model = models[f"{name}.keras"] = ds.SimplexClassifier(ds.backbones.mlp([4]), target, 3, head="gaussian")
        model.compile(run_eagerly=True)
        model.fit(x, y, batch_size=48, verbose=0)
        model.save(tmp_path / f"{name}.keras")
    run(FIT_ON, *models, folder=tmp_path)
    for name, model in models.items():
        predicted = np.load(tmp_path / f"{name}.npy")
        model.fit(x, y, batch_size=48, verbose=0)
        expected = np.concatenate([weight.ravel() for weight in model.get_weights()])
        np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-5, err_msg=name)


@keras.saving.register_keras_serializable("tests_of_loaded_models")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(8)

    def call(self, x):
        return self.dense(x)


def test_frozen_subclass_stays_frozen(data, tmp_path):
    backbone = Subclassed()
    backbone.trainable = False
    model = ds.SimplexClassifier(backbone, num_classes=3)
    model.compile(run_eagerly=True)
    model.fit(*data, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = ds.load(tmp_path / "m.keras")  # without Keras' warning about weights of the optimizer
    assert loaded.trainable_weights == [] == model.trainable_weights
    np.testing.assert_allclose(loaded.predict_proba(data[0]), model.predict_proba(data[0]), atol=1e-6)


def test_loaded_estimator_can_be_refitted(data, tmp_path):
    classifier = ds.SimplexGaussianProcess(targets()["mean of an embedding"], max_iter=1).fit(*data)
    classifier.save(tmp_path / "m.npz")
    p = ds.load(tmp_path / "m.npz").fit(*data).predict_proba(data[0])
    np.testing.assert_allclose(p, classifier.predict_proba(data[0]), atol=1e-6)


def test_weights_files_hold_embedding_weights(data, tmp_path):
    x, y = data
    first, second = (
        ds.SimplexClassifier(ds.backbones.mlp([4]), targets()["embedding"], 3, head="gaussian") for _ in range(2)
    )
    for model in (first, second):
        model.compile()
        model.build((None, 4))
    network = second.target.distance.model
    network.set_weights([weight + 1 for weight in network.get_weights()])
    first.save_weights(tmp_path / "w.weights.h5")
    second.load_weights(tmp_path / "w.weights.h5")
    for a, b in zip(network.get_weights(), first.target.distance.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with eagerly(second):
        second.fit(x, y, verbose=0)


@pytest.mark.parametrize("damage", ["exchanged", "cut"])
@pytest.mark.parametrize("member", ["config.json", "model.weights.h5"])
def test_archive_with_invalid_member_raises(member, damage, tmp_path):
    """Their checksums are right: it is Keras that cannot read them."""
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "whole.keras")
    with zipfile.ZipFile(tmp_path / "whole.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[member] = members["metadata.json"] if damage == "exchanged" else members[member][:200]
    with zipfile.ZipFile(tmp_path / "wrong.keras", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"filepath: '.*wrong\.keras' holds no model that can be made again"):
        ds.load(tmp_path / "wrong.keras")
