"""Guarantees kept, and other class frequencies found: simulated, on digits, wine and Fashion-MNIST.

    python -m training.benchmarks.guarantees [--part sensitivity] [--repetitions 500] [--output guarantees.json]
    python -m training.benchmarks.guarantees --part frequencies [--shifts 10] [--output class_frequencies.json]
    python -m training.benchmarks.guarantees --part left_out [--repetitions 500] [--output left_out_sets.json]

sensitivity: "at least .95 with confidence .9", 500 draws of held-out samples each: the share of draws whose rule keeps
.95 on the population, and the confidence that an exact binomial test of as many positive samples has. The population is
known: simulated, or a pool of images that held-out samples are drawn from with replacement.

frequencies: ten shifts of the class frequencies for each data set, drawn uniformly among all frequencies. Held-out and
shifted samples are drawn with replacement from those that were not trained on; of wine with another training for every
shift. Mean NLL on the samples of the shift, without correction, with frequencies estimated from their probabilities,
and with the known ones that they were drawn with; "ratio" of the last two, and the worst of one shift. Beside it the
share of intervals that cover, and the shares of shifts, and of as many samples without a shift, that the test at 5%
finds.

left_out: sets of classes with a coverage of .9 from the training rows, left out, and from half of them, held out:
coverage, its standard deviation over random trainings, and size, and the accuracy of the classifier.
"""

from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import keras
import numpy as np
import typer
from rich.progress import track
from scipy.special import expit, ndtr
from scipy.stats import binom
from sklearn.datasets import load_digits, load_iris, load_wine

import deepsimplex as ds
from training.results import Output, ResultTable

LEAST, CONFIDENCE = 0.95, 0.9


class Part(StrEnum):
    """Parts of the measurements."""

    SENSITIVITY = "sensitivity"
    FREQUENCIES = "frequencies"
    LEFT_OUT = "left_out"


# Rows to train with; rows drawn from the others to calibrate with, and for every shift.
SPLITS = {"digits": (800, 400, 1_000), "wine": (60, 200, 1_000), "fashion_mnist": (10_000, 2_000, 5_000)}
CALIBRATIONS = ("temperature", "bias_corrected_temperature", "vector")


def network(x: np.ndarray, y: np.ndarray, classes: int, epochs: int) -> ds.SimplexClassifier:
    """Train a network of one hidden layer."""
    keras.utils.set_random_seed(0)
    model = ds.SimplexClassifier(ds.backbones.mlp([128]), num_classes=classes)
    model.compile(keras.optimizers.Adam(0.003))
    model.fit(x, y, epochs=epochs, batch_size=64, verbose=0)
    return model


def images(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Load all images of a data set, those of its test part last."""
    (x, y), (x_test, y_test) = ds.datasets.load(name)
    return np.concatenate([x, x_test]), np.concatenate([y, y_test])


def pools() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield probabilities of the positive class and labels of pools of images: even digits, clothes for the body."""
    for name, positive, epochs in (("digits", [0, 2, 4, 6, 8], 20), ("fashion_mnist", [0, 2, 3, 4, 6], 5)):
        (x, y), train = images(name), SPLITS[name][0]
        y = np.isin(y, positive).astype(int)
        model = network(x[:train], y[:train], 2, epochs)
        yield name, model.predict_proba(x[train:])[:, 1].astype(float), y[train:]


def kept(p: np.ndarray, y: np.ndarray, m: int, repetitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sensitivities of rules on a pool, and numbers of positives among m held-out samples."""
    rng, positives, result = np.random.default_rng(m), np.sort(p[y == 1]), []
    for _ in track(range(repetitions), "held-out samples", transient=True):
        rows = rng.integers(len(p), size=m)
        rule = ds.calibration.RiskControl(1 - LEAST, "false_negative_rate", delta=1 - CONFIDENCE)
        rule.fit(np.column_stack([1 - p[rows], p[rows]]), y[rows])
        missed = np.searchsorted(positives, rule.threshold_) / len(positives)
        result.append((1 - missed, y[rows].sum()))
    sensitivity, counts = np.transpose(result)
    return sensitivity, counts


def simulated(m: int, repetitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the same for log-odds N(1, 1) of positives, half of the samples, and N(-1, 1) of others."""
    rng, result = np.random.default_rng(m), []
    for _ in range(repetitions):
        y = (rng.random(m) < 0.5).astype(int)
        p = expit(rng.normal(2.0 * y - 1.0))
        rule = ds.calibration.RiskControl(1 - LEAST, "false_negative_rate", delta=1 - CONFIDENCE)
        threshold = rule.fit(np.column_stack([1 - p, p]), y).threshold_
        result.append((1 - ndtr(np.log(threshold / (1 - threshold)) - 1.0), y.sum()))
    sensitivity, counts = np.transpose(result)
    return sensitivity, counts


def exact_confidence(m: int) -> float:
    """Return the confidence of the largest k with P(Bin(m, .05) < k) <= .1, of the k-th smallest of m probabilities."""
    tails = binom.cdf(np.arange(m), m, 1 - LEAST)
    return float(1 - tails[tails <= 1 - CONFIDENCE + 1e-12].max())


def sensitivities(table: ResultTable, repetitions: int) -> None:
    """Add a row for every population and number of held-out samples."""
    sizes = {"simulated": (200, 1000, 4000), "digits": (200, 800), "fashion_mnist": (200, 1000, 4000)}
    draws: dict[str, Any] = {"simulated": simulated}
    for name, p, y in pools():
        draws[name] = lambda m, repetitions, p=p, y=y: kept(p, y, m, repetitions)
    for name, draw in draws.items():
        for m in sizes[name]:
            sensitivity, counts = draw(m, repetitions)
            table.add(
                data=name,
                held_out=m,
                repetitions=repetitions,
                kept=float(np.mean(sensitivity >= LEAST - 1e-12)),
                exact=float(np.mean([exact_confidence(int(count)) for count in counts])),
                sensitivity=float(np.mean(sensitivity)),
            )


def probabilities(name: str, shifts: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for every shift, class probabilities and labels of samples that were not trained on."""
    rng, (train, *_) = np.random.default_rng(0), SPLITS[name]
    if name == "wine":
        X, y = load_wine(return_X_y=True)
        for _ in range(shifts):
            rows, others = np.split(rng.permutation(len(y)), [train])
            yield ds.SimplexGaussianProcess().fit(X[rows], y[rows]).predict_proba(X[others]), y[others]
        return
    (x, y), epochs = images(name), 20 if name == "digits" else 5
    p, y = network(x[:train], y[:train], 10, epochs).predict_proba(x[train:]), y[train:]
    yield from [(p, y)] * shifts


def drawn(rng: np.random.Generator, y: np.ndarray, w: np.ndarray, size: int) -> np.ndarray:
    """Return rows of labels y, drawn with replacement by class frequencies w."""
    return np.array([rng.choice(np.flatnonzero(y == k)) for k in rng.choice(len(w), size, p=w)])


def frequencies(table: ResultTable, shifts: int) -> None:
    """Add a row for every data set and calibration."""
    nll = ds.evaluation.negative_log_likelihood
    for name, (_, held, size) in SPLITS.items():
        rng, rows = np.random.default_rng(1), defaultdict[str, list[Any]](list)
        for p, y in track(probabilities(name, shifts), name, shifts, transient=True):
            n = p.shape[1]
            w, as_before = rng.dirichlet(np.ones(n)), np.bincount(y) / len(y)
            held_out, chosen = drawn(rng, y, as_before, held), drawn(rng, y, w, size)
            calm = drawn(rng, y, as_before, size)
            for method in CALIBRATIONS:
                after = ds.AfterTraining(classes=range(n)).calibrate(p[held_out], y[held_out], method)
                shift, calm_shift = (after.estimate_priors(p[part]) for part in (chosen, calm))
                losses = [
                    nll(y[chosen], after.set_priors(priors).predict_proba(p[chosen])) for priors in (None, shift, w)
                ]
                covered = np.mean((shift.lower_ <= w) & (w <= shift.upper_))
                alarms = [one.p_value_ is not None and one.p_value_ <= 0.05 for one in (shift, calm_shift)]
                rows[method].append((*losses, losses[1] / losses[2], covered, *alarms))
        for method, values in rows.items():
            before, estimated, known, _, covered, detected, false = np.mean(values, axis=0, dtype=float).tolist()
            table.add(
                data=name,
                calibration=method,
                before=before,
                estimated=estimated,
                known=known,
                ratio=estimated / known,
                worst=float(np.max(values, axis=0)[3]),
                covered=covered,
                detected=detected,
                false_alarms=false,
            )


def left_out(table: ResultTable, repetitions: int) -> None:
    """Add a row for every table and way to fit sets of classes with a coverage of .9."""
    for name, load, rows in (("iris", load_iris, 60), ("wine", load_wine, 60), ("digits", load_digits, 200)):
        (X, y), found = load(return_X_y=True), defaultdict[str, list[Any]](list)
        for seed in track(range(repetitions), name, transient=True):
            order = np.random.default_rng(seed).permutation(len(y))
            X_train, y_train, X_new, y_new = (
                X[order[:rows]],
                y[order[:rows]],
                X[order[rows:]][:500],
                y[order[rows:]][:500],
            )
            half = rows // 2
            ways = {
                "left out": ds.SimplexGaussianProcess()
                .fit(X_train, y_train)
                .conformalize(X_train, y_train, left_out=True),
                "half held out": ds.SimplexGaussianProcess(classes=np.unique(y))
                .fit(X_train[:half], y_train[:half])
                .conformalize(X_train[half:], y_train[half:]),
            }
            for way, classifier in ways.items():
                sets = classifier.predict_set(X_new)
                covered = ds.evaluation.coverage(y_new, sets), ds.evaluation.set_size(y_new, sets)
                found[way].append((*covered, np.mean(classifier.predict(X_new) == y_new)))
        for way, values in found.items():
            coverage, size, accuracy = np.mean(values, axis=0).tolist()
            deviation = float(np.std(values, axis=0)[0])
            table.add(
                data=name, rows=rows, sets=way, coverage=coverage, deviation=deviation, size=size, accuracy=accuracy
            )


def main(
    part: Annotated[Part, typer.Option(help="what to measure")] = Part.SENSITIVITY,
    repetitions: Annotated[int, typer.Option(min=1, help="draws of held-out samples")] = 500,
    shifts: Annotated[int, typer.Option(min=1, help="shifts of every data set, and samples without one")] = 10,
    output: Output = None,
) -> None:
    """Measure, and print the table."""
    table = ResultTable("training.benchmarks.guarantees")
    if part == Part.SENSITIVITY:
        sensitivities(table, repetitions)
    elif part == Part.LEFT_OUT:
        left_out(table, repetitions)
    else:
        frequencies(table, shifts)
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
