"""[GPD] Figures 3 to 5: Gaussian processes on Dirichlet targets beside classification, regression and kernel ridge."""

import time
from collections.abc import Callable
from typing import Any

from sklearn.preprocessing import StandardScaler

import deepsimplex as ds
from training.tables.paper_table import Cell, DataFolder, PaperTable, Printed, Scores, fitted, split

TEST = {"eeg": 4000, "htru2": 5000, "magic": 5000, "letter": 5000}
ALPHAS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
SPARSE: dict[str, Any] = {"inducing": 200, "scale_features": False}

METHODS: dict[str, Callable[[int], Any]] = {
    "GPD": lambda seed: ds.SimplexGaussianProcess(
        "dirichlet", "collapsed", smoothing="train", random_state=seed, **SPARSE
    ),
    "GPC": lambda seed: ds.CategoricalGaussianProcess("softmax", random_state=seed, **SPARSE),
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
WARM_UP = 500
"""Rows that every method fits once before its fit is timed, since what TensorFlow compiles is kept."""


def _collapsed(target: ds.targets.Target, seed: int) -> ds.SimplexGaussianProcess:
    """A process on a target whose smoothing is given."""
    return ds.SimplexGaussianProcess(target, "collapsed", random_state=seed, **SPARSE)


def _scores(classifier: Any, name: str, repetition: int, data: DataFolder) -> Scores:
    X, y = data.load(name)
    train, test = split(len(X), TEST[name], repetition)
    scaler = StandardScaler().fit(X[train])
    X = scaler.transform(X)
    fitted(classifier, X[train], y[train])
    report = ds.evaluation.report(y[test], classifier.predict_proba(X[test]))
    train_mnll = ds.evaluation.negative_log_likelihood(y[train], classifier.predict_proba(X[train]))
    return {
        "error": 1.0 - report.accuracy,
        "MNLL": report.negative_log_likelihood,
        "ECE": report.expected_calibration_error,
        "MNLL of training rows": float(train_mnll),
    }


def measure(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 4: one split."""
    return _scores(METHODS[method](repetition), name, repetition, data)


def measure_alpha(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 3: one split with a concentration that is given."""
    target = ds.targets.Dirichlet(float(method.removeprefix("alpha ")))
    return _scores(_collapsed(target, repetition), name, repetition, data)


def measure_seconds(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 5: seconds of one fit after the other on the same split."""
    X, y = data.load(name)
    train, _ = split(len(X), TEST[name], repetition)
    X, y = StandardScaler().fit_transform(X[train]), y[train]
    seconds = {}
    for label, make in TIMED.items():
        fitted(make(repetition), X[:WARM_UP], y[:WARM_UP])
        begun = time.perf_counter()
        fitted(make(repetition), X, y)
        seconds[label] = time.perf_counter() - begun
    ratios = {f"GPC / {label}": seconds["GPC"] / seconds[label] for label in COMPARED_WITH_GPC}
    return seconds | ratios


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
