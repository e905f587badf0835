"""[ILR-GP] Table 3: Gaussian processes on ILR and Dirichlet targets, exact and sparse, and by categorical likelihoods.

ECE is given twice, both beside the one that the paper prints: as ``deepsimplex.evaluation`` has it, and with ten bins
whose centers take the place of their mean confidences (of the likeliest class, or of the second of two), as [GPD]'s
code has it. The paper's figures look like the latter: its DRIVE row has accuracy 0.99, NLL 0.02 and ECE 0.05 without
any deviation, which is half the width of the last bin.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import deepsimplex as ds
from training.tables.logistic_softmax import LogisticSoftmaxGaussianProcess
from training.tables.paper_table import Cell, DataFolder, PaperTable, Printed, Scores, fitted, split

SCORES = ("accuracy", "NLL", "ECE")
CENTERED = "ECE, bin centers"
SEEDS = 5


@dataclass(frozen=True)
class DataSet:
    """Rows to test, inducing points of the sparse methods, and the file, if it has another name."""

    test: int
    inducing: int | None = None
    file: str | None = None


DATA = {
    "wine": DataSet(50),
    "glass": DataSet(50),
    "thyroid": DataSet(50),
    "eeg": DataSet(4000, 200),
    "htru2": DataSet(5000, 200),
    "magic": DataSet(5000, 200),
    "miniboo": DataSet(10_000, 400),
    "letter": DataSet(5000, 200),
    "drive, 2200 of its rows": DataSet(400, 500, "drive_subset"),
    "mocap, 11 022 of its rows": DataSet(1400, 500, "mocap_subset"),
}


def _sparse(data: DataSet, seed: int) -> dict[str, Any]:
    return {"inducing": data.inducing, "scale_features": False, "random_state": seed}


def _latent(target: str) -> Callable[[DataSet, int], Any]:
    """A Gaussian process on a target whose smoothing is validated: exact, or by the collapsed bound."""

    def make(data: DataSet, seed: int) -> Any:
        settings = {"scale_features": False, "random_state": seed} if data.inducing is None else _sparse(data, seed)
        inference = "exact" if data.inducing is None else "collapsed"
        return ds.SimplexGaussianProcess(target, inference, smoothing="validate", **settings)

    return make


def _separate(target: ds.targets.Target, **settings: Any) -> Callable[[DataSet, int], Any]:
    """The collapsed bound by minibatches, with separate inducing points for every latent dimension."""

    def make(data: DataSet, seed: int) -> Any:
        return ds.SimplexGaussianProcess(target, "stochastic", **SEPARATE_SETTINGS, **settings, **_sparse(data, seed))

    return make


def _augmented(data: DataSet, seed: int, bijective: bool) -> LogisticSoftmaxGaussianProcess:
    """The baselines with auxiliary variables; sparse ones search fewer times."""
    rounds = 50 if data.inducing is None else 10
    return LogisticSoftmaxGaussianProcess(bijective, data.inducing, rounds=rounds, random_state=seed)


SEPARATE_SETTINGS: dict[str, Any] = {"separate_inducing": True, "ard": True, "epochs": 40}
SEPARATE = ", separate inducing points"
"""Suffix of methods trained by minibatches, with separate inducing points for every latent dimension."""

LEARNED = ", ARD, learned inducing points"
"""Suffix of methods that are fitted once more, with the chosen smoothing."""

_categorical = functools.partial(ds.CategoricalGaussianProcess, mixing=True, scale_variances=False)

METHODS: dict[str, Callable[[DataSet, int], Any]] = {
    "Exact-ILR": _latent("ilr"),
    "Collapsed-ILR": _latent("ilr"),
    "GPD": _latent("dirichlet"),
    "Uncollapsed-ILR": lambda data, seed: _categorical("ilr", **_sparse(data, seed)),
    "SVGPC": lambda data, seed: _categorical("softmax", **_sparse(data, seed)),
    "LSM": lambda data, seed: _augmented(data, seed, bijective=False),
    "BSM": lambda data, seed: _augmented(data, seed, bijective=True),
    "Collapsed-ILR" + SEPARATE: _separate(ds.targets.ILR(0.999999), noise="learned", readout="softmax"),
    "GPD" + SEPARATE: _separate(ds.targets.Dirichlet(1e-4)),
}
# Scaling of the features, "z" for unit variances and "01" for the unit interval, inferred where the paper's text has
# nothing; accuracy, NLL, ECE.
PAPER = """
wine     Exact-ILR       01 0.98 0.017 0.05 0.024 0.06 0.019
wine     GPD             01 0.98 0.017 0.06 0.024 0.07 0.018
wine     LSM             01 0.98 0.017 0.52 0.023 0.36 0.010
wine     BSM             01 0.97 0.023 0.87 0.011 0.55 0.024
glass    Exact-ILR       z  0.71 0.023 0.74 0.081 0.11 0.014
glass    GPD             01 0.71 0.050 0.81 0.100 0.13 0.023
glass    LSM             01 0.56 0.041 1.24 0.028 0.26 0.049
glass    BSM             01 0.66 0.088 1.53 0.010 0.42 0.087
thyroid  Exact-ILR       01 0.96 0.017 0.13 0.042 0.05 0.019
thyroid  GPD             01 0.96 0.017 0.12 0.042 0.06 0.019
thyroid  LSM             01 0.83 0.046 0.44 0.042 0.14 0.041
thyroid  BSM             01 0.82 0.052 0.83 0.017 0.39 0.047
eeg      Collapsed-ILR   z  0.89 0.034 0.26 0.070 0.03 0.008
eeg      Uncollapsed-ILR z  0.82 0.026 0.39 0.046 0.03 0.005
eeg      GPD             z  0.88 0.034 0.28 0.077 0.03 0.004
eeg      SVGPC           z  0.81 0.027 0.40 0.044 0.04 0.007
eeg      LSM             z  0.65 0.047 0.60 0.027 0.07 0.016
eeg      BSM             z  0.79 0.019 0.52 0.025 0.13 0.009
htru2    Collapsed-ILR   z  0.98 0.002 0.07 0.005 0.04 0.002
htru2    Uncollapsed-ILR 01 0.98 0.002 0.07 0.004 0.04 0.001
htru2    GPD             01 0.98 0.002 0.08 0.006 0.04 0.001
htru2    SVGPC           01 0.98 0.002 0.07 0.004 0.04 0.001
htru2    LSM             01 0.97 0.002 0.09 0.004 0.05 0.002
htru2    BSM             z  0.98 0.003 0.40 0.002 0.31 0.001
magic    Collapsed-ILR   z  0.87 0.002 0.32 0.005 0.02 0.006
magic    Uncollapsed-ILR z  0.86 0.003 0.33 0.003 0.02 0.004
magic    GPD             z  0.87 0.003 0.33 0.004 0.03 0.002
magic    SVGPC           z  0.86 0.004 0.33 0.003 0.03 0.004
magic    LSM             01 0.82 0.002 0.43 0.003 0.10 0.005
magic    BSM             z  0.86 0.004 0.46 0.001 0.17 0.004
miniboo  Collapsed-ILR   z  0.91 0.005 0.22 0.010 0.03 0.003
miniboo  Uncollapsed-ILR z  0.90 0.001 0.23 0.003 0.03 0.002
miniboo  GPD             z  0.91 0.003 0.22 0.004 0.05 0.003
miniboo  SVGPC           z  0.90 0.001 0.23 0.003 0.03 0.001
miniboo  LSM             z  0.89 0.003 0.27 0.003 0.07 0.004
miniboo  BSM             z  0.90 0.002 0.27 0.003 0.08 0.002
letter   Collapsed-ILR   01 0.95 0.002 0.16 0.003 0.04 0.001
letter   Uncollapsed-ILR 01 0.96 0.002 0.13 0.008 0.04 0.003
letter   GPD             01 0.96 0.002 0.12 0.004 0.04 0.001
letter   SVGPC           01 0.96 0.002 0.13 0.008 0.04 0.002
letter   LSM             01 0.76 0.004 1.47 0.009 0.48 0.004
letter   BSM             01 0.67 0.012 1.24 0.007 0.29 0.012
"""
SCALINGS = {
    (name, method): {"z": StandardScaler, "01": MinMaxScaler}[scaling]
    for name, method, scaling, *_ in map(str.split, PAPER.strip().splitlines())
}
SUBSETS = [name for name in DATA if DATA[name].file]


def _cells() -> dict[Cell, dict[str, Printed]]:
    cells: dict[Cell, dict[str, Printed]] = {}
    for line in PAPER.strip().splitlines():
        name, method, _, *figures = line.split()
        numbers = [float(figure) for figure in figures]
        printed = dict(zip(SCORES, map(Printed, numbers[::2], numbers[1::2]), strict=True))
        cells[name, method] = printed | {CENTERED: printed["ECE"]}
    latent = "Collapsed-ILR", "GPD"
    cells |= {("letter", method + SEPARATE): cells["letter", method] for method in latent}
    cells |= {(name, method + LEARNED): cells[name, method] for name in ("eeg", "magic", "letter") for method in latent}
    return cells | {(name, method): {} for name in SUBSETS for method in latent}


def centered_calibration_error(y: NDArray[np.int64], p: NDArray[np.float64], bins: int = 10) -> float:
    """ECE against the centers of the bins: half a bin's width where all is right and sure.

    Confidences are those of the likeliest class, and of two classes those of the second, as [GPD]'s code takes them.
    """
    curve = ds.evaluation.reliability_curve(y, p, bins)
    centers = (curve.edges[1:] + curve.edges[:-1]) / 2.0
    filled = curve.counts > 0
    return float(np.average(np.abs(curve.frequency - centers)[filled], weights=curve.counts[filled]))


def measure(name: str, method: str, repetition: int, data: DataFolder) -> Scores:
    """One split: fit, and score the rows that are set aside."""
    settings = DATA[name]
    X, y = data.load(settings.file or name)
    train, test = split(len(X), settings.test, repetition)
    base = method.removesuffix(LEARNED)
    scaler = SCALINGS.get((name, base), StandardScaler)()
    classifier = METHODS[base](settings, repetition).set_params(classes=np.unique(y))
    pipeline = fitted(make_pipeline(scaler, classifier), X[train], y[train])
    chosen = getattr(classifier, "smoothing_", None)
    if method != base:
        classifier.set_params(target=classifier.target_, smoothing=None, ard=True, learn_inducing=True)
        pipeline = fitted(pipeline, X[train], y[train])
    p = pipeline.predict_proba(X[test])
    report = ds.evaluation.report(y[test], p)
    scores = {
        "accuracy": report.accuracy,
        "NLL": report.negative_log_likelihood,
        "ECE": report.expected_calibration_error,
        CENTERED: centered_calibration_error(y[test], p),
    }
    return scores if chosen is None else scores | {"lambda or alpha": chosen}


TABLES = {
    "ilr_gp_3": PaperTable(
        "[ILR-GP] Table 3: Gaussian processes on tables",
        SEEDS,
        _cells(),
        measure,
        rounding=0.005,
        notes=(
            "Lambda and alpha are chosen by the NLL of a held-out tenth, and all training rows are fitted with them. "
            "Collapsed-ILR and GPD have one lengthscale, and inducing points that stay where k-means++ puts them; the "
            "rows with ARD and learned inducing points, which the paper learns throughout, take the lambda or alpha "
            "that these chose, and fit once more.",
            "Features are standardized where the paper's row says Z-score. Elsewhere they are scaled to [0, 1], which "
            "is inferred: the text lost the range. Exceptions are drive, mocap and the rows with separate inducing "
            "points, which are standardized though the paper's rows do not say so.",
            "The paper prints one ECE, and both columns are compared with it. It looks like one of ten bins whose "
            "centers stand for their mean confidences, as in [GPD]'s code: the column of bin centers, which takes the "
            "probability of the second of two classes, and else that of the likeliest. The other column has 15 bins "
            "with their mean confidences, of the likeliest class throughout.",
            "The rows with separate inducing points have none of their own in the paper, and are compared with those "
            "of Collapsed-ILR and GPD. They are trained by minibatches for 40 epochs, with ARD, learned points, and "
            "the paper's lambda of 0.999999 and alpha of 0.0001; Collapsed-ILR also learns one variance of the noise "
            "and has the softmax readout. Rows with fewer than five repetitions are listed below with their number.",
            "Rows of eeg are in time order, with four gross outliers, and neighbors are alike: a random split, as the "
            "paper's, is optimistic. So it is for the frames of mocap.",
            "drive and mocap are subsets, which compare with no row of the paper.",
            "LSM and BSM, the paper's baselines with auxiliary variables, alternate updates in closed form with "
            "searches for the kernel: at most 50 with all rows, and 10 with inducing points, where the bound still "
            "grows. The paper draws Gibbs samples where it has all rows, and prints a learning rate. Its bijective "
            "softmax is read as that of the logistic softmax's package, which cannot give any class but the last more "
            "than 2/3: where others are easily told, NLL and ECE stay high. BSM's accuracy is behind on glass only.",
            "Exact-ILR's NLL and ECE are behind on glass; its accuracy is within. With other settings, which are not "
            "rows here, its mean NLL over the five splits is 0.895 (the target's noise times a learned number), 0.891 "
            "(a lengthscale for every feature), 0.865 as it is with five other starts of the search, 0.848 (lambda "
            "0.95 throughout), and 0.818 (a Matérn kernel of smoothness 3/2); the last two would be about within, "
            "but not their ECEs, 0.158 each with bin centers.",
            "Uncollapsed-ILR and SVGPC train for 30 epochs at one learning rate, which the paper tunes; the paper's "
            "scale of the noise for each class, an option of its Collapsed-ILR and GPD, is not used. Uncollapsed-ILR "
            "is behind in ECE on eeg, and both in all scores on letter. On one split of letter, and not rows here, 100 "
            "epochs bring SVGPC from 0.937 to 0.940, ARD to 0.950 with an NLL of 0.204, and both to 0.950 with 0.191; "
            "separate inducing points, ARD and 40 epochs bring it to 0.960 with an NLL of 0.170, and Uncollapsed-ILR "
            "to 0.957 with 0.171.",
            "With inducing points that are not learned, Collapsed-ILR and GPD are behind in accuracy and NLL on eeg, "
            "and in NLL and ECE on magic. With ARD and learned points all scores are within, but for both ECEs of "
            "Collapsed-ILR on eeg. On letter 200 shared points are few for 25 or 26 latent dimensions: accuracy and "
            "NLL are behind, nearer with ARD and learned points, and within or better with separate points.",
        ),
    )
}
