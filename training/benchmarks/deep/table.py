"""The table of the benchmark: means over the seeds, with their standard errors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from training.results import ResultTable

Rows = Mapping[str, Sequence[Mapping[str, float]]]
COLUMNS = ("accuracy", "NLL", "Brier", "ECE", "corrupted accuracy", "corrupted NLL", "size of sets")
OURS, PLAIN, PEER = "deepsimplex, density", "cross-entropy", "temperature"


def mean(rows: Sequence[Mapping[str, float]], *names: str) -> float:
    """Mean of measures over the seeds and the names."""
    return float(np.mean([[row[name] for name in names] for row in rows]))


def _shown(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> str:
    if not names or any(name not in rows[0] for name in names):
        return ""
    values = np.mean([[row[name] for name in names] for row in rows], axis=1)
    error = "" if len(rows) < 2 else f" ± {values.std(ddof=1) / len(rows) ** 0.5:.4f}"
    return f"{values.mean():.4f}{error}"


def detections(row: Mapping[str, float], by: str) -> list[str]:
    """Names of the detection scores by this score, one for every other kind of images."""
    return [name for name in row if name.startswith("AUROC") and name.endswith(by)]


def write(found: Rows, output: Path | None) -> None:
    """Print the rows of every method and the ratios to the peers, and write the rows as JSON."""
    table = ResultTable("training.benchmarks.deep")
    for name, rows in found.items():
        row = {column: _shown(rows, [column]) for column in COLUMNS}
        for by in ("probability", "density"):
            row[f"AUROC by {by}"] = _shown(rows, detections(rows[0], by))
        table.add(method=name, seeds=len(rows), **row, **{"s/epoch": _shown(rows, ["seconds of an epoch"])})
    table.write(output)
    if {OURS, PLAIN, PEER} <= found.keys():
        _compare(found)


def _compare(found: Rows) -> None:
    ours, plain, peer = found[OURS], found[PLAIN], found[PEER]
    print(f"\naccuracy over {PLAIN}: {100 * (mean(ours, 'accuracy') - mean(plain, 'accuracy')):+.2f} points")
    for name in ("NLL", "ECE", "corrupted NLL"):
        if name in ours[0]:
            print(f"{name} over that of {PEER}: {mean(ours, name) / mean(peer, name):.3f}")
    if "ensemble" in found:
        print(f"NLL over that of the ensemble: {mean(ours, 'NLL') / mean(found['ensemble'], 'NLL'):.3f}")
    density, chance = (detections(ours[0], by) for by in ("density", "probability"))
    gain = 100 * (mean(ours, *density) - mean(plain, *chance))
    print(
        f"AUROC by density over {PLAIN}'s by probability: {gain:+.1f} points; {PLAIN}'s by density "
        f"{mean(plain, *density):.3f}, ours {mean(ours, *density):.3f}"
    )
    seconds = mean(ours, "seconds of an epoch") / mean(plain, "seconds of an epoch")
    print(f"seconds of an epoch over {PLAIN}: {seconds:.2f}")
