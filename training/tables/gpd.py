"""[GPD] Figures 3 to 5: Gaussian processes on Dirichlet targets beside classification, regression and kernel ridge."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

import deepsimplex as ds
from training.tables.paper_table import Cell, Data, DataFolder, PaperTable, Printed, Scores, fitted, split

TEST = {"eeg": 4000, "htru2": 5000, "magic": 5000, "letter": 5000}
ALPHAS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
SPARSE: dict[str, Any] = {"inducing": 200, "scale_features": False}


def _collapsed(target: ds.targets.Target | str, seed: int, **settings: Any) -> ds.SimplexGaussianProcess:
    """A process on a target, by the collapsed bound."""
    return ds.SimplexGaussianProcess(target, "collapsed", random_state=seed, **(SPARSE | settings))


METHODS: dict[str, Callable[[int], Any]] = {
    "GPD": lambda seed: _collapsed("dirichlet", seed, smoothing="train"),
    "GPC": lambda seed: ds.CategoricalGaussianProcess("softmax", random_state=seed, scale_variances=False, **SPARSE),
    "GPR": lambda seed: ds.estimators.least_squares_gaussian_process(
        inference="collapsed", random_state=seed, **SPARSE
    ),
    "GPR, Platt": lambda seed: ds.estimators.least_squares_gaussian_process(
        platt=True, inference="collapsed", random_state=seed, **SPARSE
    ),
    "NKRR, Platt": lambda seed: ds.estimators.nystroem_kernel_ridge(random_state=seed),
}
TIMED: dict[str, Callable[[int], Any]] = {
    "GPD": lambda seed: _collapsed(ds.targets.Dirichlet(0.01), seed),
    "Collapsed-ILR": lambda seed: _collapsed(ds.targets.ILR(0.99), seed),
    "GPD, alpha chosen": METHODS["GPD"],
    "GPC": METHODS["GPC"],
    "GPR": METHODS["GPR"],
    "NKRR, Platt": METHODS["NKRR, Platt"],
}
COMPARED_WITH_GPC = ("GPD", "Collapsed-ILR", "GPD, alpha chosen")
INDUCING = (200, 400, 600, 800)
BY_INDUCING: dict[str, Callable[[int], Any]] = {
    "GPC, 200 inducing points": METHODS["GPC"],
    **{
        f"GPD, {number} inducing points": partial(_collapsed, ds.targets.Dirichlet(1e-4), inducing=number)
        for number in INDUCING
    },
}
WARM_UP = 500
"""Rows that every method fits once before its fit is timed, since what TensorFlow compiles is kept."""


def _standardized(name: str, repetition: int, data: DataFolder) -> tuple[Data, Data]:
    """Rows to fit and rows to test, standardized by the former."""
    X, y = data.load(name)
    train, test = split(len(X), TEST[name], repetition)
    X = StandardScaler().fit(X[train]).transform(X)
    return (X[train], y[train]), (X[test], y[test])


def _scores(classifier: Any, X: NDArray[np.float64], y: NDArray[np.int64]) -> Scores:
    report = ds.evaluation.report(y, classifier.predict_proba(X))
    return {
        "error": 1.0 - report.accuracy,
        "MNLL": report.negative_log_likelihood,
        "ECE": report.expected_calibration_error,
    }


def _fit_and_score(classifier: Any, name: str, repetition: int, data: DataFolder) -> Scores:
    train, test = _standardized(name, repetition, data)
    fitted(classifier, *train)
    X, y = train
    train_mnll = ds.evaluation.negative_log_likelihood(y, classifier.predict_proba(X))
    return _scores(classifier, *test) | {"MNLL of training rows": float(train_mnll)}


def _timed(make: Callable[[int], Any], repetition: int, X: Any, y: Any, warm_up: int = WARM_UP) -> tuple[Any, float]:
    """A fitted classifier, and the seconds of its fit."""
    fitted(make(repetition), X[:warm_up], y[:warm_up])
    begun = time.perf_counter()
    classifier = fitted(make(repetition), X, y)
    return classifier, time.perf_counter() - begun


def measure(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 4: one split."""
    return _fit_and_score(METHODS[method](repetition), name, repetition, data)


def measure_alpha(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 3: one split with a concentration that is given."""
    target = ds.targets.Dirichlet(float(method.removeprefix("alpha ")))
    return _fit_and_score(_collapsed(target, repetition), name, repetition, data)


def measure_seconds(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 5: seconds of one fit after the other on the same split."""
    train, _ = _standardized(name, repetition, data)
    seconds = {label: _timed(make, repetition, *train)[1] for label, make in TIMED.items()}
    ratios = {f"GPC / {label}": seconds["GPC"] / seconds[label] for label in COMPARED_WITH_GPC}
    return seconds | ratios


def measure_inducing(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 5: scores and seconds of one fit with a given number of inducing points."""
    train, test = _standardized(name, repetition, data)
    make = BY_INDUCING[method]
    classifier, seconds = _timed(make, repetition, *train, warm_up=max(WARM_UP, make(repetition).inducing))
    return _scores(classifier, *test) | {"seconds": seconds}


COMPARED: dict[Cell, dict[str, Printed]] = {(name, method): {} for name in TEST for method in METHODS}
SWEPT: dict[Cell, dict[str, Printed]] = {(name, f"alpha {alpha:g}"): {} for name in TEST for alpha in ALPHAS}

_STANDARDIZED = (
    "Features are standardized. Rows of eeg are in time order, with four gross outliers, and neighbors are alike: a "
    "random split is optimistic. Of the paper's other sets, drive and mocap are at hand in part, and left out."
)

TABLES = {
    "gpd_4": PaperTable(
        "[GPD] Figure 4: error, MNLL and ECE",
        10,
        COMPARED,
        measure,
        notes=(
            _STANDARDIZED,
            "The paper has no numbers in its text: GPD's performance tends to lie between those of GPC and GPR, and "
            "GPC and GPD are both well calibrated. Here GPD's error lies between theirs on eeg and letter; on htru2 "
            "and magic it is GPR's, and GPC's is less by 0.001 and 0.004. GPC has the least MNLL of all on htru2, "
            "magic and letter, NKRR with Platt scaling the least error and MNLL on eeg, and both it and GPR with Platt "
            "scaling a lower MNLL than GPD on htru2 and magic. On eeg and letter GPD is better calibrated than GPC, on "
            "htru2 and magic worse.",
            "GPR's probabilities are those of its latents without the noise of the labels: they are too sure, which "
            "its MNLL shows and Platt scaling mends.",
            "GPD's alpha is the one of 0.1, 0.01, 0.001 and 0.0001 with the least MNLL on the training rows. With "
            "0.03, which is not among them, it is better on htru2 and magic (the table of Figure 3).",
        ),
    ),
    "gpd_5": PaperTable(
        "[GPD] Figure 5: seconds of a fit",
        3,
        {(name, "a fit of each"): {} for name in TEST},
        measure_seconds,
        notes=(
            _STANDARDIZED,
            "One fit after the other in one process, each after a fit of 500 rows, which compiles it; alpha is 0.01, "
            "lambda 0.99, and GPC is trained for 30 epochs. The paper, without numbers in its text: GPD takes a "
            "fraction of GPC's time.",
            '"GPD, alpha chosen", which Figure 4 has, fits four candidates, compares them by their MNLL on the '
            "training rows, and fits once more: with this choice GPD takes longer than GPC.",
        ),
    ),
    "gpd_5_inducing": PaperTable(
        "[GPD] Figure 5: numbers of inducing points",
        3,
        {("letter", method): {} for method in BY_INDUCING},
        measure_inducing,
        notes=(
            "Features are standardized, and alpha is 0.0001. GPD's inducing points stay where k-means++ puts them; GPC "
            "learns its own, and is trained for 30 epochs. Seconds are those of a fit, after one of 500 rows, or of as "
            "many as there are points, which compiles it.",
            "The paper, without numbers in its text, has three sets (letter, miniboo, mocap) and ten splits: with more "
            "points GPD's error falls below that of GPC, at a fraction of its time. Here it does so with 600 points, "
            "in 0.7 of the time; with 400 its MNLL is already less, and with 800 it takes longer than GPC.",
        ),
    ),
    "gpd_3": PaperTable(
        "[GPD] Figure 3: MNLL by the concentration alpha",
        10,
        SWEPT,
        measure_alpha,
        notes=(
            _STANDARDIZED,
            "In the paper the least MNLL of training and of test rows lie at the same alpha, as their means do here.",
        ),
    ),
}
