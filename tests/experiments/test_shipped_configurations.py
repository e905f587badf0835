"""The configurations shipped with the package train on real images."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from deepsimplex import datasets, experiments
from deepsimplex.experiments import load_config
from deepsimplex.experiments.training_run import Split, build_classifier, load_split
from tests.quick_runs import eager_classifiers, without_pictures

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fashion_mnist_naive", "fashion_mnist_informed", "fashion_mnist_composition"])
def test_network_of_the_paper_has_80318_parameters(name, enlarged_digits):
    """[CASIMAC] sec. 3.4."""
    (x, y), _ = enlarged_digits
    few = Split(x[:20], y[:20], x[:0], y[:0], x[20:30], y[20:30], list(enlarged_digits.class_names))
    with eager_classifiers():
        model = build_classifier(load_config(CONFIGS / f"{name}.yaml", ["cache_dir=null"]), few)
    model.build((None, 28, 28))
    assert sum(int(np.prod(weight.shape)) for weight in model.trainable_weights) == 80_318
    assert model.predict_proba(few.x_test).shape == (10, 10)


@pytest.mark.slow
def test_naive_configuration_learns_images(enlarged_digits, tmp_path, monkeypatch):
    """On few samples, in smaller and larger steps: its own 48 would not do."""
    few = ["data.limit=640", "training.epochs=2", "training.batch_size=16", "training.learning_rate=0.01"]
    places = [f"output={tmp_path / 'runs'}", f"cache_dir={tmp_path / 'cache'}"]
    monkeypatch.setattr(datasets, "load", lambda name: enlarged_digits)
    with without_pictures(export=False):
        folder = experiments.train(load_config(CONFIGS / "fashion_mnist_naive.yaml", [*few, *places]), verbose=0)
    metrics = json.loads(folder.metrics.read_text())
    assert metrics["accuracy"] > 0.6
    assert metrics["test_samples"] == 360  # the limit is on training samples


@pytest.mark.slow
def test_head_by_name_is_adapted_and_learns():
    training = "training={epochs: 8, learning_rate: 0.01, loss: sparse_categorical_crossentropy}"
    head = "{name: prototypes, prototypes_per_class: 2}"
    changes = [f"model={{head: {head}}}", training, "target=vertices", "data.limit=400"]
    config = load_config(CONFIGS / "digits.yaml", changes)
    split = load_split(config)
    keras.utils.set_random_seed(0)
    model = build_classifier(config, split)
    assert type(model.head).__name__ != "GaussianHead"
    model.fit(split.x, split.y, epochs=config.training.epochs, verbose=0)
    p = model.predict_proba(split.x_test)
    assert np.mean(p.argmax(axis=1) == split.y_test) > 0.75  # chance is 0.1


@pytest.mark.slow
def test_demo_classifies_digits(tmp_path):
    """In a sixth of its epochs, and larger steps."""
    changes = [f"output={tmp_path / 'runs'}", f"cache_dir={tmp_path / 'cache'}", "training.epochs=7"]
    changes += ["training.learning_rate=0.006", "training.batch_size=48"]
    with without_pictures(export=False):
        folder = experiments.train(load_config(CONFIGS / "digits.yaml", changes), verbose=0)
    assert json.loads(folder.metrics.read_text())["accuracy"] >= 0.97
