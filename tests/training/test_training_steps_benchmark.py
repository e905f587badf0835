"""The benchmark of training steps runs on the processor with few images, in the settings of a GPU too."""

import json

import pytest

from training.benchmarks import training_steps
from training.results import ResultTable

DEFAULT = {"deepsimplex": training_steps.METHODS["deepsimplex"]}


@pytest.mark.slow
def test_mixed_precision_and_compiled_steps_run_on_cpu(few, monkeypatch):
    monkeypatch.setattr(training_steps, "METHODS", {"deepsimplex": ({"target": "vertices", "head": "gaussian"}, None)})
    x, y = few[0]
    table = ResultTable("training.benchmarks.training_steps")
    training_steps.compare(table, "mlp", ("mixed_float16", True), x[:20, ..., None], y[:20], rounds=1)
    assert {row["precision"] for row in table.rows} == {"mixed_float16, compiled"}
    assert [row["method"] for row in table.rows] == [training_steps.SOFTMAX, training_steps.NORMALIZED, "deepsimplex"]
    assert all(row["step [ms]"] > 0 for row in table.rows)


@pytest.mark.slow
@pytest.mark.usefixtures("digits_as_fashion_mnist")
def test_steps_without_gpu_use_float32(tmp_path, monkeypatch):
    monkeypatch.setattr(training_steps.tf.config, "list_physical_devices", lambda kind=None: [])
    monkeypatch.setattr(training_steps, "METHODS", DEFAULT)
    training_steps.main(["mlp"], 200, 1, tmp_path / "steps.json")
    table = json.loads((tmp_path / "steps.json").read_text())
    assert [row["precision"] for row in table["rows"]] == 3 * ["float32"]
    assert table["rows"][0]["beside softmax"] == 1
    assert table["notes"] == ["GPU: none."]


@pytest.mark.slow
def test_features_of_many_classes(monkeypatch):
    alone = {"target": "vertices", "head": "gaussian"}, "composition"
    monkeypatch.setattr(training_steps, "LABELS_ALONE", {"alone": alone})
    table = ResultTable("training.benchmarks.training_steps")
    x, y = training_steps.gaussian_classes(70, 100)
    assert set(y) == set(range(70))
    training_steps.compare(table, "features", ("float32", False), x, y, rounds=1)
    assert [(row["backbone"], row["method"]) for row in table.rows] == [
        ("features, 70 classes", training_steps.SOFTMAX),
        ("features, 70 classes", "alone"),
    ]
