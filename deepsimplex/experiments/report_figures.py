"""Sections of a report: figures, as data URIs in the page itself, and tables, each explained in a sentence."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from deepsimplex import plots
from deepsimplex.evaluation import (
    Interval,
    PartitionComparison,
    Report,
    calibration_error_by_class,
    expected_calibration_error,
    risk_coverage_curve,
)
from deepsimplex.evaluation.one_versus_rest import CLASS_SCORES
from deepsimplex.experiments.finished_runs import Run
from deepsimplex.plots.curves import MOST_CURVES

DPI = 144
MAX_SVG_BYTES = 60_000  # a larger drawing, such as one of thousands of points, may be smaller as PNG
WIDE = 560  # CSS pixels
PANELS = 20  # classes with a diagram each
IMAGES, COLUMNS = 6, 2  # images shown of each run, and how many side by side
OPEN_ROWS = 20  # a longer table is folded
Cell = str | int | float | tuple[float, Interval | None]


@dataclass(frozen=True)
class PageTable:
    """A table of numbers on the page of a report.

    Attributes
    ----------
    columns : sequence of str
        Heads of the columns; that of the first may be empty.
    rows : sequence of sequence of str, int, float or (float, Interval)
        Cells: the first of each row is its name. Text is escaped; an interval stands small below its number.
    note : str
        A sentence below the table; may be empty.

    Examples
    --------
    >>> table = PageTable(["class", "samples"], [["cat", 12], ["dog", 30]])
    >>> table.columns
    ['class', 'samples']
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def is_long(self) -> bool:
        """Whether the table is folded until a reader opens it."""
        return len(self.rows) > OPEN_ROWS


Content = tuple[Figure, str] | PageTable
Draw = Callable[[Run, float], Content | list[Content] | None]


@dataclass(frozen=True)
class PageSection:
    """A section of the page with a figure or a table of every run: ``write_report(..., sections=[PageSection(...)])``.

    Parameters
    ----------
    title : str
    text : str
        One or two sentences that explain the figure or the table.
    draw : callable
        (run, level) -> (matplotlib.figure.Figure, alternative text), ``PageTable``, a list of these, or None for a run
        without. ``run`` is a ``Run``, with ``run.predictions``; ``level`` is that of the intervals.
    missing : str
        Why a run may have none, before the names of such runs: "No images were kept of". Default "": not said.

    Examples
    --------
    >>> def means(run, level):
    ...     rows = zip(run.predictions.class_names, run.predictions.p.mean(axis=0).tolist())
    ...     return PageTable(["class", "mean probability"], [*rows])
    >>> section = PageSection("Mean probabilities", "The mean probability of each class.", means)
    >>> section.title
    'Mean probabilities'
    """

    title: str
    text: str
    draw: Draw
    missing: str = ""


@dataclass(frozen=True)
class EmbeddedFigure:
    """A figure embedded in the page.

    Attributes
    ----------
    uri : str
        Its bytes as a data URI.
    alt : str
        Alternative text.
    width, height : int
        In CSS pixels.
    caption : str
        May be empty.
    """

    uri: str
    alt: str
    width: int
    height: int
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """Figures or tables of one kind, with a sentence on how to read them.

    Attributes
    ----------
    title, text : str
    figures : tuple of EmbeddedFigure
    missing : str
        Why some runs have none; may be empty.
    tables : tuple of (str, PageTable)
        Names of runs, and their tables.
    """

    title: str
    text: str
    figures: tuple[EmbeddedFigure, ...]
    missing: str = ""
    tables: tuple[tuple[str, PageTable], ...] = ()

    @property
    def size(self) -> str:
        """CSS class: "" for three figures side by side, "wide" for two, "whole" for a single one."""
        if len(self.figures) == 1:
            return "whole"
        return "wide" if any(figure.width > WIDE for figure in self.figures) else ""


def embed(figure: Figure, alt: str, caption: str = "") -> EmbeddedFigure:
    """Return a figure as SVG, or as PNG if that is smaller; the same figure gives the same bytes.

    Examples
    --------
    >>> embedded = embed(Figure(figsize=(2, 1)), "nothing")
    >>> embedded.uri[:25], embedded.width, embedded.height
    ('data:image/svg+xml;base64', 192, 96)
    """
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    content, kind = io.BytesIO(), "svg+xml"
    with matplotlib.rc_context({"svg.hashsalt": "deepsimplex", "svg.fonttype": "path"}):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    if content.tell() > MAX_SVG_BYTES:
        pixels = io.BytesIO()
        figure.savefig(pixels, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
        if pixels.tell() < content.tell():
            content, kind = pixels, "png"
    text = base64.b64encode(content.getvalue()).decode("ascii")
    return EmbeddedFigure(f"data:image/{kind};base64,{text}", alt, width, height, caption)


def partition_figures(comparison: PartitionComparison) -> tuple[EmbeddedFigure, ...]:
    """Draw the scaled memberships of three or four classes in their simplex."""
    return tuple(
        embed(plots.simplex(partition), f"Scaled memberships of {name} in the simplex of the classes.", name)
        for name, partition in comparison.partitions.items()
        if len(partition.classes) in (3, 4)
    )


def sections(
    runs: Sequence[Run],
    reports: Mapping[str, Report],
    level: float,
    announce: Callable[[str], object],
    further: Sequence[PageSection] = (),
) -> list[Section]:
    """Draw every section that these runs allow, and then further ones."""
    drawn = [_drawn(section, runs, level, announce) for section in _sections_by_run(runs, reports, level)]
    announce("picture: risk and coverage")
    drawn.append(_risk_coverage(runs))
    if any(run.history for run in runs):
        announce("picture: learning curves")
        drawn.append(_learning_curves(runs))
    drawn += [_drawn(section, runs, level, announce) for section in further]
    return [section for section in drawn if section.figures or section.tables]


def _drawn(section: PageSection, runs: Sequence[Run], level: float, announce: Callable[[str], object]) -> Section:
    figures, tables, without = [], [], []
    for run in runs:
        try:
            content = section.draw(run, level)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{run.name}, {section.title.lower()}: {error}") from error
        if content is None:
            without.append(run.name)
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, PageTable):
                tables.append((run.name, part))
            elif part is not None:
                figures.append(embed(part[0], f"{section.title} of {run.name}: {part[1]}", run.name))
    if figures or tables:
        announce(f"{'picture' if figures else 'table'}: {section.title.lower()}")
    missing = f"{section.missing}: {', '.join(without)}." if without and section.missing else ""
    return Section(section.title, section.text, tuple(figures), missing, tuple(tables))


def _sections_by_run(runs: Sequence[Run], reports: Mapping[str, Report], level: float) -> Sequence[PageSection]:
    """Return the sections with a figure or a table of each run; one more is one more entry."""
    percent = f"{100 * level:g}%"
    band = (
        " A gray band, where class probabilities vary with the latent, lies between the curves of classifiers that "
        f"predict the lower and the upper quantile of each probability, {percent} between them."
    )
    whiskers = f" Whiskers are {percent} intervals of probabilities that vary with the latent."
    no_images = "No images were kept"
    below = f" Small below a number: its {percent} interval."
    most = f" Of more than {MOST_CURVES} classes those of the smallest areas."

    def table(run: Run, level: float) -> PageTable:
        return _class_table(reports[run.name])

    def roc(run: Run, level: float) -> tuple[Figure, str]:
        return _curves(run, reports[run.name], plots.roc, "roc_auc", "area")

    def precision_recall(run: Run, level: float) -> tuple[Figure, str]:
        return _curves(run, reports[run.name], plots.precision_recall, "average_precision", "average precision")

    return (
        PageSection(
            "Scores of each class",
            "Each class against the rest, assigned where it is the most probable. Sensitivity: the share of its "
            "samples that are assigned to it; specificity: the share of the others that are not. PPV, NPV: how often "
            "an assignment to it, or to another, is right at the class frequencies of this test set. LR+, LR-: the "
            f"factor by which either changes the odds of the class.{below}",
            table,
        ),
        PageSection(
            "ROC curves",
            "The share of a class's samples that are found (up) against the share of the others that are taken for it "
            "(right), over all thresholds of its probability; the area under a curve is 1 for perfect ranking and 0.5 "
            f"for chance.{most}",
            roc,
        ),
        PageSection(
            "Precision-recall curves",
            "How many of the samples taken for a class are of it (up) against the share of its samples that are found "
            "(right), over all thresholds of its probability; where a class is rare this shows false alarms that a ROC "
            f"curve hides.{most}",
            precision_recall,
        ),
        PageSection(
            "Reliability",
            "How often the assigned class is right, among samples predicted with similar confidence: on the diagonal "
            f"for calibrated probabilities.{band if any(map(_has_intervals, runs)) else ''} Below, how many samples "
            "have each confidence.",
            _reliability,
        ),
        PageSection(
            "Reliability by class",
            "The same for the probability of each class: how often samples with this probability are of that class. Of "
            f"more than {PANELS} classes those with the largest calibration error.",
            _reliability_by_class,
        ),
        PageSection(
            "Simplex and latent space",
            "The test samples: three or four classes in the simplex of their probabilities, more in the plane of the "
            "first principal components of their latents.",
            _latent_space,
            "No latents were kept of",
        ),
        PageSection(
            "Least certain images",
            "The test images whose class probabilities have the largest entropy."
            f"{whiskers if any(_has_intervals(run) and run.predictions.images is not None for run in runs) else ''}",
            _least_certain_images,
            f"{no_images} of",
        ),
        PageSection(
            "Surest mistakes",
            "The misclassified test images whose true class (above each) has the smallest probability.",
            _surest_mistakes,
            f"{no_images}, or none is misclassified, of",
        ),
        PageSection(
            "Why the least certain images are classified as they are",
            "Red pixels raise the probability of the assigned class, which stands above with its probability; blue "
            "ones lower it. Compared with the mean test image, by integrated gradients.",
            partial(_explained, kind="uncertain"),
        ),
        PageSection(
            "Why the least familiar images are unfamiliar",
            "Blue pixels make an image unlike the training images, red ones make it typical. Compared with the mean "
            "test image, by integrated gradients.",
            partial(_explained, kind="unfamiliar"),
        ),
        PageSection(
            "Confusion matrix",
            "Test samples by true class (rows) and assigned class (columns): those on the diagonal are right.",
            _confusion,
        ),
        PageSection(
            "Drift",
            "The predictions that were watched since, against those of the test samples: evidence that reaches the "
            "dashed line (top left) is an alarm. The other panels show what has changed: means, class frequencies and, "
            "of labeled samples, how often sets of classes hold the true one.",
            _drift,
        ),
    )


def _class_table(report: Report) -> PageTable:
    scores = report.by_class
    rows: list[list[Cell]] = [[name, samples, *cells] for name, samples, cells in scores.rows()]
    return PageTable(["class", "samples", *CLASS_SCORES.values()], rows, scores.note)


def _curves(run: Run, report: Report, draw: Callable[..., Figure], score: str, label: str) -> tuple[Figure, str]:
    y, p, names = run.predictions.y, run.predictions.p, run.predictions.class_names
    figure = draw(y, p, scores=report.by_class, class_names=names)
    return figure, f"{label} {getattr(report, score):.4f} over {len(names)} classes and {len(y)} test samples."


def _reliability(run: Run, level: float) -> tuple[Figure, str]:
    y, p = run.predictions.y, run.predictions.p
    figure = plots.reliability(y, p, **_latents(run), level=level)
    return figure, f"expected calibration error {expected_calibration_error(y, p):.4f} over {len(y)} test samples."


def _reliability_by_class(run: Run, level: float) -> tuple[Figure, str]:
    y, p, names = run.predictions.y, run.predictions.p, run.predictions.class_names
    worst = np.sort(np.argsort(-calibration_error_by_class(y, p), kind="stable")[:PANELS])
    figure = plots.classwise_reliability(y, p, class_names=names, only=worst.tolist())
    n = len(names)
    which = f"each of {n} classes" if n <= PANELS else f"the {PANELS} of {n} classes with the largest error"
    return figure, f"a diagram for {which}."


def _latent_space(run: Run, level: float) -> tuple[Figure, str] | None:
    y, p, names = run.predictions.y, run.predictions.p, run.predictions.class_names
    latent, n = run.predictions.latent, len(names)
    if n in (3, 4):
        figure = plots.simplex(p, y, class_names=names)
        return figure, f"the class probabilities of {len(y)} test samples, {n} classes at the corners."
    if latent is None:
        return None
    figure = plots.latent_space(latent, y, scores=run.predictions.scores, class_names=names)
    return figure, f"the latents of {len(y)} test samples by class."


def _least_certain_images(run: Run, level: float) -> tuple[Figure, str] | None:
    alt = "the {} test images of the largest entropy, with their probabilities."
    return _images(run, run.predictions.image_rows, "entropy", level, alt)


def _surest_mistakes(run: Run, level: float) -> tuple[Figure, str] | None:
    y, p, rows = run.predictions.y, run.predictions.p, run.predictions.image_rows
    wrong = None if rows is None else rows[p[rows].argmax(axis=1) != y[rows]]
    alt = "the {} misclassified test images whose true class has the smallest probability."
    return _images(run, wrong, "likelihood", level, alt)


def _explained(run: Run, level: float, kind: str) -> tuple[Figure, str] | None:
    if kind not in run.explained:
        return None
    content = run.explained[kind]
    figure = plots.saliency(content.images, content.maps, content.titles, columns=COLUMNS)
    return figure, f"{len(content.images)} test images, each beside its map. {'; '.join(content.titles)}."


def _confusion(run: Run, level: float) -> tuple[Figure, str]:
    y, p = run.predictions.y, run.predictions.p
    wrong = int(np.sum(p.argmax(axis=1) != y))
    figure = plots.confusion_matrix(y, p, class_names=run.predictions.class_names)
    return figure, f"{wrong} of {len(y)} test samples are off the diagonal."


def _drift(run: Run, level: float) -> list[Content] | None:
    if run.drift is None:
        return None
    report, last = run.drift.report(), min(run.drift.recent, len(run.drift.stream["p"]))
    means = {"confidence": report.confidence, "familiarity": report.familiarity, "true class": report.true_class}
    means |= {f"class {name}": pair for name, pair in report.class_frequencies.items()}
    shown = [name for name in run.drift.tests if name in report.alarms or not name.startswith("class ")]
    rows: list[list[Cell]] = []
    for name in sorted(shown, key=lambda name: report.alarms.get(name, report.samples + 1)):
        pair = means[name] or (np.nan, None)
        before, now = (np.nan if value is None else value for value in pair)
        rows.append([name, report.alarms.get(name, "none"), report.log10_evidence[name], before, now])
    columns = ["watched", "alarm after", "evidence now, log10", "mean, reference", f"mean, last {last} samples"]
    note = str(report).partition("\n")[0] + f". False alarms have a probability of at most {100 * run.drift.level:g}%."
    return [(plots.drift(run.drift), note), PageTable(columns, rows, note)]


def _images(
    run: Run, rows: NDArray[np.int64] | None, by: Literal["entropy", "likelihood"], level: float, alt: str
) -> tuple[Figure, str] | None:
    """Draw the first of the kept images in these rows, ranked, with intervals if the readout has any."""
    images, kept = run.predictions.images, run.predictions.image_rows
    if images is None or kept is None or rows is None or len(rows) == 0:
        return None
    figure = plots.uncertain_images(
        images[np.isin(kept, rows)],
        run.predictions.p[rows],
        run.predictions.y[rows],
        **_latents(run, rows),
        level=level,
        k=IMAGES,
        by=by,
        class_names=run.predictions.class_names,
        columns=COLUMNS,
    )
    return figure, alt.format(min(IMAGES, len(rows)))


def _latents(run: Run, rows: NDArray[np.int64] | slice = slice(None)) -> dict[str, Any]:
    """Arguments of figures that draw intervals of a run's probabilities; empty if these do not vary with the latent."""
    latent = run.predictions.latent
    if latent is None or not _has_intervals(run):
        return {}
    return {"latent": latent[rows], "scores": run.predictions.scores, "readout": run.predictions.readout}


def _has_intervals(run: Run) -> bool:
    return run.predictions.readout is not None and run.predictions.readout.credible_intervals


def _risk_coverage(runs: Sequence[Run]) -> Section:
    curves = {run.name: risk_coverage_curve(run.predictions.y, run.predictions.p) for run in runs}
    areas = ", ".join(f"{name} {curve.area:.4f}" for name, curve in curves.items())
    figure = embed(plots.risk_coverage(curves), f"Risk-coverage curves; areas under them: {areas}.")
    text = "The error among the samples of highest confidence, from few of them (left) to all (right)."
    return Section("Risk and coverage", text, (figure,))


def _learning_curves(runs: Sequence[Run]) -> Section:
    histories = {run.name: run.history for run in runs if run.history}
    epochs = ", ".join(f"{run.name} {run.epochs} epochs" for run in runs if run.history)
    figure = embed(plots.learning_curves(histories), f"Losses and metrics over the epochs: {epochs}.")
    text = "Training samples solid, validation samples dashed. Losses of different kinds do not compare."
    without = [run.name for run in runs if not run.history]
    return Section("Learning curves", text, (figure,), f"No history of: {', '.join(without)}." if without else "")
