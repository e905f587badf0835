"""Drift: does a stream of predictions go on as those of held-out samples, and do the probabilities still hold?"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betaln, xlog1py, xlogy

from deepsimplex._utils.validation import (
    check_array,
    check_class_names,
    check_labels,
    check_number,
    check_probabilities,
    check_whole,
    is_missing,
    unmasked,
)
from deepsimplex.evaluation.bootstrap import Interval
from deepsimplex.evaluation.calibration_errors import expected_calibration_error
from deepsimplex.evaluation.exchangeability import ExchangeabilityTest

WATCHED_CLASSES = 50
"""Largest number of classes whose probabilities are watched: the most frequent of the reference."""

DECIMALS = 6
"""Numbers that differ by less are tied: the precision of a file or of a device is no drift."""
_OPTIONS = ("level", "coverage", "recent", "seed")

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class DriftReport:
    """What a ``DriftMonitor`` says about its stream.

    Attributes
    ----------
    samples : int
        Length of the stream.
    alarm : int or None
        Number of samples after which the evidence first reached 1 / ``level``; None if it did not.
    alarms : dict of str to int
        The same for each statistic whose evidence reached it.
    cause : str
        Statistic with the largest evidence so far: "confidence", "familiarity", "true class" or "class" and a name.
    p_value : float
        Valid at any time: without a change it ever falls to a with probability at most a.
    log10_evidence : dict of str to float
        Of each statistic now, times its weight.
    confidence, familiarity, true_class : (float, float or None)
        Means of the reference and of the last ``recent`` samples; ``true_class`` is the probability of the true class
        of the labeled ones. None without familiarity, and without labels in the reference.
    class_frequencies : dict of str to (float, float)
        Mean class probabilities of the reference and of the last ``recent`` samples.
    labels : int
        Number of labeled samples.
    coverage : float or None
        Share of labeled samples whose set holds the true class.
    coverage_interval : Interval or None
        Holds the coverage at all times together with probability 1 - ``level``.
    calibration_error : (float or None, float or None)
        Expected calibration error of the reference and of all labeled samples of the stream.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]] * 50)
    >>> report = DriftMonitor(p).update(p)
    >>> report.samples, report.alarm
    (100, None)
    """

    samples: int
    alarm: int | None
    alarms: dict[str, int]
    cause: str
    p_value: float
    log10_evidence: dict[str, float]
    confidence: tuple[float, float | None]
    familiarity: tuple[float, float | None] | None
    true_class: tuple[float, float | None] | None
    class_frequencies: dict[str, tuple[float, float | None]]
    labels: int
    coverage: float | None
    coverage_interval: Interval | None
    calibration_error: tuple[float | None, float | None]

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return asdict(self)

    def __str__(self) -> str:
        state = "no drift" if self.alarm is None else f"DRIFT after {self.alarm} samples"
        lines = [
            f"{state}: {self.samples} samples watched, anytime-valid p-value {self.p_value:.2g}; "
            f"largest evidence: {self.cause}",
            f"mean confidence {_pair(self.confidence)}",
        ]
        if self.familiarity is not None:
            lines.append(f"mean familiarity {_pair(self.familiarity)}")
        moved = sorted(self.class_frequencies.items(), key=lambda item: -abs((item[1][1] or 0) - item[1][0]))
        lines += [f"frequency of class {name} {_pair(pair)}" for name, pair in moved[:3]]
        if self.coverage_interval is not None:
            lower, upper = self.coverage_interval
            lines.append(
                f"coverage of the sets {self.coverage:.3f} in [{lower:.3f}, {upper:.3f}], {self.labels} labels"
            )
            lines.append(f"calibration error {_pair(self.calibration_error)}")
        return "\n".join(lines)


def _pair(pair: tuple[float | None, float | None]) -> str:
    before, now = ("unknown" if value is None else f"{value:.3f}" for value in pair)
    return f"{now} (reference: {before})"


class DriftMonitor:
    """Watch a stream of predictions for drift, with a bound on false alarms at all times together.

    Watched are the confidence (largest probability), the familiarity if given, the probability of each class, and, of
    labeled samples, the probability of the true class: each by an ``ExchangeabilityTest`` against the reference.

    Parameters
    ----------
    p : array_like, shape [N, n]
        Class probabilities of the reference: samples that neither training nor calibration used.
    y : array_like, shape [N], optional
        Their classes, as numbers or as names of ``classes``; those of some samples may be missing: -1, NaN, None or "".
    familiarity : array_like, shape [N], optional
        As ``model.familiarity`` returns it; then every part of the stream must have it.
    classes : sequence of length n, optional
        Names of the classes. Default: their numbers.
    level : float
        Probability of ever raising an alarm without a change, at most. Default 0.05.
    coverage : float
        Of the sets that are fitted to the labeled reference (``ConformalSets``' "lac") where ``update`` is given none.
        Default 0.9.
    recent : int
        Number of last samples whose means are reported. Default 500.
    seed : int
        Seed of the random order of equal values. Default 0.

    Attributes
    ----------
    tests : dict of str to ExchangeabilityTest
        By statistic.
    weights : dict of str to float
        Share of ``level`` of each: equal for confidence, familiarity, true class and all classes together.

    Notes
    -----
    The alarm is raised when the evidence of a statistic times its weight reaches 1 / ``level``. The sum of these errors
    is at most ``level``, whatever the dependence between statistics; the mean of several test martingales would need
    fewer samples by a little, but is no test martingale when each follows p-values of its own (Choe, Ramdas: *Combining
    evidence across filtrations*, 2024). Labels must be missing independently of the predictions, or their statistic
    detects that. What is guaranteed is the rate of false alarms, not that each drift is detected.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> reference, same = rng.dirichlet([1, 1, 1], 500), rng.dirichlet([1, 1, 1], 300)
    >>> monitor = DriftMonitor(reference)
    >>> monitor.update(same).alarm is None
    True
    >>> report = monitor.update(rng.dirichlet([4, 1, 1], 300))
    >>> report.alarm, report.cause
    (324, 'class 0')
    """

    def __init__(
        self,
        p: ArrayLike,
        y: ArrayLike | None = None,
        familiarity: ArrayLike | None = None,
        *,
        classes: Sequence[Any] | None = None,
        level: float = 0.05,
        coverage: float = 0.9,
        recent: int = 500,
        seed: int = 0,
    ) -> None:
        self.level = check_number(level, "level", 0, below=1)
        self.coverage = check_number(coverage, "coverage", 0, below=1)
        self.recent = check_whole(recent, "recent", 1)
        self.seed = check_whole(seed, "seed", 0)
        self.classes = check_class_names(classes, check_probabilities(p).shape[1])
        self.reference = self._columns(p, y, familiarity)
        frequencies = self.reference["p"].mean(axis=0)
        self.watched_classes = np.sort(np.argsort(-frequencies, kind="stable")[:WATCHED_CLASSES]).tolist()
        values = {name: column[~np.isnan(column)] for name, column in self._statistics(self.reference).items()}
        self.tests = {name: ExchangeabilityTest(column, seed=seed) for name, column in values.items() if len(column)}
        shared = len(self.watched_classes)
        groups = len(self.tests) - shared + 1
        self.weights = {name: 1 / groups / (shared if name.startswith("class ") else 1) for name in self.tests}
        true_class = _true_class_probabilities(self.reference)
        scores = np.sort(1 - true_class[~np.isnan(true_class)])  # as they are: rounded ones may be 0, below all others
        rank = math.ceil((len(scores) + 1) * self.coverage - 1e-9)
        self._threshold = float(scores[rank - 1]) if rank <= len(scores) else math.inf
        self.stream = {name: column[:0] for name, column in self.reference.items()} | {"covered": np.empty(0)}
        self.log_evidence: NDArray[np.float64] = np.log([list(self.weights.values())])

    def update(
        self,
        p: ArrayLike,
        y: ArrayLike | None = None,
        familiarity: ArrayLike | None = None,
        sets: ArrayLike | None = None,
    ) -> DriftReport:
        """Append predictions to the stream, in the order of their time, and report on all of it.

        Parameters
        ----------
        p : array_like, shape [m, n]
        y : array_like, shape [m], optional
            Classes, as for the reference; missing ones too.
        familiarity : array_like, shape [m], optional
            Must be given if the reference has it.
        sets : array_like of bool, shape [m, n], optional
            As ``model.predict_set`` returns them. Default: those of the reference.

        Returns
        -------
        DriftReport
        """
        new = self._columns(p, y, familiarity)
        if sets is None:
            covered = (1 - _true_class_probabilities(new) <= self._threshold).astype(np.float64)
        else:
            table = check_array(sets, "sets", "[N, n]", rows=len(new["y"]), of="p", columns=len(self.classes))
            covered = table[np.arange(len(table)), new["y"]]
        new["covered"] = np.where(new["y"] < 0, np.nan, covered)
        values, paths = self._statistics(new), []
        for j, (name, test) in enumerate(self.tests.items()):
            given = ~np.isnan(values[name])
            logs = test.update(values[name][given]) + math.log(self.weights[name])
            paths.append(np.concatenate([self.log_evidence[-1:, j], logs])[np.cumsum(given)])
        self.log_evidence = np.concatenate([self.log_evidence, np.column_stack(paths)])
        self.stream = {name: np.concatenate([self.stream[name], column]) for name, column in new.items()}
        return self.report()

    def report(self) -> DriftReport:
        """Report on the stream so far."""
        largest = self.log_evidence.max(axis=0)
        reached = self.log_evidence >= -math.log(self.level)
        alarms = {name: int(np.argmax(path)) for name, path in zip(self.tests, reached.T, strict=True) if path.any()}
        before, now = self.reference["p"].mean(axis=0), [_mean(q) for q in self.stream["p"][-self.recent :].T]
        covered = self.stream["covered"][self.stream["y"] >= 0]
        return DriftReport(
            samples=len(self.stream["y"]),
            alarm=min(alarms.values(), default=None),
            alarms=alarms,
            cause=list(self.tests)[int(np.argmax(largest))],
            p_value=float(min(1.0, np.exp(-largest.max()))),
            log10_evidence=dict(zip(self.tests, (self.log_evidence[-1] / math.log(10)).tolist(), strict=True)),
            confidence=self._means(lambda columns: columns["p"].max(axis=1)),
            familiarity=self._means(lambda columns: columns["familiarity"]) if "familiarity" in self.tests else None,
            true_class=self._means(_true_class_probabilities) if "true class" in self.tests else None,
            class_frequencies=dict(zip(map(str, self.classes), zip(before.tolist(), now, strict=True), strict=True)),
            labels=len(covered),
            coverage=_mean(covered),
            coverage_interval=share_interval(int(covered.sum()), len(covered), self.level) if len(covered) else None,
            calibration_error=(_calibration_error(self.reference), _calibration_error(self.stream)),
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return options, reference and stream as arrays by name, from which ``from_state`` makes the same monitor."""
        parts = {"reference": self.reference, "stream": self.stream}
        columns = {f"{part}_{name}": column for part, given in parts.items() for name, column in given.items()}
        options = {name: np.array(getattr(self, name)) for name in _OPTIONS}
        return {**options, "classes": np.array(self.classes), **columns}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the monitor whose ``state`` was kept."""
        classes = state["classes"].tolist()
        names = np.array([*classes, None], dtype=object)  # the last for -1
        options: dict[str, Any] = {name: state[name].item() for name in _OPTIONS}
        familiar = not np.isnan(state["reference_familiarity"]).any()
        parts = [
            (state[f"{part}_p"], names[state[f"{part}_y"]], state[f"{part}_familiarity"] if familiar else None)
            for part in ("reference", "stream")
        ]
        monitor = cls(*parts[0], classes=classes, **options)
        if len(parts[1][0]):
            monitor.update(*parts[1])
            monitor.stream["covered"] = state["stream_covered"]
        return monitor

    def _columns(self, p: ArrayLike, y: ArrayLike | None, familiarity: ArrayLike | None) -> Columns:
        """Return checked probabilities, class numbers (-1 where missing) and familiarities (NaN if not given)."""
        probabilities = check_probabilities(p, num_classes=len(self.classes))
        rows = len(probabilities)
        numbers = np.full(rows, -1)
        if y is not None:
            labels = unmasked(y, "y")
            if labels.shape != (rows,):
                raise ValueError(
                    f"y must hold a label, or a missing one, for each of the {rows} rows of p; "
                    f"found shape {labels.shape}"
                )
            values = labels.tolist()
            given = np.array(
                [not (is_missing(label) or (label in (-1, "") and label not in self.classes)) for label in values], bool
            )
            named = [label for label, known in zip(values, given, strict=True) if known]
            numbers[given] = check_labels(named, rows=len(named), of="p", classes=self.classes)[0]
        familiarities = np.full(rows, np.nan)
        if familiarity is not None:
            familiarities = check_array(familiarity, "familiarity", "[N]", rows=rows, of="p")
        elif "familiarity" in getattr(self, "tests", ()):
            raise ValueError("familiarity must be given: the reference has it")
        return {"p": probabilities, "y": numbers, "familiarity": familiarities}

    def _statistics(self, columns: Columns) -> Columns:
        """Return the watched numbers [N] by name, NaN where they are missing, to ``DECIMALS``."""
        p = columns["p"]
        classes = {f"class {self.classes[k]}": p[:, k] for k in self.watched_classes}
        others = {"familiarity": columns["familiarity"], "true class": _true_class_probabilities(columns)}
        numbers = {"confidence": p.max(axis=1), **others, **classes}
        return {name: np.round(values.astype(np.float64), DECIMALS) for name, values in numbers.items()}

    def _means(self, values: Callable[[Columns], NDArray[Any]]) -> tuple[float, float | None]:
        before, now = (part[~np.isnan(part)] for part in (values(self.reference), values(self.stream)[-self.recent :]))
        return float(before.mean()), _mean(now)


def _true_class_probabilities(columns: Columns) -> NDArray[np.floating]:
    """Return the probability of the true class [N], NaN where it is missing."""
    p, y = columns["p"], columns["y"]
    return np.where(y < 0, np.nan, p[np.arange(len(y)), y])


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _calibration_error(columns: Columns) -> float | None:
    given = columns["y"] >= 0
    return expected_calibration_error(columns["y"][given], columns["p"][given]) if given.any() else None


def share_interval(hits: int, count: int, level: float) -> Interval:
    """Return a confidence sequence of a probability: it holds at all times together with probability 1 - level.

    Inverts the test martingale of a uniform mixture over the alternatives (Robbins 1970).

    Examples
    --------
    >>> lower, upper = share_interval(90, 100, 0.05)
    >>> print(f"{lower:.3f} {upper:.3f}")
    0.772 0.971
    """
    mixture = betaln(hits + 1, count - hits + 1) + math.log(level)
    share = hits / count

    def excess(q: float) -> float:
        return float(mixture - xlogy(hits, q) - xlog1py(count - hits, -q))

    tiny = 1e-12
    lower = 0.0 if hits == 0 else brentq(excess, tiny * share, share)
    upper = 1.0 if hits == count else brentq(excess, share, 1 - tiny * (1 - share))
    return Interval(float(lower), float(upper))
