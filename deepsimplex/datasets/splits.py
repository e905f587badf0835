"""Splits of samples into training and test samples: by class, by group, by time."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.messages import listed, warn_caller
from deepsimplex._utils.validation import check_groups, check_number, check_whole

Rows = NDArray[np.int64]


def split_rows(
    y: NDArray[Any],
    test_fraction: float,
    seed: int,
    name: str,
    groups: NDArray[Any] | None = None,
    time: NDArray[np.float64] | None = None,
) -> tuple[Rows, Rows]:
    """Return the rows of training and of test samples.

    Parameters
    ----------
    y : ndarray, shape [N]
        Classes, which have about the same proportion in both parts unless ``time`` is given.
    test_fraction : float
        Share of the test samples, at least 0 and below 1. With 0 all rows are training rows, in their order.
    seed : int
    name : str
        Of the data, for messages.
    groups : ndarray, shape [N], optional
        Samples of one group are in one part. The share is then approximate.
    time : ndarray, shape [N], optional
        The test samples, or groups, are the latest, those of equal time in one part; rows are sorted by time.

    Raises
    ------
    ValueError
        When there are too few samples, groups or times to split.

    Warns
    -----
    UserWarning
        When no sample of a class is held out, as all of its samples are of one group.
    """
    check_number(test_fraction, "test_fraction", least=0, below=1)
    check_whole(seed, "seed", 0, 2**32 - 1)
    in_order = np.arange(len(y)) if time is None else np.argsort(time, kind="stable")
    if test_fraction == 0:
        return in_order, in_order[:0]
    if groups is None and time is None:
        return _by_class(y, test_fraction, seed, name)
    units, unit = np.unique(np.asarray(time if groups is None else groups), return_inverse=True)
    if len(units) < 2:
        what = "time" if groups is None else "groups"
        raise ValueError(f"{what} of {name} must have at least 2 values to split by; found {units[0]} alone")
    if time is None:
        in_test = _choose_groups(y, unit, len(units), test_fraction, seed, name)
    else:
        in_test = _choose_latest(time, unit, len(units), test_fraction)
    of_test = in_test[unit][in_order]
    return in_order[~of_test], in_order[of_test]


def _by_class(y: NDArray[Any], test_fraction: float, seed: int, name: str) -> tuple[Rows, Rows]:
    """Shuffled rows, every class in the same proportion in both parts."""
    from sklearn.model_selection import train_test_split

    classes, counts = np.unique(y, return_counts=True)
    if len(single := classes[counts < 2]):
        raise ValueError(
            f"{name} cannot be split with test_fraction {test_fraction}: every class must have at least 2 samples; "
            f"{len(single)} of {len(classes)} classes have one, the first is {str(single[0])!r}"
        )
    held_out = int(np.ceil(test_fraction * len(y)))
    try:
        train, test = train_test_split(np.arange(len(y)), test_size=held_out, stratify=y, random_state=seed)
    except ValueError as error:
        raise ValueError(f"{name} cannot be split with test_fraction {test_fraction}: {error}") from error
    return train, test


def _choose_groups(
    y: NDArray[Any], unit: Rows, num_units: int, test_fraction: float, seed: int, name: str
) -> NDArray[np.bool_]:
    """Return whether each group is tested: those that bring the counts of all classes nearest to the wanted share.

    Groups are tried from that of the most uneven counts on, as in scikit-learn's StratifiedGroupKFold. Every class
    keeps a training sample, and has a test sample if it is in several groups that can be divided.
    """
    classes, number = np.unique(y, return_inverse=True)
    counts = np.zeros((num_units, len(classes)))  # [G, n]
    np.add.at(counts, (unit, number), 1)
    total = counts.sum(axis=0)
    chosen = np.zeros(num_units, bool)

    def add(candidates: Rows, is_better: Callable[[NDArray[Any], NDArray[Any]], bool]) -> None:
        for g in candidates:
            tested = counts[chosen].sum(axis=0)
            if not chosen[g] and (tested + counts[g] < total).all() and is_better(tested, tested + counts[g]):
                chosen[g] = True

    def distance(tested: NDArray[Any]) -> float:
        return float(np.sum(((tested - test_fraction * total) / total) ** 2))

    shuffled = np.random.default_rng(seed).permutation(num_units)
    largest_first = shuffled[np.argsort(-counts[shuffled].std(axis=1), kind="stable")]
    add(largest_first, lambda before, after: distance(after) < distance(before))
    smallest_first = shuffled[np.argsort(counts[shuffled].sum(axis=1), kind="stable")]
    add(smallest_first, lambda before, after: bool((after[before == 0] > 0).any()))
    untested = classes[counts[chosen].sum(axis=0) == 0]
    if len(untested) == len(classes):
        raise ValueError(
            f"groups of {name} must leave samples of every class in training and in test; found {num_units} groups "
            "that cannot be divided so"
        )
    if len(untested):
        warn_caller(f"classes {listed(untested)} of {name} have no sample held out: their groups cannot be divided")
    return chosen


def _choose_latest(time: NDArray[np.float64], unit: Rows, num_units: int, test_fraction: float) -> NDArray[np.bool_]:
    """Return whether each unit is tested: the latest, by their latest sample, that hold at least the wanted share."""
    latest = np.full(num_units, -np.inf)
    np.maximum.at(latest, unit, time)
    sizes = np.bincount(unit, minlength=num_units)
    backwards = np.argsort(-latest, kind="stable")
    tested = 1 + int(np.searchsorted(np.cumsum(sizes[backwards]), test_fraction * len(time)))
    threshold = latest[backwards[min(tested, num_units - 1) - 1]]
    chosen = latest >= threshold  # equal times in one part
    return chosen if not chosen.all() else latest > latest.min()


def check_apart(groups: NDArray[Any], train: Rows, test: Rows, name: str) -> None:
    """Raise ValueError for a group that is both in the training and in the test part of a source."""
    both = np.intersect1d(groups[train], groups[test])
    if len(both):
        raise ValueError(
            f"groups of {name} must be in one part each; found {len(both)} in training and in test: "
            f"{listed(map(repr, both.tolist()), 5)}"
        )


def as_groups(values: ArrayLike | None, rows: int) -> NDArray[Any] | None:
    """Return groups [N] as numbers or text; raise an error for missing ones and for another number of them."""
    if values is None:
        return None
    groups = check_groups(values, rows, "sample")
    empty = np.flatnonzero(np.char.strip(groups.astype(str)) == "") if groups.dtype.kind in "USO" else np.empty(0)
    if len(empty):
        raise ValueError(f"groups must not be missing; found '' in row {int(empty[0])}. Samples alone are groups, too")
    return groups


def as_time(values: ArrayLike | None, rows: int) -> NDArray[np.float64] | None:
    """Return times [N] as numbers, dates in seconds."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.shape != (rows,):
        raise ValueError(f"time must have a value for each sample; found shape {array.shape}")
    given = array.astype("datetime64[us]").tolist() if array.dtype.kind == "M" else array.tolist()  # or None for NaT
    numbers = np.array([_number(value) for value in given], np.float64)
    result = numbers if np.isfinite(numbers).any() else np.array([_seconds(value) for value in given], np.float64)
    if wrong := np.flatnonzero(~np.isfinite(result)).tolist():
        raise ValueError(
            f"time must be numbers, or dates as 2024-05-31 or 2024-05-31T08:30; found {str(array[wrong[0]])!r} in row "
            f"{wrong[0]}"
        )
    return result


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _seconds(value: Any) -> float:
    """Return the seconds of a date since 1970, NaN for another value."""
    try:
        date = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return np.nan
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
