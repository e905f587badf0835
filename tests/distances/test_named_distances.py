"""Distances by name, configuration, matrix and function, and their serialization."""

import keras
import numpy as np
import pytest

from deepsimplex.distances import (
    DISTANCES,
    SSIM,
    CallableDistance,
    Cityblock,
    Distance,
    Embedding,
    Euclidean,
    Precomputed,
    class_neighbors,
    get_distance,
)


def test_get_distance_from_names_functions_and_matrices():
    assert isinstance(get_distance("euclidean"), Euclidean)
    assert isinstance(get_distance("cityblock"), Cityblock)
    assert isinstance(get_distance(np.zeros((2, 2))), Precomputed)
    assert isinstance(get_distance(lambda a, b: 0.0), CallableDistance)
    ssim = get_distance({"name": "ssim", "window": 5, "data_range": 2.0})
    assert (ssim.window, ssim.data_range) == (5, 2.0)
    assert get_distance(ssim) is ssim


@pytest.mark.parametrize("metric", [Euclidean(), Cityblock(), SSIM(7, 255.0)])
def test_distance_configurations_round_trip(metric):
    again = get_distance({"name": DISTANCES.name_of(metric), **metric.get_config()})
    kept = get_distance(keras.saving.serialize_keras_object(metric))
    assert kept.cache_key() == metric.cache_key()
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    assert again.cache_key() == metric.cache_key()


def test_cache_keys_of_different_distances_differ():
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
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    key = Embedding(model).cache_key()
    assert key == Embedding(model).cache_key()
    assert key != Embedding(model, "cityblock").cache_key()
    model.set_weights([weight + 1 for weight in model.get_weights()])
    assert key != Embedding(model).cache_key()
    assert Embedding(model, lambda a, b: 0.0).cache_key() is None


def test_embedding_of_a_keras_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    kernel = model.get_weights()[0].astype(np.float64)
    expected = np.linalg.norm((x[:, None] - x[None]) @ kernel, axis=-1)
    np.testing.assert_allclose(Embedding(model, batch_size=2).pairwise(x, x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("euclidian", ValueError, "did you mean 'euclidean'"),
        ("zzz", ValueError, r"distance must.*found 'zzz'$"),
        ("ssim", TypeError, "SSIM.*window"),
        ({"name": "ssim", "windw": 5}, ValueError, "windw"),
        ({"window": 5}, TypeError, r"distance must.*found \{'window'"),
        (SSIM, TypeError, "not a class"),
        (None, TypeError, r"distance must.*found None"),
        (5, TypeError, r"distance must.*found 5"),
    ],
)
def test_invalid_distance_raises(spec, error, message):
    with pytest.raises(error, match=message):
        get_distance(spec)


@keras.saving.register_keras_serializable(package="tests")
class Chebyshev(Distance):
    """A user's distance."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, a, b):
        return self.scale * np.abs(a - b).max()

    def get_config(self):
        return {"scale": self.scale}


@keras.saving.register_keras_serializable(package="tests")
def gap(a, b):
    """A registered function."""
    return float(np.abs(a - b).sum())


def test_user_defined_distance_needs_call_only():
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 3
    metric = get_distance({"name": f"{__name__}:Chebyshev", "scale": 2.0})
    assert type(metric) is Chebyshev
    assert DISTANCES.name_of(metric) == f"{__name__}:Chebyshev"
    D = 2 * np.abs(x[:, None] - x).max(axis=2)
    np.testing.assert_array_equal(metric.pairwise(x, x), D)
    neighbors = class_neighbors(x, y, metric, 2)
    for label in range(3):
        expected = np.where((y == label) & ~np.eye(40, dtype=bool), D, np.inf)
        np.testing.assert_array_equal(neighbors.distances[:, label], np.sort(expected)[:, :2])
    again = get_distance(keras.saving.serialize_keras_object(metric))
    assert repr(again) == repr(metric) == "Chebyshev(scale=2.0)"
    assert again.cache_key() == metric.cache_key() != Chebyshev().cache_key()
    assert neighbors.recall == 1
    assert class_neighbors(x, y, metric, method="approximate").recall > 0.9
    with pytest.raises(NotImplementedError, match=r"must define __call__\(a, b\), or blocks"):
        Distance().pairwise(x, x)


def test_only_registered_functions_are_saved():
    again = get_distance(keras.saving.serialize_keras_object(CallableDistance(gap)))
    assert again.function is gap
    with pytest.raises(ValueError, match=r"distance must be registered with Keras.*found <function"):
        CallableDistance(lambda a, b: 0.0).get_config()


def test_embedding_without_weights_raises():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    metric, x = Embedding(model, {"name": "cityblock"}, batch_size=7), np.eye(2)
    again = get_distance(keras.saving.serialize_keras_object(metric))
    assert (type(again.distance), again.batch_size) == (Cityblock, 7)
    with pytest.raises(ValueError, match=r"weights of this Embedding's model .* call distance\.model\.set_weights"):
        again.pairwise(x, x)
    again.model.set_weights(model.get_weights())
    np.testing.assert_array_equal(again.pairwise(x, x), metric.pairwise(x, x))


def test_a_matrix_is_not_saved():
    again = get_distance(keras.saving.serialize_keras_object(Precomputed(np.ones((2, 2)))))
    with pytest.raises(ValueError, match="not part of a configuration; make a new Precomputed"):
        again.pairwise(np.zeros(2), np.zeros(2))
