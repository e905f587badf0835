"""Check arguments: numbers, flags, choices, names and arrays; raise an error that names the argument."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.names import did_you_mean


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


def check_choice(value: Any, name: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``; the message names the nearest of them.

    Examples
    --------
    >>> check_choice("mixd", "colors", ["likeliest", "mixed"])
    Traceback (most recent call last):
    ValueError: colors must be one of likeliest, mixed; found 'mixd'; did you mean 'mixed'?
    """
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; found {value!r}{did_you_mean(value, known)}")


def check_names(names: Sequence[str] | None, count: int, name: str, of: str) -> list[str] | None:
    """Return ``names`` as a list of ``count`` strings, one for each of the ``of`` that the message names; None as None.

    Examples
    --------
    >>> check_names(["cat"], 2, "class_names", "columns of p")
    Traceback (most recent call last):
    ValueError: class_names must hold one name for each of the 2 columns of p; found ['cat']
    """
    if names is None:
        return None
    found = [str(one) for one in names]
    if isinstance(names, str) or len(found) != count:
        raise ValueError(f"{name} must hold one name for each of the {count} {of}; found {names!r}")
    return found


def check_finite(values: ArrayLike, name: str) -> NDArray[np.floating]:
    """Return ``values`` as an array of finite real numbers, float32 if they were, else float64.

    Examples
    --------
    >>> check_finite([[1.0, float("nan")]], "X")
    Traceback (most recent call last):
    ValueError: X must be finite; found nan at [0, 1]
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers; found dtype {array.dtype}")
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        where = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise ValueError(f"{name} must be finite; found {array[tuple(where)]} at {where}")
    return array


def class_numbers(labels: ArrayLike, classes: Sequence[Any], count: int, name: str) -> NDArray[np.int64]:
    """Return the position in ``classes`` of each of ``count`` labels.

    Examples
    --------
    >>> class_numbers(["dog", "cat"], ["cat", "dog"], 2, "y").tolist()
    [1, 0]
    >>> class_numbers(["dog", "cut"], ["cat", "dog"], 2, "y")
    Traceback (most recent call last):
    ValueError: y must hold classes of the classifier, ['cat', 'dog']; found 'cut' in row 1; did you mean 'cat'?
    """
    array = np.asarray(labels)
    if array.shape not in ((count,), (count, 1)):
        raise ValueError(f"{name} must hold one class for each of {count} rows; found shape {array.shape}")
    positions = {label: k for k, label in enumerate(classes)}
    found = array.reshape(count).tolist()
    for row, label in enumerate(found):
        if label not in positions:
            shown = list(classes) if len(classes) <= 10 else [*classes[:9], "..."]
            hint = did_you_mean(label, [str(one) for one in classes]) if isinstance(label, str) else ""
            raise ValueError(f"{name} must hold classes of the classifier, {shown}; found {label!r} in row {row}{hint}")
    return np.array([positions[label] for label in found], dtype=np.int64)
