"""Numbers that a caller gave, or an error that names them."""

from typing import Any

import numpy as np


def check_whole(value: Any, name: str, least: int) -> int:
    """``value`` as an int, or an error that names it.

    Examples
    --------
    >>> check_whole(2.5, "restarts", 0)
    Traceback (most recent call last):
    ValueError: restarts must be a whole number, at least 0; found 2.5
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}; found {value!r}")
    return int(value)


def check_number(value: Any, name: str, least: float, most: float = np.inf, *, open_below: bool = True) -> None:
    """An error that names a value that is no finite number between bounds.

    Examples
    --------
    >>> check_number(2.0, "learning_rate", 0.0, 1.0)
    Traceback (most recent call last):
    ValueError: learning_rate must be a number above 0.0 and at most 1.0; found 2.0
    """
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or not least <= value <= most or (open_below and value == least):
        above = f"above {least}" if open_below else f"of at least {least}"
        below = "" if most == np.inf else f" and at most {most}"
        raise ValueError(f"{name} must be a number {above}{below}; found {value!r}")


def check_flag(value: Any, name: str) -> bool:
    """``value`` as a bool, or an error that names it: text is true whatever it says.

    Examples
    --------
    >>> check_flag("no", "ard")
    Traceback (most recent call last):
    TypeError: ard must be True or False; found 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; found {value!r}")
    return bool(value)
