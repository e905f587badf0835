"""Figures of a report, as data URIs in the page itself."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from deepsimplex import plots
from deepsimplex.evaluation import (
    PartitionComparison,
    calibration_error_by_class,
    expected_calibration_error,
    risk_coverage_curve,
)
from deepsimplex.experiments.finished_runs import Run

DPI = 144
MAX_SVG_BYTES = 60_000  # a larger drawing, such as one of thousands of points, may be smaller as PNG
WIDE = 560  # CSS pixels
PANELS = 20  # classes with a diagram each
IMAGES, COLUMNS = 6, 2  # images shown of each run, and how many side by side
Draw = Callable[[Run, float], tuple[Figure, str] | None]  # from a run and a level to a figure and its description


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
    """Figures of one kind, with a sentence on how to read them.

    Attributes
    ----------
    title, text : str
    figures : tuple of EmbeddedFigure
    missing : str
        Why some runs have none; may be empty.
    """

    title: str
    text: str
    figures: tuple[EmbeddedFigure, ...]
    missing: str = ""

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


def sections(runs: Sequence[Run], level: float, announce: Callable[[str], object]) -> list[Section]:
    """Draw every section of figures that these runs allow."""
    drawn = []
    for title, text, draw, missing in _figures_by_run(runs, level):
        figures, without = [], []
        for run in runs:
            try:
                figure = draw(run, level)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{run.name}, {title.lower()}: {error}") from error
            if figure is None:
                without.append(run.name)
            else:
                figures.append(embed(figure[0], f"{title} of {run.name}: {figure[1]}", run.name))
        if figures:
            announce(f"picture: {title.lower()}")
            drawn.append(Section(title, text, tuple(figures), f"{missing}: {', '.join(without)}." if without else ""))
    announce("picture: risk and coverage")
    drawn.append(_risk_coverage(runs))
    if any(run.history for run in runs):
        announce("picture: learning curves")
        drawn.append(_learning_curves(runs))
    return drawn


def _figures_by_run(runs: Sequence[Run], level: float) -> Sequence[tuple[str, str, Draw, str]]:
    """Return title, text, function and reason for a missing figure of every section with a figure of each run."""
    percent = f"{100 * level:g}%"
    band = (
        " A gray band, where class probabilities vary with the latent, lies between the curves of classifiers that "
        f"predict the lower and the upper quantile of each probability, {percent} between them."
    )
    whiskers = f" Whiskers are {percent} intervals of probabilities that vary with the latent."
    no_images = "No images were kept"
    return (
        (
            "Reliability",
            "How often the assigned class is right, among samples predicted with similar confidence: on the diagonal "
            f"for calibrated probabilities.{band if any(map(_has_intervals, runs)) else ''} Below, how many samples "
            "have each confidence.",
            _reliability,
            "",
        ),
        (
            "Reliability by class",
            "The same for the probability of each class: how often samples with this probability are of that class. Of "
            f"more than {PANELS} classes those with the largest calibration error.",
            _reliability_by_class,
            "",
        ),
        (
            "Simplex and latent space",
            "The test samples: three or four classes in the simplex of their probabilities, more in the plane of the "
            "first principal components of their latents.",
            _latent_space,
            "No latents were kept of",
        ),
        (
            "Least certain images",
            "The test images whose class probabilities have the largest entropy."
            f"{whiskers if any(_has_intervals(run) and run.predictions.images is not None for run in runs) else ''}",
            _least_certain_images,
            f"{no_images} of",
        ),
        (
            "Surest mistakes",
            "The misclassified test images whose true class (above each) has the smallest probability.",
            _surest_mistakes,
            f"{no_images}, or none is misclassified, of",
        ),
        ("Confusion matrix", "Test samples by true and assigned class.", _confusion, ""),
    )


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


def _confusion(run: Run, level: float) -> tuple[Figure, str]:
    y, p = run.predictions.y, run.predictions.p
    wrong = int(np.sum(p.argmax(axis=1) != y))
    figure = plots.confusion_matrix(y, p, class_names=run.predictions.class_names)
    return figure, f"{wrong} of {len(y)} test samples are off the diagonal."


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
