"""Messages to users: the nearest known name in errors, and warnings that point at the caller's code."""

import difflib
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any


def did_you_mean(
    name: Any, known: Iterable[str], likeness: float = 0.5, places: Mapping[str, str] | None = None
) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or "" if none is near.

    Parameters
    ----------
    name : any
        The unknown name; case is ignored.
    known : iterable of str
    likeness : float
        Least share of letters in common, from 0 to 1. Default 0.5.
    places : dict of str, optional
        What to suggest for a known name. Default None: the name.

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
    >>> did_you_mean("epoch", ["epochs"], places={"epochs": "training.epochs"})
    "; did you mean 'training.epochs'?"
    """
    spellings = {word.lower(): (places or {}).get(word, word) for word in known}
    near = difflib.get_close_matches(str(name).lower(), spellings, n=1, cutoff=likeness)
    return f"; did you mean {spellings[near[0]]!r}?" if near else ""


def guided(page: str, message: str, kind: type[Exception] = ValueError) -> Exception:
    """Return an error with the guide that explains it as a note, which tracebacks and the command line show.

    Examples
    --------
    >>> guided("decisions.md#return-a-set", "y must hold at least 9 samples").__notes__
    ['See docs/guides/decisions.md#return-a-set']
    """
    error = kind(message)
    error.add_note(f"See docs/guides/{page}")
    return error


def listed(items: Iterable[Any], most: int = 20) -> str:
    """Join items by commas; beyond ``most`` of them say how many there are.

    Examples
    --------
    >>> listed([4, 9, 12], most=2)
    '4, 9 and 1 more'
    """
    texts = [str(item) for item in items]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def shown(value: Any) -> str:
    """Return a value as an error shows it: in one line, or by its type and shape if it takes several, as arrays do.

    Examples
    --------
    >>> import numpy as np
    >>> shown("two"), shown(np.zeros((2, 3)))
    ("'two'", 'ndarray of shape (2, 3)')
    """
    text = repr(value)
    if "\n" in text and hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {value.shape}"
    line = " ".join(text.split())
    return text if "\n" not in text else line if len(line) <= 80 else f"{type(value).__name__}(...)"


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the line of the caller's code, however deep in the package it is issued.

    Examples
    --------
    >>> warn_caller("two rows are equal")  # doctest: +SKIP
    """
    inner = __name__.partition(".")[0], "contextlib"  # decorators of context managers call from there
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inner:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
