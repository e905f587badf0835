"""What ``load`` returns, and the checks that everything it returns has passed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class LabeledData:
    """Training and test samples with their labels; unpacks as ``(x, y), (x_test, y_test)``.

    Attributes
    ----------
    name : str
        What was asked for.
    x, x_test : ndarray, shape [N, H, W], [N, H, W, C] or [N, d]
        Images, float32 in [0, 1] or uint8, or rows of a table, float32.
    y, y_test : ndarray, shape [N], int64
        Class numbers 0..n-1.
    class_names : tuple of str, length n

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

    def __post_init__(self) -> None:
        n = len(self.class_names)
        if n < 2:
            raise ValueError(f"{self.name} must have at least two classes; found {list(self.class_names)}")
        for part, x, y in (("training", self.x, self.y), ("test", self.x_test, self.y_test)):
            if len(x) == 0 or y.shape != (len(x),):
                raise ValueError(
                    f"the {part} part of {self.name} must have one label per sample; "
                    f"found samples of shape {x.shape} and labels of shape {y.shape}"
                )
            if not np.all(np.isfinite(x)):
                row = int(np.argmin(np.isfinite(x).reshape(len(x), -1).all(axis=1)))
                raise ValueError(
                    f"the {part} samples of {self.name} must be finite; found NaN or infinity in sample {row}"
                )
            if y.min() < 0 or y.max() >= n:
                raise ValueError(
                    f"the {part} labels of {self.name} must be class numbers 0..{n - 1}; "
                    f"found {y.min()} to {y.max()} for the classes {list(self.class_names)}"
                )
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
