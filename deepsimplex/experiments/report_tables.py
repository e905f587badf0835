"""Tables of a report: the text of each cell."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepsimplex._utils import progress
from deepsimplex.evaluation import PartitionComparison, Report, ReportComparison
from deepsimplex.evaluation.report import SCORE_GROUPS
from deepsimplex.evaluation.report_comparison import HIGHER_IS_BETTER
from deepsimplex.evaluation.standardized_partition import measure_title
from deepsimplex.experiments.finished_runs import Run

MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Attributes
    ----------
    text : str
    interval : str
        May be empty.
    mark : {"", "best", "same"}
        The best of its row; not significantly different from the best.
    """

    text: str
    interval: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: its label, a cell for each run, and which way is better ("higher", "lower" or "")."""

    label: str
    cells: Sequence[Cell]
    better: str = ""


FIGURES = {
    "neighbor_recall": "recall of approximate neighbors",
    "set_coverage": "coverage of the sets",
    "set_size": "mean size of the sets",
    "mean_familiarity": "mean familiarity",
}


def number(value: float) -> str:
    """Format a score.

    Examples
    --------
    >>> number(0.97222), number(-0.01), number(float("inf"))
    ('0.9722', '−0.0100', '∞')
    """
    return "∞" if value == math.inf else f"{value:z.4f}".replace("-", "−")


def duration(seconds: float | None) -> str:
    """Format seconds.

    Examples
    --------
    >>> duration(7.31), duration(125), duration(7384), duration(None)
    ('7.3 s', '2 min 5 s', '2 h 3 min', '–')
    """
    if seconds is None:
        return MISSING
    return f"{seconds:.1f} s" if seconds < 60 else progress.duration(seconds)


def facts(runs: Sequence[Run]) -> list[Row]:
    """Return rows with the size, length and time of the runs, and with what was fitted after training."""

    def row(label: str, value_of: Callable[[Run], Any]) -> Row:
        values = [value_of(run) for run in runs]
        return Row(label, [Cell(MISSING if value is None else str(value)) for value in values])

    def metric(name: str) -> Callable[[Run], str | None]:
        return lambda run: number(run.metrics[name]) if name in run.metrics else None

    return [
        row("test samples", lambda run: len(run.predictions.y)),
        row("classes", lambda run: run.predictions.p.shape[1]),
        row("epochs", lambda run: run.epochs),
        row("training time", lambda run: duration(run.metrics.get("training_seconds"))),
        *(row(label, metric(name)) for name, label in FIGURES.items() if any(map(metric(name), runs))),
    ]


def score_groups(reports: Mapping[str, Report], comparison: ReportComparison | None) -> dict[str, list[Row]]:
    """Return the scores of all runs by group; with a comparison of several runs, the best of each row is marked."""
    compared = comparison if len(reports) > 1 else None
    return {title: [_score_row(score, reports, compared) for score in scores] for title, scores in SCORE_GROUPS.items()}


def _score_row(score: str, reports: Mapping[str, Report], comparison: ReportComparison | None) -> Row:
    higher = HIGHER_IS_BETTER.get(score)
    cells = []
    for name, scores in reports.items():
        bounds = (scores.intervals or {}).get(score)
        interval = "" if bounds is None else f"{number(bounds.lower)} to {number(bounds.upper)}"
        mark = "" if comparison is None or higher is None else _mark(name, score, comparison)
        cells.append(Cell(number(getattr(scores, score)), interval, mark))
    better = "" if higher is None else "higher" if higher else "lower"
    return Row(score_label(score, next(iter(reports.values()))), cells, better)


def _mark(name: str, score: str, comparison: ReportComparison) -> str:
    best = comparison.reports[comparison.best[score]]
    if getattr(comparison.reports[name], score) == getattr(best, score):
        return "best"
    return "" if comparison.differs(name, score) else "same"


def score_label(score: str, scores: Report) -> str:
    """Return the label of a row of scores.

    Examples
    --------
    >>> from deepsimplex.evaluation import report
    >>> score_label("top_k_accuracy", report([0], [[0.9, 0.1]]))
    'top 1 accuracy'
    """
    if score == "top_k_accuracy":
        return f"top {scores.k} accuracy"
    if score == "accuracy_at_coverage":
        return f"accuracy at coverage {scores.coverage:g}"
    return score.replace("_", " ").replace("brier", "Brier")


def partition_groups(comparison: PartitionComparison) -> dict[str, list[Row]]:
    """Return the measures of standardized partitions: of scaled memberships, and of those that were given."""
    measures = [partition.measures() for partition in comparison.partitions.values()]
    names = [name for name in measures[0] if not name.startswith("unscaled_")]

    def rows(prefix: str) -> list[Row]:
        return [
            Row(measure_title(name), [Cell(number(found[prefix + name])) for found in measures])
            for name in names
            if prefix + name in measures[0]
        ]

    return {"Scaled": rows(""), "As given": rows("unscaled_")}


def differing(columns: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the keys whose values differ between the columns that are not empty, with the value in each column.

    Examples
    --------
    >>> differing([{"seed": "0", "target": "ilr"}, {"seed": "1", "target": "ilr"}, {}])
    {'seed': ['0', '1', '–']}
    """
    filled = [column for column in columns if column]
    keys = dict.fromkeys(key for column in filled for key in column)
    differ = [key for key in keys if len({column.get(key) for column in filled}) > 1]
    return {key: [column.get(key, MISSING) for column in columns] for key in differ}
