"""Threads of linear algebra: as many for NumPy's and SciPy's libraries together as there are cores."""

import os
from typing import Any

from threadpoolctl import threadpool_limits


def shared_cores() -> Any:
    """Return a context in which the BLAS of NumPy and that of SciPy have half of the cores each.

    Their threads wait for work by spinning. With as many threads as cores in both, those of one take the cores from the
    other where calls alternate: on two cores a solution of 2000 rows took three times as long.

    Examples
    --------
    >>> import numpy as np
    >>> with shared_cores():
    ...     float((np.eye(2) @ np.eye(2)).sum())
    2.0
    """
    return threadpool_limits(limits=max((os.cpu_count() or 2) // 2, 1), user_api="blas")
