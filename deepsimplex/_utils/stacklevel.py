"""Whose line a warning is about: that of the user, however deep in the package it was noticed."""

import sys

__all__ = ["callers_stacklevel"]


def callers_stacklevel() -> int:
    """The ``stacklevel`` at which ``warnings.warn``, called where this is, names the line that called the package.

    Returns
    -------
    int
        1 outside of the package.

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
