"""Reproduction of a paper's table: published numbers, measured repetitions, and their means."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from training.tables.uci import SETS

Data = tuple[NDArray[np.float64], NDArray[np.int64]]
Scores = dict[str, float]
Cell = tuple[str, str]
"""Data set, or setting, and method."""

RISING = frozenset(
    {"accuracy", "f1", "precision", "recall", "correctness", "AC", "AS"} | {f"top-{k}" for k in range(1, 6)}
)
"""Scores of which more is better; of all others less is."""

CHOSEN = frozenset({"lambda or alpha"})
"""Settings that a method chose in every repetition: all values are listed, without a mean."""

_OWN_COPIES = {"wine": load_wine, "iris": load_iris}


class MissingDataError(Exception):
    """Raised for a data set that is not on this machine; names where it was looked for."""


@dataclass(frozen=True)
class DataFolder:
    """A user's copies of the data sets, NAME.npz with features X and class numbers y, or those of the UCI repository.

    Parameters
    ----------
    path : Path or None
        The folder. None: that of the environment variable DEEPSIMPLEX_DATA, if it is set.
    """

    path: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The folder, or None."""
        stated = os.environ.get("DEEPSIMPLEX_DATA")
        return self.path or (Path(stated) if stated else None)

    def load(self, name: str) -> Data:
        """Features [N, d] and class numbers [N]; MissingDataError if the data set is not available."""
        if self.holds(name) or name not in {*_OWN_COPIES, *SETS}:
            arrays = self.arrays(name)
            X, y = arrays["X"], arrays["y"]
        elif name in _OWN_COPIES:
            X, y = _OWN_COPIES[name](return_X_y=True)
        else:
            try:
                X, y = SETS[name].load()
            except (OSError, ValueError, BadZipFile) as error:  # no network, another checksum, or a damaged archive
                raise MissingDataError(f"no {name}.npz in {self.folder or '--data'}; {error}") from error
        return X.astype(np.float64), y.astype(np.int64)

    def holds(self, name: str) -> bool:
        """Return whether the folder has NAME.npz."""
        return self.folder is not None and (self.folder / f"{name}.npz").is_file()

    def arrays(self, name: str) -> dict[str, NDArray]:
        """All arrays of NAME.npz; MissingDataError if the file does not exist."""
        if not self.holds(name):
            raise MissingDataError(f"no {name}.npz in {self.folder or '--data'}")
        with np.load(f"{self.folder}/{name}.npz", allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}


@dataclass(frozen=True)
class Printed:
    """A number as a paper prints it, with the standard deviation over its repetitions if it states one."""

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.deviation is None else f"{self.mean:g} ± {self.deviation:g}"


@dataclass(frozen=True)
class PaperTable:
    """One table or figure of a paper.

    Parameters
    ----------
    title : str
        The paper's tag, the number of the table, and what it compares.
    repetitions : int
        How often the paper measures every cell, or a choice of ours if it does not say, or says once.
    cells : mapping of (data set, method) to mapping of score to Printed
        What the paper prints; empty where it prints nothing.
    measure : callable
        ``measure(data_set, method, repetition, data_folder)`` returns the scores of one repetition.
    rounding : float
        Half a unit of the last digit printed.
    notes : sequence of str
        Where the measurement differs from the paper's, or had to choose.
    comparable : bool
        Whether a row says if it is better than the paper's. False where the paper's data are not at hand, or its number
        is one draw. The default is True.
    """

    title: str
    repetitions: int
    cells: Mapping[Cell, Mapping[str, Printed]]
    measure: Callable[[str, str, int, DataFolder], Scores]
    rounding: float = 0.0005
    notes: Sequence[str] = ()
    comparable: bool = True

    def row(self, cell: Cell, repetitions: Sequence[Scores]) -> dict[str, str]:
        """A row: mean and standard deviation of every score, and the paper's number with a verdict."""
        data, method = cell
        row = {"data": data, "method": method}
        for score in self.scores(repetitions):
            ours = np.array([scores[score] for scores in repetitions if score in scores])
            if not len(ours):
                row[score] = ""
                continue
            if score in CHOSEN:
                row[score] = ", ".join(f"{value:.6g}" for value in np.unique(ours))
                continue
            row[score] = f"{ours.mean():.3f}" + (f" ± {ours.std():.3f}" if len(ours) > 1 else "")
            if score in self.cells[cell]:
                printed = self.cells[cell][score]
                verdict = f": {self.verdict(score, ours, printed)}" if self.comparable else ""
                row[score] += f" (paper {printed}{verdict})"
        return row

    def scores(self, repetitions: Sequence[Scores] = ()) -> list[str]:
        """Names of all scores: those printed, then those measured beside."""
        printed_and_measured = (*self.cells.values(), *repetitions)
        return list(dict.fromkeys(score for scores in printed_and_measured for score in scores))

    def verdict(self, score: str, ours: NDArray[np.float64], printed: Printed) -> str:
        """Compare our mean with the paper's: "better", "behind", or "within" two standard errors and the rounding.

        One repetition of ours is assumed to have the paper's standard deviation. A number that the paper prints without
        one is assumed to have that of one of our repetitions, also where it is a mean itself, as [GPLVQ]'s are, over
        the folds of a cross-validation.
        """
        our_variance = printed.deviation**2 if len(ours) == 1 and printed.deviation is not None else ours.var()
        variance = our_variance / len(ours)
        variance += our_variance if printed.deviation is None else printed.deviation**2 / self.repetitions
        lead = (ours.mean() - printed.mean) * (1 if score in RISING else -1)
        within = abs(lead) <= 2.0 * np.sqrt(variance) + self.rounding
        return "within" if within else "better" if lead > 0 else "behind"


def fitted(classifier: Any, X: NDArray[np.float64], y: NDArray[np.int64]) -> Any:
    """Fit a classifier, without a warning if its search does not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return classifier.fit(X, y)


def stratified_split(y: NDArray[np.int64], train: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit and rows to test, every class in its proportion."""
    return train_test_split(np.arange(len(y)), train_size=train, stratify=y, random_state=seed)


def split(rows: int, test: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit and rows to test, at random."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[test:], order[:test]
