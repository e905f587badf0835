"""The table of the benchmark: means over the seeds, with their standard errors."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.results import ResultTable

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
COLUMNS = (
    "accuracy",
    "NLL",
    "Brier",
    "ECE",
    "cross-entropy to people",
    "area under risk-coverage",
    "coverage of sets",
    "size of sets",
)
CORRUPTED = ("corrupted accuracy", "corrupted NLL", "corrupted Brier", "corrupted ECE")
DEFAULT, PLAIN, PEER = "deepsimplex", "cross-entropy", "temperature"
WITH_DENSITY = ("deepsimplex, density", "deepsimplex, distances, density")
ENSEMBLE = "ensemble"


def mean(rows: Sequence[Mapping[str, float]], *names: str) -> float:
    """Mean of measures over the seeds and the names."""
    return float(np.mean([[row[name] for name in names] for row in rows]))


def standard_error(values: Sequence[float]) -> float:
    """Standard error of a mean over seeds; zero for one seed, which has none."""
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _shown(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> str:
    if not names or any(name not in rows[0] for name in names):
        return ""
    values = np.mean([[row[name] for name in names] for row in rows], axis=1)
    return with_error(values, ".4f")


def detections(row: Mapping[str, Any], by: str, score: str = "AUROC") -> list[str]:
    """Names of the detection scores by this score, one for every other kind of images."""
    return [name for name in row if name.startswith(score) and name.endswith(by)]


def write(rows_by_method: Rows, output: Path | None) -> None:
    """Print the rows of every method and the ratios to the peers, and write the rows as JSON."""
    table = ResultTable("training.benchmarks.deep")
    for name, rows in rows_by_method.items():
        row = {column: _shown(rows, [column]) for column in (*COLUMNS, *CORRUPTED)}
        for by in ("probability", "density"):
            for score in ("AUROC", "flagged at 95%"):
                row[f"{score} by {by}"] = _shown(rows, detections(rows[0], by, score))
        weights = f"{rows[0]['weights']:.0f}" if "weights" in rows[0] else ""
        table.add(method=name, seeds=len(rows), **row, weights=weights)
    notes: list[str] = []
    for name in WITH_DENSITY:
        notes += _comparisons(name, rows_by_method) if {name, PLAIN} <= rows_by_method.keys() else []
    notes += _beside_best_temperature(rows_by_method) if {DEFAULT, PEER} <= rows_by_method.keys() else []
    print("\n".join(["", *notes]))
    table.write(output, notes=notes)


def _comparisons(name: str, rows_by_method: Rows) -> Iterator[str]:
    """Yield means and standard errors of differences and ratios, paired by seed; all seeds share one ensemble."""
    ours, plain = rows_by_method[name], rows_by_method[PLAIN]
    gains = [100 * (row["accuracy"] - peer["accuracy"]) for row, peer in zip(ours, plain, strict=True)]
    yield f"Accuracy of {name!r} minus that of {PLAIN!r}: {with_error(gains, '+.2f')} points."
    for peer, measure in ((PEER, "NLL"), (PEER, "ECE"), (PEER, "corrupted NLL"), (ENSEMBLE, "NLL")):
        if peer in rows_by_method and measure in ours[0]:
            rows = list(rows_by_method[peer]) * (len(ours) if peer == ENSEMBLE else 1)
            ratios = [row[measure] / other[measure] for row, other in zip(ours, rows, strict=True)]
            yield f"{measure} of {name!r} over that of {peer!r}: {with_error(ratios, '.3f')}."
    for score, peer_score in (("density", "probability"), ("density", "density"), ("probability", "probability")):
        if not detections(plain[0], peer_score):
            continue  # not measured
        means = (
            [mean([row], *detections(row, by)) for row in rows] for rows, by in ((ours, score), (plain, peer_score))
        )
        gains = [100 * (mine - theirs) for mine, theirs in zip(*means, strict=True)]
        yield f"AUROC by {score} minus that of {PLAIN!r} by {peer_score}: {with_error(gains, '+.1f')} points."


def _beside_best_temperature(rows_by_method: Rows) -> Iterator[str]:
    """Yield differences and ratios of the default to the single network with a temperature whose NLL is lowest.

    Networks that are not trained from all its seeds yet are left out.
    """
    ours = rows_by_method[DEFAULT]
    peers = {name: rows for name, rows in rows_by_method.items() if name.startswith(PEER) and len(rows) == len(ours)}
    if not peers:
        return
    best = min(peers, key=lambda name: mean(peers[name], "NLL"))
    gains = [100 * (row["accuracy"] - peer["accuracy"]) for row, peer in zip(ours, peers[best], strict=True)]
    yield f"Accuracy of {DEFAULT!r} minus that of {best!r}: {with_error(gains, '+.2f')} points."
    for measure in ("NLL", "ECE", "cross-entropy to people", "corrupted NLL"):
        if measure in ours[0]:
            ratios = [row[measure] / peer[measure] for row, peer in zip(ours, peers[best], strict=True)]
            yield f"{measure} of {DEFAULT!r} over that of {best!r}: {with_error(ratios, '.3f')}."


def with_error(values: Sequence[float], form: str) -> str:
    """Format a mean over seeds with its standard error, unless there is one seed."""
    error = f" ± {standard_error(values):{form.lstrip('+')}}" if len(values) > 1 else ""
    return f"{np.mean(values):{form}}{error}"
