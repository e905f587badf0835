"""The benchmark of deep classifiers runs on few digits, keeps its runs, and has the settings that were selected."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

import deepsimplex as ds
from training.benchmarks.deep import __main__ as benchmark
from training.benchmarks.deep import images, measures, selection, table
from training.benchmarks.deep.methods import METHODS, SETTINGS, Setting, Trained, augmentation, augmented

TRAINED = ["cross-entropy", "SNGP", "deepsimplex"]


@pytest.mark.slow
def test_small_comparison_writes_table_runs_and_figure(tmp_path, monkeypatch):
    monkeypatch.setitem(benchmark.SIZES, "smoke", images.Size(640, 6))
    monkeypatch.setattr(benchmark, "MEMBERS", 1)
    monkeypatch.setattr(images, "FAR", 200)
    for module in (images, measures):
        monkeypatch.setattr(module, "CORRUPTED", 10)
        monkeypatch.setattr(module, "SEVERITIES", (1, 3))
    options = {
        "dataset": "digits",
        "size": "smoke",
        "seeds": 1,
        "rate": 2e-3,
        "data": tmp_path,
        "runs": tmp_path / "runs",
    }
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


@pytest.mark.slow
def test_selection_minimizes_validation_loss(tmp_path, monkeypatch):
    digits = ds.datasets.load("digits")
    monkeypatch.setattr(ds.datasets, "load", lambda name: digits)
    monkeypatch.setattr(selection, "SIZE", images.Size(1000, 1))
    monkeypatch.setattr(selection, "UNSEEN", 400)
    trained = []

    def method(confidence):
        def fit(data, size, backbone, seed):
            trained.append((confidence, seed))
            truth = {image.tobytes(): label for image, label in zip(data.x_test, data.y_test, strict=True)}

            def probabilities(images):
                right = np.eye(data.num_classes)[[truth[image.tobytes()] for image in images]]
                return confidence * right + (1 - confidence) / data.num_classes

            return Trained(probabilities, lambda images: images.reshape(len(images), -1), 1.0, 1, None)

        return fit

    trials = {str(confidence): method(confidence) for confidence in (0.2, 0.8, 0.5)}
    monkeypatch.setitem(SETTINGS, "deepsimplex, distances", Setting("confidence", trials, "0.8"))
    monkeypatch.setitem(METHODS, "deepsimplex, distances", method(0.8))
    for _ in range(2):  # the second reads the files of the first
        selection.main(method=["deepsimplex, distances"], runs=tmp_path / "trials", output=tmp_path / "table.json")
        rows = json.loads((tmp_path / "table.json").read_text())["rows"]
        assert [row["value"] for row in rows if row["best"] and row["measure"] == "NLL"] == ["0.8"]
        assert len(trained) == 2 * (3 + 1)
    means = {row["value"]: float(row["mean"]) for row in rows}
    assert means["0.5"] == pytest.approx(-np.log(0.5 + 0.05), abs=1e-4)
    detected = {row["value"]: float(row["mean"]) for row in rows if row["measure"] == "AUROC"}
    assert set(detected) == set(selection.DENSITIES)
    assert all(0.8 < auroc < 1 for auroc in detected.values())
    assert sum(row["best"] == "yes" for row in rows) == 2


def test_benchmark_uses_selected_settings():
    rows = json.loads((Path(selection.__file__).parents[2] / "results" / "deep_selection.json").read_text())["rows"]
    best = {(row["method"], row["setting"]): row["value"] for row in rows if row["best"]}
    for name, setting in SETTINGS.items():
        assert [row["value"] for row in rows if row["setting"] == setting.name] == list(setting.trials)
        if name != "deepsimplex, distances":
            assert best[name, setting.name] == setting.chosen
    # The default is kept as it is: it may only be worse than the best of its trials.
    assert SETTINGS["deepsimplex, distances"].chosen == f"{ds.heads.VariationalGaussianProcess(2).effective_samples}"
    densities = [
        row["value"] for row in rows if row["method"] == "deepsimplex, distances" and row["setting"] == "density"
    ]
    assert densities == [*selection.DENSITIES]
    assert f"nearest neighbors, {ds.calibration.NeighborDistance().k}" in densities


def test_shares_of_people_are_read_and_compared(tmp_path):
    rng = np.random.default_rng(0)
    y, counts = np.arange(80) % 10, rng.integers(1, 9, (80, 10))
    pixels = rng.integers(0, 256, (80, 4, 4, 3)).astype("uint8")
    (tmp_path / "images").mkdir()
    np.savez(
        tmp_path / "images" / "cifar10.npz",
        x_train=pixels,
        y_train=y,
        x_test=pixels,
        y_test=y,
        human_counts_test=counts,
    )
    data = images.load("cifar10", images.Size(50, 1), tmp_path, False)._replace(others={})
    assert (len(data.x), len(data.x_test), data.x.max() <= 1) == (50, 80, True)
    p = rng.dirichlet(np.ones(10), 80).astype("float32")
    expected = -np.mean(np.sum(counts / counts.sum(axis=1, keepdims=True) * np.log(p), axis=1))
    assert measures.measures({"test": p}, data)["cross-entropy to people"] == pytest.approx(expected, rel=1e-5)


def test_images_are_mirrored_and_shifted_while_training_alone():
    images_of_one = np.random.default_rng(0).random((1, 16, 16, 3), np.float32)
    flip, shift = augmentation(images.Size(1, 1, augmented=True), seed=0)
    augment = keras.Sequential([flip, shift])
    np.testing.assert_array_equal(augment(images_of_one, training=False), images_of_one)
    seen = {np.asarray(augment(images_of_one, training=True)).tobytes() for _ in range(8)}
    assert len(seen) > 4
    assert augmentation(images.Size(1, 1), seed=0) == []


def test_default_is_compared_with_the_best_temperature(tmp_path):
    def rows(accuracy, nll):
        return [{"accuracy": accuracy + seed / 100, "NLL": nll + seed, "ECE": nll / 10} for seed in range(2)]

    table.write(
        {
            "temperature": rows(0.7, 2.0),
            "temperature, label smoothing": rows(0.6, 1.0),
            "deepsimplex": rows(0.75, 0.5),
        },
        tmp_path / "table.json",
    )
    assert json.loads((tmp_path / "table.json").read_text())["notes"] == [
        "Accuracy of 'deepsimplex' minus that of 'temperature, label smoothing': +15.00 ± 0.00 points.",
        "NLL of 'deepsimplex' over that of 'temperature, label smoothing': 0.625 ± 0.125.",
        "ECE of 'deepsimplex' over that of 'temperature, label smoothing': 0.500 ± 0.000.",
    ]
