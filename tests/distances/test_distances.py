"""Every metric against its slow oracle, and the errors on bad samples."""

import numpy as np
import pytest

from deepsimplex.distances import SSIM, CallableDistance, Cityblock, Embedding, Euclidean, Precomputed
from tests.reference import distances as reference

VECTORS = [(Euclidean(), reference.euclidean), (Cityblock(), reference.cityblock)]
VECTOR_NAMES = ["euclidean", "cityblock"]


@pytest.mark.parametrize(("metric", "oracle"), VECTORS, ids=VECTOR_NAMES)
@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (65,), (4, 5), (3, 4, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, np.int64])
def test_vector_distances_equal_the_oracle(metric, oracle, shape, dtype):
    rng = np.random.default_rng(0)
    X, Y = (rng.uniform(0, 100, size=(rows, *shape)).astype(dtype) for rows in (5, 4))
    np.testing.assert_allclose(metric.pairwise(X, Y), reference.pairwise(oracle, X, Y), rtol=1e-12)


@pytest.mark.parametrize(("metric", "oracle"), VECTORS, ids=VECTOR_NAMES)
def test_duplicates_far_from_the_origin_have_distance_exactly_zero(metric, oracle):
    x = 1e6 + np.random.default_rng(0).normal(size=(20, 70)) * 1e-3
    D = metric.pairwise(x, x)
    assert (np.diag(D) == 0).all()
    np.testing.assert_array_equal(D, D.T)
    np.testing.assert_allclose(D, reference.pairwise(oracle, x, x), rtol=1e-12)


def test_callable_calls_the_function_query_first():
    X, Y = np.array([[1.0], [2.0]]), np.array([[10.0], [20.0], [30.0]])
    D = CallableDistance(lambda a, b: b[0] + a[0] / 100).pairwise(X, Y)
    np.testing.assert_allclose(D, Y.T + X / 100)
    with pytest.raises(ValueError, match="returned nan"):
        CallableDistance(lambda a, b: np.nan).pairwise(X, Y)
    with pytest.raises(ValueError, match=r"returned -1\.0"):
        CallableDistance(lambda a, b: -1).pairwise(X, Y)


def test_precomputed_looks_up():
    D, others = np.arange(9.0).reshape(3, 3), np.arange(6.0).reshape(2, 3)
    x, queries = np.zeros(3), np.zeros(2)
    np.testing.assert_array_equal(Precomputed(D).pairwise(x, x), D)
    np.testing.assert_array_equal(Precomputed(D, others).pairwise(queries, x), others)
    with pytest.raises(ValueError, match="not known"):
        Precomputed(D).pairwise(queries, x)
    with pytest.raises(ValueError, match=r"others must.*found 2"):
        Precomputed(D, others).pairwise(np.zeros(4), x)
    with pytest.raises(ValueError, match=r"matrix must.*found \[3, 3\]"):
        Precomputed(D).pairwise(queries, queries)


@pytest.mark.parametrize(
    ("matrix", "others", "error", "message"),
    [
        (np.zeros((2, 3)), None, ValueError, r"matrix must.*found shape \[2, 3\]"),
        (np.zeros(3), None, ValueError, r"matrix must.*found shape \(3,\)"),
        (np.array([[0, -1.0], [1, 0]]), None, ValueError, r"matrix must.*found -1.0 at \[0, 1\]"),
        (np.array([[0, 1.0], [np.nan, 0]]), None, ValueError, r"matrix must.*found nan at \[1, 0\]"),
        (np.array([[0, np.inf], [1, 0]]), None, ValueError, r"matrix must.*found inf at \[0, 1\]"),
        (np.array([["a", "b"], ["c", "d"]]), None, TypeError, "real numbers"),
        (np.ma.masked_equal(np.eye(2), 0), None, ValueError, "matrix must not be masked"),
        (np.zeros((2, 2)), np.zeros((5, 3)), ValueError, r"others must.*found \[5, 3\]"),
    ],
)
def test_invalid_matrix_raises(matrix, others, error, message):
    with pytest.raises(error, match=message):
        Precomputed(matrix, others)


class Doubling:
    """Stands for a Keras model: features are twice the pixels; counts the samples that pass."""

    def __init__(self):
        self.passed = 0

    def predict(self, x, batch_size, verbose):
        assert verbose == 0
        self.passed += len(x)
        return 2 * np.asarray(x)


def test_embedding_measures_features_and_embeds_once():
    model = Doubling()
    x = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_allclose(Embedding(model).pairwise(x[:4], x), 2 * Euclidean().pairwise(x[:4], x))
    assert model.passed == 13
    with pytest.raises(TypeError, match=r"model must.*found function"):
        Embedding(lambda x: x)
    with pytest.raises(ValueError, match=r"batch_size must.*found 0"):
        Embedding(model, batch_size=0)
    model.predict = lambda x, batch_size, verbose: {"loc": x}
    with pytest.raises(TypeError, match=r"model must.*found a dict"):
        Embedding(model).pairwise(x, x)
    model.predict = lambda x, batch_size, verbose: x * np.nan
    with pytest.raises(ValueError, match="the model's features of queries must be finite"):
        Embedding(model).pairwise(x[:4], x)


@pytest.mark.parametrize(
    ("metric", "x", "error", "message"),
    [
        (Euclidean(), [[0.0, np.nan]], ValueError, r"X must be finite; found nan at \[0, 1\]"),
        (Euclidean(), [[0.0], [np.inf]], ValueError, r"X must be finite; found inf at \[1, 0\]"),
        (Euclidean(), [["a"]], TypeError, "real numbers"),
        (Euclidean(), [[1j]], TypeError, "real numbers"),
        (Euclidean(), 3.0, ValueError, r"^X must.*found shape \(\)"),
        (Euclidean(), [1.0, 2.0], ValueError, r"One feature is X\[:, None\]"),
        (Cityblock(), [[1e200]], ValueError, "overflow"),
        (SSIM(3), np.zeros((2, 9)), ValueError, r"^X must.*found shape \[2, 9\]"),
        (SSIM(7), np.zeros((2, 5, 9)), ValueError, r"window must.*found 7"),
        (SSIM(7), np.zeros((2, 9, 6, 3)), ValueError, r"window must.*found 7"),
        (SSIM(3), np.zeros((2, 9, 9), np.int64), ValueError, r"data_range must.*found None for X"),
        (SSIM(3), np.linspace(0, 255, 81).reshape(1, 9, 9), ValueError, "from 0 to 255.*Set data_range"),
        (SSIM(3), np.full((2, 9, 9), np.nan), ValueError, r"^X must.*found nan at \[0, 0, 0\]"),
    ],
)
def test_invalid_samples_raise(metric, x, error, message):
    with pytest.raises(error, match=message):
        metric.pairwise(x, x)


def test_samples_of_different_shapes_raise():
    with pytest.raises(ValueError, match=r"X and Y must.*found \(.*, 2\) and \(.*, 3\)"):
        Euclidean().pairwise(np.zeros((1, 2)), np.zeros((1, 3)))
