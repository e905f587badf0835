"""The seed of a fit, from whatever scikit-learn's users give as ``random_state``."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

RandomState = int | np.random.RandomState | None

# NumPy's generators of legacy kind, which scikit-learn's are, take seeds below this.
_SEEDS = 2**32


def seed_of(random_state: Any) -> int:
    """The one seed of all random choices of a fit.

    Parameters
    ----------
    random_state : int, numpy.random.RandomState or None
        A whole number is the seed itself. A generator, or NumPy's global one for None, draws it.

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> seed_of(3), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    (3, True)
    """
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if 0 <= random_state < _SEEDS:
            return int(random_state)
    elif random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    raise ValueError(
        "random_state must be a whole number, at least 0 and below 2**32, a numpy.random.RandomState or None; found "
        f"{random_state!r}"
    )
