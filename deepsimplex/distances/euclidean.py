"""The Euclidean distance."""

from typing import ClassVar

from deepsimplex.distances.vectors import VectorDistance


class Euclidean(VectorDistance):
    """d(a, b) = sqrt(sum_i (a_i - b_i)^2) between flattened samples; exact duplicates have distance exactly 0.

    Evaluated in float64 by direct differences: the expansion |a|^2 + |b|^2 - 2 a.b would give duplicates distances of
    1e-8 to 1e-6 [CASIMAC Eq. 7a, errata]. Samples may be images or rows of features, of any real type.

    Examples
    --------
    >>> Euclidean().pairwise([[0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]])
    array([[5., 0.]])
    """

    name: ClassVar[str] = "euclidean"
    squared = True
