"""Precomputed distances."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.archives import fingerprint
from deepsimplex._utils.registry import registered
from deepsimplex._utils.validation import check_array, unmasked
from deepsimplex.distances.distance import BlockFunction, Distance


@registered
class Precomputed(Distance):
    """d(i, j) looked up in matrices.

    Parameters
    ----------
    matrix : array_like, shape [N, N]
        Distances between the training samples, in their order: finite, not negative. It need not be symmetric; row i
        is used for the neighbors of sample i.
    others : array_like, shape [M, N], optional
        Distances of M other samples (rows, in their order) to the training samples, for ``queries`` of
        ``class_neighbors`` and ``transform`` of targets.

    Raises
    ------
    ValueError
        If a matrix has the wrong shape or holds negative, NaN or infinite numbers; in use, if the number of samples is
        not the matrix's, or if the distance was made from a configuration, which does not hold the matrix.

    Notes
    -----
    The samples themselves are only counted. They may be any arrays of N (or M) rows.

    Examples
    --------
    >>> from deepsimplex.distances import class_neighbors
    >>> distance = Precomputed([[0.0, 2.0], [2.0, 0.0]])
    >>> class_neighbors([[0.0], [0.0]], [0, 1], distance).distances[0, :, 0]
    array([inf,  2.])
    """

    has_features: ClassVar[bool] = False

    def __init__(self, matrix: ArrayLike, others: ArrayLike | None = None) -> None:
        self.matrix = _check_matrix(matrix, "matrix")
        if self.matrix.shape[0] != self.matrix.shape[1]:
            raise ValueError(f"matrix must be square, [N, N]; found shape {list(self.matrix.shape)}")
        self.others = None if others is None else _check_matrix(others, "others")
        if self.others is not None and self.others.shape[1] != len(self.matrix):
            raise ValueError(f"others must have shape [M, {len(self.matrix)}]; found {list(self.others.shape)}")

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        """Return the indices of the samples."""
        shape = np.shape(x if hasattr(x, "shape") else unmasked(x, name))
        if not shape:
            raise ValueError(f"{name} must have shape [N, ...], a row per sample; found a single number")
        return np.arange(shape[0])

    def blocks(self, queries: NDArray[Any], x: NDArray[Any]) -> BlockFunction:
        if self.matrix.size == 0:
            raise ValueError("the matrix is not part of a configuration; make a new Precomputed(matrix)")
        if len(x) != len(self.matrix):
            raise ValueError(f"matrix must have a row per training sample, {len(x)}; found {list(self.matrix.shape)}")
        table = self.matrix
        if queries is not x:
            if self.others is None:
                raise ValueError("distances of other samples are not known; give Precomputed(matrix, others)")
            if len(queries) != len(self.others):
                raise ValueError(f"others must have a row per query, {len(queries)}; found {len(self.others)}")
            table = self.others
        return lambda rows, columns: table[queries[rows]][:, x[columns]].astype(np.float64, copy=False)

    def pairwise(self, X: ArrayLike, Y: ArrayLike) -> NDArray[np.float64]:
        """Return a copy of ``matrix`` if X is Y, the training samples; else of ``others``, with X the other samples."""
        training = self.check(Y, "Y")
        queries = training if X is Y else self.check(X, "X")
        return self.blocks(queries, training)(slice(0, len(queries)), slice(0, len(training)))

    def get_config(self) -> dict[str, Any]:
        """Return an empty dict: matrices are not part of a configuration."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Precomputed":
        """Make a distance without its matrix: it raises an error when used."""
        return cls(np.zeros((0, 0)))

    def cache_key(self) -> str:
        return f"precomputed {fingerprint(self.matrix, self.others)}"

    def __repr__(self) -> str:
        return f"Precomputed(<matrix {list(self.matrix.shape)}>)"


def _check_matrix(matrix: ArrayLike, name: str) -> NDArray[Any]:
    table = check_array(matrix, name, "[N, M]", finite=False, dtype="any")  # finite: below, without another array
    if table.size and not (np.isfinite(table.min()) and np.isfinite(table.max()) and table.min() >= 0):
        row, column = np.argwhere(~(np.isfinite(table) & (table >= 0)))[0]
        raise ValueError(f"{name} must hold finite distances >= 0; found {table[row, column]} at [{row}, {column}]")
    return table
