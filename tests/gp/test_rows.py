"""Rows that are read in blocks and minibatches: same results for every container and block size."""

import h5py
import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.gp import rows as module
from deepsimplex.gp.rows import ArrayRows, DatasetRows, survey
from deepsimplex.gp.scaling import Moments, Scaling

N = 300
X = np.random.default_rng(0).normal(size=(N, 4)).astype("float32")
y = np.random.default_rng(1).integers(0, 3, N)


def dataset_rows(size, *arrays):
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(size)
    counts = {"num_features": 4, "num_rows": N, "num_batches": -(-N // size)}
    return DatasetRows(dataset, lambda *parts: parts, **counts)


@pytest.fixture(params=["array", "memory map", "h5py", "tf.data"])
def rows(request, tmp_path):
    np.save(tmp_path / "X.npy", X)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        yield {
            "array": ArrayRows(X, y),
            "memory map": ArrayRows(np.load(tmp_path / "X.npy", mmap_mode="r"), y),
            "h5py": ArrayRows(file.create_dataset("X", data=X), y),
            "tf.data": dataset_rows(32, X, y),
        }[request.param]


def assert_all_rows(parts):
    for found, expected in zip(parts, (X, y), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("most", [7, 100, N, 1000])
def test_blocks_hold_all_rows_in_order_whatever_holds_them(rows, most):
    blocks = list(rows.blocks(most))
    assert max(len(x) for x, _ in blocks) <= most
    assert_all_rows(map(np.concatenate, zip(*blocks, strict=True)))
    assert_all_rows(rows.whole())


@pytest.mark.parametrize(("most", "sizes"), [(100, [96, 96, 96, 12]), (20, [20, 12] * 9 + [12]), (1000, [300])])
def test_small_batches_of_a_data_set_are_joined_and_large_ones_are_cut(most, sizes):
    assert [len(x) for x, _ in dataset_rows(32, X, y).blocks(most)] == sizes


def test_minibatches_of_arrays_are_the_same_in_files(rows):
    if isinstance(rows, DatasetRows):
        assert [len(x) for x, _ in rows.batches(50, None)] == [32] * 9 + [12]
        return
    assert rows.num_batches(64) == 4
    first, second = (list(rows.batches(64, np.random.default_rng(seed))) for seed in (0, 1))
    for batches in (first, second):
        order = np.random.default_rng(0 if batches is first else 1).permutation(N)
        for number, (x, labels) in enumerate(batches):
            np.testing.assert_array_equal(x, X[order[64 * number : 64 * (number + 1)]])
            np.testing.assert_array_equal(labels, y[order[64 * number : 64 * (number + 1)]])


def test_rows_that_are_not_used_are_never_read():
    used = np.arange(N) % 3 > 0
    rows = ArrayRows(np.where(used[:, None], X, np.nan), y, used=used).map(lambda x, y: (2 * x, y))
    np.testing.assert_array_equal(rows.whole()[0], 2 * X[used])
    assert np.isfinite([x for x, _ in rows.batches(50, np.random.default_rng(0))]).all()
    some = rows.part(np.array([0, 5, 9]))
    np.testing.assert_array_equal(some.whole()[1], y[used][[0, 5, 9]])
    assert some.num_rows == 3


@pytest.mark.parametrize("size", [1e200, 1.0, 1e-200])
def test_moments_of_blocks_add_up_to_those_of_all_rows(size):
    rng = np.random.default_rng(0)
    values, weights = size * (rng.normal(size=(N, 3)) * [1.0, 1e-3, 0.0] + [1e3, 0.0, 0.1]), rng.uniform(0.1, 5.0, N)
    added = Moments.of(values[:7], weights[:7]) + Moments.of(values[7:250], weights[7:250])
    added += Moments.of(values[250:], weights[250:])
    center = np.average(values, axis=0, weights=weights)
    width = size * np.sqrt(np.average(np.square((values - center) / size), axis=0, weights=weights))
    features = Scaling.for_features(added)
    np.testing.assert_allclose(features.center, center, rtol=1e-12, atol=1e-15 * size)
    np.testing.assert_allclose(features.width, [*width[:2], 1.0], rtol=1e-9)
    if size == 1.0:
        np.testing.assert_allclose(Scaling.for_latents(added).width, np.sqrt(np.mean(np.square(width))), rtol=1e-9)


def surveyed(rows, seed=0):
    moments, sample = survey(rows, seed)
    return moments[0], sample


def test_the_sample_does_not_depend_on_blocks_and_has_every_class(monkeypatch):
    """Of three hundred rows forty, and the one of a class that all but always is missed."""
    rare = np.where(np.arange(N) == 123, 7, 0)
    monkeypatch.setattr(module, "SAMPLE", 40)
    moments, (x, _, _weights, classes) = surveyed(ArrayRows(X, X, np.ones(N), rare))
    assert len(x) in (40, 41)
    np.testing.assert_array_equal(x[classes == 7], X[123:124])
    positions = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in x]
    assert positions == sorted(set(positions))
    np.testing.assert_allclose(moments.center, X.mean(axis=0), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(module, "rows_at_once", lambda columns: 17)
    for rows in (ArrayRows(X, X, np.ones(N), rare), dataset_rows(9, X, X, np.ones(N), rare)):
        np.testing.assert_array_equal(surveyed(rows)[1][0], x)
    assert not np.array_equal(surveyed(ArrayRows(X, X, np.ones(N), rare), seed=1)[1][0], x)
    monkeypatch.setattr(module, "SAMPLE", N)
    np.testing.assert_array_equal(surveyed(ArrayRows(X, X, np.ones(N), rare))[1][0], X)


def test_every_row_is_sampled_as_often(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 10)
    monkeypatch.setattr(module, "rows_at_once", lambda columns: 16)
    rows = ArrayRows(np.arange(50.0)[:, None], np.ones(50), np.zeros(50))
    draws = np.concatenate([survey(rows, seed)[1][0][:, 0] for seed in range(600)]).astype(int)
    assert len(draws) == 6000
    assert np.abs(np.bincount(draws) - 120).max() < 4.5 * np.sqrt(120 * 0.8)


def test_a_data_set_that_is_not_the_same_again_is_an_error():
    rows = dataset_rows(32, X, y)
    rows.num_rows = N + 1
    for read in (rows.blocks(1000), rows.batches(10, None)):
        with pytest.raises(ValueError, match=r"X must yield the same rows whenever it is read.* 301 rows .* then 300"):
            list(read)


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_errors_of_a_batch_name_it(error):
    def convert(x, y):
        if (x == X[70]).all(axis=1).any():
            raise error("no sample\nof mine")
        return x, y

    rows = dataset_rows(32, X, y)
    rows = rows.map(convert)
    with pytest.raises(error, match=r"^no sample \(in batch 2 of the tf.data.Dataset X\)$"):
        list(rows.blocks(10))
