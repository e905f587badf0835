"""Threads of linear algebra: as many for NumPy's and SciPy's libraries together as there are cores."""

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

# Found once: looking through all libraries that are loaded takes as long as a small solution.
_controller = functools.cache(ThreadpoolController)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def shares_cores(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the function, in which the BLAS of NumPy and that of SciPy have half of the cores each.

    Their threads wait for work by spinning. With as many threads as cores in both, those of one take the cores from the
    other where calls alternate: on two cores a solution of 2000 rows took three times as long.

    Examples
    --------
    >>> import numpy as np
    >>> float(shares_cores(np.dot)(2.0, 3.0))
    6.0
    """

    @functools.wraps(function)
    def limited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _controller().limit(limits=max((os.cpu_count() or 2) // 2, 1), user_api="blas"):
            return function(*args, **kwargs)

    return limited
