"""Any Python function as a distance."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex.distances.base import Distance, check_real
from deepsimplex.distances.search import BlockFunction


class CallableDistance(Distance):
    """d(a, b) = function(a, b), called once for every pair: slow, microseconds a pair at best.

    Parameters
    ----------
    function : callable
        Takes two samples, arrays of shape x.shape[1:], and returns a finite number >= 0. It need not be symmetric: the
        query comes first.

    Raises
    ------
    TypeError
        When ``function`` cannot be called.
    ValueError
        While distances are computed, when it returns anything else than a finite number >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> CallableDistance(lambda a, b: np.abs(a - b).max()).pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[4.]])
    """

    name: ClassVar[str] = "callable"

    def __init__(self, function: Callable[[Any, Any], float]) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable on two samples; found {type(function).__name__}")
        self.function = function

    def check(self, x: ArrayLike, name: str = "x") -> NDArray[Any]:
        return check_real(x, name)

    def cache_key(self) -> None:
        """None: what a function computes cannot be told from its name."""

    def blocks(self, x: NDArray[Any], queries: NDArray[Any] | None, order: NDArray[np.int64]) -> BlockFunction:
        rows_of = x if queries is None else queries

        def block(rows: slice, columns: slice) -> NDArray[np.float64]:
            return np.array(
                [[self._evaluate(query, x[column]) for column in order[columns]] for query in rows_of[rows]]
            ).reshape(rows.stop - rows.start, columns.stop - columns.start)

        return block

    def _evaluate(self, a: Any, b: Any) -> float:
        value = float(self.function(a, b))
        if not np.isfinite(value) or value < 0:
            raise ValueError(
                f"distance must be finite and not negative; the callable {self.function!r} returned {value!r}"
            )
        return value
