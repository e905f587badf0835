"""Warning of features that single precision rounds by a considerable part of their range."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deepsimplex._utils.messages import warn_caller

# Rounding by a smaller share of a feature's range hardly changes probabilities.
_SHARE = 1e-4


def warn_of_rounding(lower: ArrayLike, upper: ArrayLike, remedy: str = "", names: Any = None) -> None:
    """Warn of features, such as times in seconds, that float32 rounds by more than a ten-thousandth of their range.

    Parameters
    ----------
    lower, upper : array_like, shape [d]
        Smallest and largest value of every feature.
    remedy : str
        End of the message. Default "".
    names : sequence of str, optional
        Default None: positions.
    """
    lower, upper = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    step = np.spacing(np.maximum(np.abs(lower), np.abs(upper)).astype(np.float32)).astype(np.float64)
    if len(rounded := np.flatnonzero((upper > lower) & (step > _SHARE * (upper - lower)))):
        feature = rounded[0]
        name = feature if names is None else repr(names[feature])
        warn_caller(
            f"float32 rounds {len(rounded)} of {len(step)} features; feature {name}, from {lower[feature]:.10g} to "
            f"{upper[feature]:.10g}, to multiples of {step[feature]:g}. Subtract a constant before fit{remedy}"
        )
