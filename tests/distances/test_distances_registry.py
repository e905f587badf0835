"""Distances by name, mapping, matrix and function."""

import numpy as np
import pytest

from deepsimplex.distances import (
    DISTANCES,
    SSIM,
    CallableDistance,
    Cityblock,
    Embedding,
    Euclidean,
    Precomputed,
    get_distance,
)


def test_get_distance_makes_what_is_meant():
    assert isinstance(get_distance("euclidean"), Euclidean)
    assert isinstance(get_distance("cityblock"), Cityblock)
    assert isinstance(get_distance(np.zeros((2, 2))), Precomputed)
    assert isinstance(get_distance(lambda a, b: 0.0), CallableDistance)
    ssim = get_distance({"name": "ssim", "window": 5, "data_range": 2.0})
    assert (ssim.window, ssim.data_range) == (5, 2.0)
    assert get_distance(ssim) is ssim


@pytest.mark.parametrize("metric", [Euclidean(), Cityblock(), SSIM(7, 255.0)])
def test_configurations_come_back(metric):
    again = get_distance(metric.get_config())
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    assert again.cache_key() == metric.cache_key()


def test_cache_keys_tell_distances_apart():
    matrix = np.ones((3, 3))
    changed = matrix.copy()
    changed[1, 2] = 2
    metrics = [
        Euclidean(), Cityblock(), SSIM(5), SSIM(7), SSIM(5, 2.0), Precomputed(matrix), Precomputed(changed),
        Precomputed(matrix, matrix[:1]), Precomputed(matrix.astype(np.float32)),
    ]  # fmt: skip
    assert len({metric.cache_key() for metric in metrics}) == len(metrics)
    assert Precomputed(matrix.copy()).cache_key() == Precomputed(matrix).cache_key()
    assert CallableDistance(max).cache_key() is None


def test_cache_key_of_an_embedding_follows_weights_and_distance():
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    key = Embedding(model).cache_key()
    assert key == Embedding(model).cache_key()
    assert key != Embedding(model, "cityblock").cache_key()
    model.set_weights([weight + 1 for weight in model.get_weights()])
    assert key != Embedding(model).cache_key()
    assert Embedding(model, lambda a, b: 0.0).cache_key() is None


def test_embedding_of_a_keras_model():
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    kernel = model.get_weights()[0].astype(np.float64)
    expected = np.linalg.norm((x[:, None] - x[None]) @ kernel, axis=-1)
    np.testing.assert_allclose(Embedding(model, batch_size=2).pairwise(x, x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("euclidian", ValueError, "did you mean 'euclidean'"),
        ("zzz", ValueError, "must be one of cityblock, euclidean, ssim, or a function of two samples; found 'zzz'$"),
        ("ssim", ValueError, "window"),
        ("precomputed", ValueError, r"give the object, Precomputed\(\.\.\.\)"),
        ({"name": "ssim", "windw": 5}, ValueError, "windw"),
        ({"window": 5}, ValueError, "needs a 'name'"),
        (SSIM, TypeError, "not a class"),
        (None, TypeError, "NoneType"),
        (5, TypeError, "int"),
    ],
)
def test_bad_specifications_are_refused(spec, error, message):
    with pytest.raises(error, match=message):
        get_distance(spec)


def test_registry_is_by_name():
    assert {name: cls.name for name, cls in DISTANCES.items()} == {name: name for name in DISTANCES}
