"""What a metric is, and the checks that all metrics need."""

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.distances.blockwise import search_blockwise
from deepsimplex.distances.checkpoint import Checkpoint
from deepsimplex.distances.search import BlockFunction, Neighbors, PairFunction, Search


class Distance(ABC):
    """A distance between samples.

    A new metric is one file with a subclass that has a name, ``check`` and ``blocks``, and one row in the registry. A
    metric that knows a faster way to the neighbors than all pairs overrides ``neighbors`` too.
    """

    name: ClassVar[str]
    # Whether samples are points by themselves, so that some of them can be searched by others' features.
    has_features: ClassVar[bool] = True

    @abstractmethod
    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        """Return samples [N, ...] as the array that the other methods take, or say what is wrong with them.

        Parameters
        ----------
        x : array_like, shape [N, ...]
            Samples.
        name : str
            What to call them in an error.

        Raises
        ------
        TypeError
            When they are no real numbers.
        ValueError
            When their shape or values do not suit this metric.
        """

    @abstractmethod
    def blocks(self, x: NDArray[Any], queries: NDArray[Any] | None, order: NDArray[np.int64]) -> BlockFunction:
        """Prepare both sides once, and return the function that fills one block of the distance matrix.

        Parameters
        ----------
        x : ndarray, shape [N, ...]
            The samples searched, as ``check`` returns them.
        queries : ndarray, shape [M, ...], or None
            The rows of the matrix; None: ``x`` itself, in its own order.
        order : ndarray of int64
            The columns of the matrix: ``x[order]``.

        Returns
        -------
        callable
            Of a slice of rows and a slice of columns, both with bounds and without steps: float64 [rows, columns],
            finite but for a sample's distance to itself.
        """

    def paired(self, x: NDArray[Any], queries: NDArray[Any] | None) -> PairFunction:
        """The function that gives the distances of single pairs.

        Parameters
        ----------
        x, queries : ndarray
            As for ``blocks``.

        Returns
        -------
        callable
            Of rows [S] of the queries and of the samples: float64 [S].
        """
        block = self.blocks(x, queries, np.arange(len(x)))

        def distances(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.array([block(slice(i, i + 1), slice(j, j + 1))[0, 0] for i, j in zip(rows, columns, strict=True)])

        return distances

    def pairwise(self, X: ArrayLike, Y: ArrayLike) -> NDArray[np.float64]:
        """All distances between two sets of samples.

        Parameters
        ----------
        X : array_like, shape [N, ...]
        Y : array_like, shape [M, ...]

        Returns
        -------
        ndarray, shape [N, M], float64

        Raises
        ------
        TypeError
            When samples are no real numbers.
        ValueError
            When samples do not suit the metric, or those of X and Y differ in shape.

        Examples
        --------
        >>> from deepsimplex.distances import Euclidean
        >>> Euclidean().pairwise([[0.0, 0.0], [3.0, 0.0]], [[3.0, 4.0]])
        array([[5.],
               [4.]])
        """
        rows, columns = self.check(X, "X"), self.check(Y, "Y")
        check_alike(rows, columns, "X", "Y")
        block = self.blocks(columns, rows, np.arange(len(columns)))
        return block(slice(0, len(rows)), slice(0, len(columns)))

    def resolve(self, search: Search) -> "tuple[Distance, Search]":
        """The metric and the search that are meant; others than these where a metric looks through a model."""
        return self, search

    def neighbors(self, search: Search) -> Neighbors:
        """The exact neighbors that ``class_neighbors`` asks for."""
        return self.brute_force(search)

    def brute_force(self, search: Search) -> Neighbors:
        """The same by evaluating every pair."""
        block = self.blocks(search.x, search.queries, search.order)
        return search_blockwise(block, search, self.name, Checkpoint.of(search, self.cache_key()))

    def get_config(self) -> dict[str, Any]:
        """The metric as a mapping that ``get_distance`` takes."""
        return {"name": self.name}

    def cache_key(self) -> str | None:
        """A text that differs wherever distances would, to keep results under; None where there can be none."""
        return json.dumps(self.get_config(), sort_keys=True)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items() if key != "name")
        return f"{type(self).__name__}({arguments})"


def check_real(x: ArrayLike, name: str) -> NDArray[Any]:
    """Return samples [N, ...] as a float32, float64 or integer array of finite numbers, or say why they are none."""
    array = np.asarray(x)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers; found dtype {array.dtype}")
    if array.ndim == 0:
        raise ValueError(f"{name} must have shape [N, ...], a row per sample; found a single number")
    if array.dtype.kind == "f":
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
        finite = np.isfinite(array)
        if not finite.all():
            row = int(np.argwhere(~finite)[0, 0])
            raise ValueError(
                f"{name} must be finite; found NaN or infinity in {int((~finite).sum())} places, first in sample {row}"
            )
    return array


def check_alike(x: NDArray[Any], other: NDArray[Any], name: str, other_name: str) -> None:
    """Refuse samples of different shapes."""
    if x.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"the samples of {name} and {other_name} must have the same shape; "
            f"found {list(x.shape[1:])} and {list(other.shape[1:])}"
        )
