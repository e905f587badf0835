"""``class_neighbors`` against sorting the whole matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsimplex.distances import (
    SSIM,
    CallableDistance,
    Distance,
    Embedding,
    Precomputed,
    class_neighbors,
    compiled_search,
    get_distance,
)
from tests.fresh_process import run
from tests.reference import distances as reference

VECTORS = {"euclidean": reference.euclidean, "cityblock": reference.cityblock}


def check(neighbors, D, y, num_classes, k, itself, positive_class=None):
    """Compare with the oracle on D: the same distances, and the same samples outside ties of equal distances."""
    distances, indices = reference.class_neighbors(D, y, num_classes, k, itself, positive_class)
    assert neighbors.distances.dtype == np.float64
    assert neighbors.indices.dtype == np.int64
    np.testing.assert_allclose(neighbors.distances, distances, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(neighbors.indices < 0, indices < 0)
    np.testing.assert_array_equal(np.isinf(neighbors.distances), neighbors.indices < 0)
    for i, label, place in zip(*np.nonzero(neighbors.indices != indices), strict=True):
        j = neighbors.indices[i, label, place]
        assert y[j] == label
        np.testing.assert_allclose(D[i, j], D[i, indices[i, label, place]], rtol=1e-9)
    for row in neighbors.indices.reshape(-1, k):
        present = row[row >= 0]
        assert len(set(present)) == len(present)


@pytest.fixture
def evaluated(monkeypatch):
    """Counts the pairs that float32 did not rule out."""
    counts = np.zeros(1, dtype=int)
    merge = compiled_search.merge_scored

    def counting(*arguments):
        counts[0] += merge(*arguments)

    monkeypatch.setattr(compiled_search, "merge_scored", counting)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("distance", VECTORS)
@pytest.mark.parametrize("k", [1, 3])
def test_vectors(distance, k, evaluated):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 30)), rng.integers(0, 3, 300)
    D = reference.pairwise(VECTORS[distance], x, x)
    check(class_neighbors(x, y, distance, k), D, y, 3, k, np.arange(300))
    # Of m shuffled samples of a class, k (1 + log(m / k)) are nearer than the k nearest before them.
    expected = 300 * 3 * k * (1 + np.log(100 / k))
    assert evaluated[0] <= 1.2 * expected, "float32 should rule out nearly all pairs, else the search is slow"


@pytest.mark.parametrize("distance", VECTORS)
@pytest.mark.parametrize("exclude_duplicates", [False, True])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_integer_vectors_with_ties_and_duplicates(distance, exclude_duplicates, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    rows, features = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 3))
    num_classes, k = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    x = rng.integers(0, 3, size=(rows, features))
    y = rng.integers(0, num_classes, rows)
    neighbors = class_neighbors(x, y, distance, k, num_classes=num_classes, exclude_duplicates=exclude_duplicates)
    D = reference.pairwise(VECTORS[distance], x, x)
    expected = reference.class_neighbors(D, y, num_classes, k, np.arange(rows), y if exclude_duplicates else None)
    np.testing.assert_allclose(neighbors.distances, expected[0], rtol=1e-14)
    np.testing.assert_array_equal(neighbors.indices, expected[1])
    assert (neighbors.distances[neighbors.indices >= 0] == 0).sum() == (expected[0] == 0).sum()


@pytest.mark.parametrize("distance", VECTORS)
@pytest.mark.parametrize("offset", [1e6, -3e8])
def test_offset_far_larger_than_the_differences(distance, offset):
    rng = np.random.default_rng(1)
    x, y = offset + rng.normal(size=(120, 10)), rng.integers(0, 2, 120)
    x[60:70] = x[:10]
    D = reference.pairwise(VECTORS[distance], x, x)
    neighbors = class_neighbors(x, y, distance, 4)
    check(neighbors, D, y, 2, 4, np.arange(120))
    assert (neighbors.distances.min(axis=(1, 2))[60:70] == 0).all()


@pytest.mark.parametrize("distance", VECTORS)
def test_differences_below_float32_resolution_are_evaluated(distance, evaluated):
    # Differences of 1e-9 within clusters, beside clusters at 1: float32 sees 60 equal samples.
    rng = np.random.default_rng(2)
    x = np.repeat(rng.normal(size=(2, 5)), 60, axis=0) + 1e-9 * rng.normal(size=(120, 5))
    y = np.zeros(120, dtype=int)
    D = reference.pairwise(VECTORS[distance], x, x)
    check(class_neighbors(x, y, distance, 2), D, y, 1, 2, np.arange(120))
    assert evaluated[0] >= 2 * 60 * 59 / 2


@pytest.mark.parametrize("distance", VECTORS)
def test_values_of_very_different_sizes(distance):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90, 6)) * 10.0 ** rng.integers(-12, 13, size=(90, 1))
    y = rng.integers(0, 2, 90)
    check(class_neighbors(x, y, distance, 3), reference.pairwise(VECTORS[distance], x, x), y, 2, 3, np.arange(90))


@pytest.mark.parametrize("distance", VECTORS)
def test_scale_does_not_change_neighbors(distance):
    x, y = np.random.default_rng(4).normal(size=(60, 4)), np.arange(60) % 2
    plain, tiny, huge = (class_neighbors(x * scale, y, distance, 2) for scale in (1.0, 2.0**-200, 2.0**200))
    np.testing.assert_array_equal(plain.indices, tiny.indices)
    np.testing.assert_array_equal(plain.indices, huge.indices)
    np.testing.assert_array_equal(plain.distances * 2.0**200, huge.distances)


@pytest.mark.parametrize("distance", VECTORS)
def test_all_samples_equal(distance):
    neighbors = class_neighbors(np.full((50, 3), 7.5), np.zeros(50, dtype=int), distance, 2)
    assert (neighbors.distances == 0).all()
    np.testing.assert_array_equal(neighbors.indices[:3, 0], [[1, 2], [0, 2], [0, 1]])
    positive = class_neighbors(np.full((50, 3), 7.5), np.zeros(50, dtype=int), distance, 2, exclude_duplicates=True)
    assert np.isinf(positive.distances).all()
    assert (positive.indices == -1).all()


@pytest.mark.parametrize("distance", [*VECTORS, "ssim", "precomputed", "callable", "embedding"])
@pytest.mark.parametrize("exclude_duplicates", [False, True])
def test_queries(digits, distance, exclude_duplicates):
    x, y = digits[0][:90], digits[1][:90]
    queries, labels = np.concatenate([x[:5], digits[0][90:110]]), np.concatenate([y[:5], digits[1][90:110]])
    oracle = {"cityblock": reference.cityblock, "ssim": reference.ssim(5)}.get(distance, reference.euclidean)
    D = reference.pairwise(oracle, queries, x)

    class Identity:
        def predict(self, x, batch_size, verbose):
            return x

    metric = {
        "ssim": SSIM(5),
        "precomputed": Precomputed(np.zeros((90, 90)), D),
        "callable": CallableDistance(reference.euclidean),
        "embedding": Embedding(Identity()),
    }.get(distance, distance)
    neighbors = class_neighbors(
        x, y, metric, 2, queries=queries, query_labels=labels, exclude_duplicates=exclude_duplicates
    )
    if distance == "ssim":
        # Float32: compare on the metric's own numbers, which other tests hold against scikit-image.
        np.testing.assert_allclose(metric.pairwise(queries, x), D, atol=2e-5)
        D = metric.pairwise(queries, x)
    check(neighbors, D, y, 10, 2, None, labels if exclude_duplicates else None)
    nearest = neighbors.distances[np.arange(5), y[:5], 0]
    assert (nearest > 0).all() if exclude_duplicates else (nearest == 0).all()


@pytest.mark.parametrize("block_bytes", [8, 1000, 2**24])
@pytest.mark.parametrize("distance", [*VECTORS, "ssim", "precomputed"])
def test_block_size_does_not_change_neighbors(digits, distance, block_bytes):
    count = 70 if block_bytes == 8 else 300
    x, y = digits[0][:count].copy(), digits[1][:count]
    x[10:20] = x[:10]
    x = np.round(x)  # many ties
    matrix = np.round(reference.pairwise(reference.cityblock, x, x)) if distance == "precomputed" else None
    metric = {"ssim": SSIM(3), "precomputed": matrix}.get(distance, distance)
    whole = class_neighbors(x, y, metric, 3, exclude_duplicates=True, block_bytes=2**30)
    parts = class_neighbors(x, y, metric, 3, exclude_duplicates=True, block_bytes=block_bytes)
    np.testing.assert_array_equal(whole.distances, parts.distances)
    np.testing.assert_array_equal(whole.indices, parts.indices)


@pytest.mark.slow
@pytest.mark.parametrize("window", [5, 13])
def test_ssim_on_images(enlarged, window):
    x, y = enlarged[0][:400].copy(), enlarged[1][:400]
    x[200] = x[100]
    metric = SSIM(window)
    D = metric.pairwise(x, x)
    neighbors = class_neighbors(x, y, metric, 3)
    check(neighbors, D, y, 10, 3, np.arange(400))
    assert neighbors.distances[200, y[100], 0] == 0
    assert neighbors.indices[200, y[100], 0] == 100
    rows = np.arange(0, 400, 80)
    for i, label in zip(rows, y[rows], strict=True):
        exact = reference.pairwise(reference.ssim(window), x[i : i + 1], x[neighbors.indices[i, label]])[0]
        np.testing.assert_allclose(neighbors.distances[i, label], exact, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("distance", VECTORS)
def test_vectors_on_images(enlarged, distance, evaluated):
    x, y = enlarged
    metric = get_distance(distance)
    neighbors = class_neighbors(x, y, distance, 2)
    check(neighbors, metric.pairwise(x, x), y, 10, 2, np.arange(len(x)))
    assert evaluated[0] <= 1.2 * len(x) * 10 * 2 * (1 + np.log(60 / 2)), (
        "float32 should rule out nearly all pairs, else the search is slow"
    )


def test_precomputed_rows_are_those_of_the_queries():
    D = np.array([[9.0, 1.0, 2.0], [5.0, 9.0, 3.0], [7.0, 4.0, 9.0]])  # not symmetric
    neighbors = class_neighbors(np.zeros(3), [0, 1, 0], D)
    np.testing.assert_array_equal(neighbors.distances[:, :, 0], [[2, 1], [3, np.inf], [7, 4]])
    np.testing.assert_array_equal(neighbors.indices[:, :, 0], [[2, 1], [2, -1], [0, 1]])


def test_embedding_passes_every_sample_once():
    class Counting:
        passed = 0

        def predict(self, x, batch_size, verbose):
            self.passed += len(x)
            return 3 * x

    model = Counting()
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4
    neighbors = class_neighbors(x, y, Embedding(model, "cityblock"), 2, block_bytes=64)
    plain = class_neighbors(x, y, "cityblock", 2)
    assert model.passed == 40
    np.testing.assert_array_equal(neighbors.indices, plain.indices)
    np.testing.assert_allclose(neighbors.distances, 3 * plain.distances)


def test_classes_without_samples_and_classes_smaller_than_k():
    neighbors = class_neighbors([[0.0], [2.0], [5.0]], [0, 0, 2], k=2, num_classes=5)
    assert neighbors.distances.shape == (3, 5, 2)
    np.testing.assert_array_equal(neighbors.indices[0], [[1, -1], [-1, -1], [2, -1], [-1, -1], [-1, -1]])
    np.testing.assert_array_equal(neighbors.distances[2, 0], [3, 5])
    assert np.isinf(neighbors.distances[2, 2]).all()


def test_zero_queries_give_empty_result():
    for distance in ("euclidean", CallableDistance(reference.euclidean)):
        neighbors = class_neighbors([[0.0], [1.0]], [0, 1], distance, queries=np.zeros((0, 1)))
        assert neighbors.distances.shape == (0, 2, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": [[0.0], [np.nan]]}, ValueError, "x must be finite"),
        ({"queries": [[np.inf]]}, ValueError, "queries must be finite"),
        ({"queries": [[1.0, 2.0]]}, ValueError, r"x and queries must.*found \(2, 1\) and \(1, 2\)"),
        ({"x": np.zeros((0, 1)), "y": []}, ValueError, r"^x must.*found none"),
        ({"y": [0]}, ValueError, r"^y must.*found shape \(1,\)"),
        ({"y": [[0.5, 0.5], [0.0, 1.0]]}, ValueError, r"^y must.*found soft labels, row 0"),
        ({"y": [0.5, 1.0]}, ValueError, r"^y must.*found 0.5 in row 0"),
        ({"y": [-1, 1]}, ValueError, r"^y must.*found -1 in row 0"),
        ({"y": [0, 3], "num_classes": 3}, ValueError, r"^y must.*found 3 in row 1"),
        (
            {"queries": [[1.0]], "query_labels": [4], "num_classes": 2},
            ValueError,
            r"query_labels must.*found 4 in row 0",
        ),
        (
            {"queries": [[1.0]], "query_labels": [0, 1]},
            ValueError,
            r"query_labels must.*found shape \(2,\)",
        ),
        ({"queries": [[1.0]], "exclude_duplicates": True}, ValueError, "exclude_duplicates needs query_labels"),
        ({"query_labels": [0, 1]}, ValueError, "belong to queries"),
        ({"num_classes": 0}, ValueError, r"num_classes must.*found 0"),
        ({"k": 0}, ValueError, r"^k must.*found 0"),
        ({"k": 1.5}, ValueError, r"^k must.*found 1\.5"),
        ({"k": True}, ValueError, r"^k must.*found True"),
        ({"block_bytes": 0}, ValueError, r"block_bytes must.*found 0"),
    ],
)
def test_invalid_input_raises(arguments, error, message):
    with pytest.raises(error, match=message):
        class_neighbors(**{"x": [[0.0], [1.0]], "y": [0, 1], **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "fast"}, r"method must.*found 'fast'"),
        ({"classes": "mine"}, r"classes must.*found 'mine'"),
        ({"classes": "same", "queries": [[1.0]]}, "classes='same' needs query_labels"),
        ({"method": "approximate", "candidates": 1, "k": 2}, r"candidates must.*found 1"),
        ({"method": "approximate", "candidates": True}, r"candidates must.*found True"),
        ({"candidates": 8}, r"candidates must.*found 8"),
    ],
)
def test_invalid_options_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        class_neighbors(**{"x": [[0.0], [1.0]], "y": [0, 1], **arguments})


class Patchy(Distance):
    """A user's distance between samples [N, 1], with one value for all pairs of sample 3 and others."""

    def __init__(self, value, itself=0.0):
        self.value, self.itself = value, itself

    def check(self, x, name="x"):
        return np.asarray(x, dtype=np.float64)

    def blocks(self, queries, x):
        D = np.abs(queries - x[:, 0])
        D[:, x[:, 0] == 3] = self.value
        if queries is x:
            D[x[:, 0] == 3] = self.value
            np.fill_diagonal(D, self.itself)
        return lambda rows, columns: D[rows, columns]

    def __repr__(self):
        return "Patchy"


LINE, HALVES = np.arange(8.0)[:, None], np.arange(8) % 2


@pytest.mark.parametrize("method", ["exact", "approximate"])
@pytest.mark.parametrize(
    "options", [{}, {"queries": LINE[:2]}, {"exclude_duplicates": True}, {"block_bytes": 8}], ids=str
)
def test_nan_distance_raises(method, options):
    """Other samples are near enough to fill the answer: it would be wrong without a trace."""
    with pytest.raises(ValueError, match=r"distances must.*found NaN in \d+ of \d+ that Patchy computed"):
        class_neighbors(LINE, HALVES, Patchy(np.nan), method=method, **options)


def test_nan_distances_of_excluded_pairs_are_ignored():
    whole = class_neighbors(LINE, HALVES, Patchy(9.0))
    neighbors = class_neighbors(LINE, HALVES, Patchy(9.0, itself=np.nan))
    np.testing.assert_array_equal(neighbors.indices, whole.indices)
    apart = (np.arange(8) == 3).astype(int)
    neighbors = class_neighbors(LINE, apart, Patchy(np.nan), classes="same")
    np.testing.assert_array_equal(neighbors.indices[:3, :, 0], [[1, -1], [0, -1], [1, -1]])
    np.testing.assert_array_equal(neighbors.indices[3], -1)


def test_infinite_distances_raise():
    # Sample 3 is one of four in class 1: the others suffice for two places, not for four.
    assert class_neighbors(LINE, HALVES, Patchy(np.inf), 2, queries=LINE).indices.min() >= 0
    with pytest.raises(ValueError, match=r"Patchy, 8 samples lack neighbors in class 1, the first at index 0.*3 of 4"):
        class_neighbors(LINE, HALVES, Patchy(np.inf), 4, queries=LINE)
    with pytest.raises(ValueError, match="lack neighbors in class 0, the first at index 3, which has 0 of 1"):
        class_neighbors(LINE, HALVES, Patchy(np.inf), classes="other")


@pytest.mark.slow
def test_import_is_light_and_engines_share_a_process():
    """Every engine brings a thread pool: they must work in one process, in any order, and from several threads."""
    program = f"""
import sys, types, keras
before = set(sys.modules)
package = types.ModuleType("deepsimplex")
package.__path__ = [{str(compiled_search.__file__.rsplit("/", 2)[0])!r}]
sys.modules["deepsimplex"] = package
import deepsimplex.distances
print(sorted({{"numba", "faiss", "skimage", "matplotlib", "gpflow"}} & (set(sys.modules) - before)))

import concurrent.futures
import numpy as np, tensorflow as tf
from deepsimplex.distances import SSIM, class_neighbors
x, y = np.random.default_rng(0).uniform(size=(300, 8, 8)), np.arange(300) % 4
product = lambda: tf.linalg.matmul(tf.ones((300, 300)), tf.ones((300, 300)))[0, 0].numpy()
jobs = [product, lambda: class_neighbors(x, y), lambda: class_neighbors(x, y, SSIM(3))]
first = [job() for job in jobs]
with concurrent.futures.ThreadPoolExecutor(6) as pool:
    for answers in zip(*[iter(pool.map(lambda job: job(), jobs * 3))] * 3):
        assert answers[0] == first[0] == 300
        assert all((a.indices == b.indices).all() for a, b in zip(answers[1:], first[1:]))
print("done")
"""
    assert run(program).split() == ["[]", "done"]
