"""Model card: what a classifier is, how far its probabilities hold and what is not known, with metadata for hubs."""

import os
import platform
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from deepsimplex._utils.atomic_files import replacing
from deepsimplex._utils.parameters import constructor_parameters
from deepsimplex.evaluation import Report

PACKAGES = ("deepsimplex", "tensorflow", "keras", "numpy", "scikit-learn")
# By the name of a fitted component: its heading, and what holds without it.
_COMPONENTS = {
    "calibration": ("calibration", "No calibration was fitted after training to held-out samples."),
    "prediction_sets": ("prediction sets", "No prediction sets: a set of classes with a guaranteed coverage."),
    "density": ("familiarity", "No density of the training samples: unfamiliar ones are predicted as others are."),
    "unknown": ("unknown samples", ""),
}
# The unit of the pixels that a model takes, by what divides pixels 0 to 255.
PIXELS = {
    255.0: "from 0 to 1: pixels 0 to 255 are divided by 255",
    1.0: "from 0 to 255: not divided",
    -1.0: "other numbers than 0 to 1 or 0 to 255: scaled as in training",
}
# Numbers of an array that is shown.
_LARGEST = 25
# Scores that stand in the metadata, by the names that hubs give them.
_METRICS = {
    "accuracy": "accuracy",
    "weighted_f1": "f1",
    "negative_log_likelihood": "negative_log_likelihood",
    "brier_score": "brier_score",
    "expected_calibration_error": "expected_calibration_error",
    "set_coverage": "set_coverage",
}


def model_card(
    facts: Mapping[str, Any],
    class_names: Sequence[str],
    *,
    components: Mapping[str, Any] | None = None,
    report: Report | None = None,
    name: str = "classifier",
    description: str | None = None,
    data: str | None = None,
    license: str | None = None,
    task: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> str:
    """Return a model card as Markdown, whose front matter is the YAML metadata that model hubs read.

    Parameters
    ----------
    facts : dict of str to object
        Rows of the table of the model, such as "backbone", "parameters" and, of images, "pixels".
    class_names : sequence of str, length n
    components : dict of str to object or None, optional
        What may be fitted after training, None where it is not: "calibration", "prediction_sets", "density", ...
        Default None: it is not known, as for saved predictions.
    report : Report, optional
        Scores on test samples, with intervals or without. Default None: the card says that there are none.
    name : str
        Title of the card. Default "classifier".
    description : str, optional
        What the model is for, and what not, as Markdown.
    data : str, optional
        What it was trained and tested on, as Markdown: source, number of samples, how they were split. The first
        paragraph names the data in the metadata. Default None: the card says that it is not stated.
    license : str, optional
        Identifier such as "apache-2.0". Default None: not stated.
    task : str, optional
        "image-classification", "tabular-classification" or another task of the hub.
    versions : dict of str to str, optional
        Default None: those of this machine.

    Returns
    -------
    str

    Examples
    --------
    >>> card = model_card({"class": "SimplexClassifier"}, ["cat", "dog"], name="pets", license="mit")
    >>> print(card[:43])
    ---
    library_name: deepsimplex
    license: mit
    >>> "Training data: not stated." in card
    True
    """
    if not isinstance(report, Report | None):
        raise TypeError(f"report must be a Report, as evaluation.report returns it, or None; found {report!r}")
    rows = {key: _arguments(value) for key, value in facts.items()}
    rows["classes"] = f"{len(class_names)}: {_few(class_names)}"
    fitted = {key: value for key, value in (components or {}).items() if value is not None}
    parts = [f"# {_text(name)}"]
    if description is not None:
        parts.append(description)
    parts.append("## Model\n\n" + _table(["", ""], rows.items()))
    if data is not None:
        parts.append(f"## Data\n\n{data}")
    if fitted:
        titles = {key: title for key, (title, _) in _COMPONENTS.items()}
        about = ((titles.get(key, key.replace("_", " ")), _arguments(value)) for key, value in fitted.items())
        parts.append("## After training\n\n" + _table(["", "fitted"], about))
    if report is not None:
        parts.append(f"## Scores on {report.samples} test samples\n\n{_scores(report)}")
    unknown = [*_not_known(components, report, data, license)]
    if task == "image-classification" and "pixels" not in facts:
        unknown.append("Pixels: whether they go from 0 to 1 or from 0 to 255 is not stated.")
    parts.append("## What is not known\n\n" + "\n".join(f"- {line}" for line in unknown))
    installed = versions or {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}
    parts.append("## Versions\n\n" + ", ".join(f"{package} {number}" for package, number in installed.items()) + ".")
    metadata = _metadata(report, name, data, license, task)
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n"


def write_card(card: str, artifact: str | os.PathLike[str]) -> Path:
    """Write a card as README.md into the folder of an artifact, or beside a file as its name and ".md".

    Examples
    --------
    >>> write_card("# digits", folder / "digits.onnx").name
    'digits.onnx.md'
    """
    path = Path(artifact).expanduser()
    target = path / "README.md" if path.is_dir() else path.with_name(f"{path.name}.md")
    with replacing(target) as fresh:
        fresh.write_text(card, encoding="utf-8")
    return target


def classification_task(shape: Any) -> str | None:
    """Return the hub's name of the task for samples of a shape; None if they are neither images nor rows of a table.

    Examples
    --------
    >>> classification_task((28, 28)), classification_task((4,)), classification_task({"a": (4,), "b": (4,)})
    ('image-classification', 'tabular-classification', None)
    """
    axes = len(shape) if isinstance(shape, tuple) else 0
    return {1: "tabular-classification", 2: "image-classification", 3: "image-classification"}.get(axes)


def _metadata(
    report: Report | None, name: str, data: str | None, license: str | None, task: str | None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "library_name": "deepsimplex",
        "pipeline_tag": task,
        "license": license,
        "tags": ["deepsimplex", "calibration", "uncertainty", "classification"],
    }
    if report is not None:
        scores = report.as_dict()
        metrics = [
            {"type": kind, "value": round(float(scores[score]), 6), "name": report.label(score)}
            for score, kind in _METRICS.items()
            if score in scores and np.isfinite(scores[score])
        ]
        first = (data or "test samples").strip().partition("\n\n")[0]
        tested = textwrap.shorten(first.lstrip("#-* "), 80, placeholder="...")
        result = {
            "task": {"type": task or "other"},
            "dataset": {"type": "test", "name": tested},
            "metrics": metrics,
        }
        metadata["model-index"] = [{"name": name, "results": [result]}]
    return {key: value for key, value in metadata.items() if value is not None}


def _scores(report: Report) -> str:
    scores = {key: value for key, value in report.as_dict().items() if isinstance(value, float) and key != "level"}
    del scores["coverage"]  # in the label of another
    if report.intervals is None or report.level is None:
        return _table(["score", ""], ((report.label(key), f"{value:z.4f}") for key, value in scores.items()))
    intervals = report.intervals

    def row(key: str) -> tuple[str, ...]:
        bounds = f"{intervals[key][0]:z.4f} to {intervals[key][1]:z.4f}" if key in intervals else ""
        return report.label(key), f"{scores[key]:z.4f}", bounds

    return _table(["score", "", f"{100 * report.level:g}% interval"], map(row, scores))


def _not_known(
    components: Mapping[str, Any] | None, report: Report | None, data: str | None, license: str | None
) -> Iterator[str]:
    """Yield a sentence for each thing that the card cannot say."""
    if data is None:
        yield "Training data: not stated."
    if license is None:
        yield "License: not stated."
    for key, (_, without) in _COMPONENTS.items():
        if components is not None and key in components and components[key] is None and without:
            yield without
    if report is None:
        yield "Scores: none were given."
    else:
        yield "Scores hold for samples of the same source as the test samples; others may differ."
        if report.intervals is None:
            yield "How far the scores would differ on other test samples: no intervals were computed."
    if components is not None and components.get("unknown") is None and components.get("density") is None:
        yield "Samples of no known class get one of the known classes."


def _arguments(component: Any) -> str:
    """Return the class of a component with its arguments that are plain values or small arrays."""
    if not hasattr(component, "__dict__") or isinstance(component, str):
        return str(component)
    values = {key: getattr(component, key, None) for key in constructor_parameters(type(component))}
    values |= {
        key: np.round(value, 4).tolist()
        for key, value in values.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size <= _LARGEST
    }
    plain = [f"{key}={value!r}" for key, value in values.items() if isinstance(value, bool | int | float | str | list)]
    return f"{type(component).__name__}({', '.join(plain)})"


def _few(names: Sequence[str], most: int = 20) -> str:
    shown = [str(name) for name in names]
    return ", ".join(shown if len(shown) <= most else [*shown[: most - 1], "...", shown[-1]])


def _text(value: Any) -> str:
    """Return a value on one line, without what Markdown and HTML read as markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(str(value).split()))


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *([_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
