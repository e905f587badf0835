"""Warnings that point at the caller's code."""

import sys
import warnings


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the line of the caller's code, however deep in the package it is issued.

    Examples
    --------
    >>> warn_caller("two rows are equal")  # doctest: +SKIP
    """
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
