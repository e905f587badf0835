"""Check numbers, arrays, labels, class probabilities and sample weights; raise errors that name the argument."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from deepsimplex._utils.messages import did_you_mean, listed, shown

SUM_TOLERANCE = 1e-3
"""Largest difference from 1 of the sum of one sample's probabilities: allows for a softmax in half precision."""

ROUNDING = 1e-6
"""How far below 0 a probability may lie and count as 0: allows for 1 - q if q was rounded above 1 in float32."""

MOST_CLASSES = 2**20
"""Largest number of classes: higher labels are likely a mistake, and arrays get a column for every class."""


def is_missing(value: Any) -> bool:
    """Return whether a value is what Python, NumPy or pandas have for a missing one.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), "nan", 0)]
    [True, True, False, False]
    """
    return not isinstance(value, str) and str(value) in ("None", "nan", "<NA>", "NaT")


def check_whole(value: Any, name: str, least: int, most: int = 2**31 - 1) -> int:
    """Return ``value`` as an int in [least, most]; ``most`` defaults to the largest number of 32 bits.

    Examples
    --------
    >>> check_whole(2.5, "n_restarts", 0)
    Traceback (most recent call last):
    ValueError: n_restarts must be a whole number, at least 0; found 2.5
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}; found {shown(value)}")
    if value > most:
        raise ValueError(f"{name} must be a whole number, at most {most}; found {shown(value)}")
    return int(value)


def check_number(
    value: Any,
    name: str,
    above: float = -np.inf,
    most: float = np.inf,
    *,
    least: float = -np.inf,
    below: float = np.inf,
) -> float:
    """Return ``value`` as a finite float with ``above < value``, ``least <= value``, ``value < below``, ``<= most``.

    Examples
    --------
    >>> check_number(2.0, "learning_rate", 0, 1)
    Traceback (most recent call last):
    ValueError: learning_rate must be a number above 0 and at most 1; found 2.0
    """
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    number = number and not (isinstance(value, int) and value.bit_length() > 1023) and math.isfinite(value)
    if not (number and above < value < below and least <= value <= most):
        limits = [("above", above), ("of at least", least), ("below", below), ("at most", most)]
        wanted = " and ".join(f"{word} {limit}" for word, limit in limits if np.isfinite(limit))
        raise ValueError(
            f"{name} must be {f'a number {wanted}' if wanted else 'a finite number'}; found {shown(value)}"
        )
    return float(value)


def check_flag(value: Any, name: str) -> bool:
    """Return ``value`` as a bool. Text is refused: "no" would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; found {shown(value)}")
    return bool(value)


def unmasked(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return ``values`` as an array; raise for masked values, whose mask NumPy would ignore, and for ragged rows."""
    if np.ma.is_masked(values):
        hidden: NDArray[np.bool_] = np.ma.getmaskarray(np.ma.asarray(values))
        raise ValueError(
            f"{name} must not be masked; found {hidden.sum()} masked values, the first in row "
            f"{int(np.argwhere(np.atleast_1d(hidden))[0, 0])}. Leave such samples out"
        )
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be an array, its rows of one length; {error}") from error


def label_array(y: ArrayLike, name: str = "y") -> NDArray[Any]:
    """Return labels as an array; raise ValueError for masked, ragged and, among objects and text, missing ones.

    Examples
    --------
    >>> label_array(["cat", None, "dog"])
    Traceback (most recent call last):
    ValueError: y must not be missing; found None in row 1. Leave out samples without a label
    """
    array = unmasked(y, name)
    values = array
    if array.dtype.kind == "U" and isinstance(y, list | tuple):  # in which NumPy makes text of NaN
        values = np.asarray(y, dtype=object)
    if values.dtype.kind == "O" and (values.ndim == 1 or values.shape[1:] == (1,)):
        for row, label in enumerate(values.ravel()):
            if is_missing(label):
                raise _missing_label(name, label, row)
    return array


def _missing_label(name: str, label: Any, row: int) -> ValueError:
    return ValueError(f"{name} must not be missing; found {label} in row {row}. Leave out samples without a label")


def check_array(
    values: ArrayLike,
    name: str,
    shape: str = "[...]",
    *,
    rows: int | None = None,
    columns: int | None = None,
    least: int = 0,
    of: str = "samples",
    finite: bool = True,
    dtype: Literal["float64", "floating", "any"] = "float64",
) -> NDArray[Any]:
    """Return ``values`` as an array of real, finite numbers.

    Parameters
    ----------
    values : array_like
    name : str
    shape : str
        The shape wanted: "[N, d]" asks for two axes, "[N, ...]" for one or more. The default takes any.
    rows, columns, least : int, optional
        Lengths of the first and the last axis, and least number of rows. By default all are allowed.
    of : str
        What ``rows`` counts, for the message.
    finite : bool
        Refuse NaN and infinity. The default is True.
    dtype : {"float64", "floating", "any"}
        "floating" keeps float32, "any" float32, integers and booleans; with both, half precision becomes float32.
        Everything else becomes float64.

    Raises
    ------
    TypeError
        When the values are not real numbers.
    ValueError
        When they are masked, ragged, of another shape or not finite.

    Examples
    --------
    >>> check_array([1.0, 2.0], "X", "[N, d]")
    Traceback (most recent call last):
    ValueError: X must have shape [N, d]; found shape (2,). A single feature becomes X.reshape(-1, 1)
    """
    array = unmasked(values, name)
    if array.dtype.name == "bfloat16":  # of mixed precision; no number to NumPy
        array = array.astype(np.float32)
    if array.dtype.kind not in "biufO":
        raise TypeError(f"{name} must hold real numbers; found dtype {array.dtype}")
    axes = shape.count(",") + 1
    if ("..." not in shape and array.ndim != axes) or array.ndim < axes - ("..." in shape):
        hint = f". A single feature becomes {name}.reshape(-1, 1)" if axes == 2 and array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape {shape}; found shape {array.shape}{hint}")
    if rows is not None and len(array) != rows:
        raise ValueError(f"{name} must have {rows} rows, as many as {of}; found {len(array)}")
    if columns is not None and array.shape[-1] != columns:
        raise ValueError(f"{name} must have {columns} columns; found shape {array.shape}")
    if least and len(array) < least:
        raise ValueError(f"{name} must have at least {least} rows; found {len(array)}")
    array = _as_numbers(array, name, dtype)
    if finite and array.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            total = array.sum()  # finite only if all numbers are, and needs no further memory
        if not np.isfinite(total) and not (known := np.isfinite(array)).all():
            where = np.argwhere(~known)[0].tolist()
            raise ValueError(f"{name} must be finite; found {array[tuple(where)]} at {where}")
    return array


def check_in_class_order(values: Any, name: str, axes: Sequence[str] = ("index", "columns")) -> None:
    """Raise ValueError for a frame or series whose rows or columns are named, which arrays are not."""
    for axis in axes:
        labels: Any = getattr(values, axis, None)
        if hasattr(labels, "__iter__") and [*labels] != [*range(len(labels))]:
            raise ValueError(
                f"{name} must be an array in the order of the classes; found a {type(values).__name__} with {axis} "
                f"{listed(labels)}, whose names are not read. Sort by the names of the classes, and pass .to_numpy()"
            )


def _as_numbers(array: NDArray[Any], name: str, dtype: str) -> NDArray[Any]:
    if dtype == "any" and array.dtype.kind in "biu":
        return array
    if dtype != "float64" and array.dtype in (np.float32, np.float16):
        return array.astype(np.float32, copy=False)
    if array.dtype.kind == "O":
        other = next((repr(value) for value in array.flat if not isinstance(value, Real | np.bool_)), None)
        if other is not None:  # NumPy would read the text "1.5" as a number
            raise TypeError(f"{name} must hold real numbers; found objects: {other}")
    try:
        return array.astype(np.float64, copy=False)
    except OverflowError as error:
        raise ValueError(f"{name} must be finite; found a number beyond double precision") from error


def check_probabilities(
    p: ArrayLike,
    name: str = "p",
    hint: str = "Give probabilities, not logits or scores",
    *,
    partial: bool = False,
    num_classes: int | None = None,
) -> NDArray[np.floating]:
    """Return class probabilities [N, n], float32 (where they were) or float64.

    Parameters
    ----------
    p : array_like, shape [N, n]
        Finite; rows sum to 1 within ``SUM_TOLERANCE``; what lies between -``ROUNDING`` and 0 becomes 0.
    name, hint : str
        The argument's name and what to do when rows do not sum to 1, for messages.
    partial : bool
        Rows may sum to less than 1. The default is False.
    num_classes : int, optional
        Number of columns n. None takes any number of at least 2.

    Examples
    --------
    >>> check_probabilities([[0.8, 0.3]])
    Traceback (most recent call last):
    ValueError: every row of p must sum to 1 within 0.001; row 0 sums to 1.1. Give probabilities, not logits or scores
    """
    probabilities = check_array(p, name, finite=False, dtype="floating")
    if probabilities.ndim != 2 or probabilities.shape[1] < 2 or num_classes not in (None, probabilities.shape[1]):
        wanted = "[N, n] with n >= 2 classes" if num_classes is None else f"[N, {num_classes}]"
        raise ValueError(
            f"{name} must have shape {wanted}; found shape {probabilities.shape}. "
            "Probabilities q of class 1 alone become np.column_stack([1 - q, q])"
        )
    if len(probabilities) == 0:
        raise ValueError(f"{name} must hold at least one sample; found none")
    check_finite_rows(probabilities, name, probabilities.dtype)
    least = probabilities.min()
    if least < -ROUNDING:
        row = int(np.argmin(probabilities.min(axis=1)))
        raise ValueError(f"{name} must not be negative; found {least:.6g} in row {row}")
    probabilities = np.maximum(probabilities, 0) if least < 0 else probabilities
    with np.errstate(over="ignore"):  # an infinite sum is not near 1
        sums = probabilities.sum(axis=1, dtype=np.float64)
    excess = sums - 1 if partial else np.abs(sums - 1)
    if excess.max() > SUM_TOLERANCE:
        row = int(np.argmax(excess))
        wanted = "to no more than 1" if partial else "to 1"
        raise ValueError(
            f"every row of {name} must sum {wanted} within {SUM_TOLERANCE}; row {row} sums to {sums[row]:.6g}. {hint}"
        )
    return probabilities


def check_labels(
    y: ArrayLike,
    num_classes: int | None = None,
    *,
    name: str = "y",
    rows: int | None = None,
    of: str = "x",
    soft: bool = False,
    classes: Sequence[Any] | None = None,
    hint: str | None = None,
    least_classes: int = 2,
) -> tuple[NDArray[Any], int]:
    """Return labels as class numbers [N] or, where ``soft`` allows them, soft labels [N, n], and the number of classes.

    Parameters
    ----------
    y : array_like, shape [N], [N, 1] or [N, n]
        Class numbers from 0 (whole floats, booleans and objects that are numbers too), or rows of class
        probabilities. Without ``soft`` such rows must be one-hot.
    num_classes : int, optional
        Number of classes n, at least ``least_classes``. None takes the largest label plus one, or the columns of y.
    name, of, hint : str
        Names of the argument and of the array beside it, and what to do with other labels, for messages.
    rows : int, optional
        Number of samples N, which may be 0. None takes any of at least one.
    soft : bool
        Whether rows of class probabilities stay as they are. The default is False.
    classes : sequence, optional
        Names of the n classes: y then holds names, and the result their numbers. None for class numbers.

    Returns
    -------
    labels : ndarray, shape [N] (int64) or [N, n] (float64, rows sum to 1)
    num_classes : int

    Raises
    ------
    TypeError
        For names without ``classes``.
    ValueError
        For labels that are masked, missing, out of range, not among ``classes``, or of another number than ``rows``.

    Examples
    --------
    >>> check_labels([0, 2, 1])
    (array([0, 2, 1]), 3)
    >>> check_labels([[0.2, 0.8]], soft=True)
    (array([[0.2, 0.8]]), 2)
    >>> check_labels(["dog", "cat"], classes=["cat", "dog"])
    (array([1, 0]), 2)
    """
    # Objects: NumPy would turn the 2 of the names ["x", 2] into text.
    named = classes is not None and isinstance(y, list | tuple)
    array = label_array if classes is None else unmasked  # a class may be None
    labels = np.asarray(y, dtype=object) if named else array(y, name)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim not in (1, 2) or len(labels) == 0 != rows or rows not in (None, len(labels)):
        wanted = "hold at least one label" if rows is None else f"hold one label for each of the {rows} rows of {of}"
        raise ValueError(f"{name} must {wanted}; found shape {labels.shape}")
    if classes is not None:
        num_classes = len(classes)
        labels = _class_numbers(labels, classes, name) if labels.ndim == 1 else labels
    elif num_classes is not None:
        check_whole(num_classes, "num_classes", least_classes, MOST_CLASSES)
    if labels.dtype.kind == "O" and all(isinstance(label, Real) for label in labels.flat):
        labels = labels.astype(np.float64)  # a column of a table with mixed types
    wanted = "from 0" if num_classes is None else f"0..{num_classes - 1}"
    if labels.dtype.kind not in "biuf":
        hint = hint or (
            f"Names become numbers with numpy.unique({name}, return_inverse=True), in alphabetical order, which "
            "class_names must follow"
        )
        raise TypeError(f"{name} must hold class numbers {wanted}; found dtype {labels.dtype}. {hint}")
    if labels.ndim == 2:
        return _check_rows(labels, num_classes, name, soft)
    largest = (num_classes or MOST_CLASSES) - 1
    wrong = ~((labels >= 0) & (labels <= largest) & (labels == np.floor(labels)))
    if wrong.any():
        row = int(np.argmax(wrong))
        if np.isnan(labels[row]):
            raise _missing_label(name, labels[row], row)
        wanted += f" to {largest}" if num_classes is None and labels[row] > largest else ""
        advice = f". {hint}" if hint else ""
        raise ValueError(f"{name} must hold class numbers {wanted}; found {labels[row]} in row {row}{advice}")
    n = num_classes or int(labels.max(initial=0)) + 1
    if n < least_classes:
        raise ValueError(f"{name} must name at least 2 classes; found class 0 alone. Pass num_classes")
    return labels.astype(np.int64), n


def _check_rows(labels: NDArray[Any], num_classes: int | None, name: str, soft: bool) -> tuple[NDArray[Any], int]:
    shares = check_probabilities(labels, name, "Soft labels are class probabilities", num_classes=num_classes)
    shares = shares.astype(np.float64)
    shares /= shares.sum(axis=1, keepdims=True)
    if soft:
        return shares, shares.shape[1]
    between = np.any((labels != 0) & (labels != 1), axis=1)
    if between.any():
        row = int(np.argmax(between))
        raise ValueError(
            f"{name} must name one class per sample here; found soft labels, row {row} is {labels[row]}. "
            f"Pass {name}.argmax(axis=1)"
        )
    return np.argmax(shares, axis=1), shares.shape[1]


def _class_numbers(labels: NDArray[Any], classes: Sequence[Any], name: str) -> NDArray[np.int64]:
    numbers = {known.item() if isinstance(known, np.generic) else known: k for k, known in enumerate(classes)}
    values = labels.tolist()
    for row, label in enumerate(values):
        if not isinstance(label, Hashable) or label not in numbers:
            if is_missing(label):
                raise _missing_label(name, label, row)
            shown = ", ".join(map(repr, [*numbers][:10])) + (", ..." if len(numbers) > 10 else "")
            hint = did_you_mean(label, [key for key in numbers if isinstance(key, str)])
            raise ValueError(f"{name} must hold one of the classes {shown}; found {label!r} in row {row}{hint}")
    return np.array([numbers[label] for label in values], np.int64)


def check_class_names(classes: Sequence[Any] | None, n: int, name: str = "classes", of: str = "p") -> tuple[Any, ...]:
    """Return the names of n classes; None names them 0..n-1."""
    classes = range(n) if classes is None else classes
    several = np.iterable(classes) and not isinstance(classes, str | bytes)
    names = tuple(known.item() if isinstance(known, np.generic) else known for known in (classes if several else ()))
    if len(names) != n or not all(isinstance(known, Hashable) for known in names) or len(set(names)) != n:
        shown = list(names) if several else classes
        raise ValueError(f"{name} must hold {n} different names, one for each column of {of}; found {shown!r}")
    return names


def class_number(name: Any, classes: Sequence[Any], argument: str = "positive") -> int:
    """Return the position of a class among the classes: by name or, as text leaves numbers for numbers, by number.

    None is class 1 of the classes 0 and 1, and must be another one of others.

    Examples
    --------
    >>> class_number("ill", ["healthy", "ill"]), class_number(0, ["healthy", "ill"]), class_number(5, [7, 5])
    (1, 0, 1)
    """
    if name is None and tuple(classes) in ((0, 1), ("0", "1")):
        return 1
    value = name.item() if isinstance(name, np.generic) else name
    numbers = range(len(classes)) if all(isinstance(each, str) for each in classes) else ()
    places = [*enumerate(classes), *enumerate(numbers)]
    known = [k for k, each in places if type(each) is type(value) and each == value]
    if not known:
        raise ValueError(f"{argument} must be one of {listed(classes)}; found {name!r}")
    return known[0]


def check_labels_and_probabilities(
    y: ArrayLike, p: ArrayLike, classes: Sequence[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Return labels as class numbers [N], and class probabilities [N, n], float32 (where they were) or float64.

    ``classes``, if given, names the columns of ``p``, and ``y`` then holds names. Columns of a frame that have other
    names raise ValueError.

    Examples
    --------
    >>> check_labels_and_probabilities([[1], [0]], [[0.25, 0.75], [0.5, 0.5]])[0]
    array([1, 0])
    """
    if classes is None or [*getattr(p, "columns", classes)] != [*classes]:
        check_in_class_order(p, "p", ["columns"])
    probabilities = check_probabilities(p)
    return check_labels_beside(y, "p", probabilities.shape, classes), probabilities


def check_labels_beside(
    y: ArrayLike, of: str, shape: tuple[int, ...], classes: Sequence[Any] | None, name: str = "y"
) -> NDArray[np.int64]:
    """Return labels as class numbers [N]: as many as the rows of an array ``of`` of a shape [N, n].

    ``classes``, if given, names its n columns, and ``y`` then holds names.
    """
    rows, n = shape
    names = None if classes is None else check_class_names(classes, n, of=of)
    hint = "Pass the names of the classes, in the order of the columns, as classes: classes=model.classes_"
    return check_labels(y, n, name=name, rows=rows, of=of, classes=names, hint=hint)[0]


def check_sample_weight(given: Any, rows: int, *, all_zero: bool = False, name: str = "sample_weight") -> NDArray[Any]:
    """Return weights [N], float64: finite, not negative, not all zero unless that is allowed; ones for None."""
    if given is None:
        return np.ones(rows)
    weights = check_array(given, name, finite=False)
    if weights.shape not in ((rows,), (rows, 1)):
        raise ValueError(f"{name} must have shape [{rows}], one for each sample; found shape {weights.shape}")
    weights = weights.reshape(rows)
    wrong = ~((weights >= 0) & (weights <= np.finfo(np.float64).max / max(rows, 1)))  # a sum must be finite, too
    if wrong.any() or not (all_zero or weights.any()):
        value = f"{weights[wrong][0]} in row {np.argmax(wrong)}" if wrong.any() else "zeros"
        wanted = "finite and not negative" if all_zero else "finite, not negative and not all zero"
        raise ValueError(f"{name} must be {wanted}; found {value}")
    return weights


def check_class_weight(given: Any, classes: Sequence[Any], hint: str = "dict(enumerate(weights))") -> dict[Any, float]:
    """Return the weight of every class, finite and not negative, 1 for classes that are left out, not all zero.

    Examples
    --------
    >>> check_class_weight({1: 5}, range(2))
    {0: 1.0, 1: 5.0}
    """
    if not isinstance(given, Mapping):
        value = repr(given) if isinstance(given, str) else type(given).__name__
        raise TypeError(f"class_weight must be a dict of weights by class, such as {hint}; found {value}")
    weights = dict.fromkeys(classes, 1.0)
    for known, weight in given.items():
        if not isinstance(known, Hashable) or known not in weights:
            shown = ", ".join(map(repr, [*weights][:10])) + (", ..." if len(weights) > 10 else "")
            raise ValueError(f"class_weight must hold weights of the classes {shown}; found the class {known!r}")
        weights[known] = check_number(weight, f"class_weight[{known!r}]", least=0, below=1e38)  # single precision
    if not any(weights.values()):
        raise ValueError("class_weight must not be 0 for every class; found zeros")
    return weights


def check_choice(value: Any, name: str, choices: Iterable[str], wanted: str = "one of") -> Any:
    """Return ``value`` if it is one of ``choices``, or raise ValueError; the message names the nearest of them."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:  # an array would be compared entry by entry
        raise ValueError(
            f"{name} must be {wanted} {', '.join(known)}; found {shown(value)}{did_you_mean(value, known)}"
        )
    return value


def check_names(names: Sequence[str] | None, count: int, name: str, of: str) -> list[str] | None:
    """Return ``names`` as a list of ``count`` strings, one for each of the ``of`` in the message; None as None."""
    if names is None:
        return None
    texts = [str(text) for text in names] if np.iterable(names) else []
    if isinstance(names, str) or len(texts) != count:
        raise ValueError(f"{name} must hold one name for each of the {count} {of}; found {names!r}")
    return texts


def check_finite_rows(array: NDArray[Any], name: str, dtype: DTypeLike) -> NDArray[Any]:
    """Return samples [N, ...] in ``dtype``; raise ValueError with the first that is not finite there."""
    with np.errstate(over="ignore"):  # numbers beyond single precision become infinite
        array = array.astype(dtype, copy=False)
    if not (finite := np.isfinite(array)).all():
        wrong = np.flatnonzero(~finite.reshape(len(array), -1).all(axis=1))
        raise ValueError(
            f"{name} must be finite in {dtype}; found NaN or infinity in {len(wrong)} of {len(array)} samples, the "
            f"first at index {wrong[0]}. Remove or repair these samples"
        )
    return array


def check_groups(groups: ArrayLike, num_rows: int | None, each: str = "sample of arrays") -> NDArray[Any]:
    """Return groups as an array [N]; raise an error for another number than rows, None of streams."""
    array = unmasked(groups, "groups")
    if array.shape != (num_rows,):
        raise ValueError(f"groups must have a value for each {each}; found shape {array.shape}")
    # Of a list of numbers and text NumPy makes text.
    values = array if hasattr(groups, "dtype") or array.dtype.kind != "U" else np.asarray(groups, dtype=object)
    is_object = values.dtype.kind == "O"
    if missing := np.flatnonzero([is_missing(value) for value in values] if is_object else values != values).tolist():
        raise ValueError(
            f"groups must not be missing; found {values[missing[0]]} in row {missing[0]}. Samples alone are groups, too"
        )
    if is_object:  # text and numbers cannot be sorted
        kinds = {isinstance(value, str): value for value in values}
        if len(kinds) > 1:
            raise TypeError(f"groups must be all text or all numbers; found {kinds[True]!r} and {kinds[False]!r}")
    return array
