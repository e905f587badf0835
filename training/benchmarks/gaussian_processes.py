"""Gaussian-process classifiers: speed and likelihood compared with gpytorch's and GPflow's.

    pip install -e '.[peers]'
    python -m training.benchmarks.gaussian_processes --letter letter.npz [--parts exact,letter,classes,memory]
        [--output FILE.json]

``letter.npz`` holds the letter recognition data of UCI as arrays X [20000, 16] and y. Everything is measured in one
run; speeds are ratios within it.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_blobs

import deepsimplex as ds
from training.benchmarks import gaussian_process_peers as peers
from training.benchmarks.resources import PeakMemory
from training.results import Measurement, Output, ResultTable

TRAIN, LETTER_TRAIN, INDUCING = 1200, 15_000, 200
# The likelihood to be reached on letter, on so many test rows, and when to give up.
GOAL, TEST_ROWS, PATIENCE = 0.30, 2500, 600.0
CLASSES = (5, 20, 100)

Data = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def split(X: NDArray[Any], y: NDArray[Any], train: int) -> Data:
    """The first rows of a random order to train, the others to test."""
    order = np.random.default_rng(0).permutation(len(X))
    return X[order[:train]], y[order[:train]], X[order[train:]], y[order[train:]]


def load_letter(path: Path) -> Data:
    """15 000 rows to train, the others to test."""
    with np.load(path, allow_pickle=False) as archive:
        return split(archive["X"].astype(float), archive["y"], LETTER_TRAIN)


def nll(latent: ds.LatentGaussian, scores: NDArray[Any], y: NDArray[Any]) -> float:
    """NLL of test rows; with several standard deviations per row by Sobol points."""
    sampled: dict[str, Any] = (
        {} if latent.covariance == "isotropic" else {"method": "quasi_monte_carlo", "num_points": 128}
    )
    return ds.evaluation.negative_log_likelihood(y, ds.readout.softmax(latent, scores, **sampled))


def exact(repeats: int) -> Iterator[Measurement]:
    """Time ILR to convergence and gpytorch's Dirichlet GP on digits: fit and latents of the test rows."""
    digits = load_digits()
    X, y, X_test, y_test = split(digits.data / 16.0, digits.target, TRAIN)
    target = ds.targets.ILR(0.999999)
    peers.gpytorch_dirichlet(X[:100], y[:100], X_test[:1])  # imports
    seconds: list[float] = []
    peer_seconds: list[float] = []
    for _ in range(repeats):
        begun = time.perf_counter()
        classifier = ds.SimplexGaussianProcess(target, noise="learned", scale_features=False, readout="softmax")
        latent = classifier.fit(X, y).predict_latent(X_test)
        between = time.perf_counter()
        peer_latent = peers.gpytorch_dirichlet(X, y, X_test)
        seconds.append(between - begun)
        peer_seconds.append(time.perf_counter() - between)
    score = nll(latent, classifier.target_.scores_, y_test)
    ratio = np.median(np.array(peer_seconds) / np.array(seconds))
    yield f"digits, {TRAIN} rows: exact ILR to convergence", f"{np.median(seconds):.1f} s, NLL {score:.3f}"
    result = f"{np.median(peer_seconds):.1f} s, NLL {nll(peer_latent, np.eye(10), y_test):.3f}"
    yield f"the same, gpytorch, Dirichlet, {peers.STEPS} steps", result
    yield "ratio", f"{ratio:.1f} times"


class Finished(Exception):
    """The goal or the time limit has been reached."""


class Race:
    """Seconds until the likelihood of test rows reaches the goal.

    Evaluations of the test rows are not counted, except the last: a process is used to predict.
    """

    def __init__(self, name: str, y: NDArray[Any]) -> None:
        self.name, self._y = name, y
        self._begun, self._away = time.perf_counter(), 0.0
        self.seconds, self.best, self.passed = float("nan"), float("inf"), 0.0

    def look(self, latent: Callable[[], tuple[ds.LatentGaussian, NDArray[Any]]]) -> bool:
        """Evaluate the test rows; return whether the goal or the time limit has been reached."""
        now = time.perf_counter()
        self.passed = now - self._begun - self._away
        outputs = latent()
        predicted = time.perf_counter() - now
        score = nll(*outputs, self._y)
        self.best = min(self.best, score)
        if score <= GOAL:
            self.seconds = self.passed + predicted
        self._away += time.perf_counter() - now
        return score <= GOAL or self.passed > PATIENCE

    def result(self) -> Measurement:
        """Return the goal and the seconds until it was reached."""
        reached = f"{self.seconds:.1f} s" if np.isfinite(self.seconds) else f"not in {self.passed:.0f} s"
        return f"letter, {INDUCING} points: {self.name} to NLL {GOAL:.2f}", f"{reached} (best {self.best:.3f})"


def letter(path: Path) -> Iterator[Measurement]:
    """Seconds to a likelihood: ILR with Gaussian and categorical likelihood, and GPflow's SVGP with a softmax."""
    X, y, X_test, y_test = load_letter(path)
    X_test, y_test = X_test[:TEST_ROWS], y_test[:TEST_ROWS]
    n = int(y.max()) + 1
    target = ds.targets.ILR(0.999999)
    observation = target.fit_transform(None, y, num_classes=n)
    common: dict[str, Any] = {"inducing": INDUCING, "ard": True}

    def stochastic(**settings: Any) -> Any:
        process = ds.gp.StochasticGaussianProcess(noise="learned", **common, **settings)
        return lambda watch: process.fit(X, observation, y, watch)

    def run(name: str, fit: Callable[[Callable[[Any], None]], Any], scores: NDArray[Any] | None) -> Race:
        race = Race(name, y_test)

        def watch(step: Any) -> None:
            def outputs() -> tuple[ds.LatentGaussian, NDArray[Any]]:
                posterior = step.posterior()
                return posterior.predict(X_test), posterior.scores if scores is None else scores

            if step.iteration % 2 == 0 and race.look(outputs):
                raise Finished

        with suppress(Finished):
            fit(watch)
        return race

    categorical = ds.gp.CategoricalProcess("ilr", epochs=40, **common)
    races = []
    for name, fit, scores in (
        ("stochastic ILR", stochastic(epochs=120, learning_rate=0.05), target.scores_),
        ("stochastic ILR, separate points", stochastic(epochs=40, separate_inducing=True), target.scores_),
        ("categorical ILR", lambda watch: categorical.fit(X, np.eye(n)[y], watch), None),
    ):
        races.append(run(name, fit, scores))
        yield races[-1].result()
    peer = Race("GPflow's SVGP, softmax", y_test)
    peers.gpflow_svgp(X, y, INDUCING, lambda _, latent: peer.look(lambda: (latent(X_test), np.eye(n))))
    yield peer.result()
    slow, more = (peer.seconds, "") if np.isfinite(peer.seconds) else (peer.passed, "more than ")
    for race in races:
        result = f"{more}{slow / race.seconds:.1f} times" if np.isfinite(race.seconds) else "lost"
        yield f"ratio of {peer.name} to {race.name}", result


def classes(repeats: int) -> Iterator[Measurement]:
    """Seconds of fit and probabilities of exact ILR by the number of classes, for the same number of rows."""
    times: dict[int, list[float]] = {n: [] for n in CLASSES}
    for _ in range(repeats + 1):
        for n in CLASSES:
            X, y = make_blobs(2 * TRAIN, 16, centers=n, cluster_std=3.0, random_state=0)
            begun = time.perf_counter()
            classifier = ds.SimplexGaussianProcess("ilr", noise="learned").fit(X[:TRAIN], y[:TRAIN])
            classifier.predict_proba(X[TRAIN:])
            times[n].append(time.perf_counter() - begun)
    medians = {n: float(np.median(seconds[1:])) for n, seconds in times.items()}  # the first traces
    for n, median in medians.items():
        yield f"exact ILR, {TRAIN} rows, {n} classes: fit and predict_proba", f"{median:.1f} s"
    yield f"ratio of {CLASSES[-1]} classes to {CLASSES[0]}", f"{medians[CLASSES[-1]] / medians[CLASSES[0]]:.2f} times"


def memory(path: Path) -> Iterator[Measurement]:
    """Memory of collapsed Gaussian processes on letter, each measured in a fresh process."""
    for target in ("ilr", "dirichlet"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            gibibytes = pool.apply(fit_memory, (path, target))
        yield f"letter, collapsed, {target}: memory above imports and data", f"{gibibytes:.2f} GiB"


def fit_memory(path: Path, target: str) -> float:
    """Largest memory of a fit in GiB, above imports and data."""
    from deepsimplex import gp  # noqa: F401 - imported before the fit would

    X, y, *_ = load_letter(path)
    with PeakMemory() as peak:
        ds.SimplexGaussianProcess(target, "collapsed", inducing=INDUCING, max_iter=3).fit(X, y)
    return peak.gibibytes


def main(
    letter_file: Annotated[Path | None, typer.Option("--letter")] = None,
    parts: Annotated[str, typer.Option(help="Some of exact, letter, classes, memory.")] = "exact,classes,memory,letter",
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    output: Output = None,
) -> None:
    """Measure and print."""
    table = ResultTable("training.benchmarks.gaussian_processes")
    runs: dict[str, Callable[[], Iterator[Measurement]]] = {
        "exact": lambda: exact(repeats),
        "classes": lambda: classes(repeats),
    }
    if letter_file is not None:
        path = letter_file
        runs |= {"memory": lambda: memory(path), "letter": lambda: letter(path)}
    for part in parts.split(","):
        if part not in runs:
            raise typer.BadParameter(f"{part!r} is unknown, or needs --letter; known are {', '.join(runs)}")
    for part in parts.split(","):
        table.measure(runs[part]())
    table.write(output)


if __name__ == "__main__":
    typer.run(main)
