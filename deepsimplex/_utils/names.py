"""Suggest the nearest known name for an unknown one."""

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or "" if none is near.

    Parameters
    ----------
    name : any
        The unknown name; case is ignored.
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
