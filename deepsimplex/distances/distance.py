"""Base class of the distances, and distances from a Python function."""

import json
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.messages import guided
from deepsimplex._utils.parameters import Parameters
from deepsimplex._utils.registry import registered, registered_function, registered_name
from deepsimplex._utils.validation import check_array
from deepsimplex.distances.exact_search import Search, Visit, block_visit

# Distances of the queries at a slice of rows to the samples at a slice of columns: float64 [rows, columns].
BlockFunction = Callable[[slice, slice], NDArray[np.float64]]
# Distances of the queries at some rows to the samples at as many columns: float64 [S].
PairFunction = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


class Distance(Parameters):
    """A distance between samples. Subclass it to define your own.

    Define ``__call__``, the distance of two samples; that is enough for every use, at a Python call per pair. Override
    ``blocks`` to compute many distances at a time, ``check`` to restrict the samples, and ``get_config`` if the
    constructor has arguments. Register the class with ``keras.saving.register_keras_serializable``, and it is saved
    with the models and targets that use it; configurations name it as ``"module:Class"``.

    Attributes
    ----------
    symmetric : bool
        Class attribute: whether d(a, b) = d(b, a), bit for bit, so that every pair is evaluated only once.
        The default is False.
    sums_features : bool
        Class attribute: whether differences of all features are added up, so that classifiers with ``scale_features``
        standardize them first. The default is False: what a function or a network expects is not known.
    has_features : bool
        Class attribute: whether samples are arrays of numbers, which an approximate search needs. The default is True.

    Examples
    --------
    >>> class Chebyshev(Distance):
    ...     symmetric = True
    ...
    ...     def __call__(self, a, b):
    ...         return np.abs(a - b).max()
    >>> Chebyshev().pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[4.]])
    """

    symmetric: ClassVar[bool] = False
    has_features: ClassVar[bool] = True
    sums_features: ClassVar[bool] = False

    def __call__(self, a: ArrayLike, b: ArrayLike) -> float:
        """Compute the distance of two samples.

        Parameters
        ----------
        a, b : array_like
            Two samples of the same shape; ``a`` is the query.

        Returns
        -------
        float
            Finite and not negative.
        """
        return float(self.pairwise(np.asarray(a)[None], np.asarray(b)[None])[0, 0])

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        """Validate samples, and return them as the array that the other methods take.

        Parameters
        ----------
        x : array_like, shape [N, ...]
            Samples.
        name : str
            Name of the argument in error messages.

        Raises
        ------
        TypeError
            If they are not real numbers.
        ValueError
            If their shape or values do not suit this distance.
        """
        return check_array(x, name, "[N, ...]", dtype="any")

    def join(self, x: Any) -> Any:
        """Combine the inputs of a model, a dict or tuple of arrays, into the one array that is compared.

        Raises
        ------
        ValueError
            By default; ``Embedding`` overrides this method for models with several inputs.
        """
        raise ValueError(
            "x must be a single array for a distance between arrays; found several inputs. Give an Embedding whose "
            "model takes them, or has a keras.Input of the name of the one that counts"
        )

    def blocks(self, queries: NDArray[Any], x: NDArray[Any]) -> BlockFunction:
        """Prepare both sides, and return the function that computes one block of the distance matrix.

        Parameters
        ----------
        queries : ndarray, shape [M, ...]
            Samples in the rows of the matrix, as ``check`` returns them. The object ``x`` itself if the samples are
            compared with each other.
        x : ndarray, shape [N, ...]
            Samples in its columns.

        Returns
        -------
        callable
            Maps a slice of rows and a slice of columns, both with bounds and without steps, to distances
            [rows, columns] in float64. They are finite, except for those of samples to themselves.
        """
        if type(self).__call__ is Distance.__call__:
            raise NotImplementedError(f"{type(self).__name__} must define __call__(a, b), or blocks(queries, x)")

        def block(rows: slice, columns: slice) -> NDArray[np.float64]:
            values = [[self._evaluate(a, b) for b in x[columns]] for a in queries[rows]]
            return np.array(values, np.float64).reshape(rows.stop - rows.start, columns.stop - columns.start)

        return block

    def _evaluate(self, a: Any, b: Any) -> float:
        value = float(self(a, b))
        if not np.isfinite(value) or value < 0:
            raise ValueError(f"distances must be finite and not negative; {self!r} returned {value!r}")
        return value

    def paired(self, queries: NDArray[Any], x: NDArray[Any]) -> PairFunction:
        """Return the function that computes the distances of single pairs.

        Parameters
        ----------
        queries, x : ndarray
            As for ``blocks``.

        Returns
        -------
        callable
            Maps rows [S] of the queries and rows [S] of the samples to distances [S] in float64.
        """
        block = self.blocks(queries, x)

        def distances(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.array([block(slice(i, i + 1), slice(j, j + 1))[0, 0] for i, j in zip(rows, columns, strict=True)])

        return distances

    def pairwise(self, X: ArrayLike, Y: ArrayLike) -> NDArray[np.float64]:
        """Compute all distances between two sets of samples.

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
            If samples are not real numbers.
        ValueError
            If samples do not suit the distance, or those of X and Y differ in shape.

        Examples
        --------
        >>> from deepsimplex.distances import Euclidean
        >>> Euclidean().pairwise([[0.0, 0.0], [3.0, 0.0]], [[3.0, 4.0]])
        array([[5.],
               [4.]])
        """
        rows, columns = self.check(X, "X"), self.check(Y, "Y")
        check_same_shape(rows, columns, "X", "Y")
        return self.blocks(rows, columns)(slice(0, len(rows)), slice(0, len(columns)))

    def resolve(self, search: Search) -> "tuple[Distance, Search]":
        """Return the distance and the search to run: ``Embedding`` replaces both."""
        return self, search

    def visitor(self, search: Search) -> Visit:
        """Return the visit of a tile of an exact search. Override it if not every pair needs to be evaluated."""
        return block_visit(self.blocks(search.rows, search.x), search, self)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, for Keras' serialization."""
        return {}

    def cache_key(self) -> str | None:
        """Return a string that identifies the distance, to key stored results; None if results cannot be stored."""
        return f"{type(self).__module__}:{type(self).__qualname__} {json.dumps(self.get_config(), sort_keys=True)}"

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


@registered
class CallableDistance(Distance):
    """d(a, b) = function(a, b), called once for every pair, which is slow.

    Parameters
    ----------
    function : callable or str
        Takes two samples, arrays of shape x.shape[1:], and returns a finite number >= 0. It need not be symmetric: the
        query comes first. Only a function registered with ``keras.saving.register_keras_serializable`` can be saved; it
        may be given by its registered name.

    Raises
    ------
    TypeError
        If ``function`` is not callable.
    ValueError
        While distances are computed, if it returns anything else than a finite number >= 0; in ``get_config``, if it
        is not registered.

    Examples
    --------
    >>> import numpy as np
    >>> CallableDistance(lambda a, b: np.abs(a - b).max()).pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[4.]])
    """

    def __init__(self, function: Callable[[Any, Any], float] | str) -> None:
        if function is None:
            raise TypeError("function must be callable on two samples; found None")
        self.function: Any = registered_function(function, "function")

    def __call__(self, a: ArrayLike, b: ArrayLike) -> float:
        return self.function(a, b)

    def get_config(self) -> dict[str, Any]:
        return {"function": registered_name(self.function, "the function of a distance")}

    def cache_key(self) -> None:
        """Return None: results are not cached, since the name of a function does not identify its code."""

    def __repr__(self) -> str:
        return f"CallableDistance({self.function!r})"


def check_same_shape(x: NDArray[Any], other: NDArray[Any], name: str, other_name: str) -> None:
    """Raise an error if samples have different shapes."""
    if x.shape[1:] != other.shape[1:]:
        raise guided(
            "data.md#what-fit-takes",
            f"{name} and {other_name} must hold samples of one shape; found {x.shape} and {other.shape}",
        )
