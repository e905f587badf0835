"""A score in two halves: what each sample contributes, found once, and the number that a set of samples gives."""

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

Limits = tuple[float, float]


class Prepared(NamedTuple):
    """A score of given labels and probabilities, ready to be taken of all samples or of a resample of them.

    Checks and whatever concerns one sample alone (is it right, which bin is it in) come before; ``finish`` is what the
    bootstrap repeats. One formula serves both.

    Attributes
    ----------
    finish : callable
        (rows...) -> number, or an array of numbers that are found together.
    rows : tuple of ndarray, each of shape [N, ...]
        What each sample contributes.
    strata : ndarray, shape [N], optional
        Groups that were sampled apart and are resampled apart always.
    limits : tuple of (lowest, highest) or None, one for each number
        The range of a number that few samples bias; None, or an empty tuple, for numbers that they do not.
    """

    finish: Callable[..., Any]
    rows: tuple[NDArray[Any], ...]
    strata: NDArray[Any] | None = None
    limits: tuple[Limits | None, ...] = ()

    def value(self, index: NDArray[Any] | None = None) -> Any:
        """The score of all samples, or of those of an ``index`` [N], in which some may be missing and some repeat."""
        return self.finish(*(self.rows if index is None else (rows[index] for rows in self.rows)))
