"""Model cards of finished runs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepsimplex.evaluation import Report
from deepsimplex.experiments.finished_runs import Run, flat_configuration
from deepsimplex.export import model_card
from deepsimplex.export.model_card import PIXELS, classification_task, write_card

_UNSET = ("null", "[]", "{}")


def write_run_cards(page: Path, runs: Sequence[Run], reports: Mapping[str, Report]) -> list[Path]:
    """Write a model card of each run beside a page, from its configuration and its scores: no model is loaded.

    Examples
    --------
    >>> from deepsimplex.evaluation import report
    >>> from deepsimplex.experiments import Predictions
    >>> coin = Run("coin", Predictions.of([0, 1], [[0.6, 0.4], [0.5, 0.5]]))
    >>> [card] = write_run_cards(folder / "page.html", [coin], {"coin": report([0, 1], coin.predictions.p)})
    >>> card.name
    'page_coin.md'
    """
    paths: list[Path] = []
    for run in runs:
        name = re.sub(r"[^\w.-]+", "_", run.name)
        target = page.with_name(f"{page.stem}_{name}")
        while target.with_name(f"{target.name}.md") in paths:  # names may differ in other characters alone
            target = target.with_name(f"{target.name}_")
        paths.append(write_card(_run_card(run, reports[run.name]), target))
    return paths


def _run_card(run: Run, report: Report) -> str:
    predictions = run.predictions
    settings = {key: value for key, value in flat_configuration(run).items() if value not in _UNSET}
    data = {key.removeprefix("data."): value for key, value in settings.items() if key.startswith("data.")}
    source = [f"- {key}: {value}" for key, value in data.items() if key != "name"]
    facts = {key: value for key, value in settings.items() if key.partition(".")[0] in ("model", "calibration", "seed")}
    images = predictions.images
    # Runs keep images of their test samples; other samples are rows of a table.
    shape = images.shape[1:] if images is not None else (0,) if data else None
    if images is not None and data:
        facts["pixels"] = PIXELS[1.0 if data.get("options.dtype") == "uint8" else 255.0]
    return model_card(
        facts,
        predictions.class_names,
        report=report,
        name=run.name,
        data="\n".join([Path(data["name"]).name, "", *source, f"- test samples: {report.samples}"]) if data else None,
        task=classification_task(shape),
        versions=run.versions or None,
    )
