"""Slow oracles of the simplex geometry, written as the papers print them."""

import math

import numpy as np


def vertices_iterative(n: int) -> np.ndarray:
    """[CASIMAC] B.1: each vertex's coordinates from unit length and equal inner products, one after the other."""
    P = np.zeros((n, n - 1))
    for i in range(n):
        for j in range(min(i, n - 1)):
            P[i, j] = (-1 / (n - 1) - float(P[i, :j] @ P[j, :j])) / P[j, j]
        if i < n - 1:
            P[i, i] = math.sqrt(1 - float(P[i, :i] @ P[i, :i]))
    return P


def aitchison_inner(x: np.ndarray, y: np.ndarray) -> float:
    """(1/2n) sum_ij log(x_i/x_j) log(y_i/y_j)."""
    n = len(x)
    return sum(math.log(x[i] / x[j]) * math.log(y[i] / y[j]) for i in range(n) for j in range(n)) / (2 * n)
