"""Labeled samples: numbered classes, a split, scaling and checks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepsimplex._utils.messages import listed, warn_caller
from deepsimplex._utils.validation import check_array, check_labels
from deepsimplex.datasets.splits import as_groups, as_time, check_apart, split_rows

DTYPES = ("float32", "uint8")
TEST_FRACTION = 0.2


@dataclass(frozen=True, eq=False, repr=False)
class LabeledData:
    """Training and test samples with their labels; unpacks as ``(x, y), (x_test, y_test)``.

    Attributes
    ----------
    name : str
        Name or path that was loaded.
    x, x_test : ndarray, shape [N, H, W], [N, H, W, C] or [N, d]
        Images, float32 in [0, 1] or uint8, or rows of a table, float32.
    y, y_test : ndarray, shape [N], int64
        Class numbers 0..n-1.
    class_names : tuple of str, length n
    groups, groups_test : ndarray, shape [N], or None
        Groups of the samples, such as patients, if ``load`` was given ``groups``. None is in both parts.
    time, time_test : ndarray, shape [N], float64, or None
        Times of the samples, if ``load`` was given ``time``; dates are seconds since 1970.
    feature_names : tuple of str, length d, or None
        Names of the columns of a .csv table.

    Raises
    ------
    ValueError
        When samples and labels differ in number or shape, a value is not finite or a label is outside 0..n-1.

    Examples
    --------
    >>> x, y = np.zeros((3, 2)), np.array([0, 1, 1])
    >>> LabeledData("toy", x, y, x[:1], y[:1], ("a", "b"))
    LabeledData('toy': 3 training and 1 test samples of shape (2,), float64, 2 classes)
    """

    name: str
    x: NDArray
    y: NDArray[np.int64]
    x_test: NDArray
    y_test: NDArray[np.int64]
    class_names: tuple[str, ...]
    groups: NDArray | None = None
    groups_test: NDArray | None = None
    time: NDArray[np.float64] | None = None
    time_test: NDArray[np.float64] | None = None
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        n = len(self.class_names)
        if n < 2:
            raise ValueError(f"{self.name} must have at least two classes; found {list(self.class_names)}")
        for part, x, y in (("training", self.x, self.y), ("test", self.x_test, self.y_test)):
            check_labels(y, n, name=f"{part} labels of {self.name}", rows=len(x), of=f"its {part} samples")
            check_array(x, f"{part} samples of {self.name}", dtype="any")
        if self.x.shape[1:] != self.x_test.shape[1:]:
            raise ValueError(
                f"training and test samples of {self.name} must have the same shape; "
                f"found {self.x.shape[1:]} and {self.x_test.shape[1:]}"
            )

    def __iter__(self) -> Iterator[tuple[NDArray, NDArray[np.int64]]]:
        yield self.x, self.y
        yield self.x_test, self.y_test

    def __repr__(self) -> str:
        return (
            f"LabeledData({self.name!r}: {len(self.x)} training and {len(self.x_test)} test samples "
            f"of shape {self.x.shape[1:]}, {self.x.dtype}, {len(self.class_names)} classes)"
        )


@dataclass(frozen=True, eq=False)
class Source:
    """Samples and labels as read from a file; ``test`` is None if the file has no test part.

    ``name_of`` names samples by their number, in which those of ``test`` follow those of ``x``; None for data sets that
    come with the package, whose copies of images are not reported. ``groups`` and ``time`` are those of all samples.
    """

    x: NDArray
    y: NDArray
    test: tuple[NDArray, NDArray] | None = None
    class_names: Sequence[str] | None = None
    name_of: Callable[[int], str] | None = None
    groups: ArrayLike | None = None
    time: ArrayLike | None = None
    feature_names: tuple[str, ...] | None = None


def encode_labels(y: NDArray, class_names: Sequence[str] | None, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Class numbers and class names of labels [N]: names and whole numbers are numbered in sorted order."""
    if class_names is not None:
        class_names = check_written(class_names, f"class_names of {name}")
    if y.dtype.kind in "US":
        texts = check_written(y, f"labels of {name}")
        if empty := [row for row, text in enumerate(texts) if text.strip().lower() in ("", "nan")]:
            raise ValueError(f"labels of {name} must name a class; found {texts[empty[0]]!r} in row {empty[0]}")
        labels, numbers = np.unique(texts, return_inverse=True)
        if class_names is not None and sorted(class_names) != labels.tolist():
            raise ValueError(f"class_names of {name} are {list(class_names)}; found the labels {labels.tolist()}")
        return numbers.astype(np.int64), labels.tolist()
    if class_names is None and y.dtype.kind in "biuf" and y.ndim == 1 and np.isfinite(y).all() and not (y % 1).any():
        present, numbers = np.unique(y, return_inverse=True)
        return numbers.astype(np.int64), [str(int(label)) for label in present]
    hint = "Store labels that are names as strings"
    numbers, _ = check_labels(y, name=f"labels of {name}", hint=hint, least_classes=1)
    return numbers, list(class_names or map(str, np.unique(numbers)))


def check_written(names: Iterable[Any], what: str) -> list[str]:
    """Return names as strings; raise ValueError for those that UTF-8 cannot encode, and that could not be saved."""
    texts = []
    for row, name in enumerate(names):
        try:
            text = name.decode() if isinstance(name, bytes) else str(name)
            text.encode()
        except UnicodeError as error:
            raise ValueError(f"{what} must be text in UTF-8; found {name!r} in row {row}") from error
        texts.append(text)
    return texts


def convert(x: NDArray, dtype: str, name: str) -> NDArray:
    """Images [N, H, W] or [N, H, W, C] as float32 in [0, 1] or uint8; rows of a table [N, d] as float32."""
    if x.dtype.kind not in "biuf" or x.ndim not in (2, 3, 4):
        raise ValueError(
            f"samples of {name} must be numbers of shape [N, H, W] or [N, H, W, C] (images) or [N, d] (a table); "
            f"found {x.dtype} of shape {x.shape}"
        )
    if dtype == "uint8" and (x.ndim == 2 or x.dtype.kind == "f"):
        raise ValueError(f'dtype="uint8" needs a source of integer images; {name} holds {x.dtype} {x.shape[1:]}')
    if x.ndim == 2:
        return x.astype(np.float32)
    if not np.all(np.isfinite(x)):
        return x  # LabeledData raises
    low, high = (x.min(), x.max()) if x.size else (0, 0)
    limit = 1 if x.dtype.kind in "bf" else 255
    if low < 0 or high > limit:
        raise ValueError(
            f"images of {name} must lie in [0, {limit}], as they are {x.dtype}; found {low} to {high}. "
            "Scale them before they are stored"
        )
    if dtype == "uint8":
        return x.astype(np.uint8, copy=False)
    return x.astype(np.float32) if limit == 1 else np.divide(x, 255, dtype=np.float32)


def _warn_of_coarse_columns(x: NDArray, name: str) -> None:
    """Warn of columns that vary by less than about a hundred steps of single precision, such as times in seconds."""
    deviations = x.std(axis=0, dtype=np.float64)
    steps = np.spacing(np.abs(x).max(axis=0).astype(np.float32)).astype(np.float64)
    coarse = np.flatnonzero((deviations > 0) & (steps > deviations / 100))
    if len(coarse):
        k = coarse[0]
        warn_caller(
            f"samples of {name} are read as float32, which rounds values of columns {coarse.tolist()} to steps above a "
            f"hundredth of their standard deviation, {steps[k]:.3g} of {deviations[k]:.3g} in column {k}: subtract a "
            "constant from them before they are stored"
        )


def finish(
    source: Source,
    name: str,
    dtype: str,
    test_fraction: float | None,
    seed: int,
    class_names: Sequence[str] | None = None,
) -> LabeledData:
    """Number the classes, split a source without a test part, scale and check."""
    parts = [(source.x, source.y)] if source.test is None else [(source.x, source.y), source.test]
    labels = np.concatenate([_as_vector(y, x, name) for x, y in parts])
    groups, time = as_groups(source.groups, len(labels)), as_time(source.time, len(labels))
    numbers, names = encode_labels(labels, source.class_names, name)
    rows = np.arange(len(labels))
    if class_names is not None:
        numbers, rows = _renumbered(numbers, names, class_names, name)
        names = [str(each) for each in class_names]
    here, there = rows[rows < len(source.x)], rows[rows >= len(source.x)]
    if source.test is None:
        fraction = TEST_FRACTION if test_fraction is None else test_fraction
        of_rows = [None if values is None else values[rows] for values in (groups, time)]
        halves = split_rows(np.array(names)[numbers[rows]], fraction, seed, name, *of_rows)
        train, test = (rows[half] for half in halves)
        x, x_test = source.x[train], source.x[test]
    else:
        if test_fraction is not None:
            raise ValueError(f"test_fraction must be left out: {name} has a test set")
        if time is not None:
            raise ValueError(f"time must be left out: {name} has a test set")
        train, test = here, there
        x, x_test = source.x[train], source.test[0][test - len(source.x)]
        if groups is not None:
            check_apart(groups, train, test, name)
    y, y_test = numbers[train], numbers[test]
    unseen = np.setdiff1d(y_test, y)
    if len(unseen) and class_names is None:
        raise ValueError(f"classes {unseen.tolist()} of {name} have a test sample but no training sample")
    by_half = [None if values is None else values[part] for values in (groups, time) for part in (train, test)]
    data = LabeledData(
        name,
        convert(x, dtype, name),
        y,
        convert(x_test, dtype, name),
        y_test,
        tuple(names),
        **dict(zip(("groups", "groups_test", "time", "time_test"), by_half, strict=True)),
        feature_names=source.feature_names,
    )
    if x.ndim == 2:
        if len(x):
            _warn_of_coarse_columns(x, name)
    elif source.name_of is not None:
        _warn_of_copies(x, x_test, numbers[[*train, *test]], [*map(source.name_of, [*train, *test])], name)
    return data


def _renumbered(
    numbers: NDArray[np.int64], names: Sequence[str], class_names: Sequence[str], name: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of labels among given class names, and the rows that have one; warn of other classes."""
    known = {str(each): number for number, each in enumerate(class_names)}
    if len(known) < len(class_names):
        raise ValueError(f"class_names must be different names; found {list(class_names)}")
    renumbered = np.array([known.get(each, -1) for each in names], np.int64)[numbers]
    rows = np.flatnonzero(renumbered >= 0)
    if not len(rows):
        raise ValueError(f"{name} must hold classes {listed(known)}; found {listed(names)}")
    if others := [each for each in names if each not in known]:
        left_out = len(numbers) - len(rows)
        warn_caller(f"{left_out} samples of {name} were left out, of classes not among class_names: {listed(others)}")
    return renumbered, rows


def _warn_of_copies(x: NDArray, x_test: NDArray, labels: NDArray, names: list[str], name: str) -> None:
    """Warn of test images that are also training images, and of images in two classes, by names of all samples."""
    first: dict[bytes, int] = {}
    copies, contradictions = [], []
    for k, image in enumerate(image for part in (x, x_test) for image in part):
        same = first.setdefault(blake2b(image.tobytes()).digest(), k)
        if same < len(x) <= k:
            copies.append((k, same))
        if labels[k] != labels[same]:
            contradictions.append((k, same))
    if copies:
        one, other = (names[k] for k in copies[0])
        warn_caller(
            f"{len(copies)} of {len(x_test)} test images of {name} equal a training image, such as {one} and {other}, "
            "which makes scores on them too good: delete copies"
        )
    if contradictions:
        one, other = (names[k] for k in contradictions[0])
        warn_caller(
            f"{len(contradictions)} of {len(labels)} images of {name} equal one of another class, such as {one} and "
            f"{other}: delete the one in the wrong class"
        )


def _as_vector(y: NDArray, x: NDArray, name: str) -> NDArray:
    """Labels [N] or [N, 1] of samples [N, ...] as [N]."""
    if x.ndim == 0:
        raise ValueError(f"samples of {name} must have an axis; found a single value")
    if y.dtype.kind not in "biufUSO":
        raise TypeError(f"labels of {name} must be numbers or names; found {y.dtype}")
    if y.shape not in ((len(x),), (len(x), 1)):
        raise ValueError(f"{name} must have one label per sample; found {len(x)} samples and labels {y.shape}")
    return y.reshape(len(x))
