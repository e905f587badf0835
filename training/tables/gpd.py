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


def _scores(classifier: Any, name: str, repetition: int, data: DataFolder) -> Scores:
    X, y = data.load(name)
    train, test = split(len(X), TEST[name], repetition)
    scaler = StandardScaler().fit(X[train])
    X = scaler.transform(X)
    begun = time.perf_counter()
    fitted(classifier, X[train], y[train])
    seconds = time.perf_counter() - begun
    report = ds.evaluation.report(y[test], classifier.predict_proba(X[test]))
    train_mnll = ds.evaluation.negative_log_likelihood(y[train], classifier.predict_proba(X[train]))
    return {
        "error": 1.0 - report.accuracy,
        "MNLL": report.negative_log_likelihood,
        "ECE": report.expected_calibration_error,
        "MNLL of training rows": float(train_mnll),
        "seconds": seconds,
    }


def measure(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figures 4 and 5: one split."""
    return _scores(METHODS[method](repetition), name, repetition, data)


def measure_alpha(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """Figure 3: one split with a concentration that is given."""
    target = ds.targets.Dirichlet(float(method.removeprefix("alpha ")))
    classifier = ds.SimplexGaussianProcess(target, "collapsed", random_state=repetition, **SPARSE)
    return _scores(classifier, name, repetition, data)


COMPARED: dict[Cell, dict[str, Printed]] = {(name, method): {} for name in TEST for method in METHODS}
SWEPT: dict[Cell, dict[str, Printed]] = {(name, f"alpha {alpha:g}"): {} for name in TEST for alpha in ALPHAS}

TABLES = {
    "gpd_4": PaperTable(
        "[GPD] Figures 4 and 5: error, MNLL, ECE and seconds of a fit",
        10,
        COMPARED,
        measure,
        notes=(
            "The paper has no numbers in its text: GPD's performance tends to lie between those of GPC and GPR, GPC "
            "and GPD are both well calibrated, and GPD takes a fraction of GPC's time.",
            "That GPD is faster is not reproduced if the choice of alpha is counted, as here: four candidates, by "
            "their MNLL on the training rows. GPD takes longer in every repetition on all four data sets, 135.6 s "
            "against 69.6 s for letter, where GPC is trained for 30 epochs. One fit with a given alpha takes 5 s for "
            "letter and 2 to 3 s for the others (the table of Figure 3), less than GPC; most of the rest for letter "
            "goes to the class probabilities of all training rows, once for each candidate.",
            "Seconds of letter are of two days with other load: 149 to 167 s and 84 to 92 s in the first repetitions, "
            "98 to 109 s and 51 to 52 s in the others.",
        ),
    ),
    "gpd_3": PaperTable(
        "[GPD] Figure 3: MNLL by the concentration alpha",
        10,
        SWEPT,
        measure_alpha,
        notes=("In the paper the least MNLL of training and of test rows lie at the same alpha.",),
    ),
}
