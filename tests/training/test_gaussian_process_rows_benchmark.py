"""The benchmark of Gaussian processes on rows in files runs on few rows, and its readers agree."""

import numpy as np
import pytest

import deepsimplex as ds
from training.benchmarks import gaussian_process_rows as benchmark


def test_both_readers_read_the_first_rows_of_a_file(tmp_path):
    benchmark.write(tmp_path / "rows.npy", 700, benchmark.mixture)
    table = np.load(tmp_path / "rows.npy")[:600]
    X, y = benchmark.from_file(tmp_path / "rows.npy", 600, "memory map")
    data, none = benchmark.from_file(tmp_path / "rows.npy", 600, "tf.data")
    batches = list(data.as_numpy_iterator())
    assert none is None
    for features, labels in ((X, y), map(np.concatenate, zip(*batches, strict=True))):
        np.testing.assert_array_equal(np.column_stack([features, labels]), table)
    assert sorted(set(y)) == [0, 1, 2, 3]


@pytest.mark.slow
def test_table_and_repetition_are_measured(tmp_path, monkeypatch):
    def process(epochs):
        settings = {"inducing": 8, "learn_inducing": False, "epochs": min(epochs, 2), "readout": "argmax"}
        return ds.SimplexGaussianProcess("ilr", inference="stochastic", **settings)

    monkeypatch.setattr(benchmark, "alone", benchmark.measure)
    monkeypatch.setattr(benchmark, "CLASSIFIERS", {"SimplexGaussianProcess": process})
    X = np.random.default_rng(0).normal(size=(100, 3))
    np.savez(tmp_path / "htru2.npz", X=X, y=X[:, 0] > 0)
    rows = list(benchmark.real(tmp_path, tmp_path, "htru2", 80))
    assert [(row["rows"], row["reader"]) for row in rows] == [(80, "memory map"), (80, "memory map")]
    assert all(row["accuracy"] > 0.5 and row["peak MiB"] > 50 for row in rows)


def test_growth_is_fitted_to_every_classifier_and_reader(tmp_path, monkeypatch):
    def square(file, rows, reader, name, epochs, held_out):
        return {"rows": rows, "reader": reader, "classifier": name, "core seconds": 1e-6 * rows**2}

    monkeypatch.setattr(benchmark, "alone", square)
    notes = [*benchmark.exponents(list(benchmark.synthetic(tmp_path, [10, 100])))]
    assert len(notes) == 4
    assert all(note.endswith("to the power of 2.00") for note in notes)
