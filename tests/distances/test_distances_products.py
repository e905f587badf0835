import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from deepsimplex.distances import products
from deepsimplex.distances.products import multiply


@pytest.mark.parametrize(
    ("rows", "others", "features"), [(1, 1, 1), (5, 7, 3), (300, 200, 784), (0, 4, 3), (4, 0, 3), (4, 3, 0)]
)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_products_are_those_of_double_precision(rows, others, features, threads, monkeypatch):
    monkeypatch.setattr("numba.get_num_threads", lambda: threads)
    rng = np.random.default_rng(0)
    A, B = (rng.normal(size=(size, features)).astype("float32") for size in (rows, others))
    expected = -2.0 * A.astype("float64") @ B.T.astype("float64")
    lengths = np.linalg.norm(A, axis=1)[:, None] * np.linalg.norm(B, axis=1)
    out = np.full((rows, others), np.nan, "float32")
    assert multiply(A, B, -2.0, out) is out
    assert (np.abs(out - expected) <= 2.0 * features * 2.0**-24 * lengths + 1e-30).all()


def threads_of_libraries():
    return {
        library["filepath"]: library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def test_the_libraries_have_one_thread_during_a_product_and_theirs_after_it(monkeypatch):
    during = []
    own = products._sgemm
    monkeypatch.setattr(products, "_sgemm", lambda *arguments: during.append(threads_of_libraries()) or own(*arguments))
    monkeypatch.setattr("numba.get_num_threads", lambda: 1)
    # What another test has loaded since the first product of this process is not known to the limit, nor used by it.
    products._libraries.cache_clear()
    with threadpool_limits(2, user_api="blas"):
        multiply(np.ones((200, 3), "float32"), np.ones((5, 3), "float32"))
        after = threads_of_libraries()
    assert len(during) == 1
    assert {threads for libraries in during for threads in libraries.values()} == {1}
    assert set(after.values()) == {2}


def test_what_cannot_hold_the_product_is_refused():
    A = np.ones((4, 3), "float32")
    for out in (np.empty((4, 5), "float32"), np.empty((4, 4)), np.empty((4, 8), "float32")[:, ::2]):
        with pytest.raises(ValueError, match="out must be a contiguous float32 array"):
            multiply(A, A, out=out)
    with pytest.raises(ValueError, match="as many columns"):
        multiply(A, np.ones((4, 2), "float32"))
