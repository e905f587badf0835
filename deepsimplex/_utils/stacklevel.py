"""Compute the ``stacklevel`` that points a warning at the caller's code."""

import sys


def callers_stacklevel() -> int:
    """Return the ``stacklevel`` with which ``warnings.warn`` names the line that called the package; 1 outside of it.

    Examples
    --------
    >>> import warnings
    >>> warnings.warn("two rows are equal", stacklevel=callers_stacklevel())  # doctest: +SKIP
    """
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level
