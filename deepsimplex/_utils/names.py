"""Hints for names that are not known."""

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["did_you_mean"]


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or nothing where none is near.

    Parameters
    ----------
    name : any
        What was found; upper and lower case are not told apart.
    known : iterable of str

    Returns
    -------
    str
        "; did you mean 'mlp'?" or "".

    Examples
    --------
    >>> did_you_mean("mpl", ["mlp", "cnn"])
    "; did you mean 'mlp'?"
    >>> did_you_mean("transformer", ["mlp", "cnn"])
    ''
    """
    spellings = {word.lower(): word for word in known}
    near = difflib.get_close_matches(str(name).lower(), spellings, n=1, cutoff=0.5)
    return f"; did you mean {spellings[near[0]]!r}?" if near else ""
