"""Argmax readout of many independent scores of one variance, by quadrature with tables over the score.

With scores g_k ~ N(a_k, 1), F(u) = sum_k log Phi(u - a_k) and the hazard rate lambda = phi / Phi, class y has the
probability

    p(y) = H(a_y),    H(a) = int lambda(u - a) exp F(u) du.

Both depend on a single score smoothly, so that nodes are not needed for every class. The line of scores below the best
is divided into cells. F comes from the number of scores in each cell and their moments up to the fourth; log H comes
from a cubic polynomial in each cell. A class costs its place among the cells, whatever the number of nodes, and no
tensor has classes times nodes. Sums over nodes are in double precision: products of matrices whose size does not depend
on the number of classes.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.special import log_ndtr

from deepsimplex.readout.normal import LOG_SQRT_TWO_PI, where_known

Array = NDArray[np.float64]

# Largest score that wins with a probability that counts among 10 000 classes, and how far below half of the worst
# score's margin nodes begin.
_TOP, _MARGIN = 6.6, 3.0
# Degrees of the polynomials of log Phi and the hazard rate, whose errors add up over classes, and of log H.
_CLASS_DEGREE, _MASS_DEGREE = 4, 3


@dataclass(frozen=True, eq=False)
class _Grid:
    """Cells of scores below the best, in ``blocks``, and the constants of their polynomials.

    Tables of a block are relative to the mass of a score in its middle, so that they neither underflow nor overflow.

    Attributes
    ----------
    width : float
        Width of a cell.
    reach : float
        Margin of the lowest score that has a cell.
    log_cdf, hazard : ndarray, shape [5 C, Q], [Q, 5 C]
        Coefficients, power by power, of the polynomials of log Phi(u_q - a) and its derivative by a in the C cells.
    log_middle : ndarray, shape [blocks, Q]
        Logarithms of the weights times lambda(u_q - a) at the middle of each block.
    ratio, slope : ndarray, shape [blocks, Q, C / blocks + 1]
        lambda(u_q - a) at the edges of the cells of a block beside that at its middle, and its derivative by a.
    """

    width: float
    reach: float
    log_cdf: Array
    hazard: Array
    log_middle: Array
    ratio: Array
    slope: Array

    @property
    def cells(self) -> int:
        return self.hazard.shape[1] // (_CLASS_DEGREE + 1)


@functools.cache
def _grid(block: float, blocks: int, width: float, step: float) -> _Grid:
    """Build the grid of cells of this width down to ``block * blocks``, with nodes every ``step``."""
    reach = block * blocks
    u = np.arange(-0.5 * reach - _MARGIN, _TOP, step)
    nodes = np.polynomial.chebyshev.chebpts1(_CLASS_DEGREE + 1)
    to_powers = np.linalg.inv(np.vander(nodes, increasing=True))
    cells = round(reach / width)
    a = -width * (np.arange(cells)[:, np.newaxis] + 0.5) + 0.5 * width * nodes  # [C, 5]
    z = u - a[:, :, np.newaxis]
    log_cdf, hazard = (np.einsum("pd,cdq->pcq", to_powers, f(z)).reshape(-1, len(u)) for f in (log_ndtr, _hazard))
    middle = -block * (np.arange(blocks) + 0.5)
    edges = middle[:, np.newaxis] + 0.5 * block - width * np.arange(round(block / width) + 1)  # [blocks, J + 1]
    log_middle = _log_hazard(u - middle[:, np.newaxis])
    z = u[:, np.newaxis] - edges[:, np.newaxis]
    ratio = np.exp(_log_hazard(z) - log_middle[:, :, np.newaxis])
    slope = ratio * (z + _hazard(z))
    return _Grid(width, reach, log_cdf, -hazard.T, log_middle + np.log(step), ratio, slope)


def _log_hazard(z: Array) -> Array:
    return -0.5 * np.square(z) - LOG_SQRT_TWO_PI - log_ndtr(z)


def _hazard(z: Array) -> Array:
    return np.exp(_log_hazard(z))


def _near() -> _Grid:
    """Cells for all probabilities above 1e-17."""
    return _grid(12.0, 1, 0.125, 0.2)


def _far() -> _Grid:
    """Cells for the logarithms of smaller ones."""
    return _grid(12.0, 7, 0.25, 0.2)


def row_size(n: int) -> int:
    """Numbers in the largest tensor of a row of ``probabilities``."""
    return (_CLASS_DEGREE + 1) * max(n, _far().cells)


def probabilities(a: Any, log: bool) -> Any:
    """Class probabilities of independent scores of variance one, or their logarithms.

    Parameters
    ----------
    a : tensor, shape [N, n], float32
        Mean scores minus the largest of the row.
    log : bool
        Return logarithms, accurate to margins of 80 and more.

    Returns
    -------
    tensor, shape [N, n]
        Errors are below 2e-6, those of logarithms below 1e-5, or 3e-5 of logarithms below -30.
    """
    near = _near()
    log_masses = _log_masses(a, near)
    if log:
        log_masses = where_known(a > -near.reach, log_masses, lambda a: _log_masses(a, _far(), extended=True), (a,))
    masses = tf.exp(log_masses)
    total = _sum(masses)  # one up to quadrature error and round-off
    return log_masses - tf.math.log(total) if log else masses / total


def _sum(masses: Any) -> Any:
    """Sums over rows [N, n], shape [N, 1], of sums over parts: single precision would lose a thousand equal terms."""
    n = masses.shape[1]
    size = math.isqrt(n)
    parts = tf.reshape(tf.pad(masses, [[0, 0], [0, -n % size]]), [-1, -(-n // size), size])
    return tf.reduce_sum(tf.reduce_sum(parts, axis=2), axis=1, keepdims=True)


def _log_masses(a: Any, grid: _Grid, extended: bool = False) -> Any:
    """log H(a_k) [N, n] for all scores; beyond the grid's reach that of the last, or ``extended`` by a parabola."""

    @tf.custom_gradient
    def compute(a: Any) -> tuple[Any, Any]:
        cells = _Cells(a, grid)
        F = _node_sums(cells, grid)
        coefficients = _mass_polynomials(F, grid)
        c = cells.of_scores(coefficients)
        value = cells.evaluate(c)
        if extended:
            beyond, rate = tf.minimum(a + grid.reach, 0.0), _end_slope(coefficients, grid)
            value += beyond * (rate - 0.25 * beyond)

        def gradient(upstream: Any) -> Any:
            by_coefficients = tf.cast(tf.stack(cells.moments(upstream, _MASS_DEGREE), axis=1), tf.float64)
            with tf.GradientTape() as tape:
                tape.watch(F)
                polynomials = _mass_polynomials(F, grid)
            by_F = tape.gradient(polynomials, F, by_coefficients)
            through_F = tf.reshape(tf.matmul(by_F, tf.constant(grid.hazard)), [-1, _CLASS_DEGREE + 1, grid.cells])
            v = cells.of_scores(through_F)
            slope = (2.0 / grid.width) * (c[1] + cells.x * (2.0 * c[2] + 3.0 * cells.x * c[3]))
            if extended:
                slope = tf.where(beyond < 0.0, rate - 0.5 * beyond, slope)
            return upstream * slope + cells.evaluate(v)

        return value, gradient

    return compute(a)


class _Cells:
    """The cell of every score, and its place x in [-1, 1] there, which increases with the score."""

    def __init__(self, a: Any, grid: _Grid) -> None:
        position = tf.minimum(a * (-1.0 / grid.width), float(grid.cells))
        cell = tf.clip_by_value(tf.cast(position, tf.int32), 0, grid.cells - 1)  # of NaN too
        self.x = 2.0 * (tf.cast(cell, a.dtype) - position) + 1.0
        self.rows, self.cells = tf.shape(a)[0], grid.cells
        self.index = cell + grid.cells * tf.range(self.rows)[:, tf.newaxis]

    def moments(self, weights: Any, degree: int) -> list[Any]:
        """sum w x^p over the scores of every cell, [N, C] for every power p up to the degree."""
        sums = []
        for power in range(degree + 1):
            weights = weights * self.x if power else weights
            flat = tf.math.unsorted_segment_sum(
                tf.reshape(weights, [-1]), tf.reshape(self.index, [-1]), self.rows * self.cells
            )
            sums.append(tf.reshape(flat, [-1, self.cells]))
        return sums

    def of_scores(self, coefficients: Any) -> list[Any]:
        """Coefficients [N, n] of every power in the cell of every score, from those of all cells [N, powers, C]."""
        table = tf.reshape(tf.transpose(coefficients, [0, 2, 1]), [-1, coefficients.shape[1]])
        return tf.unstack(tf.gather(tf.cast(table, self.x.dtype), self.index), axis=-1)

    def evaluate(self, coefficients: list[Any]) -> Any:
        """Polynomials in x from their coefficients [N, n], the lowest power first."""
        return functools.reduce(lambda value, coefficient: value * self.x + coefficient, coefficients[::-1])


def _node_sums(cells: _Cells, grid: _Grid) -> Any:
    """F(u_q), shape [N, Q], float64."""
    moments = tf.concat(cells.moments(tf.ones_like(cells.x), _CLASS_DEGREE), axis=1)
    return tf.matmul(tf.cast(moments, tf.float64), tf.constant(grid.log_cdf))


def _mass_polynomials(F: Any, grid: _Grid) -> Any:
    """Coefficients [N, 4, C] of the cubic polynomials of log H in the cells, from values and slopes at their edges."""
    exponents = F[:, tf.newaxis] + tf.constant(grid.log_middle)  # [N, blocks, Q]
    peak = tf.stop_gradient(tf.reduce_max(exponents, axis=-1, keepdims=True))
    weights = tf.transpose(tf.exp(exponents - peak), [1, 0, 2])
    log_H, log_slope = (
        tf.math.log(tf.transpose(tf.matmul(weights, tf.constant(part)), [1, 0, 2])) for part in (grid.ratio, grid.slope)
    )
    # A difference of logarithms, whose gradient has no squares that would overflow.
    L, D = log_H + peak, 0.5 * grid.width * tf.exp(log_slope - log_H)
    # Values at the upper and at the lower ends of the cells. Slices, whose gradients are faster than those of indexing.
    size = [-1, -1, L.shape[2] - 1]
    (L, L_low), (D, D_low) = ([tf.slice(part, [0, 0, start], size) for start in (0, 1)] for part in (L, D))
    rise, mean = 0.25 * (L - L_low), 0.5 * (L + L_low)
    bend, total = 0.25 * (D - D_low), 0.25 * (D + D_low)
    coefficients = tf.stack([mean - bend, 3.0 * rise - total, bend, total - rise], axis=1)
    return tf.reshape(coefficients, [-1, _MASS_DEGREE + 1, grid.cells])


def _end_slope(coefficients: Any, grid: _Grid) -> Any:
    """Derivative of log H by the score at the end of the last cell, shape [N, 1]."""
    last = tf.cast(coefficients[:, :, -1:], tf.float32)
    return (2.0 / grid.width) * (last[:, 1] - 2.0 * last[:, 2] + 3.0 * last[:, 3])
