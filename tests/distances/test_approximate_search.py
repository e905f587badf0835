"""Approximate search among candidates, and the recall that it measures."""

import time

import numpy as np
import pytest

from deepsimplex.distances import SSIM, Embedding, approximate_search, class_neighbors
from tests.reference import distances as reference


@pytest.mark.slow
def test_approximate_search_measures_its_recall(enlarged):
    x, y = enlarged[0][:120, ::2, ::2], enlarged[1][:120]
    exact = class_neighbors(x, y, SSIM(5), 2, classes="other")
    searches = []
    for candidates in (2, 10, 400):
        neighbors = class_neighbors(x, y, SSIM(5), 2, classes="other", method="approximate", candidates=candidates)
        wanted = np.isfinite(exact.distances)
        hits = (neighbors.distances <= exact.distances[:, :, -1:] + 1e-12)[wanted].mean()
        assert abs(neighbors.recall - hits) < 0.05
        searches.append(neighbors)
    once, more, all_of_them = searches
    assert once.recall < more.recall < all_of_them.recall == 1.0
    np.testing.assert_array_equal(all_of_them.distances, exact.distances)
    np.testing.assert_array_equal(all_of_them.indices, exact.indices)
    assert exact.recall == 1.0
    again = class_neighbors(x, y, SSIM(5), 2, classes="other", method="approximate", candidates=2)
    np.testing.assert_array_equal(once.indices, again.indices)
    assert again.recall == once.recall


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["euclidean", "cityblock", "function"])
def test_approximate_search_under_any_metric(distance):
    rng = np.random.default_rng(0)
    # More samples than an exhaustive index takes, so that cells are made.
    count = 150 if distance == "function" else 5000
    x, y = rng.normal(size=(count, 4)), rng.integers(0, 2, count)
    metric = reference.euclidean if distance == "function" else distance
    exact = class_neighbors(x, y, metric)
    begun = time.perf_counter()
    neighbors = class_neighbors(x, y, metric, method="approximate")
    assert time.perf_counter() - begun < 60
    assert 0.8 < neighbors.recall <= 1
    assert (neighbors.distances >= exact.distances - 1e-12).all()
    queries = class_neighbors(x, y, metric, queries=x[:20], query_labels=y[:20], method="approximate")
    assert (queries.distances[np.arange(20), y[:20]] == 0).all()
    positive = class_neighbors(
        x, y, metric, queries=x[:20], query_labels=y[:20], exclude_duplicates=True, method="approximate"
    )
    assert (positive.distances > 0).all()


@pytest.mark.slow
def test_cells_of_principal_components_hold_the_neighbors(enlarged, monkeypatch):
    monkeypatch.setattr(approximate_search, "FLAT", 20)
    x, y = enlarged[0][:400, ::2, ::2], enlarged[1][:400]
    exact = class_neighbors(x, y, k=2)
    few, default, every = (class_neighbors(x, y, k=2, method="approximate", candidates=c) for c in (2, None, 400))
    assert 0.4 < few.recall < default.recall
    assert default.recall > 0.98
    assert (default.distances == exact.distances).mean() > 0.98
    np.testing.assert_array_equal(every.distances, exact.distances)
    np.testing.assert_array_equal(every.indices, exact.indices)
    queries = class_neighbors(x, y, queries=x[:50] + 0.01, method="approximate", candidates=2)
    assert (queries.indices[np.arange(50), y[:50], 0] == np.arange(50)).mean() > 0.98


def test_duplicates_do_not_hide_other_neighbors(monkeypatch):
    """Copies of few samples fill the cells that a query visits; those of its own class are at distance zero."""
    monkeypatch.setattr(approximate_search, "FLAT", 100)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 4))[rng.integers(0, 3, 600)], rng.integers(0, 2, 600)
    neighbors = class_neighbors(x, y, exclude_duplicates=True, method="approximate", candidates=2)
    np.testing.assert_array_equal(neighbors.distances, class_neighbors(x, y, exclude_duplicates=True).distances)
    assert neighbors.recall == 1.0


def test_approximate_search_of_precomputed_raises():
    with pytest.raises(ValueError, match=r"needs samples \[N, ...\].*Precomputed"):
        class_neighbors(np.zeros((3, 1)), [0, 1, 0], np.ones((3, 3)), method="approximate")


@pytest.mark.slow
@pytest.mark.parametrize(("offset", "scale"), [(1e8, 1.0), (0.0, 1e60), (0.0, 1e-60)])
def test_approximate_search_is_invariant_to_offsets(offset, scale):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 4)) * scale + offset, rng.integers(0, 2, 400)
    assert class_neighbors(x, y, method="approximate").recall > 0.99


@pytest.mark.slow
def test_approximate_search_of_an_embedding(enlarged):
    class Half:
        passed = 0

        def predict(self, x, batch_size, verbose):
            self.passed += len(x)
            return x.reshape(len(x), -1)[:, ::2]

    model = Half()
    neighbors = class_neighbors(*enlarged, Embedding(model), method="approximate")
    assert model.passed == len(enlarged[0])
    exact = class_neighbors(*enlarged, Embedding(model))
    assert neighbors.recall == 1.0
    np.testing.assert_array_equal(neighbors.indices, exact.indices)
