"""The pictures of a report, as text that stands in the page itself."""

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
from deepsimplex.experiments.report_source import Run
from deepsimplex.readout import READOUTS

DPI = 144
MOST_VECTOR_BYTES = 60_000
"""Of a drawing; a larger one, such as one of thousands of points, may take less room as pixels."""
WIDE = 560
"""CSS pixels."""
PANELS = 20
"""Classes that a picture has a diagram of."""
IMAGES, COLUMNS = 6, 2
"""Images shown of each run, and how many side by side."""


@dataclass(frozen=True)
class Picture:
    """A figure in the page.

    Attributes
    ----------
    uri : str
        Its bytes as a data URI.
    alt : str
        What it shows, in words.
    width, height : int
        In CSS pixels.
    caption : str
        "" where the section says it all.
    """

    uri: str
    alt: str
    width: int
    height: int
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """Pictures of one kind, with a sentence on how to read them.

    Attributes
    ----------
    title, text : str
    pictures : tuple of Picture
    missing : str
        Why there is none of some runs; "" where there are all.
    """

    title: str
    text: str
    pictures: tuple[Picture, ...]
    missing: str = ""

    @property
    def size(self) -> str:
        """ "" where three of its pictures fit side by side, "wide" where two do, "whole" for one alone."""
        if len(self.pictures) == 1:
            return "whole"
        return "wide" if any(picture.width > WIDE for picture in self.pictures) else ""


def embed(figure: Figure, alt: str, caption: str = "") -> Picture:
    """A figure as lines, sharp at any size, or as pixels where those take less room; the same figure, the same bytes.

    Examples
    --------
    >>> figure = Figure(figsize=(2, 1))
    >>> picture = embed(figure, "nothing")
    >>> picture.uri[:25], picture.width, picture.height
    ('data:image/svg+xml;base64', 192, 96)
    """
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    content, kind = io.BytesIO(), "svg+xml"
    with matplotlib.rc_context({"svg.hashsalt": "deepsimplex", "svg.fonttype": "path"}):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    if content.tell() > MOST_VECTOR_BYTES:
        pixels = io.BytesIO()
        figure.savefig(pixels, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
        if pixels.tell() < content.tell():
            content, kind = pixels, "png"
    text = base64.b64encode(content.getvalue()).decode("ascii")
    return Picture(f"data:image/{kind};base64,{text}", alt, width, height, caption)


def partition_pictures(comparison: PartitionComparison) -> tuple[Picture, ...]:
    """The scaled memberships in their simplex, where three or four classes have one that can be drawn."""
    if len(next(iter(comparison.partitions.values())).classes) not in (3, 4):
        return ()
    return tuple(
        embed(plots.simplex(partition), f"Scaled memberships of {name} in the simplex of the classes.", name)
        for name, partition in comparison.partitions.items()
    )


def sections(runs: Sequence[Run], level: float, announce: Callable[[str], object]) -> list[Section]:
    """Every section of pictures that these runs allow."""
    drawn = []
    for draw in (_reliability, _classwise, _space, _uncertain, _mistakes, _confusion, _risk_coverage, _learning):
        section = draw(runs, level)
        if section is not None:
            announce(f"picture: {section.title.lower()}")
            drawn.append(section)
    return drawn


def _each(
    title: str,
    text: str,
    runs: Sequence[Run],
    draw: Callable[[Run], tuple[Figure, str] | None],
    missing: str = "",
) -> Section | None:
    """A section with a picture of each run that ``draw`` gives one of; None where it gives none at all."""
    pictures, without = [], []
    for run in runs:
        try:
            drawn = draw(run)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{run.name}, {title.lower()}: {error}") from error
        if drawn is None:
            without.append(run.name)
        else:
            figure, alt = drawn
            pictures.append(embed(figure, f"{title} of {run.name}: {alt}", run.name))
    if not pictures:
        return None
    return Section(title, text, tuple(pictures), f"{missing}: {', '.join(without)}." if without else "")


def _reliability(runs: Sequence[Run], level: float) -> Section | None:
    def draw(run: Run) -> tuple[Figure, str]:
        found = run.predictions
        error = expected_calibration_error(found.y, found.p)
        figure = plots.reliability(found.y, found.p, **_behind(run), level=level)
        return figure, f"expected calibration error {error:.4f} over {len(found.y)} test samples."

    band = (
        " A gray band, where probabilities are read out by softmax, lies between the curves of classifiers that "
        f"predict the lower and the upper quantile of each probability, {100 * level:g}% between them."
        if _spread(runs)
        else ""
    )
    text = (
        "How often the assigned class is right, among samples predicted with like confidence: on the diagonal where "
        f"probabilities mean what they say.{band} Below, how many samples have each confidence."
    )
    return _each("Reliability", text, runs, draw)


def _classwise(runs: Sequence[Run], level: float) -> Section | None:
    def draw(run: Run) -> tuple[Figure, str]:
        found = run.predictions
        n = found.p.shape[1]
        errors = calibration_error_by_class(found.y, found.p)
        worst = np.sort(np.argsort(-errors, kind="stable")[:PANELS])
        figure = plots.classwise_reliability(found.y, found.p, class_names=found.class_names, classes=worst.tolist())
        which = f"each of {n} classes" if n <= PANELS else f"the {PANELS} of {n} classes with the largest error"
        return figure, f"a diagram for {which}."

    text = (
        "The same, for the probability of each class: how often samples that have it with this probability are of it. "
        f"Of more than {PANELS} classes those with the largest calibration error."
    )
    return _each("Reliability by class", text, runs, draw)


def _space(runs: Sequence[Run], level: float) -> Section | None:
    def draw(run: Run) -> tuple[Figure, str] | None:
        found = run.predictions
        n = found.p.shape[1]
        if n in (3, 4):
            figure = plots.simplex(found.p, found.y, class_names=found.class_names)
            return figure, f"the class probabilities of {len(found.y)} test samples, {n} classes at the corners."
        if found.latent is None:
            return None
        figure = plots.latent_space(found.latent, found.y, scores=found.scores, class_names=found.class_names)
        return figure, f"the latents of {len(found.y)} test samples by class."

    text = (
        "Where the test samples lie: three or four classes in the simplex of their probabilities, more in the plane of "
        "the first principal components of their latents."
    )
    return _each("Simplex and latent space", text, runs, draw, "No latents were kept of")


def _uncertain(runs: Sequence[Run], level: float) -> Section | None:
    def draw(run: Run) -> tuple[Figure, str] | None:
        rows = run.predictions.image_rows
        if rows is None:
            return None
        figure = _images(run, rows, "entropy", level)
        return figure, f"the {min(IMAGES, len(rows))} test images of the largest entropy, with their probabilities."

    spread = _spread([run for run in runs if run.predictions.image_rows is not None])
    whiskers = f" Whiskers hold {100 * level:g}% of what latent Gaussians allow, under softmax." if spread else ""
    text = f"The test images whose class probabilities have the largest entropy.{whiskers}"
    return _each("Least certain images", text, runs, draw, "No images were kept of")


def _mistakes(runs: Sequence[Run], level: float) -> Section | None:
    def draw(run: Run) -> tuple[Figure, str] | None:
        found, rows = run.predictions, run.predictions.image_rows
        if rows is None:
            return None
        wrong = rows[found.p[rows].argmax(axis=1) != found.y[rows]]
        if len(wrong) == 0:
            return None
        figure = _images(run, wrong, "likelihood", level)
        shown = min(IMAGES, len(wrong))
        return figure, f"the {shown} misclassified test images whose true class has the smallest probability."

    text = "The misclassified test images whose true class (above each) was given the smallest probability."
    return _each("Surest mistakes", text, runs, draw, "No images were kept, or none is misclassified, of")


def _images(run: Run, rows: NDArray[np.int64], by: Literal["entropy", "likelihood"], level: float) -> Figure:
    """Some of the images that were kept, ranked, with the intervals of a readout that has them."""
    found = run.predictions
    assert found.images is not None  # where there are rows
    assert found.image_rows is not None
    return plots.uncertain_images(
        found.images[np.isin(found.image_rows, rows)],
        found.p[rows],
        found.y[rows],
        **_behind(run, rows),
        level=level,
        k=IMAGES,
        by=by,
        class_names=found.class_names,
        columns=COLUMNS,
    )


def _behind(run: Run, rows: NDArray[np.int64] | slice = slice(None)) -> dict[str, Any]:
    """What figures take to draw intervals of a run's probabilities; nothing where no known readout made them."""
    found = run.predictions
    if found.latent is None or found.readout is None:
        return {}
    return {"latent": found.latent[rows], "scores": found.scores, "readout": found.readout}


def _spread(runs: Sequence[Run]) -> bool:
    """Whether some run's probabilities are random themselves, given its latents: those of the softmax readout are."""
    names = {run.predictions.readout for run in runs} - {None}
    return any(READOUTS.get(name).credible_intervals for name in names)


def _confusion(runs: Sequence[Run], level: float) -> Section | None:
    def draw(run: Run) -> tuple[Figure, str]:
        found = run.predictions
        wrong = int(np.sum(found.p.argmax(axis=1) != found.y))
        figure = plots.confusion_matrix(found.y, found.p, class_names=found.class_names)
        return figure, f"{wrong} of {len(found.y)} test samples lie beside the diagonal."

    return _each("Confusion matrix", "Test samples by true and assigned class.", runs, draw)


def _risk_coverage(runs: Sequence[Run], level: float) -> Section:
    curves = {run.name: risk_coverage_curve(run.predictions.y, run.predictions.p) for run in runs}
    areas = ", ".join(f"{name} {curve.area:.4f}" for name, curve in curves.items())
    picture = embed(plots.risk_coverage(curves), f"Risk-coverage curves; areas under them: {areas}.")
    text = "The error among the samples that each run is surest of, from few of them (left) to all (right)."
    return Section("Risk and coverage", text, (picture,))


def _learning(runs: Sequence[Run], level: float) -> Section | None:
    histories = {run.name: run.history for run in runs if run.history}
    if not histories:
        return None
    epochs = ", ".join(f"{run.name} {run.epochs} epochs" for run in runs if run.history)
    picture = embed(plots.learning_curves(histories), f"Losses and metrics over the epochs: {epochs}.")
    text = "Training samples solid, validation samples dashed. Losses of different kinds do not compare."
    without = [run.name for run in runs if not run.history]
    return Section("Learning curves", text, (picture,), f"No history of: {', '.join(without)}." if without else "")
