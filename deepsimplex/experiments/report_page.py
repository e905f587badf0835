"""Comparison of runs on one HTML page: its content, and its tables with the text of each cell."""

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from deepsimplex._utils import progress
from deepsimplex._utils.atomic_files import check_output, replacing
from deepsimplex.evaluation import (
    PartitionComparison,
    Report,
    ReportComparison,
    compare_partitions,
    compare_reports,
    report,
)
from deepsimplex.evaluation.bootstrap import check_resampling
from deepsimplex.evaluation.report import SCORE_GROUPS
from deepsimplex.evaluation.report_comparison import HIGHER_IS_BETTER
from deepsimplex.evaluation.standardized_partition import MEASURES, SCALED_MEASURES, measure_title
from deepsimplex.experiments.finished_runs import REJECTED, UNFAMILIAR, Run, Source, flat_configuration, read_runs
from deepsimplex.experiments.report_figures import PageSection, partition_figures
from deepsimplex.experiments.report_figures import sections as drawn_sections
from deepsimplex.experiments.run_cards import write_run_cards

_MISSING = "–"
# Names of metrics of a run, with the labels of their rows.
_FACTS = {
    "neighbor_recall": "recall of approximate neighbors",
    "set_coverage": "coverage of the sets",
    "set_size": "mean size of the sets",
    "empty_sets": "share of empty sets",
    "unfamiliar_share": f"share of samples below familiarity {UNFAMILIAR}",
    "unknown_share": f"share of samples called unknown, where known ones would be {REJECTED}",
}


def write_report(
    path: str | os.PathLike[str],
    runs: Mapping[str, Source] | Sequence[Source],
    *,
    title: str | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    sections: Sequence[PageSection] = (),
    cards: bool = False,
    announce: Callable[[str], object] = lambda text: None,
) -> Path:
    """Compare runs on one HTML page that contains everything it shows: no network and no script.

    Parameters
    ----------
    path : path-like
        The page, written atomically.
    runs : sequence, or mapping of str to run
        Run folders, folders of a name (its newest finished run), .npz files of ``save_predictions``; in a mapping,
        whose keys name the runs, ``Predictions`` too. The model and the data are not needed.
    title : str, optional
        Default: "Report on" and the names of the runs.
    level : float
        Level of the bootstrap intervals and of the bands, 0.95 by default.
    resamples, seed : int
        Of the bootstrap, as in ``evaluation.bootstrap_interval``: of whole groups if the predictions have them. The
        same call writes the same page.
    sections : sequence of PageSection
        Further sections, after the others. Default: none.
    cards : bool
        Write a model card of each run beside the page, as "report_digits_001.md". Default False.
    announce : callable
        Called with a line of text after each step, such as ``print``. Default: nothing is shown.

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    ValueError, OSError
        As ``read_run``; when an option is out of range or the page cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> from deepsimplex.experiments import Predictions
    >>> y = np.array([0, 1, 2] * 20)
    >>> sure, unsure = 0.7 * np.eye(3)[y] + 0.1, 0.1 * np.eye(3)[y] + 0.3
    >>> both = {"sure": Predictions.of(y, sure), "unsure": Predictions.of(y, unsure)}
    >>> page = write_report(folder / "report.html", both, resamples=20)
    >>> "Report on sure and unsure" in page.read_text()
    True
    """
    level, resamples, seed, _ = check_resampling(level, resamples, seed)
    target = check_output(path, None, "the page", "report.html")
    read = read_runs(runs)
    announce(f"read {_count(len(read), 'run')}: {', '.join(run.name for run in read)}")
    environment = Environment(
        loader=PackageLoader("deepsimplex.experiments"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    settings = (title, level, resamples, seed, sections, announce)
    content = _content(read, *settings)
    html = environment.get_template("page.html").render(**content)
    with replacing(target) as fresh:
        fresh.write_text(html, encoding="utf-8")
    if cards:
        write_run_cards(target, read, content["reports"])
    return target


def _content(
    runs: Sequence[Run],
    title: str | None,
    level: float,
    resamples: int,
    seed: int,
    further: Sequence[PageSection],
    announce: Callable[[str], object],
) -> dict[str, Any]:
    """Return the variables of the template."""
    why_not = not_comparable(runs)
    reports, comparison = _scores(runs, why_not, level, resamples, seed, announce)
    partitions, caution = (None, "") if why_not else _partitions(runs)
    names = [run.name for run in runs]
    *others, last = names
    packages = dict.fromkeys(name for run in runs for name in run.versions)
    return {
        "title": title or f"Report on {' and '.join(filter(None, (', '.join(others), last)))}",
        "runs": runs,
        "names": names,
        "why_not": why_not,
        "level": f"{100 * level:g}%",
        "resamples": resamples,
        "samples": len(runs[0].predictions.y),
        "drawn": _drawn(runs),
        "classes": runs[0].predictions.p.shape[1],
        "facts": facts(runs),
        "reports": reports,
        "comparison": comparison,
        "score_groups": SCORE_GROUPS,
        "higher_is_better": HIGHER_IS_BETTER,
        "mark": mark,
        "partitions": partitions,
        "caution": caution,
        "measures": {"Scaled": SCALED_MEASURES, "As given": MEASURES[len(SCALED_MEASURES) :]},
        "measure_title": measure_title,
        "partition_figures": () if partitions is None else partition_figures(partitions),
        "sections": drawn_sections(runs, reports, level, announce, further),
        "differing": differing([flat_configuration(run) for run in runs]),
        "versions": {name: [run.versions.get(name, _MISSING) for run in runs] for name in packages},
        "differing_versions": differing([run.versions for run in runs]),
    }


def _scores(
    runs: Sequence[Run], why_not: str, level: float, resamples: int, seed: int, announce: Callable[[str], object]
) -> tuple[dict[str, Report], ReportComparison | None]:
    """Compute the scores of every run, and their comparison if the runs can be compared."""

    def started(name: str) -> None:
        announce(f"scores of {name}, with intervals from {_count(resamples, 'resample')}")

    if not why_not:
        labels, names = _named_labels(runs)
        comparison = compare_reports(
            labels,
            {run.name: run.predictions.p for run in runs},
            level=level,
            resamples=resamples,
            seed=seed,
            groups=next(filter(_is_several, (run.predictions.groups for run in runs)), None),
            announce=started,
            classes=names,
        )
        return comparison.reports, comparison
    reports = {}
    for run in runs:
        started(run.name)
        labels, names = _named_labels([run])
        options: dict[str, Any] = {"intervals": level, "resamples": resamples, "seed": seed}
        groups = run.predictions.groups if _is_several(run.predictions.groups) else None
        reports[run.name] = report(labels, run.predictions.p, groups=groups, classes=names, **options)
    return reports, None


def _is_several(groups: NDArray[np.int64] | None) -> bool:
    return groups is not None and len(np.unique(groups)) > 1


def _drawn(runs: Sequence[Run]) -> str:
    """Return what the bootstrap draws, for the text about the intervals."""
    groups = [run.predictions.groups for run in runs if run.predictions.groups is not None]
    if any(map(_is_several, groups)):
        return "test samples, whole groups at a time"
    return "test samples, which are of one group: others may differ by more" if groups else "test samples"


def _named_labels(runs: Sequence[Run]) -> tuple[Any, list[str] | None]:
    """Return the labels of runs with the same ones, by the names of the classes if any run has names."""
    y = runs[0].predictions.y
    names = next((list(run.predictions.class_names) for run in runs if run.predictions.names_classes), None)
    return (y if names is None else [names[k] for k in y]), names


def _partitions(runs: Sequence[Run]) -> tuple[PartitionComparison, str]:
    """Compute the standardized partitions of the runs, and the text of warnings about them."""
    labels, classes = _named_labels(runs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        compared = compare_partitions(labels, {run.name: run.predictions.p for run in runs}, classes=classes)
    return compared, " ".join(f"{warning.message}." for warning in caught)


def not_comparable(runs: Sequence[Run]) -> str:
    """Return a sentence that says why runs cannot be compared sample by sample; empty if they can.

    Examples
    --------
    >>> from deepsimplex.experiments import Predictions
    >>> one = Run("one", Predictions.of([0, 1], [[0.5, 0.5], [0.5, 0.5]]))
    >>> other = Run("other", Predictions.of([1, 1], [[0.5, 0.5], [0.5, 0.5]]))
    >>> not_comparable([one, one])
    ''
    >>> not_comparable([one, other])
    'The labels of one and other differ for 1 of 2 test samples, so they were not tested on the same samples.'
    """
    first = runs[0]
    for run in runs[1:]:
        one, other = first.predictions, run.predictions
        if one.p.shape != other.p.shape:
            sizes = (
                f"{name} on {_count(len(p), 'sample')} of {p.shape[1]} classes"
                for name, p in ((f"{first.name} was tested", one.p), (run.name, other.p))
            )
            return f"{', '.join(sizes)}, so they were not tested on the same samples."
        if one.names_classes and other.names_classes and one.class_names != other.class_names:
            return f"{first.name} and {run.name} have classes of different names."
        differ = int((one.y != other.y).sum())
        if differ:
            return (
                f"The labels of {first.name} and {run.name} differ for {differ} of {len(one.y)} test samples, so they "
                "were not tested on the same samples."
            )
    return ""


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def number(value: float) -> str:
    """Format a score.

    Examples
    --------
    >>> number(0.97222), number(-0.01), number(float("inf")), number(float("nan"))
    ('0.9722', '−0.0100', '∞', '–')
    """
    if math.isnan(value):
        return _MISSING
    return "∞" if value == math.inf else f"{value:z.4f}".replace("-", "−")


def duration(seconds: float | None) -> str:
    """Format seconds.

    Examples
    --------
    >>> duration(7.31), duration(125), duration(7384), duration(None)
    ('7.3 s', '2 min 5 s', '2 h 3 min', '–')
    """
    if seconds is None:
        return _MISSING
    return f"{seconds:.1f} s" if seconds < 60 else progress.rounded_duration(seconds)


def facts(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Return size, length and time of the runs, and numbers of what was fitted after training, by their labels."""
    rows: dict[str, list[Any]] = {
        "test samples": [len(run.predictions.y) for run in runs],
        "classes": [run.predictions.p.shape[1] for run in runs],
        "epochs": [run.epochs or _MISSING for run in runs],
        "training time": [duration(run.metrics.get("training_seconds")) for run in runs],
    }
    for name, label in _FACTS.items():
        if any(name in run.metrics for run in runs):
            rows[label] = [number(run.metrics[name]) if name in run.metrics else _MISSING for run in runs]
    return rows


def mark(name: str, score: str, comparison: ReportComparison | None) -> str:
    """Return "best" for the best score of all runs, "same" for one that does not differ significantly from it."""
    if comparison is None or len(comparison.reports) < 2 or score not in comparison.best:
        return ""
    best = comparison.reports[comparison.best[score]]
    if getattr(comparison.reports[name], score) == getattr(best, score):
        return "best"
    return "" if comparison.differs(name, score) else "same"


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
    return {key: [column.get(key, _MISSING) for column in columns] for key in differ}
