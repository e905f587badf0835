"""Matrix products in float32, on cores that are free again as soon as they are done."""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas
from threadpoolctl import ThreadpoolController

from deepsimplex.distances._compiled import exclusive

# Rows of a piece below which another thread costs more than it saves.
_FEWEST_ROWS = 64


@exclusive
def multiply(
    A: NDArray[np.float32], B: NDArray[np.float32], scale: float = 1.0, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """scale * A B^T in float32, [N, D] and [M, D] to [N, M].

    By SciPy's library, which knows more processors than the one that NumPy brings along (five times as fast here), with
    a thread of our own for the rows of every core: the library's threads go on spinning for milliseconds after a
    product, on the cores that the next compiled kernel wants, and a search took twice as long.
    """
    from numba import get_num_threads

    A, B = np.ascontiguousarray(A, np.float32), np.ascontiguousarray(B, np.float32)
    if A.shape[1] != B.shape[1]:
        raise ValueError(f"A and B must have as many columns; found {A.shape} and {B.shape}")
    if out is None:
        out = np.empty((len(A), len(B)), np.float32)
    if not (out.flags.c_contiguous and out.dtype == np.float32 and out.shape == (len(A), len(B))):
        raise ValueError(f"out must be a contiguous float32 array of shape {(len(A), len(B))}")
    pieces = max(1, min(get_num_threads(), len(A) // _FEWEST_ROWS))
    edges = np.linspace(0, len(A), pieces + 1).astype(int)

    def piece(begin: int, end: int) -> None:
        _sgemm(A[begin:end], B, scale, out[begin:end])

    with _libraries().limit(limits=1, user_api="blas"):
        # The first piece here, the others beside it.
        others = [_threads().submit(piece, *ends) for ends in pairwise(edges[1:])]
        piece(edges[0], edges[1])
        for other in others:
            other.result()
    return out


def _sgemm(A: NDArray[np.float32], B: NDArray[np.float32], scale: float, out: NDArray[np.float32]) -> None:
    """Fill ``out`` = scale * A B^T, without holding Python's lock."""
    N, M, D = (ctypes.byref(ctypes.c_int(size)) for size in (len(A), len(B), A.shape[1]))
    one, zero = ctypes.byref(ctypes.c_float(scale)), ctypes.byref(ctypes.c_float(0.0))
    if out.size == 0 or A.shape[1] == 0:
        out[...] = 0.0
        return
    # Fortran's order turned around: (A B^T)^T = B A^T, columns for rows.
    _blas_sgemm()(b"T", b"N", M, N, D, one, B.ctypes.data, D, A.ctypes.data, D, zero, out.ctypes.data, M)


@cache
def _blas_sgemm() -> Callable[..., Any]:
    """SciPy's BLAS by its address, as SciPy offers it to compiled code: its Python wrapper would hold the lock."""
    capsule = cython_blas.__pyx_capi__["sgemm"]
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signature = ctypes.CFUNCTYPE(None, text, text, *[pointer] * 11)
    return signature(get_pointer(capsule, get_name(capsule)))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="deepsimplex-products")


# A process that forks takes the pool along without its threads, and would wait for them for ever.
os.register_at_fork(after_in_child=_threads.cache_clear)
