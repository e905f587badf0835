"""Moments and random samples of rows that are read in blocks."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.gp import scaling as module
from deepsimplex.gp.scaling import Moments, Scaling, survey
from deepsimplex.samples import ArraySamples, Samples
from deepsimplex.samples import columns as blocks

N = 300
X = np.random.default_rng(0).normal(size=(N, 4)).astype("float32")


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


def test_sample_does_not_depend_on_blocks_and_has_every_class(monkeypatch):
    """Forty of three hundred rows, with the single row of a rare class."""
    rare = np.where(np.arange(N) == 123, 7, 0)
    monkeypatch.setattr(module, "SAMPLE", 40)
    moments, (x, _, _weights, classes) = surveyed(ArraySamples(X, X, np.ones(N), rare))
    assert len(x) in (40, 41)
    np.testing.assert_array_equal(x[classes == 7], X[123:124])
    positions = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in x]
    assert positions == sorted(set(positions))
    np.testing.assert_allclose(moments.center, X.mean(axis=0), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(blocks, "rows_at_once", lambda columns: 17)
    dataset = tf.data.Dataset.from_tensor_slices((X, rare)).batch(9)
    stream = Samples.of(dataset).map(lambda x, classes: (x, x, np.ones(len(x)), classes))
    for rows in (ArraySamples(X, X, np.ones(N), rare), stream):
        np.testing.assert_array_equal(surveyed(rows)[1][0], x)
    assert not np.array_equal(surveyed(ArraySamples(X, X, np.ones(N), rare), seed=1)[1][0], x)
    monkeypatch.setattr(module, "SAMPLE", N)
    np.testing.assert_array_equal(surveyed(ArraySamples(X, X, np.ones(N), rare))[1][0], X)


def test_every_row_is_sampled_as_often(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 10)
    monkeypatch.setattr(blocks, "rows_at_once", lambda columns: 16)
    rows = ArraySamples(np.arange(50.0)[:, None], np.ones(50), np.zeros(50))
    draws = np.concatenate([survey(rows, seed)[1][0][:, 0] for seed in range(600)]).astype(int)
    assert len(draws) == 6000
    assert np.abs(np.bincount(draws) - 120).max() < 4.5 * np.sqrt(120 * 0.8)
