"""The benchmark of GPUs runs on the CPU with few images, and marks what was not measured."""

import json

import pytest

from deepsimplex.datasets.image_sets import DEBIAN_FASHION_MNIST
from training.benchmarks import gpu
from training.results import ResultTable


@pytest.mark.slow
def test_steps_in_mixed_precision_and_compiled_run_on_the_processor(few, monkeypatch):
    monkeypatch.setattr(gpu, "EPOCHS", 2)
    monkeypatch.setattr(gpu, "METHODS", {"default": ({"target": "vertices", "head": "gaussian"}, None)})
    monkeypatch.setattr(gpu, "SETTINGS", [("mixed_float16", True)])
    x, y = few[0]
    table = ResultTable("training.benchmarks.gpu")
    gpu.steps(table, x[:20, ..., None], y[:20], measured=True)
    assert [row["measured"] for row in table.rows] == ["a step: default; mixed_float16, compiled"]
    assert all(float(row["result"].split(" times")[0]) > 0 for row in table.rows)


@pytest.mark.skipif(not DEBIAN_FASHION_MNIST.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.tf.config, "list_physical_devices", lambda kind: [])
    gpu.main(10, tmp_path / "gpu.json")
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert {row["result"] for row in found["rows"]} == {"not measured"}
    assert found["notes"] == ["GPU: none."]
