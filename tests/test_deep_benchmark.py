"""The benchmark of deep classifiers runs on few digits, and keeps its runs; augmented batches keep their shape."""

import json

import keras
import numpy as np
import pytest

from training.benchmarks.deep import __main__ as benchmark
from training.benchmarks.deep import images, measures
from training.benchmarks.deep.methods import METHODS, augmented

TRAINED = ["cross-entropy", "SNGP", "mixup", "deepsimplex"]


@pytest.mark.slow
def test_a_small_comparison_writes_table_runs_and_figure(tmp_path, monkeypatch):
    monkeypatch.setitem(benchmark.SIZES, "smoke", images.Size(640, 6))
    monkeypatch.setattr(benchmark, "MEMBERS", 1)
    for module in (images, measures):
        monkeypatch.setattr(module, "CORRUPTED", 10)
    options = {"dataset": "digits", "size": "smoke", "seeds": 1, "data": tmp_path, "runs": tmp_path / "runs"}
    output, picture = tmp_path / "table.json", tmp_path / "figure.png"
    benchmark.main(method=TRAINED, output=output, picture=picture, **options)
    table = json.loads(output.read_text())
    rows = {row["method"]: row for row in table["rows"]}
    assert set(rows) == {*TRAINED, "dropout", "deepsimplex, density", "ensemble"}
    assert rows["ensemble"]["NLL"] == rows["cross-entropy"]["NLL"]
    assert rows["dropout"]["AUROC by density"] == ""
    assert float(rows["cross-entropy"]["accuracy"]) > 0.5
    assert float(rows["deepsimplex"]["NLL"]) < np.log(10)
    assert len(table["notes"]) == 5
    assert picture.stat().st_size > 10_000
    monkeypatch.setattr(benchmark, "METHODS", dict.fromkeys(METHODS))  # nothing is trained again
    benchmark.main(method=TRAINED, output=output, **options)
    assert json.loads(output.read_text())["rows"] == table["rows"]


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 3)])
def test_augmented_batches_keep_their_shape_and_mix_labels(shape):
    x, y = np.random.default_rng(0).random((6, *shape), np.float32), np.eye(6, dtype=np.float32)
    mixed, labels = augmented(keras.layers.MixUp(seed=0))(x, y)
    assert mixed.shape == x.shape
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)
    assert 0 < labels[labels > 0].min() < 1
