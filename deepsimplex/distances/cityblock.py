"""The cityblock distance."""

from typing import ClassVar

from deepsimplex.distances.vectors import VectorDistance


class Cityblock(VectorDistance):
    """d(a, b) = sum_i |a_i - b_i| between flattened samples, in float64; exact duplicates have distance exactly 0.

    Examples
    --------
    >>> Cityblock().pairwise([[0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]])
    array([[7., 0.]])
    """

    name: ClassVar[str] = "cityblock"
    squared = False
