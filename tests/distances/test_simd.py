"""SIMD vectors of the compiled kernels against NumPy."""

import numpy as np
import pytest
from numba import njit

from deepsimplex.distances.simd import aligned, lanes_of, load, magnitude, splat, store, total


@njit
def arithmetic(a, b, begin, number, out):
    lanes = load(a, begin)
    others = load(b, begin)
    store(out, 0, lanes + others)
    store(out, 16, lanes - others)
    store(out, 32, lanes * others)
    store(out, 48, lanes / others)
    store(out, 64, splat(number))
    store(out, 80, magnitude(lanes))
    return total(lanes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("begin", [0, 3])
def test_operations(dtype, begin):
    count = lanes_of(dtype)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40)).astype(dtype)
    out = np.zeros(96, dtype)
    total = arithmetic(a, b, begin, dtype(2.5), out)
    x, y = a[begin : begin + count], b[begin : begin + count]
    tolerance = 8 * np.finfo(dtype).eps
    for place, expected in enumerate([x + y, x - y, x * y, x / y, np.full(count, 2.5), np.abs(x)]):
        np.testing.assert_allclose(out[16 * place : 16 * place + count], expected, rtol=tolerance)
    np.testing.assert_allclose(total, x.sum(dtype=np.float64), rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 4, 9)])
def test_aligned_arrays_begin_with_a_cache_line(shape):
    for dtype in (np.float32, np.float64):
        array = aligned(shape, dtype)
        assert array.shape == shape
        assert array.dtype == dtype
        assert (array == 0).all()
        assert array.ctypes.data % 64 == 0
