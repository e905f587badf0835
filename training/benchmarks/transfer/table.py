"""The table of the benchmark: means over the seeds with their standard errors, and ratios to the best of the peers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.benchmarks.deep.table import detections, mean, with_error
from training.benchmarks.transfer.measures import HUMAN, SCORES
from training.benchmarks.transfer.methods import LOGISTIC, OURS, SOFTMAX
from training.results import ResultTable

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows of every method, one for each seed."""
COLUMNS = ("accuracy", "NLL", "NLL, best temperature", "ECE", HUMAN)
SECONDS = ("seconds", "CPU seconds", "seconds of one fit", "CPU seconds of one fit")


def write(runs_by_number: Mapping[int, Runs], output: Path | None, **facts: Any) -> None:
    """Print the rows of every number of training rows and method, and the ratios, and write them as JSON."""
    table = ResultTable("training.benchmarks.transfer")
    names = [name for runs in runs_by_number.values() for rows in runs.values() for name in rows[0]]
    sets = [name.split(", ")[1] for name in dict.fromkeys(names) if name.endswith(f"by {SCORES[0]}")]
    columns = [column for column in COLUMNS if column in names]
    for number, runs in runs_by_number.items():
        for method, rows in runs.items():
            table.add(
                rows=number,
                method=method,
                seeds=len(rows),
                **{name: with_error([row[name] for row in rows], ".4f") for name in columns},
                **{f"AUROC, {name}: {', '.join(SCORES)}": _detection(rows, name) for name in sets},
                rejected=f"{mean(rows, 'rejected, known'):.3f}" if "rejected, known" in rows[0] else "",
                **{name: with_error([row[name] for row in rows], ".2f") for name in SECONDS},
            )
    notes = [note for number, runs in runs_by_number.items() for note in _comparisons(number, runs)]
    print("\n".join(["", *notes]))
    table.write(output, notes=notes, runs={str(number): runs for number, runs in runs_by_number.items()}, **facts)


def _detection(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """AUROC of a set of unknown samples by every score."""
    scores = [f"AUROC, {name}, by {score}" for score in SCORES]
    return ", ".join(f"{mean(rows, score):.3f}" for score in scores if score in rows[0])


def _comparisons(number: int, runs: Runs) -> Iterator[str]:
    """Yield ratios and differences to the best softmax or logistic row of each measure, paired by seed."""
    softmax = {name: rows for name, rows in runs.items() if name.startswith(SOFTMAX)}
    peers = {name: rows for name, rows in runs.items() if name.startswith(LOGISTIC)} | softmax
    if OURS not in runs or not peers:
        return
    ours = runs[OURS]

    def best(among: Runs, measure: str, choose: Callable[..., str] = min) -> str:
        return choose(among, key=lambda name: mean(among[name], measure))

    def pairs(mine: str, peer: str, measure: str) -> list[tuple[float, float]]:
        return [(row[mine], other[measure]) for row, other in zip(ours, runs[peer], strict=True)]

    def ratio(mine: str, peer: str, measure: str) -> str:
        return with_error([a / b for a, b in pairs(mine, peer, measure)], ".3f")

    def points(mine: str, peer: str, measure: str) -> str:
        return with_error([100 * (a - b) for a, b in pairs(mine, peer, measure)], "+.2f")

    start = f"{number} rows, {OURS} beside the best softmax or logistic row"
    peer = best(peers, "NLL")
    yield f"{start}: NLL {ratio('NLL', peer, 'NLL')} and ECE {ratio('ECE', peer, 'ECE')} of {peer!r}."
    tuned = "NLL, best temperature"
    peer = best(peers, tuned)
    yield f"{start}: NLL {ratio('NLL', peer, tuned)} of {peer!r} with the temperature of the test labels."
    peer = best(peers, "accuracy", max)
    yield f"{start}: accuracy {points('accuracy', peer, 'accuracy')} points from {peer!r}."
    if HUMAN in ours[0]:
        peer = best(peers, HUMAN)
        yield f"{start}: {HUMAN} {ratio(HUMAN, peer, HUMAN)} of {peer!r}."
    for measure in detections(ours[0], f"by {SCORES[2]}") if softmax else ():
        name = measure.removesuffix(f", by {SCORES[2]}")
        peers_best = [(by, best(softmax, f"{name}, by {by}", max)) for by in SCORES[:2]]
        gains = [f"{points(measure, peer, f'{name}, by {by}')} points from {peer!r} by {by}" for by, peer in peers_best]
        yield f"{number} rows, {name} by {SCORES[2]}: {', '.join(gains)}."
    if SOFTMAX in runs:
        yield (
            f"{number} rows, seconds of {OURS} over one fit of {SOFTMAX!r}: "
            f"{ratio('seconds of one fit', SOFTMAX, 'seconds of one fit')}, CPU "
            f"{ratio('CPU seconds of one fit', SOFTMAX, 'CPU seconds of one fit')}."
        )
