"""Drift of digits: false alarms without a shift, and how soon a shift is detected, beside a repeated test.

    python -m training.benchmarks.drift [--streams 1000] [--repeats 200] [--output FILE]

A Gaussian process learns 300 digits; of the others 500 are the reference and up to 997 the stream, drawn anew for each
repetition. After 300 samples something changes: one class is more frequent, or the images are darker.
The repeated test compares the reference with the last 100 samples, every 100 samples, by Kolmogorov and Smirnov's test
at the same level, divided by the number of statistics only.
"""

from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import track
from scipy.stats import ks_2samp
from sklearn.datasets import load_digits

import deepsimplex as ds
from training.results import Output, ResultTable

LEARNED, REFERENCE, BEFORE, LEVEL, WINDOW = 300, 500, 300, 0.05, 100
BRIGHTNESS = (0.9, 0.8, 0.6)
SHARES = (0.2, 0.3, 0.5)
"""Frequencies of the class 3 after a shift; a tenth before it."""

Predictions = tuple[NDArray[Any], NDArray[Any]]


def predictions() -> tuple[dict[float, Predictions], NDArray[np.int64]]:
    """Probabilities and familiarities of held-out digits at every brightness, and their labels."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    classifier = ds.SimplexGaussianProcess().fit(X[:LEARNED], y[:LEARNED])
    classifier.fit_density(X[:LEARNED], y[:LEARNED])
    X, y = X[LEARNED:], y[LEARNED:]
    return {b: (classifier.predict_proba(b * X), classifier.familiarity(b * X)) for b in (1.0, *BRIGHTNESS)}, y


def alarms(reference: Predictions, stream: Predictions, seed: int) -> tuple[int | None, int | None]:
    """Samples after which the monitor and the repeated test raise their first alarms."""
    monitor = ds.evaluation.DriftMonitor(reference[0], None, reference[1], level=LEVEL, seed=seed)
    first = monitor.update(stream[0], None, stream[1]).alarm
    names = [np.column_stack([p.max(axis=1), familiarity, p]) for p, familiarity in (reference, stream)]
    known, new = names
    for end in range(WINDOW, len(new) + 1, WINDOW):
        if (ks_2samp(known, new[end - WINDOW : end]).pvalue < LEVEL / known.shape[1]).any():
            return first, end
    return first, None


def shifted_order(y: NDArray[np.int64], share: float | None, rng: np.random.Generator) -> NDArray[np.int64]:
    """Reference and stream, without replacement; after ``BEFORE`` samples the class 3 has a frequency ``share``."""
    order = rng.permutation(len(y))
    if share is None:
        return order
    rest = order[REFERENCE + BEFORE :]
    of_class, others = rest[y[rest] == 3], rest[y[rest] != 3]
    count = min(int(len(of_class) / share), int(len(others) / (1 - share)))
    hits = rng.permutation(np.arange(count) < round(share * count))
    later = np.where(hits, of_class[np.cumsum(hits) - 1], others[np.cumsum(~hits) - 1])
    return np.concatenate([order[: REFERENCE + BEFORE], later])


def measure(
    name: str, count: int, outputs: dict[float, Predictions], y: NDArray[np.int64], **shift: float
) -> list[Any]:
    """Pairs of first alarms of ``count`` streams."""
    brightness, share = shift.get("brightness", 1.0), shift.get("share")
    pairs = []
    for seed in track(range(count), name):
        order = shifted_order(y, share, np.random.default_rng(seed))
        reference, before, after = np.split(order, [REFERENCE, REFERENCE + BEFORE])
        as_is, later = outputs[1.0], outputs[brightness]
        stream = [np.concatenate([a[before], b[after]]) for a, b in zip(as_is, later, strict=True)]
        known = (as_is[0][reference], as_is[1][reference])
        pairs.append(alarms(known, (stream[0], stream[1]), seed))
    return pairs


def delays(first: list[int | None]) -> dict[str, Any]:
    """Share of streams whose first alarm comes after the shift, and quantiles of its delay, infinite without alarm."""
    after = np.array(
        [np.inf if alarm is None else alarm - BEFORE for alarm in first if alarm is None or alarm > BEFORE]
    )
    median, late = np.quantile(after, [0.5, 0.9], method="higher")
    shown = [None if np.isinf(value) else int(value) for value in (median, late)]
    return {"detected": float(np.isfinite(after).mean()), "median delay": shown[0], "90% of delays": shown[1]}


def main(
    streams: Annotated[int, typer.Option(min=1, help="streams without a shift")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="streams of each shift")] = 200,
    output: Output = None,
) -> None:
    """Measure and print."""
    outputs, y = predictions()
    shifts: dict[str, dict[str, float]] = {f"brightness {b:.0%}": {"brightness": b} for b in BRIGHTNESS}
    shifts |= {f"class 3 at {share:.0%}": {"share": share} for share in SHARES}
    table = ResultTable("training.benchmarks.drift")
    nothing = {"detected": None, "median delay": None, "90% of delays": None}
    for shift, options in {"none": {}, **shifts}.items():
        pairs = measure(shift, repeats if options else streams, outputs, y, **options)
        for method, first in zip(("DriftMonitor", "repeated test"), zip(*pairs, strict=True), strict=True):
            alarm_times = list(first)
            early = [alarm for alarm in alarm_times if alarm is not None and (not options or alarm <= BEFORE)]
            table.add(
                shift=shift,
                method=method,
                streams=len(alarm_times),
                **{"false alarms": len(early) / len(alarm_times)},
                **(delays(alarm_times) if options else nothing),
            )
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
